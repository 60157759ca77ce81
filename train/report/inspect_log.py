# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""`assay report RUN --inspect DIR`: an evaluation as logs that inspect opens, one a model.

An `.eval` log is a zip file: `header.json` (what was asked, the results), `summaries.json` (the
list of samples) and `samples/ID_epoch_N.json`. It is written here without inspect; the tests open
it with the version that tests/interop/inspect.txt pins. The log's numbers are those of
results.json, never computed again. Its time is that of results.json, so the same file gives the
same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from assay.files import atomic_write
from assay.journal import read_journal
from assay.task import Task, TaskError
from rollouts.tool_calls import CallFormat, ToolCall, call_format, make_call
from train.evaluation.results import named_rows, shown
from train.view.explain import gold_of
from train.view.rollouts import finite, list_of, number_of
from train.view.sources import Tasks, read_records, task_files

Row = Mapping[str, Any]
VERSION = 2  # of inspect's log format
OUTCOME, REWARD = "outcome", "reward"  # the two scorers
NO_TASK = "the task is not at hand; give its file with --tasks"
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can hold
_ODD = re.compile(r"[^A-Za-z0-9.-]+")
_CALLS = "hermes"  # where an evaluation does not say how calls are spelled
_ROLES = ("system", "user", "assistant", "tool")
_STOPS = {"eos": "stop", "done": "stop", "length": "max_tokens"}  # any other one is "unknown"
_NOTED = (
    *("family", "track", "source", "group", "instance", "slices", "stop", "turns", "tool_calls"),
    *("cost", "failure", "trained_on"),
)
# what answers a call that was spelled in the text (rollouts/conversation.py)
_SPELLED = re.compile(r"<tool_response>\n(.*)\n</tool_response>", re.DOTALL)
_THIN = 1000  # characters of a text in the list of samples


def write_logs(
    run: Path, data: Mapping[str, Any], out: Path, label: str, tasks: Sequence[Path] = ()
) -> list[Path]:
    """Write `out/LABEL_MODEL.eval` for every model of an evaluation; returns the files. `tasks`:
    files of tasks beside those that the run names. Raises `TaskError`."""
    if not data:
        raise TaskError(f"{run}: nothing was evaluated; --inspect wants a folder with results.json")
    known = Tasks(tasks, task_files(run, [*read_records(run), {"meta": data.get("meta") or {}}]))
    kept = read_journal(run / "rows.jsonl")
    talks = {(str(r["task_id"]), int(r["sample"])): r["messages"] for r in kept if "messages" in r}
    cells = {part.name: part.tables for part in shown(data)}  # a model's after a baseline's
    created = datetime.fromtimestamp(int((run / "results.json").stat().st_mtime), UTC)
    written: list[Path] = []
    for name, rows in named_rows(data).items():
        made = Log(run, data, name, rows, cells[name], created.isoformat())
        path = out / f"{_ODD.sub('-', label)}_{_ODD.sub('-', name)}.eval"
        with atomic_write(path) as file:
            _zip(cast("Any", file), made.entries(known, talks if made.alone else {}))
        written.append(path)
    return written


class Log:
    """One model's log."""

    def __init__(
        self,
        run: Path,
        data: Mapping[str, Any],
        name: str,
        rows: Sequence[Row],
        tables: Mapping[str, Any],
        created: str,
    ) -> None:
        self.run, self.data, self.name, self.rows = run, data, name, rows
        self.tables, self.created = tables, created
        self.meta: Mapping[str, Any] = data.get("meta") or {}
        self.settings: Mapping[str, Any] = self.meta.get("settings") or {}
        self.alone = isinstance(data["rows"], list)
        self.model = str((self.alone and self.meta.get("model")) or name)

    def entries(
        self, known: Tasks, talks: Mapping[tuple[str, int], list[Any]]
    ) -> Iterator[tuple[str, Any]]:
        """(name in the zip, JSON) of every part."""
        calls = call_format(str(self.settings.get("calls") or _CALLS))
        summaries: list[dict[str, Any]] = []
        names: set[str] = set()
        for row in self.rows:
            key = (str(row["task_id"]), _sample(row))
            talk = talks.get(key) or []
            task = known.of(key[0], talk, str(row.get("prompt") or ""))
            sample = sample_of(row, talk, task, self.model, calls)
            name = f"samples/{sample['id']}_epoch_{sample['epoch']}.json"
            if name in names:
                raise TaskError(
                    f"{self.run}: results.json: two rows of {self.name!r} are sample {key[1]} of "
                    f"task {key[0]}; an inspect log holds one"
                )
            names.add(name)
            summaries.append(summary_of(sample))
            yield name, sample
        yield "summaries.json", summaries
        yield "header.json", self._header()

    def _header(self) -> dict[str, Any]:
        """What was asked, and the evaluation's own numbers: outcome and reward are two scorers."""
        cell: Mapping[str, Any] = self.tables["overall"]
        valid = sum(row["outcome"] is not None for row in self.rows)
        counts = {"scored_samples": valid, "unscored_samples": len(self.rows) - valid}
        scorers = {
            OUTCOME: (outcome_metrics(cell), {"why": cell.get("why")}),
            REWARD: ({"mean": cell["mean_reward"]}, {"parts": cell.get("parts")}),
        }
        scores = [
            {
                "name": name,
                "scorer": name,
                **counts,
                "metrics": {k: {"name": k, "value": v} for k, v in mine.items() if v is not None},
                "metadata": more,
            }
            for name, (mine, more) in scorers.items()
        ]
        kept = {name: self.data.get(name) or {} for name in ("baselines", "benchmarks")}
        used = [_usage(row) for row in self.rows]
        return {
            "version": VERSION,
            "status": "success",
            "eval": self._spec(),
            "plan": {"name": "assay eval", "steps": [], "config": self._sampling()},
            "results": {
                "total_samples": len(self.rows),
                "completed_samples": valid,
                "scores": scores,
                "metadata": {"tables": self.tables, **kept},
            },
            "stats": {
                "started_at": self.created,
                "completed_at": self.created,
                "model_usage": {self.model: {k: sum(u[k] for u in used) for k in _usage({})}},
            },
        }

    def _spec(self) -> dict[str, Any]:
        """What was evaluated, and how."""
        named = [Path(str(word)).stem for word in self.meta.get("tasks") or ()]
        ids = list(dict.fromkeys(str(row["task_id"]) for row in self.rows))
        task = "+".join(named) or self.run.resolve().name

        def mark(kind: str) -> str:
            text = f"{kind}\0{task}\0{self.model}\0{self.created}"
            return hashlib.sha256(text.encode()).hexdigest()[:22]

        made: dict[str, Any] = {
            **{f"{kind}_id": mark(kind) for kind in ("eval", "run", "task")},
            "created": self.created,
            "task": task,
            "dataset": {"name": task, "samples": len(ids), "sample_ids": ids, "shuffled": False},
            "model": self.model,
            "model_generate_config": self._sampling(),
            "config": {
                "epochs": max((_sample(row) + 1 for row in self.rows), default=1),
                "limit": self.meta.get("limit") or None,
            },
            "packages": {k: str(v) for k, v in (self.meta.get("versions") or {}).items()},
            "metadata": {k: v for k, v in self.meta.items() if k != "versions"},
            "scorers": [{"name": name} for name in (OUTCOME, REWARD)],
        }
        code = self.meta.get("code") or {}
        if code.get("revision"):
            commit = {"commit": str(code["revision"]), "dirty": code.get("dirty")}
            made["revision"] = {"type": "git", "origin": "", **commit}
        return made

    def _sampling(self) -> dict[str, Any]:
        """How answers were drawn, as far as the evaluation says. The seed is the evaluation's, from
        which the seed of each answer is derived."""
        asked = {name: self.settings.get(name) for name in ("temperature", "top_p", "top_k")}
        asked |= {"max_tokens": self.settings.get("max_new_tokens"), "seed": self.meta.get("seed")}
        off = {"top_k": 0, "max_tokens": 0}
        return {k: v for k, v in asked.items() if v is not None and (k, v) not in off.items()}


def _sample(row: Row) -> int:
    return int(number_of(row.get("sample")) or 0)


def _usage(row: Row) -> dict[str, int]:
    read, wrote = (int(number_of(row.get(n)) or 0) for n in ("tokens_in", "tokens_out"))
    return {"input_tokens": read, "output_tokens": wrote, "total_tokens": read + wrote}


def outcome_metrics(cell: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers of a table's cell that are about the outcome, by name."""
    found: dict[str, float | None] = {"mean": cell["mean_outcome"]}
    for name, key in (("", "interval"), ("balanced_", "balanced_interval")):
        if name and "balanced" in cell:
            found["balanced"] = cell["balanced"]
        if ends := cell.get(key):
            found |= {f"{name}low_95": ends[0], f"{name}high_95": ends[1]}
    found |= {f"pass@{k}": value for k, value in (cell.get("pass@k") or {}).items()}
    found |= {k: v for k, v in cell.items() if k.startswith("avg@")}
    found |= {k: cell[k]["value"] for k in ("rs@k", "ocs@k") if k in cell}
    return found | {name: cell.get(name) for name in ("no_answer", "cut")}


def _zip(file: Any, entries: Iterable[tuple[str, Any]]) -> None:
    """The same entries give the same bytes: JSON for strict readers, without NaN and without half
    of a surrogate pair, which UTF-8 cannot hold."""
    with zipfile.ZipFile(file, "w") as made:
        for name, value in entries:
            info = zipfile.ZipInfo(name, _ZIP_TIME)
            info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, 3
            text = json.dumps(finite(value), ensure_ascii=False, default=str)
            made.writestr(info, text.encode("utf-8", "replace"), compresslevel=6)


# --- one answer ----------------------------------------------------------------------------------


def sample_of(
    row: Row, messages: Sequence[Any], task: Task | None, model: str, calls: CallFormat
) -> dict[str, Any]:
    """Input, target, messages and scores of an answer. `messages`: the conversation, empty where
    the answer alone was kept. `calls`: how the model spells a tool call in its text."""
    prompt, talk = _conversation(row, messages, task)
    said = {"role": "assistant", "content": _text(row.get("output")), "model": model}
    seconds, used = number_of(row.get("seconds")), _usage(row)
    target, why = _target(row, task)
    stop = _STOPS.get(str(row.get("stop")), "unknown")
    noted = {name: row[name] for name in _NOTED if row.get(name) not in (None, "", {}, [])}
    sample: dict[str, Any] = {
        "id": str(row["task_id"]),
        "epoch": _sample(row) + 1,
        "input": list(_messages(prompt, calls)) if prompt else "",
        "target": target,
        "messages": list(_messages(talk or [*prompt, said], calls)),
        "output": {
            "model": model,
            "choices": [{"message": said, "stop_reason": stop}],
            "completion": said["content"],
            "usage": used,
            "time": seconds,
        },
        "scores": _scores(row),
        "metadata": noted | ({"gold": why} if why else {}),
        "model_usage": {model: used},
        "total_time": seconds,
    }
    if row["outcome"] is None:
        why = f"no outcome: {row.get('failure') or row['why']}"
        sample["error"] = {"message": why, "traceback": why, "traceback_ansi": why}
    return sample


def summary_of(sample: Mapping[str, Any]) -> dict[str, Any]:
    """What the list of samples shows of one: its texts are cut."""
    scores = {
        name: {**score, "answer": score["answer"][:_THIN], "metadata": {}}
        for name, score in sample["scores"].items()
    }
    asked = [
        {"role": message["role"], "content": message["content"][:_THIN]}
        for message in sample["input"][-1:]
    ]
    return {
        **{name: sample[name] for name in ("id", "epoch", "model_usage", "total_time")},
        "input": asked or "",
        "target": sample["target"][:_THIN],
        "metadata": {n: v for n, v in sample["metadata"].items() if len(json.dumps(v)) <= _THIN},
        "scores": scores,
        "error": sample["error"]["message"] if "error" in sample else None,
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def _scores(row: Row) -> dict[str, Any]:
    """Outcome and reward by themselves; neither, where there is no outcome."""
    if row["outcome"] is None:
        return {}
    common = {"answer": _text(row.get("output")), "explanation": str(row["why"])}
    noted = {name: row[name] for name in ("label", "said", "more") if row.get(name)}
    return {
        OUTCOME: {"value": row["outcome"], **common, "metadata": noted},
        REWARD: {"value": row["reward"], **common, "metadata": {"parts": row.get("parts") or {}}},
    }


def _target(row: Row, task: Task | None) -> tuple[str, str]:
    """(gold in words, why there are none)."""
    if task is None:
        gold = row.get("gold_text")
        return (gold, "") if isinstance(gold, str) else ("", NO_TASK)
    found = gold_of(task)
    files = "\n".join(f"{name}:\n{text}" for name, text in (found.get("files") or {}).items())
    return found.get("text") or files, str(found.get("why") or "")


def _conversation(
    row: Row, messages: Sequence[Any], task: Task | None
) -> tuple[list[Any], list[Any]]:
    """(what the model was asked, the whole conversation where it was kept)."""
    talk = [m for m in messages if isinstance(m, dict)]
    if talk:
        first = next((i for i, m in enumerate(talk) if m.get("role") == "assistant"), len(talk))
        return talk[:first], talk
    if task is not None:
        return list(task.prompt), []
    asked = row.get("prompt")
    return ([{"role": "user", "content": asked}] if isinstance(asked, str) else []), []


def _messages(talk: Sequence[Mapping[str, Any]], calls: CallFormat) -> Iterator[dict[str, Any]]:
    """Messages with their tool calls; a tool's answer names the call that it answers."""
    waiting: list[str] = []
    for number, message in enumerate(talk):
        role, text = str(message.get("role")), _text(message.get("content"))
        spelled = _SPELLED.fullmatch(text) if role == "user" and waiting else None
        if spelled:
            role, text = "tool", spelled[1]
        made: dict[str, Any] = {"role": role if role in _ROLES else "user", "content": text}
        if role == "assistant":
            found = _calls(message, text, number, calls)
            waiting = [call["id"] for call in found]
            made |= {"tool_calls": found} if found else {}
            made |= {"model": message["model"]} if message.get("model") else {}
        elif role == "tool":
            made["tool_call_id"] = str(message.get("tool_call_id") or next(iter(waiting), ""))
            waiting = [i for i in waiting if i != made["tool_call_id"]]
            if message.get("name"):
                made["function"] = str(message["name"])
        yield made


def _calls(
    message: Mapping[str, Any], text: str, number: int, calls: CallFormat
) -> list[dict[str, Any]]:
    """The calls of a message: an endpoint's own, else those that are spelled in the text."""
    native = [_native(c) for c in list_of(message.get("tool_calls")) if isinstance(c, dict)]
    return [
        {
            "id": call.id or f"call-{number}-{place}",
            "function": call.name or "unknown",
            "arguments": call.arguments,
            "type": "function",
            **({"parse_error": call.error} if call.error else {}),
        }
        for place, call in enumerate(native or calls.read(text))
    ]


def _native(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function")
    named: Mapping[str, Any] = function if isinstance(function, dict) else {}
    return make_call(named.get("name"), named.get("arguments"), str(call.get("id") or ""))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
