"""KramaBench's family: a typed answer to a question over a data lake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from assay.family import SOURCE, Answer, Cheat, Family
from assay.fingerprints import TableMarks, tables_below
from assay.task import Task
from rewards.krama.episode import printed, score_lake
from rewards.weights import AnswerReward


def _gold(task: Task) -> Answer:
    return printed(task.gold["answer"])


_LAZY: Mapping[str, Any] = {"numeric": 0, "string": "unknown", "list": []}


def _lazy(task: Task) -> Answer:
    """Zero, a word or an empty list, as the answer's type wants."""
    kind = str(task.gold.get("answer_type", "")).partition("_")[0]
    return printed(_LAZY.get(kind, "unknown"))


def _slices(task: Task) -> dict[str, str]:
    """Domain, answer type, easy or hard, input mode and kinds of files."""
    found = {"track": task.track, "answer type": str(task.gold.get("answer_type") or "")}
    found[SOURCE] = str(task.meta.get("domain") or task.meta.get("lake") or task.id)
    for name in ("domain", "difficulty", "mode", "kind"):
        value = task.meta.get(name)
        if isinstance(value, str) and value:
            found[name] = value
    names: list[Any] = task.meta.get("gold_files") or []
    kinds = Counter(str(name).rpartition(".")[2].lower() for name in names)
    if kinds:
        found["file kinds"] = " ".join(sorted(kinds))
    return found


def _content(task: Task) -> Iterable[str | TableMarks]:
    """The question, and the tables it is asked of: what its builder noted of them, and the files of
    its lake that gold is computed from."""
    asked = [str(m.get("content") or "") for m in task.prompt if m.get("role") == "user"]
    tables: list[Any] = task.meta.get("tables") or []
    named: list[Any] = task.meta.get("gold_files") or []
    lakes = [Path(path) for path in task.files.values() if Path(path).is_dir()]
    read = [table for lake in lakes for table in tables_below(lake, map(str, named))]
    return [*asked, *map(str, tables), *read]


ANSWER = Family(
    name="answer",
    score=score_lake,
    gold=_gold,
    weights=AnswerReward,
    cheats={"constant": Cheat(_lazy, admits=0.5)},
    slices=_slices,
    content=_content,
    audit="rewards.krama.audit:ANSWER_AUDIT",
)
