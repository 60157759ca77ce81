"""`assay audit`: the laws of every family over real tasks, and what cheats and attacks earn.

Gold scores 1; an empty answer scores 0; a cheat reaches on average no more than it admits; the same
answer gets the same bits twice; chatter around gold, NaN, nulls, huge and nested output never score
above gold and never make the scorer fail; two files share no content. No model is needed. Exit
status 1 when a law is broken.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rewards.console import (
    DONE,
    FAILED,
    Parser,
    add_family,
    add_json,
    add_limit,
    add_out,
    add_seed,
    add_tasks,
    parser,
)
from rewards.families import family_named, require_families, use_families
from rewards.laws import Broken, Examined, cheat_laws, examine, mean_scores, split_law
from rewards.seeds import derive_seed
from rewards.task import Task, TaskError, read_tasks, with_absolute_files, write_jsonl

Report = dict[str, Any]
FAILURES = 5  # tasks whose scorer failed, after which a family's audit stops


class Extra(Protocol):
    """A family's own part of the audit."""

    def __call__(
        self, tasks: Sequence[Task], roots: Sequence[Path]
    ) -> tuple[list[Report], Report, list[Broken]]:
        """(a row a task, a summary, broken laws). `roots`: the folder of each task's file."""
        ...


def _table(
    tasks: Sequence[Task], roots: Sequence[Path]
) -> tuple[list[Report], Report, list[Broken]]:
    from data_gen.dare.audit import audit_tables

    return audit_tables(tasks, roots)


# family -> what is audited beside the laws. A new one adds a function and a line.
EXTRA: dict[str, Extra] = {"table": _table}


def audited(
    tasks: Sequence[Task], seed: int, attacked: int, step: Callable[[], object]
) -> tuple[list[Examined], list[Broken]]:
    """Every task of one family examined, `attacked` of them (0: all) by attacks too."""
    ranked = sorted(range(len(tasks)), key=lambda i: derive_seed(seed, "audit", tasks[i].id))
    chosen = set(ranked[: attacked or None])
    examined: list[Examined] = []
    failed = 0
    for place, task in enumerate(tasks):
        one = examine(task, attacked=place in chosen)
        examined.append(one)
        step()
        failed += any(score.outcome is None for score in one.scores.values()) or not one.scores
        if failed >= FAILURES:
            break
    broken: list[Broken] = []
    if len(examined) < len(tasks):
        why = f"its scorer failed on {failed} tasks; {len(tasks) - len(examined)} were not examined"
        broken.append(Broken("scorer", f"family {tasks[0].family}", why))
    broken += [b for one in examined for b in one.broken]
    return examined, [*broken, *cheat_laws(family_named(tasks[0].family), examined)]


def audit(
    files: Mapping[Path, Sequence[Task]], seed: int, attacked: int
) -> tuple[Report, list[Report]]:
    """(the report, a row a task). `files`: tasks by the path of their file."""
    from tqdm import tqdm

    everything = [(task, path.parent) for path, tasks in files.items() for task in tasks]
    report: Report = {"ok": True, "tasks": len(everything), "families": {}}
    rows: list[Report] = []
    with tqdm(total=len(everything), desc="audit", unit="task", disable=None) as bar:
        for name in sorted({task.family for task, _ in everything}):
            mine = [task for task, _ in everything if task.family == name]
            examined, broken = audited(mine, seed, attacked, bar.update)
            found: Report = {"tasks": len(mine), "earns": mean_scores(examined)}
            own: list[Report] = [{} for _ in mine]
            if name in EXTRA:
                own, found["own"], more = EXTRA[name](
                    mine, [root for task, root in everything if task.family == name]
                )
                broken = [*broken, *more]
            rows += [
                _row(task, one) | extra
                for task, one, extra in zip(mine, examined, own, strict=False)
            ]
            report["families"][name] = found | {"broken": [_plain(b) for b in broken]}
    located = {
        str(path): [with_absolute_files(task, path.parent) for task in tasks]
        for path, tasks in files.items()
    }
    report["shared"] = [_plain(b) for b in split_law(located)]
    report["ok"] = not report["shared"] and not any(
        found["broken"] for found in report["families"].values()
    )
    return report, rows


def _plain(broken: Broken) -> Report:
    return {"law": broken.law, "where": broken.where, "why": broken.why}


def _row(task: Task, one: Examined) -> Report:
    scores = {
        name: {"outcome": score.outcome, "reward": score.reward, "why": score.why}
        for name, score in one.scores.items()
    }
    return {"id": task.id, "family": task.family, "track": task.track, "scores": scores}


def lines(report: Report) -> list[str]:
    """The report as text: what everything earns by family, then the laws that are broken."""
    said: list[str] = []
    for name, found in report["families"].items():
        said.append(f"{name}: {found['tasks']} tasks")
        said.append(f"  {'answer':<30} {'outcome':>8} {'best':>6} {'reward':>7} {'tasks':>6}")
        said += [
            f"  {answer:<30} {row['outcome']:>8.3f} {row['most']:>6.3f} {row['reward']:>7.3f} "
            f"{row['tasks']:>6}" + (f"  ({row['unscored']} unscored)" if row["unscored"] else "")
            for answer, row in found["earns"].items()
        ]
        if "own" in found:
            said.append("  " + json.dumps(found["own"]))
        said += _broken_lines(found["broken"])
    said += _broken_lines(report["shared"])
    count = len(report["shared"]) + sum(len(f["broken"]) for f in report["families"].values())
    said.append("every law holds" if report["ok"] else f"laws are broken in {count} places")
    return said


def _broken_lines(broken: Sequence[Report], most: int = 10) -> list[str]:
    said = [f"  broken: {b['law']}: {b['where']}: {b['why']}" for b in broken[:most]]
    return [*said, f"  … and {len(broken) - most} more"] if len(broken) > most else said


def options() -> Parser:
    made = parser("audit", __doc__)
    add_tasks(made, "task files of any families; several files are also compared for content")
    add_family(made)
    made.add_argument(
        "--attacks", type=int, default=100, metavar="N", help="tasks a family to attack (0: all)"
    )
    add_limit(made, "tasks of each file")
    add_seed(made)
    add_json(made)
    add_out(made, "a row a task, JSONL")
    return made


def main(argv: list[str]) -> int:
    """Exit status 0; 1 when a law is broken. Raises `TaskError` for tasks that cannot be used."""
    args = options().parse_args(argv)
    use_families(args.family)
    files: dict[Path, list[Task]] = {}
    for path in args.tasks:
        if path in files:
            raise TaskError(f"{path}: given twice; give each file once")
        files[path] = read_tasks(path)[: args.limit or None]
    if not any(files.values()):
        raise TaskError(f"{', '.join(map(str, files))}: no task in it")
    require_families(task for tasks in files.values() for task in tasks)
    report, rows = audit(files, args.seed, args.attacks)
    if args.out:
        write_jsonl(args.out, rows)
    if args.json:
        json.dump(report, sys.stdout, indent=2, ensure_ascii=True)
        print()
    else:
        print("\n".join(lines(report)))
    return DONE if report["ok"] else FAILED
