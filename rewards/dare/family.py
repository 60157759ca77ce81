# pandas ships no types for what is used here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
"""DARE-bench's family: a prediction file for a table, scored against the truth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

from assay.console import licences_of
from assay.family import SOURCE, Audit, Cheat, Family, Floor
from assay.fingerprints import TableMarks, tables_of
from assay.task import Answer, Task, TaskError, derive_seed
from rewards.dare.read import read_truth
from rewards.dare.score import FILE, read_gold, score_file, score_table, score_trusted
from rewards.weights import TableReward


def _gold(task: Task) -> Answer:
    return Answer(files={FILE: read_gold(task.gold).truth_csv.encode()})


def _frame(task: Task) -> tuple[Any, list[str], list[str]]:
    gold = read_gold(task.gold)
    return read_truth(gold.truth_csv), list(gold.key_columns), list(gold.targets)


def _file(frame: Any) -> Answer:
    return Answer(files={FILE: frame.to_csv(index=False).encode()})


def _constant(task: Task) -> Answer:
    """Every target's commonest label or its mean, over the truth itself: no constant does better
    by guessing."""
    frame, keys, targets = _frame(task)
    made = frame[keys].copy()
    for name in targets:
        column = frame[name].dropna()
        numbers = column.dtype.kind == "f"
        made[name] = column.mean() if numbers else column.mode().iloc[0]
    return _file(made)


def every_target(task: Task, text: str) -> Answer:
    """Every key of the test file, which a solver is handed, with the text as every target."""
    frame, keys, targets = _frame(task)
    return _file(frame[keys].assign(**dict.fromkeys(targets, text)))


def _keys_only(task: Task) -> Answer:
    frame, keys, _ = _frame(task)
    return _file(frame[keys])


def _slices(task: Task) -> dict[str, str]:
    """Task type, whether the table is a published one, its domain and licence (the paper's Table 11
    scores a subset by licence), and how many targets are asked for."""
    meta = task.meta
    source = meta.get("table") or meta.get("database") or meta.get("source") or task.id
    found = {"track": task.track, "origin": "published" if meta.get("published") else "built"}
    found[SOURCE] = str(source)
    if isinstance(task.meta.get("domain"), str):
        found["domain"] = task.meta["domain"]
    targets: Any = task.gold.get("targets")
    if isinstance(targets, list | tuple):
        found["targets"] = str(len(cast("list[Any]", targets)))
    return found | {"licence": ", ".join(licences_of(task))}


def _content(task: Task) -> Iterable[str | TableMarks]:
    """The tables that the model is handed; where they cannot be read, the truth itself."""
    found = tables_of(Path(path) for path in task.files.values())
    if found:
        return found
    return [str(task.gold.get("truth_csv") or task.gold.get("task_dir") or "")]


# ---- what the audit is told
# What `assay audit` is told of prediction files: respellings of the truth and the published
# harness' word on them, twins with other labels and numbers, floors.
#
# A twin keeps its keys and the names of its columns, or remembered predictions would fail by their
# header. It is for scoring alone: it has no files.


def spellings(task: Task) -> Mapping[str, Answer]:
    """The truth in other orders, number forms, quotes and line ends."""
    gold = read_gold(task.gold)
    truth = read_truth(gold.truth_csv)
    whole = _csv(truth)
    files = {
        "as it is": whole,
        "rows in other order": _csv(truth.iloc[::-1]),
        "columns in other order": _csv(truth[list(truth.columns)[::-1]]),
        "one more column": _csv(truth.assign(note="x")),
        "an index column": truth.to_csv(),
        "CRLF": whole.replace("\n", "\r\n"),
        "no last newline": whole.rstrip("\n"),
        "empty lines at the end": whole + "\n\n",
        "everything quoted": _csv(truth, quoting=1),
        "byte order mark": "\ufeff" + whole,
        "numbers by 17 digits": _csv(truth, float_format="%.17g"),
        "numbers by exponent": _csv(_floats(truth, gold.targets), float_format="%.17e"),
        "whole numbers as 1.0": _csv(_floats(truth, gold.targets)),
        "keys as 1.0": _csv(_floats(truth, gold.key_columns)),
        "plus signs": _csv(_signed(truth, gold.targets)),
        "spaces after commas": whole.replace(",", ", "),
        "tabs for commas": whole.replace(",", "\t"),
        "semicolons for commas": whole.replace(",", ";"),
        "names in upper case": _csv(truth.rename(columns=str.upper)),
        "code fence": f"```csv\n{whole}```\n",
    }
    return {n: Answer(files={FILE: t.encode("utf-8", "surrogatepass")}) for n, t in files.items()}


def _csv(frame: Any, **how: Any) -> str:
    return frame.to_csv(index=False, **how)


def _floats(frame: Any, names: tuple[str, ...]) -> Any:
    whole = [n for n in names if frame[n].dtype.kind in "iu"]
    return frame.astype(dict.fromkeys(whole, float))


def _signed(frame: Any, names: tuple[str, ...]) -> Any:
    made = frame.astype(object).copy()
    for name in names:
        if frame[name].dtype.kind in "iuf":
            made[name] = [f"{v:+.17g}" if v == v else "" for v in frame[name]]
    return made


def table_twin(task: Task, seed: int) -> Task | None:
    """The task with its labels exchanged in a circle and its numbers scaled and mirrored.

    None where the truth stands in a folder of its own, cannot be read, or holds one label only.
    """
    if "truth_csv" not in task.gold:
        return None
    try:
        gold = read_gold(task.gold)
    except TaskError:
        return None
    rng = Random(derive_seed(seed, "twin", task.id))
    truth = read_truth(gold.truth_csv).copy()
    for name in gold.targets:
        changed = _changed(truth[name], gold.task_type, rng)
        if changed is None:
            return None
        truth[name] = changed
    return replace(
        task,
        id=f"{task.id}-twin",
        gold={**task.gold, "truth_csv": truth.to_csv(index=False)},
        files={},
        meta={**task.meta, "plain": task.id},
    )


def _changed(column: Any, task_type: str, rng: Random) -> Any:
    """Labels each by the next one; numbers a - b·x, so that their order is turned around."""
    if task_type.startswith("class") or column.dtype.kind not in "iuf":
        labels = sorted(column.dropna().unique().tolist(), key=str)
        if len(labels) < 2:
            return None
        turned = dict(zip(labels, [*labels[1:], labels[0]], strict=True))
        return column.replace(turned)
    return rng.randrange(3, 99) * 10 - column * rng.randrange(2, 9)


TABLE_AUDIT = Audit(
    # A usable file earns 0.1 beside its outcome; one label for every row scores its share of F1.
    floors={"": Floor(outcome=0.5, reward=0.6, beyond=0.1)},
    forms={"every target": every_target},
    twin=table_twin,
    spellings=spellings,
    benchmark=lambda task, answer: (
        score_table(read_gold(task.gold), answer.files[FILE], "release").outcome
    ),
    trusted=score_trusted,
)
TABLE = Family(
    name="table",
    score=score_file,
    gold=_gold,
    weights=TableReward,
    cheats={
        "constant": Cheat(_constant, admits=0.9),
        "blank": Cheat(lambda task: every_target(task, ""), admits=0.1),
        "keys only": Cheat(_keys_only, admits=0.1),
    },
    slices=_slices,
    content=_content,
    audit=TABLE_AUDIT,
)
