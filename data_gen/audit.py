"""`assay audit`: the laws of every family over real tasks, and what answers without the work earn.

Gold scores 1; an empty answer scores 0; a cheat reaches on average no more than it admits; the same
answer gets the same bits twice; chatter around gold, NaN, nulls, huge and nested output never score
above gold and never make the scorer fail; two files share no content. Policies that never see gold
(constants, the prompt, the gold of other tasks) earn no more than the floors that the family
states; remembered gold fails on twins. No model is needed. Exit status 1 when a law is broken.
docs/checks.md says how to read it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assay.console import (
    DONE,
    FAILED,
    Parser,
    Progress,
    SeenTasks,
    add_family,
    add_filter,
    add_json,
    add_limit,
    add_out,
    add_seed,
    add_tasks,
    parser,
    task_filter,
)
from assay.family import family_named, require_families, use_families
from assay.task import (
    Task,
    TaskError,
    read_tasks,
    refuse_without_gold,
    with_absolute_files,
    write_jsonl,
)
from rewards.audit import Audited, audit_family, respelled_lines, row_of
from rewards.audit_laws import Broken, Examined, mean_scores, split_law

Report = dict[str, Any]


# a family's own part of the audit: a row a task, a summary, broken laws
Part = tuple[list[Report], Report, list[Broken]]


def _table(tasks: Sequence[Task], roots: Sequence[Path]) -> Part:
    from data_gen.dare.leaks import audit_tables

    return audit_tables(tasks, roots)


def audit_answers(tasks: Sequence[Task], roots: Sequence[Path]) -> Part:
    """Nothing a row, the best constants by type, generated types on which one pays. Published tasks
    are what they are: their constants are shown and break no law."""
    from data_gen.queries.lake_checks import best_constants, paying

    made = [task for task in tasks if task.meta.get("benchmark") == "lake"]
    why = paying(best_constants(made))
    broken = [Broken("constant", "generated lake tasks", one) for one in why]
    return [{} for _ in tasks], {"best constants": best_constants(tasks)}, broken


# family -> what is audited beside the laws, of tasks with the folder of each one's file. A new one
# adds a function and a line.
EXTRA: dict[str, Callable[[Sequence[Task], Sequence[Path]], Part]] = {
    "table": _table,
    "answer": audit_answers,
}


def audit(
    files: Mapping[Path, Sequence[Task]], seed: int, attacked: int
) -> tuple[Report, list[Report]]:
    """(the report, a row a task). `files`: tasks by the path of their file."""
    everything = [(task, path.parent) for path, tasks in files.items() for task in tasks]
    report: Report = {"ok": True, "tasks": len(everything), "families": {}}
    rows: list[Report] = []
    with Progress("audit", "steps") as bar:  # of tasks and policies
        for name in sorted({task.family for task, _ in everything}):
            mine = [task for task, _ in everything if task.family == name]
            whole = audit_family(family_named(name), mine, seed, attacked, bar.add)
            examined, broken = whole.examined, whole.broken
            found: Report = {"tasks": len(mine), "earns": mean_scores(examined)}
            found |= _earned(whole)
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
            report["families"][name] = found | {"broken": [asdict(b) for b in broken]}
    located = {
        str(path): [with_absolute_files(task, path.parent) for task in tasks]
        for path, tasks in files.items()
    }
    report["shared"] = [asdict(b) for b in split_law(located)]
    report["ok"] = not report["shared"] and not any(
        found["broken"] for found in report["families"].values()
    )
    return report, rows


def _earned(whole: Audited) -> Report:
    """What answers without the work earn, twins and respellings, as plain data."""
    recalled = [
        {"kind": e.kind, "tasks": len(e.pairs), "outcome": e.mean(0), "reward": e.mean(1)}
        for e in whole.recalled
    ]
    return {
        "without_work": [row_of(whole.family, one) for one in whole.earned],
        "twins": {"twins": whole.twins, "recalled": recalled},
        "respelled": {k: [asdict(r) for r in rows] for k, rows in whole.spelled.items()},
        "respelled_lines": respelled_lines(whole.spelled),
        "scorer_calls": whole.calls,
    }


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
        said.append(f"  {'answer':<36} {'outcome':>8} {'best':>6} {'reward':>7} {'tasks':>6}")
        said += [
            f"  {answer:<36} {row['outcome']:>8.3f} {row['most']:>6.3f} {row['reward']:>7.3f} "
            f"{row['tasks']:>6}" + (f"  ({row['unscored']} unscored)" if row["unscored"] else "")
            for answer, row in found["earns"].items()
        ]
        said += policy_lines(found)
        if "own" in found:
            said.append("  " + json.dumps(found["own"]))
        said += _broken_lines(found["broken"])
    said += _broken_lines(report["shared"])
    count = len(report["shared"]) + sum(len(f["broken"]) for f in report["families"].values())
    said.append("every law holds" if report["ok"] else f"laws are broken in {count} places")
    return said


def policy_lines(found: Report, most: int = 8) -> list[str]:
    """The policies without the work that earn most, twins and respellings."""
    rows = sorted(found["without_work"], key=lambda r: (-r["reward"], -r["outcome"], r["policy"]))
    said: list[str] = []
    if rows:
        head = f"{'without the work':<46} {'outcome':>8} {'best':>6} {'reward':>7} {'best':>6}"
        said.append(f"  {head} {'above':>6} {'floor':>9} {'tasks':>6}")
    for row in rows[:most]:
        name = f"{row['policy']} ({row['kind']})"
        name = name if len(name) <= 46 else f"{name[:45]}…"
        floor = f"{row['floor']['outcome']:g}/{row['floor']['reward']:g}"
        said.append(
            f"  {name:<46} {row['outcome']:>8.3f} {row['most_outcome']:>6.3f} "
            f"{row['reward']:>7.3f} {row['most_reward']:>6.3f} {row['above_floor']:>6.0%} "
            f"{floor:>9} {row['tasks']:>6}"
        )
    if len(rows) > most:
        said.append(f"  … and {len(rows) - most} more policies that earn no more (--json)")
    for one in found["twins"]["recalled"]:
        said.append(
            f"  gold remembered from the plain task ({one['kind']}, {one['tasks']} twins): outcome "
            f"{one['outcome']:.3f}, reward {one['reward']:.3f}"
        )
    return [*said, *found["respelled_lines"]]


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
    add_filter(made)
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
    asked, there = task_filter(args), SeenTasks()
    for path in args.tasks:
        if path in files:
            raise TaskError(f"{path}: given twice; give each file once")
        files[path] = list(asked.stream(read_tasks(path), there))[: args.limit or None]
    if not any(files.values()):
        names = ", ".join(map(str, files))
        raise there.none_left(asked, names) if asked else TaskError(f"{names}: no task in it")
    require_families(task for tasks in files.values() for task in tasks)
    for path, tasks in files.items():
        refuse_without_gold(tasks, path)
    if min(args.attacks, args.limit) < 0:
        raise TaskError("--attacks and --limit must be 0 or more")
    report, rows = audit(files, args.seed, args.attacks)
    if args.out:
        write_jsonl(args.out, rows)
    if args.json:
        json.dump(report, sys.stdout, indent=2, ensure_ascii=True)
        print()
    else:
        print("\n".join(lines(report)))
    return DONE if report["ok"] else FAILED
