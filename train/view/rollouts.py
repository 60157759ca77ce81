# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""One row of any of the files as the page needs it: what the index holds, a body as JSON that a
browser reads, and the text of each token, which is read from a model folder's tokenizer.json
without its library."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.family import family_named, slices_of
from assay.task import Task, TaskError
from assay.thoughts import Parted, answer_after_thoughts, parted
from rollouts.chat_template import token_bytes
from rollouts.chats import THOUGHTS
from train.view.explain import Explanation, explained, gold_of
from train.view.sources import Line, Source, Tasks, crc

FILE = "tokenizer.json"


class Pieces:
    """Token id → its bytes; `of` gives the text of a sequence, token by token."""

    def __init__(self, path: Path) -> None:
        """Raises `TaskError` for a file that is no tokenizer."""
        try:
            data: Any = json.loads(path.read_text(encoding="utf-8"))
            vocab: Any = data["model"]["vocab"]
            if isinstance(vocab, list):  # Unigram: (token, score)
                vocab = {pair[0]: i for i, pair in enumerate(vocab)}
            by_bytes = "ByteLevel" in json.dumps([data.get("decoder"), data.get("pre_tokenizer")])
            self._bytes = {int(i): token_bytes(str(token), by_bytes) for token, i in vocab.items()}
            for added in data.get("added_tokens") or ():
                self._bytes[int(added["id"])] = str(added["content"]).encode()
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            said = f"{type(error).__name__}: {error}"[:120]
            raise TaskError(
                f"{path}: no tokenizer that can be read ({said}); give a model folder with --model"
            ) from None

    def of(self, ids: Sequence[int]) -> list[str]:
        """One text a token. A character of several tokens stands at the last of them."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        out: list[str] = []
        for i in ids:
            known = self._bytes.get(i)
            out.append(decoder.decode(known) if known is not None else f"⟨{i}⟩")
        return out


def find_tokenizer(place: Path, records: Iterable[Mapping[str, Any]]) -> Path | None:
    """The tokenizer of a run's own model, else of the model that its records name."""
    folder = place if place.is_dir() else place.parent
    near = [folder / name for name in ("model", "rl", "sft", ".")]
    for record in records:
        for held in (record.get("config"), record.get("settings"), record):
            model = held.get("model") if isinstance(held, Mapping) else None
            path = model.get("path") if isinstance(model, Mapping) else model
            near += [Path(path)] if isinstance(path, str) and path else []
    return next((f / FILE for f in near if (f / FILE).is_file()), None)


def number_of(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def list_of(value: Any) -> list[Any]:
    """A list, or an empty one for anything else."""
    return value if isinstance(value, list) else []


_KEPT = (
    *("failure", "errors", "notes", "files", "file_texts", "turns", "tool_s", "usage", "cost"),
    *("seed", "said"),
)


def body_of(
    row: Mapping[str, Any],
    messages: Sequence[Any],
    prompt: Sequence[Any],
    text: str,
    found: Explanation | None,
    where: str,
    gold: str | Callable[[], str] = "",
) -> str:
    """Everything but the tokens; a conversation without the messages of its prompt. A mark of a
    thought that `gold` holds is text."""
    body: dict[str, Any] = {"where": where, "text": text}
    if messages:
        begun = list(messages[: len(prompt)]) == list(prompt)
        rest = list(messages[len(prompt) :] if begun else messages)
        if rest != [{"role": "assistant", "content": text}]:
            body["messages"] = [_apart(message, gold) for message in rest]
    if "messages" not in body:
        alone = {"role": "assistant", "content": text}
        said = _apart(alone, gold, str(row.get("thought") or ""))
        if "thought" in said:
            body["messages"] = [said]
    if found is None and (answer := answer_after_thoughts(text, gold)) != text:
        body["answer"] = answer
    if calls := list_of(row.get("tool_calls")):
        body["calls"] = calls
    if tools := [tool for tool in list_of(row.get("tools")) if isinstance(tool, dict)]:
        named = [tool.get("function") or tool for tool in tools]
        body["tools"] = [str(tool.get("name")) for tool in named if isinstance(tool, dict)]
    held = row.get("more")
    more = held if isinstance(held, dict) else {}
    noted = {name: row.get(name, more.get(name)) for name in _KEPT}
    rest = {name: value for name, value in more.items() if name not in _KEPT}
    body |= {name: value for name, value in noted.items() if value not in (None, {}, [])}
    if rest := {name: value for name, value in rest.items() if value not in (None, {}, [])}:
        body["more"] = rest
    if found is not None:
        finding = found.finding
        body["finding"] = {
            "text": finding.text if finding.text != text else None,
            "label": finding.label,
            "segments": [n for segment in finding.segments for n in segment],
            "wrong": list(finding.wrong),
            "said": finding.said,
            "spaces": finding.spaces_only,
        }
    return dumps(body)


def _apart(message: Any, gold: str | Callable[[], str], thought: str = "") -> Any:
    """A message with what the model thought before it apart from what it said."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return message
    content = message.get("content")
    read = parted(content, gold) if isinstance(content, str) else Parted("", "")
    told = [message[name] for name in THOUGHTS if isinstance(message.get(name), str)]
    thoughts = list(filter(None, [*told[:1], read.thought])) or [thought]
    if not any(thoughts):
        return message
    shown = {"content": read.answer} if read.thought else {}
    return {**message, **shown, "thought": "\n\n".join(thoughts)}


def tokens_of(row: Mapping[str, Any], pieces: Pieces | None) -> str:
    """The sampled tokens as JSON for the page: texts (`p`), log-probabilities under the full
    distribution (`l`) and under the one sampled from (`s`). `null` where a row has none."""
    ids, mask = list_of(row.get("ids")), list_of(row.get("loss_mask"))
    full, sampling = list_of(row.get("logprobs")), list_of(row.get("sampling_logprobs"))
    if not ids or not len(ids) == len(mask) == len(full):
        return "null"
    places = [i for i, m in enumerate(mask) if m]
    mine = [int(ids[i]) for i in places]
    texts = pieces.of(mine) if pieces else [f"⟨{i}⟩" for i in mine]
    logps = [_round(full[i]) for i in places]
    found: dict[str, Any] = {"p": texts, "l": logps}
    if len(sampling) == len(ids):
        other = [_round(sampling[i]) for i in places]
        found["s"] = None if other == logps else other
    breaks = [n for n in range(1, len(places)) if places[n] != places[n - 1] + 1]
    if breaks:
        found["b"] = breaks
    if pieces is None:
        found["unknown"] = True
    return dumps(found)


def _round(value: Any) -> float | None:
    if type(value) is float and -1e9 < value < 1e9:  # nearly all of millions
        return round(value, 4)
    number = number_of(value)
    return None if number is None else round(number, 4)


def dumps(value: Any) -> str:
    """JSON that a browser reads: it knows no NaN and no infinity, which then become texts."""
    try:
        return _json(value)
    except ValueError:
        return _json(finite(value))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=str, allow_nan=False)


def finite(value: Any) -> Any:
    """JSON without NaN and infinity, which become texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return value


@dataclass(frozen=True)
class Asked:
    """A task as the rollouts show it. `body` is what its detail shows, as JSON."""

    task_id: str
    prompt: int
    """A checksum: tasks of one id and another prompt are other tasks."""
    family: str
    track: str
    group: str
    slices: Mapping[str, str]
    known: bool
    body: str


@dataclass(frozen=True)
class Rollout:
    """One rollout. `body` and `tokens` are JSON texts, which chunks are made of."""

    task: tuple[str, int]
    set_name: str
    step: int | None
    sample: int
    outcome: float | None
    reward: float | None
    parts: Mapping[str, float]
    why: str
    stop: str
    length: int | None
    seconds: float | None
    calls: int
    wrong: str
    label: str
    said: str
    answer: int
    body: str
    tokens: str


class Reader:
    """Turns rows into rollouts; `asked` collects the tasks they answer."""

    def __init__(self, tasks: Tasks, pieces: Pieces | None) -> None:
        self._tasks, self._pieces = tasks, pieces
        self.asked: dict[tuple[str, int], Asked] = {}

    def read(self, line: Line, source: Source) -> Rollout:
        """Raises `TaskError` naming file and line for a row that is no rollout."""
        row = line.row
        task_id, text = _needed(line)
        messages = [m for m in list_of(row.get("messages")) if isinstance(m, dict)]
        inline = row.get("prompt")
        task = self._tasks.of(task_id, messages, inline if isinstance(inline, str) else "")
        prompt = _prompt(task, messages, inline)
        key = (task_id, crc(json.dumps(prompt, sort_keys=True)))
        found = explained(task, row, text)

        def gold() -> str:
            return gold_of(task).get("text", "") if task is not None else ""

        known = self.asked.get(key)
        if known is None or (found is not None and not known.known):
            self.asked[key] = _asked(task_id, key[1], row, task, prompt, found)
        calls, length = row.get("tool_calls"), number_of(row.get("tokens", row.get("tokens_out")))
        wrong = found.finding.wrong if found else ()
        return Rollout(
            task=key,
            set_name=source.set_name,
            step=source.step,
            sample=int(number_of(row.get("sample")) or 0),
            outcome=number_of(row.get("outcome")),
            reward=number_of(row.get("reward")),
            parts=_parts(row.get("parts")),
            why=str(row.get("why") or ""),
            stop=str(row.get("stop") or ""),
            length=None if length is None else int(length),
            seconds=number_of(row.get("wall_s", row.get("seconds"))),
            calls=calls if type(calls) is int else len(list_of(calls)),
            # the first step that went wrong
            wrong=found.work.steps[wrong[0]].name if found and wrong else "",
            label=str(row.get("label") or ""),
            # the class the answer names, where gold has one
            said=str(row.get("said") or "none") if row.get("label") else "",
            answer=crc(text),
            body=body_of(row, messages, prompt, text, found, line.shown, gold),
            tokens=tokens_of(row, self._pieces),
        )


def _needed(line: Line) -> tuple[str, str]:
    row = line.row
    task_id, text = row.get("task_id"), row.get("text", row.get("output"))
    needed = {"task_id": isinstance(task_id, str | int), "text or output": isinstance(text, str)}
    lacks = [name for name, there in {**needed, "outcome": "outcome" in row}.items() if not there]
    if lacks:
        raise TaskError(
            f"{line.where}: no rollout, for it lacks {', '.join(lacks)}; give a run directory, "
            "`assay rollout` output or an evaluation"
        )
    return str(task_id), str(text)


def _parts(value: Any) -> dict[str, float]:
    held = value if isinstance(value, dict) else {}
    found = {str(name): number_of(part) for name, part in held.items()}
    return {name: part for name, part in found.items() if part is not None}


def _prompt(task: Task | None, messages: Sequence[Any], inline: Any) -> list[Any]:
    """The messages that came before the model's first."""
    if task is not None and not task.tools:
        return list(task.prompt)
    if messages:
        first = next((i for i, m in enumerate(messages) if m.get("role") == "assistant"), None)
        return list(messages[:first])
    if task is not None:
        return list(task.prompt)
    if isinstance(inline, str):
        return [{"role": "user", "content": inline}]
    return list_of(inline)


def _asked(
    task_id: str,
    prompt_crc: int,
    row: Mapping[str, Any],
    task: Task | None,
    prompt: Sequence[Any],
    found: Explanation | None,
) -> Asked:
    body: dict[str, Any] = {"id": task_id, "prompt": prompt}
    if task is not None:
        body["gold"] = gold_of(task)
        body["meta"] = task.meta
    if found is not None:
        work = found.work
        body["work"] = {
            "input": work.input,
            "gold": work.gold,
            "label": work.label,
            "unknown": work.unknown,
            "steps": [
                {"name": s.name, "kind": s.kind, "detail": s.detail, "changes": s.changes}
                | ({"after": s.after} if s.changes and s.kind != "filter" else {})
                for s in work.steps
            ],
        }
    return Asked(
        task_id,
        prompt_crc,
        str(row.get("family") or (task.family if task else "")),
        str(row.get("track") or (task.track if task else "")),
        str(row.get("group") or (task.group if task else None) or ""),
        _slices(row, task),
        found is not None or task is not None,
        dumps(body),
    )


def _slices(row: Mapping[str, Any], task: Task | None) -> dict[str, str]:
    held = row.get("slices")
    if isinstance(held, dict):
        return {str(k): str(v) for k, v in held.items()}
    if task is None:
        return {}
    try:
        return {str(k): str(v) for k, v in slices_of(family_named(task.family), task).items()}
    except Exception:  # a family of somebody's own
        return {}
