# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""KramaBench: `krama:PLACE` opened as tasks of an agent over data lakes, and its tables.

PLACE is a checkout of the release or a workload file of it (which `assay tasks krama --import` then
turns into tasks, its lakes left in place), a folder of `assay tasks krama`, or a file of tasks.

End-to-end (the answer), pipeline design (whether the code covers the key functionalities, by an
endpoint's verdicts), sub-tasks (each asked on its own). Tables by domain and overall, over tasks as
published, in both readings, with tokens and minutes.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from assay.family import family_of, without_thoughts
from assay.files import write_text
from assay.http_client import ChatEndpoint
from assay.task import RIGHT, Score, Task, TaskError, read_tasks, with_absolute_files
from rewards.krama.answer import category
from rewards.krama.episode import ANSWER, PIPELINE, read_text
from rewards.krama.judge import KEY_ENV, JudgeError, judge_of, judged_coverage
from rewards.krama.release import COUNTS, harness, total
from rollouts.prompts import MESSAGE, ChatTokenizer, room_for
from rollouts.sampler import Plan
from rollouts.trajectory import UNTOLD, Trajectory
from train.evaluation.benchmarks import (
    HELDOUT,
    OTHER_AGENTS,
    Benchmark,
    Command,
    Evaluation,
    Found,
    Opened,
    Row,
    all_heldout,
    budget_of,
    build_tasks,
    in_words,
    splits_of,
)
from train.evaluation.rows import prompt_tokens
from train.evaluation.stats import wilson
from train.evaluation.tables import NONE, grouped, markdown, mean, number, points

AGENTS = {
    "ds-guru-no-context": ("ds_guru_no_context", 1),
    "ds-guru-one-shot": ("ds_guru_one_shot", 1),
    "ds-guru-few-shot": ("ds_guru_few_shot", 5),
    # messages, as the paper's iterative system has at most
    "lake-agent": ("lake_agent", 20),
    "lake-script": ("lake_script", 1),
    **OTHER_AGENTS,
}
DEFAULT = "ds-guru-few-shot"
TURNS = dict(AGENTS.values())
SETTINGS = ("end-to-end", "subtasks")
SECONDS = 3600.0  # that tools of one episode may run


def open_folder(rest: str, command: Evaluation) -> Opened:
    """`krama:PLACE`. Raises `TaskError`."""
    own = command.krama
    settings = [s.strip() for s in own.settings.split(",") if s.strip()]
    if unknown := [s for s in settings if s not in SETTINGS]:
        raise TaskError(f"krama.settings={unknown[0]!r}: wanted {', '.join(SETTINGS)}")
    if not rest:
        raise TaskError("--tasks krama:: wanted krama:PLACE, such as the release's checkout")
    folder, said = _built(Path(rest), command)
    agent = own.agent or DEFAULT
    tool, _ = AGENTS[agent]
    root = folder.parent if folder.is_file() else folder
    found = [t for part in load_tracks(folder, settings, own.doubted).values() for t in part]
    return Opened(
        [replace(with_absolute_files(task, root), tools=(tool,)) for task in found],
        heldout=all_heldout(found),
        split=splits_of(rest, found),
        said=said,
        notes={"agent": agent, "settings": settings, "doubted": own.doubted},
    )


def _built(place: Path, command: Evaluation) -> tuple[Path, list[str]]:
    """(what `load_tracks` reads, lines about it): the place itself, or tasks made of a copy of the
    release there, beside the results."""
    own = place.is_file() and place.suffix != ".json"
    if own or any((place / name).is_file() for name in ("tasks.jsonl", HELDOUT)):
        if command.krama.input_mode or command.krama.subtask_mode:
            raise TaskError(
                f"--tasks krama:{place}: these tasks are made already; give krama.input_mode "
                "and krama.subtask_mode with the release's checkout, or --mode to `assay tasks "
                "krama`"
            )
        return place, []
    made = command.out / "krama"
    words = ["krama", "--import", str(place), "--out", str(made)]
    words += ["--mode", command.krama.input_mode or "full"]
    words += ["--subtask-mode", command.krama.subtask_mode] if command.krama.subtask_mode else []
    words += ["--strict"] if command.strict else []
    build_tasks(f"--tasks krama:{place}", *words, quiet=True)
    manifest: Row = json.loads((made / "manifest.json").read_text("utf-8"))
    return made, list(manifest["said"])


def plan(task: Task, command: Command, tokenizer: ChatTokenizer | None) -> Plan:
    turns_of = TURNS | {"ds_guru_few_shot": command.tools.tries}
    turns = max((turns_of.get(tool, 0) for tool in task.tools), default=0)
    budget = budget_of(command, turns or 5, SECONDS)
    return Plan(command.sampling.max_new_tokens or room_for(task, tokenizer, MESSAGE), budget)


def rewards(command: Evaluation) -> Mapping[str, Mapping[str, Any]]:
    """The judge of paraphrases, where one is named."""
    url, model = command.krama.judge_url, command.krama.judge_model
    return {"answer": {"judge_url": url, "judge_model": model}} if url else {}


def more(task: Task, run: Trajectory, score: Score, command: Evaluation) -> Row:
    """What the tables need beyond a generic row: answer, cause of failure, the published harness's
    score, design of the pipeline, cost."""
    left: Row = json.loads(run.files[ANSWER]) if ANSWER in run.files else _in_words(task, run)
    code = run.files.get(PIPELINE, b"").decode("utf-8", "replace")
    response = left.get("response") or {}
    ended, files = str(run.notes.get("ended", "")), task.meta.get("gold_files") or []
    whole = not task.meta.get("parent")
    answer = response.get("answer")
    row: Row = {
        "domain": str(task.meta.get("domain") or ""),
        "setting": SETTINGS[0] if whole else SETTINGS[1],
        "parent": task.meta.get("parent"),
        "difficulty": task.meta.get("difficulty"),
        "doubt": str(task.gold.get("doubt") or ""),
        "mode": task.meta.get("mode"),
        "category": category(task.gold, answer, score.outcome, ended, code, files),
        "answer": answer,
        "cost": _cost(run),
        "notes": dict(run.notes),
    }
    if run.failure is None:
        judge = judge_of(command.krama.judge_url, command.krama.judge_model)
        kind, target = str(task.gold["answer_type"]), task.gold["answer"]
        row["release"] = harness(kind, target, left.get("published"), judge)
        row["design_judged"] = _design(task, code, command) if whole else None
    return row


def _in_words(task: Task, run: Trajectory) -> Row:
    """The answer of a task without an environment; both readings see it."""
    said = read_text(without_thoughts(family_of(task), task, run.answer()).text)
    return {"response": said, "published": said}


def _design(task: Task, code: str, command: Evaluation) -> float | None:
    if not command.krama.judge_url:
        return None
    endpoint = ChatEndpoint(command.krama.judge_url, command.krama.judge_model, KEY_ENV)
    try:
        steps = [str(s.get("step") or "") for s in task.gold.get("subtasks") or []]
        return judged_coverage(steps, code, endpoint)
    except JudgeError:
        return None


def _cost(run: Trajectory) -> Row:
    prompt, told = prompt_tokens(run), not run.notes.get(UNTOLD)
    return {
        "calls": run.turns,
        "prompt_tokens": prompt if told else None,
        "completion_tokens": run.sampled if told else None,
        "tokens": prompt + run.sampled if told else None,
        "seconds": round(run.wall_s, 3),
        "run_seconds": round(run.tool_s, 3),
        "model_seconds": round(max(0.0, run.wall_s - run.tool_s), 3),
    }


def load_tracks(folder: Path, settings: Sequence[str], doubted: bool) -> dict[str, list[Task]]:
    """Tasks by setting; a file of tasks (of `assay tasks lake`) has whole questions alone. Raises
    `TaskError` for what cannot be read."""
    if not folder.is_file() and not (folder / "tasks.jsonl").is_file():
        folder = folder / HELDOUT if (folder / HELDOUT).is_file() else folder
    if folder.is_file():
        return {"end-to-end": read_tasks(folder)}
    names = {"end-to-end": ["tasks"], "subtasks": ["subtasks"]}
    if doubted:
        names = {"end-to-end": ["tasks", "doubted"], "subtasks": ["subtasks", "doubted_subtasks"]}
    return {
        setting: [t for n in names[setting] for t in read_tasks(folder / f"{n}.jsonl")]
        for setting in settings
    }


def tables(tasks: Sequence[Task], rows: Sequence[Row], out: Path, command: Evaluation) -> Found:
    """Numbers by setting and domain, and `tables.md`."""
    flat = [row["more"] | {k: row[k] for k in ("task_id", "outcome", "parts")} for row in rows]
    numbers = summary(flat, command.tools.tries)
    meta = {
        "agent": command.krama.agent or DEFAULT,
        "model": command.who,
        "reading": command.reading or "table3",
        "tries": command.tools.tries,
        "rows": command.tools.snippet_rows,
        "snippet_tokens": command.tools.snippet_tokens,
        "over": over_published(tasks),
    }
    shown = in_words(text_tables(numbers, meta), tasks, command)
    write_text(out / "tables.md", shown + "\n" * (not shown.endswith("\n")))
    return Found({"tables": numbers, **meta}, shown)


# --- tables --------------------------------------------------------------------------------------

DOUBTED, TRUSTED = "of these doubted", "without the doubted"  # rows of a table, after `overall`


def _cell(rows: Sequence[Row]) -> Row:
    """The figures of one domain, or of all of them. A row without an outcome is counted as
    `unscored` and enters no mean of outcomes."""
    scored = [r for r in rows if r["outcome"] is not None]
    outcomes = [float(r["outcome"]) for r in scored]
    right = sum(o >= RIGHT for o in outcomes)
    cell: Row = {
        "tasks": len(rows),
        "unscored": len(rows) - len(scored),
        "score": mean(outcomes),
        "right": right,
        "interval": list(wilson(right, len(scored))[1:]) if scored else None,
        "release": _release(rows),
        "design_judged": mean([r.get("design_judged") for r in scored]),
        "subtask_credit": mean([r["parts"].get("subtask_credit") for r in scored]),
        "tokens": mean([r["cost"]["tokens"] for r in rows]),
        "minutes": mean([float(r["cost"]["seconds"]) / 60 for r in rows]),
    }
    parents = grouped([r for r in scored if r["parent"]], lambda r: str(r["parent"]))
    if parents:  # sub-tasks: the mean of per-task means beside the mean over sub-tasks
        cell["score_by_parent"] = mean(mean(r["outcome"] for r in v) for v in parents.values())
    return cell


def _release(rows: Sequence[Row]) -> float | None:
    """The total the published harness prints; None where it stops or prints NaN."""
    metrics = [r["release"] for r in rows if r.get("release") is not None]
    try:
        value = total(metrics)
    except (TypeError, ZeroDivisionError):
        return None
    return None if math.isnan(value) else value


def summary(rows: Sequence[Row], tries: int = 0) -> dict[str, Any]:
    """{setting: {domain or "overall": numbers}}, what became of the answers, easy and hard tasks
    apart, and (with `tries` of a few-shot agent) what fewer tries had come to."""
    out: dict[str, Any] = {}
    for setting in dict.fromkeys(r["setting"] for r in rows):
        part = [r for r in rows if r["setting"] == setting]
        domains = sorted({str(r["domain"]) for r in part})
        out[setting] = _by_domain(part, domains)
        levels = sorted({str(r.get("difficulty") or "") for r in part} - {""})
        if len(levels) > 1:
            own = {x: [r for r in part if r.get("difficulty") == x] for x in levels}
            out[f"{setting} by difficulty"] = {x: _by_domain(own[x], domains) for x in levels}
            if setting == "end-to-end":
                out["pipeline-design by difficulty"] = out[f"{setting} by difficulty"]
        if counts := after_tries(part, tries):
            out[f"{setting} by tries"] = counts
        if setting == "end-to-end":
            out["pipeline-design"] = out[setting]
        out[f"{setting} categories"] = dict(Counter(r["category"] for r in part).most_common())
    return out


def _by_domain(rows: Sequence[Row], domains: Sequence[str]) -> Row:
    cells = {d: _cell([r for r in rows if r["domain"] == d]) for d in domains}
    found = {**{d: c for d, c in cells.items() if c["tasks"]}, "overall": _cell(rows)}
    doubted = [r for r in rows if r.get("doubt")]
    if doubted:
        found[DOUBTED] = _cell(doubted)
        found[TRUSTED] = _cell([r for r in rows if not r.get("doubt")])
    return found


def over_published(tasks: Sequence[Task]) -> list[str]:
    """Lines that say how much of the published benchmark these tasks are, which of them have
    doubted gold and why; none for other tasks."""
    asked = {t.id: t for t in tasks if t.meta.get("benchmark") == "krama"}
    known = [t for t in asked.values() if t.meta.get("domain") in COUNTS]
    lines: list[str] = []
    for index, what in enumerate(("tasks", "sub-tasks")):
        mine = [t for t in known if bool(t.meta.get("parent")) == bool(index)]
        if not mine:
            continue
        there = Counter(str(t.meta["domain"]) for t in mine)
        short = [f"{d} {there[d]} of {n[index]}" for d, n in COUNTS.items() if there[d] < n[index]]
        modes = sorted({str(t.meta.get("mode")) for t in mine})
        lines.append(
            f"Over {len(mine)} of the benchmark's {sum(n[index] for n in COUNTS.values())} {what}, "
            f"files shown: {', '.join(modes)}{'; ' if short else ''}{', '.join(short)}."
        )
    doubted = {t.id: str(t.gold["doubt"]) for t in asked.values() if t.gold.get("doubt")}
    whole = {name: why for name, why in doubted.items() if not asked[name].meta.get("parent")}
    if doubted:
        listed = "; ".join(f"{name}: {why}" for name, why in whole.items())
        parts = len(doubted) - len(whole)
        lines.append(
            f"Gold is doubted of {len(whole)} tasks{f' and {parts} sub-tasks' if parts else ''}, "
            f"which are counted above; krama.doubted=false leaves them out. {listed}".rstrip()
        )
    return lines


def after_tries(rows: Sequence[Row], most: int) -> list[Row]:
    """What a few-shot agent had come to with 1, 2, … `most` tries; [] for another agent.

    The prompt names no number of tries and an episode ends with the first pipeline that runs, so
    this is what runs with fewer tries give (paper, Tables 12 to 14), up to chance of the sampler.
    """
    scored = [r for r in rows if r["outcome"] is not None]
    scored = [r for r in scored if (r.get("notes") or {}).get("agent") == "ds-guru few-shot"]
    if not scored or most < 2:
        return []
    found: list[Row] = []
    # all up to five, then every fifth, and the last
    for count in (n for n in range(1, most + 1) if n <= 5 or n % 5 == 0 or n == most):
        done = [r for r in scored if r["notes"]["tries"] <= count and r["notes"]["ended"] in _RAN]
        right = sum(float(r["outcome"]) >= RIGHT for r in done)
        found.append(
            {
                "tries": count,
                "tasks": len(scored),
                "ran": len(done),
                "score": sum(float(r["outcome"]) for r in done) / len(scored),
                "right": right,
                "interval": list(wilson(right, len(scored))[1:]),
                "calls": fmean(min(int(r["notes"]["tries"]), count) for r in scored),
            }
        )
    return found


_RAN = ("ran", "no_answer")  # how an episode ends whose pipeline ran


def _interval(ends: Sequence[float] | None) -> str:
    """Wilson's interval of the share of tasks that are right."""
    return NONE if ends is None else f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}"


# heading → cell
_Columns = Mapping[str, Callable[[Row], str]]
_UNSCORED: _Columns = {"no outcome": lambda c: str(c["unscored"])}
_SHARED: _Columns = {
    "tokens a task": lambda c: number(c["tokens"], "{:,.1f}"),
    "minutes a task": lambda c: number(c["minutes"]),
    **_UNSCORED,
}
_LEVEL: _Columns = {
    "tasks": lambda c: str(c["tasks"]),
    "score %": lambda c: points(c["score"]),
    "right, 95 %": lambda c: _interval(c["interval"]),
}
_DESIGN: _Columns = {
    "tasks": lambda c: str(c["tasks"]),
    "design, judged %": lambda c: points(c["design_judged"]),
}
_COLUMNS: dict[str, _Columns] = {
    "end-to-end": {
        "tasks": lambda c: str(c["tasks"]),
        "score %": lambda c: points(c["score"]),
        "right": lambda c: str(c["right"]),
        "right, 95 %": lambda c: _interval(c["interval"]),
        "release harness %": lambda c: points(c["release"]),
        **_SHARED,
    },
    # the same runs, judged by their code
    "pipeline-design": {
        **_DESIGN,
        "sub-answers printed %": lambda c: points(c["subtask_credit"]),
        **_UNSCORED,
    },
    "subtasks": {
        "sub-tasks": lambda c: str(c["tasks"]),
        "score %": lambda c: points(c["score"]),
        "mean of tasks %": lambda c: points(c.get("score_by_parent")),
        "release harness %": lambda c: points(c["release"]),
        **_SHARED,
    },
}
_TRIES: _Columns = {
    "ran": lambda c: f"{c['ran']} of {c['tasks']}",
    "score %": lambda c: points(c["score"]),
    "right": lambda c: str(c["right"]),
    "right, 95 %": lambda c: _interval(c["interval"]),
    "calls a task": lambda c: f"{c['calls']:.2f}",
}


def _table(head: str, columns: _Columns, cells: Mapping[str, Row]) -> list[str]:
    lines = [[name, *(show(cell) for show in columns.values())] for name, cell in cells.items()]
    return markdown([[head, *columns], *lines])


def text_tables(tables: dict[str, Any], meta: dict[str, Any]) -> str:
    """Markdown. Scores are means over tasks (overall: over all tasks, not over domains)."""
    lines = [f"KramaBench, {meta['agent']}, {meta['model']}, reading {meta['reading']}"]
    if "tries" in meta and str(meta["agent"]).startswith("ds-guru"):
        few_shot = f", {meta['tries']} tries" if meta["agent"] == "ds-guru-few-shot" else ""
        within = f" within {meta['snippet_tokens']} tokens" if meta["snippet_tokens"] else ""
        lines[0] += f"{few_shot}, {meta['rows']} rows a file{within}"
    for setting, columns in _COLUMNS.items():
        if setting not in tables:
            continue
        lines += ["", f"## {setting}", "", *_table("domain", columns, tables[setting])]
        if found := tables.get(f"{setting} categories"):
            lines += ["", "What became of them: " + ", ".join(f"{n} {k}" for k, n in found.items())]
        if levels := tables.get(f"{setting} by difficulty"):
            design = setting == "pipeline-design"
            lines += ["", f"### {setting}, by difficulty", ""]
            lines += _difficulty(levels, _DESIGN if design else _LEVEL)
        if counts := tables.get(f"{setting} by tries"):
            by_tries = {str(count["tries"]): count for count in counts}
            lines += ["", f"### {setting}, with fewer tries", ""]
            lines += _table("tries", _TRIES, by_tries)
    lines += [line for said in meta.get("over") or () for line in ("", said)]
    return "\n".join(lines) + "\n"


def _difficulty(levels: dict[str, Row], columns: _Columns) -> list[str]:
    """One line a domain, with columns for each level."""
    domains = dict.fromkeys(d for cells in levels.values() for d in cells)
    last = [d for d in ("overall", DOUBTED, TRUSTED) if d in domains]
    lines = [["domain", *(f"{level} {what}" for level in levels for what in columns)]]
    for domain in [*(d for d in domains if d not in last), *last]:
        cells = [cells.get(domain) for cells in levels.values()]
        shown = [show(c) if c else NONE for c in cells for show in columns.values()]
        lines.append([domain, *shown])
    return markdown(lines)


BENCHMARK = Benchmark(
    open=open_folder,
    plan=plan,
    more=more,
    rewards=rewards,
    tables=tables,
)
