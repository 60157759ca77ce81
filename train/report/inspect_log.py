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
from assay.task import TaskError
from rollouts.tool_calls import call_format
from train.evaluation.results import named_rows, shown
from train.report.log_samples import OUTCOME, REWARD, SCORERS, sample_of, summary_of
from train.view.bodies import number_of
from train.view.gold import Tasks, read_records, task_files

Row = Mapping[str, Any]
VERSION = 2  # of inspect's log format
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can hold
_ODD = re.compile(r"[^A-Za-z0-9.-]+")
_CALLS = "hermes"  # where an evaluation does not say how calls are spelled
_RATES = ("no_answer", "cut")


def write_logs(
    run: Path, data: Mapping[str, Any], out: Path, label: str, tasks: Sequence[Path] = ()
) -> list[Path]:
    """Write `out/LABEL_MODEL.eval` for every model of an evaluation; returns the files. `tasks`:
    files of tasks beside those that the run names. Raises `TaskError`."""
    if not data:
        raise TaskError(f"{run}: nothing was evaluated; --inspect wants a folder with results.json")
    known = Tasks(tasks, task_files(run, [*read_records(run), {"meta": data.get("meta") or {}}]))
    talks = _conversations(run)
    cells = {part.name: part.tables for part in shown(data)}  # a model's after a baseline's
    created = datetime.fromtimestamp(int((run / "results.json").stat().st_mtime), UTC)
    written: list[Path] = []
    for name, rows in named_rows(data).items():
        made = Log(run, data, name, rows, cells[name], created.isoformat())
        path = out / f"{_plain(label)}_{_plain(name)}.eval"
        with atomic_write(path) as file:
            _zip(cast("Any", file), made.entries(known, talks))
        written.append(path)
    return written


def _plain(name: str) -> str:
    return _ODD.sub("-", name)


def _conversations(run: Path) -> dict[tuple[str, int], list[Any]]:
    """The messages that `rows.jsonl` keeps, by task and sample."""
    path = run / "rows.jsonl"
    rows = read_journal(path) if path.is_file() else []
    return {(str(r["task_id"]), int(r["sample"])): r["messages"] for r in rows if r.get("messages")}


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
        alone = isinstance(data["rows"], list)
        self.model = str((alone and self.meta.get("model")) or name)

    def entries(
        self, known: Tasks, talks: Mapping[tuple[str, int], list[Any]]
    ) -> Iterator[tuple[str, Any]]:
        """(name in the zip, JSON) of every part."""
        calls = call_format(str(self.settings.get("calls") or _CALLS))
        summaries: list[dict[str, Any]] = []
        names: set[str] = set()
        for row in self.rows:
            key = (str(row["task_id"]), int(number_of(row.get("sample")) or 0))
            talk = talks.get(key, []) if isinstance(self.data["rows"], list) else []
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
        yield "header.json", self.header()

    def header(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "status": "success",
            "eval": self.spec(),
            "plan": {"name": "assay eval", "steps": [], "config": self._sampling()},
            "results": self.results(),
            "stats": {
                "started_at": self.created,
                "completed_at": self.created,
                "model_usage": {self.model: self._usage()},
            },
        }

    def spec(self) -> dict[str, Any]:
        """What was evaluated, and how."""
        named = [Path(str(word)).stem for word in self.meta.get("tasks") or ()]
        ids = list(dict.fromkeys(str(row["task_id"]) for row in self.rows))
        task = "+".join(named) or self.run.resolve().name
        marks = [
            hashlib.sha256(f"{kind}\0{task}\0{self.model}\0{self.created}".encode()).hexdigest()[
                :22
            ]
            for kind in ("eval", "run", "task")
        ]
        made: dict[str, Any] = {
            **dict(zip(("eval_id", "run_id", "task_id"), marks, strict=True)),
            "created": self.created,
            "task": task,
            "dataset": {"name": task, "samples": len(ids), "sample_ids": ids, "shuffled": False},
            "model": self.model,
            "model_generate_config": self._sampling(),
            "config": {"epochs": self._epochs(), "limit": self.meta.get("limit") or None},
            "packages": {k: str(v) for k, v in (self.meta.get("versions") or {}).items()},
            "metadata": {k: v for k, v in self.meta.items() if k != "versions"},
            "scorers": [{"name": name} for name in SCORERS],
        }
        code = self.meta.get("code") or {}
        if code.get("revision"):
            made["revision"] = {
                "type": "git",
                "origin": "",
                "commit": str(code["revision"]),
                "dirty": code.get("dirty"),
            }
        return made

    def results(self) -> dict[str, Any]:
        """The evaluation's own numbers: outcome and reward are two scorers."""
        cell: Mapping[str, Any] = self.tables["overall"]
        valid = sum(row["outcome"] is not None for row in self.rows)
        counts = {"scored_samples": valid, "unscored_samples": len(self.rows) - valid}
        values = {OUTCOME: outcome_metrics(cell), REWARD: {"mean": cell["mean_reward"]}}
        more = {OUTCOME: {"why": cell.get("why")}, REWARD: {"parts": cell.get("parts")}}
        scores = [
            {
                "name": name,
                "scorer": name,
                **counts,
                "metrics": {k: {"name": k, "value": v} for k, v in mine.items() if v is not None},
                "metadata": more[name],
            }
            for name, mine in values.items()
        ]
        kept = {name: self.data.get(name) or {} for name in ("baselines", "benchmarks")}
        return {
            "total_samples": len(self.rows),
            "completed_samples": valid,
            "scores": scores,
            "metadata": {"tables": self.tables, **kept},
        }

    def _epochs(self) -> int:
        return max((int(number_of(row.get("sample")) or 0) + 1 for row in self.rows), default=1)

    def _sampling(self) -> dict[str, Any]:
        """How answers were drawn, as far as the evaluation says. The seed is the evaluation's, from
        which the seed of each answer is derived."""
        asked = {name: self.settings.get(name) for name in ("temperature", "top_p", "top_k")}
        asked |= {"max_tokens": self.settings.get("max_new_tokens"), "seed": self.meta.get("seed")}
        off = {"top_k": 0, "max_tokens": 0}
        return {k: v for k, v in asked.items() if v is not None and (k, v) not in off.items()}

    def _usage(self) -> dict[str, int]:
        read, wrote = (
            sum(int(number_of(row.get(name)) or 0) for row in self.rows)
            for name in ("tokens_in", "tokens_out")
        )
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
    return found | {name: cell.get(name) for name in _RATES}


def _zip(file: Any, entries: Iterable[tuple[str, Any]]) -> None:
    """The same entries give the same bytes."""
    with zipfile.ZipFile(file, "w") as made:
        for name, value in entries:
            info = zipfile.ZipInfo(name, _ZIP_TIME)
            info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, 3
            made.writestr(info, _json(value), compresslevel=6)


def _json(value: Any) -> bytes:
    """JSON for strict readers: no NaN, and no half of a surrogate pair, which UTF-8 cannot hold."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, Mapping):
        return {str(name): _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value
