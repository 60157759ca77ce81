# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownVariableType=false
"""One evaluation: open the tasks, let the model answer, score, tabulate, write.

`--out` gets `results.json`, `rows.jsonl` (the journal, with conversations), `report.html`, and the
official files of the benchmarks that were asked for by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from assay.console import task_filter
from assay.family import all_families, family_of, use_families
from assay.files import write_bytes, write_text
from assay.journal import ASKED
from assay.record import installed, revision
from assay.task import Answer, Task, json_text
from configs.loader import ConfigError, read_section
from rollouts.environments import EnvironmentFactory
from rollouts.sampler import answered
from rollouts.trajectory import Trajectory
from train.evaluation.answering import UNASKED, Given, Job, answer_all, environment_factory
from train.evaluation.benchmarks import BENCHMARKS, plan_of
from train.evaluation.live import Tally
from train.evaluation.opening import Asked, open_all
from train.evaluation.parts import RECORD, ROWS, gathered
from train.evaluation.rows import baseline_rows, reference_answer, row_of, scorer
from train.evaluation.settings import thinking
from train.evaluation.tables import Draw, tables
from train.run.record import PACKAGES, machine
from train.run.settings import weights_of

Row = dict[str, Any]
# what rows.jsonl keeps and results.json does not
JOURNAL_ONLY = frozenset(("messages", "file_texts", ASKED))


def evaluate(args: Any) -> tuple[dict[str, Any], Given]:
    """Run an evaluation and write its files; returns what results.json holds, and how its rows were
    had."""
    use_families(args.family)
    shop = environment_factory(args)
    asked = open_all(args.tasks, args)
    equipped = [shop.equip(task) for task in asked.tasks]
    asked = replace(asked, tasks=args.asked_in.asked(equipped))
    weights = weights_of_args(args, asked)
    for line in [*(line for part in asked.opened for line in part.said), asked.seen.said]:
        if line:
            print(line, flush=True)
    baselines = _baselines(asked.tasks, args, weights)  # first: gold that is no use ends it here
    rows, given = _answered(asked, args, shop, weights)
    data = _results(asked, rows, baselines, args, weights)
    data["meta"] |= {"settings": given.settings, "answered_by": given.answered_by}
    args.out.mkdir(parents=True, exist_ok=True)
    data["benchmarks"] = _official(asked, rows, args)
    data["files"] = _own_tables(rows, args.out)
    write_bytes(args.out / "results.json", json_text(data, indent=1, default=str))
    return data, given


def weights_of_args(args: Any, asked: Asked) -> dict[str, Any]:
    """Weights by family: `reward.<family>.<setting>=value`, `reading`, and what benchmarks ask
    for. Raises `ConfigError`."""
    reward: dict[str, dict[str, Any]] = {name: dict(own) for name, own in args.rewards.items()}
    for name in dict.fromkeys(part.benchmark for part in asked.opened if part.benchmark):
        for family, values in BENCHMARKS[name].rewards(args).items():
            reward.setdefault(family, {}).update(values)
    if args.reading:
        for family in _reading_families(args.reading, asked.tasks):
            reward.setdefault(family, {})["reading"] = args.reading
    return weights_of(reward, "command line")


def _reading_families(reading: str, tasks: Sequence[Task]) -> list[str]:
    """The tasks' families whose scorer has this reading."""
    found: list[str] = []
    for name in dict.fromkeys(task.family for task in tasks):
        try:
            read_section(all_families()[name].weights, {"reading": reading}, "reading", "")
            found.append(name)
        except ConfigError:
            continue
    if not found:
        raise ConfigError(f"reading={reading}: no family of these tasks has such a reading")
    return found


def _answered(
    asked: Asked, args: Any, shop: EnvironmentFactory, weights: Mapping[str, Any]
) -> tuple[list[Row], Given]:
    """(all rows in the tasks' order, how they were had)."""
    score, tally = scorer(weights), Tally()

    def note(row: Row) -> str:
        tally.add(row)
        return tally.text()

    def row(task: Task, run: Trajectory) -> Row:
        return _row(task, run, score(task, run), asked, args)

    def parts(settings: Mapping[str, Any]) -> Any:
        return gathered(args.gather, asked.tasks, settings, args.n)

    given = answer_all(
        args,
        Job(
            asked.tasks,
            shop,
            lambda task, args, words: plan_of(task, args, words, asked.benchmark(task)),
            row,
            args.out / ROWS,
            args.out / RECORD,
            args.out / "servers",
            "evaluating",
            note,
            lambda name, task: reference_answer(task, name),
            gathered=parts if args.gather else None,
        ),
    )
    for task, j in given.missing:
        given.rows[task.id, j] = row(task, answered(task, Answer(failure=UNASKED), j, args.seed))
    return given.ordered(asked.tasks), given


def _row(task: Task, run: Trajectory, score: Any, asked: Asked, args: Any) -> Row:
    row = row_of(task, run, score, args.price)
    if name := asked.benchmark(task):
        row["more"] = BENCHMARKS[name].more(task, run, score, args)
    if task.id in asked.seen.ids:
        row["trained_on"] = True
    if task.tools or name:  # the prompts of a benchmark stand in no file of tasks
        row["messages"] = run.messages
    return row


def _results(
    asked: Asked,
    rows: Sequence[Row],
    baselines: Mapping[str, Any],
    args: Any,
    weights: Mapping[str, Any],
) -> dict[str, Any]:
    trained = asked.seen.to_json()
    meta = {
        "name": args.name,
        "model": args.model,
        "tasks": list(args.tasks),
        "opened": [{"benchmark": o.benchmark, **o.notes} for o in asked.opened],
        "rows_left_out": sum(int(o.notes.get("rows_left_out") or 0) for o in asked.opened),
        "heldout": all(o.heldout for o in asked.opened) and not trained["included"],
        "splits": [o.split for o in asked.opened if o.split],
        "tasks_are": _tasks_are(asked, bool(trained["included"])),
        "trained_on": trained,
        "asked": len(asked.tasks),
        "found": sum(len(o.tasks) for o in asked.opened),
        "limit": args.limit,
        "chosen": asdict(task_filter(args)),
        "samples": args.n,
        "seed": args.seed,
        "families": sorted({f.origin for f in map(family_of, asked.tasks) if f.origin}),
        "weights": {n: vars(weights[n]) for n in sorted({t.family for t in asked.tasks})},
        "thinking": thinking(args),
        "words": args.asked_in.record(asked.tasks),
        "versions": installed(PACKAGES),
        "code": revision(),
        "machine": machine(),
    }
    lean = [{k: v for k, v in row.items() if k not in JOURNAL_ONLY} for row in rows]
    found = tables(rows, Draw(seed=args.seed))
    return {"meta": meta, "tables": found, "baselines": baselines, "rows": lean}


def _tasks_are(asked: Asked, included: bool) -> str:
    """What the tasks are called where all that was opened calls them so, else ""."""
    names = {opened.asked for opened in asked.opened}
    return names.pop() if len(names) == 1 and not included else ""


def _baselines(
    tasks: Sequence[Task], args: Any, weights: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Tables of gold and of every cheat of the tasks' families."""
    if args.no_baselines:
        return {}
    made = baseline_rows(tasks, weights)
    return {name: tables(rows, Draw(seed=args.seed)) for name, rows in made.items()}


def _official(asked: Asked, rows: Sequence[Row], args: Any) -> dict[str, Any]:
    """The own files and numbers of every benchmark that was opened by name."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(part.benchmark for part in asked.opened if part.benchmark):
        write = BENCHMARKS[name].tables
        if write is None:
            continue
        by_id = {t.id: t for t in asked.tasks if asked.opened[asked.of[t.id]].benchmark == name}
        mine = [row for row in rows if row["task_id"] in by_id]
        made = write([by_id[str(row["task_id"])] for row in mine], mine, args.out, args)
        found[name] = {**made.numbers, "text": made.text}
    return found


def _own_tables(rows: Sequence[Row], out: Path) -> list[str]:
    """Files of families from outside: their `tables` gives (name, text) pairs."""
    written: list[str] = []
    for name in dict.fromkeys(str(row["family"]) for row in rows):
        family = all_families()[name]
        if family.tables is None:
            continue
        for file, text in family.tables([row for row in rows if row["family"] == name]):
            if Path(file).name != file:
                raise ConfigError(f"family {name}: its table {file!r} is no plain file name")
            write_text(out / file, str(text), errors="backslashreplace")
            written.append(file)
    return written
