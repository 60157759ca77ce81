# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""What the detail of a rollout shows, as JSON that a browser reads, with the text of each token,
which is read from a model folder's tokenizer.json without its library."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.task import TaskError
from assay.thoughts import Parted, answer_after_thoughts, parted
from rollouts.chats import THOUGHTS
from rollouts.control_tokens import token_bytes
from train.view.explain import Explanation

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
    """Pieces and both log-probabilities of the sampled tokens; `null` where they are not known."""
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
