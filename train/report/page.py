# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""The report of one run as one HTML file: no scripts, nothing loaded from elsewhere, all text
escaped. A function a section; numbers are those of results.json, metrics.jsonl and run.json."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from assay.task import RIGHT
from train.evaluation.results import (
    TRAINED,
    Shown,
    Slice,
    asked_as,
    asked_of,
    at_k,
    comparisons,
    curve_table,
    draw_of,
    family_table,
    heldout,
    is_baseline,
    named_rows,
    results_table,
    shown,
    slices_of,
)
from train.evaluation.results import provenance as splits_and_words
from train.evaluation.tables import (
    NONE,
    Comparison,
    Table,
    aligned,
    compare_pairs,
    ends,
    mean,
    number,
    pairs_of,
    percent,
    signed,
    with_interval,
)
from train.report.markup import (
    COLOURS,
    EMPTY,
    Line,
    Links,
    Section,
    charts,
    document,
    ends_text,
    figure,
    interval_mark,
    pieces,
    plain,
    together,
    training,
)
from train.run.log import warnings_of

Row = Mapping[str, Any]
Metrics = Sequence[Row]
MOST_REASONS = 12
FEW = 10  # tasks of a slice that is folded beside larger ones
DRAWN_SLICES = 24  # of the picture
# sample answers: how many, of a kind of difference, and their characters
SHOWN, OF_A_KIND, LONGEST = 16, 2, 20_000
LONGEST_REASON = 90  # characters
HASH = 12  # characters of a hash that are shown


def render(title: str, data: Row, metrics: Metrics, record: Row, viewer: str = "") -> str:
    """The whole page from results.json ({} for a run without one), metrics.jsonl and run.json.
    `viewer`: a page of `assay view` beside it, which numbers and example answers link to."""
    links = Links(viewer, bool(data) and isinstance(data["rows"], list))
    sections = [
        *(_evaluation(data, links) if data else ()),
        *((table.title, _own(table)) for table in tables_in(data)),
        ("Warnings", _warnings(metrics, record)),
        ("Training", training(metrics, links)),
        ("Time and cost", _spent(data, metrics, record)),
        ("What was left out", _left_out(data, metrics, links)),
        ("Sample answers", _samples(named_rows(data), links) if data else EMPTY),
        ("How it was made", _provenance(data, record)),
    ]
    return document(title, _subtitle(data, record), sections)


def _subtitle(data: Row, record: Row) -> str:
    said: list[str] = []
    if data:
        most = max((part.cell for part in shown(data)), key=lambda cell: cell["tasks"])
        said.append(asked_of(data, most))
    if "seed" in record:
        said.append(f"seed {record['seed']}")
    if record.get("starts"):
        said.append(f"started {record['starts'][0]}")
    return " · ".join(said)


# --- what an evaluation found --------------------------------------------------------------------


def _evaluation(data: Row, links: Links) -> Iterator[Section]:
    parts = shown(data)
    models = [part for part in parts if not part.baseline] or parts  # baselines where none answered
    rows = {p.name: named_rows(data).get(p.name, []) for p in parts if not p.baseline}
    found = slices_of(models, data)
    head = "Held-out results" if heldout(data) else "Results"
    said = map(pieces().quiet, splits_and_words(data))
    yield head, together(*said, _picture(models, found), _results(parts, links))
    yield "Families", plain(family_table(parts), "Families")
    yield "What each stage changed", _compared(comparisons(data), links)
    yield "RS@K", _curve(parts)
    yield "Slices", _slices(models, found, data, links)
    grids = together(*(_confusion(p, links) for p in parts if p.cell.get("confusion")))
    yield "Gold against answer", pieces().box("grids", grids) if grids else EMPTY
    ended = _reasons(rows, "why", "Why answers scored as they did", links)
    stopped = _reasons(rows, "stop", "Why generation stopped", links)
    yield "How answers ended", together(ended, stopped)


def _href(part: Shown, links: Links, words: Mapping[str, str]) -> str:
    """The answers behind a number; a table alone was kept of an evaluation's baselines."""
    return "" if part.baseline and links.one else links.answers(part.name, words)


def _picture(models: Sequence[Shown], slices: Sequence[Slice]) -> Markup:
    """Outcomes with their intervals on one scale from 0 to 1: of all tasks, and of the slices that
    are large enough."""
    found = [one for one in slices if one.tasks >= FEW][:DRAWN_SLICES]
    families = len({one.family for one in found})
    sets = [(f"all {asked_as(models)}", [part.cell for part in models])]
    sets += [(f"{one.said(families)} ({one.tasks})", list(one.cells)) for one in found]
    several = len(models) > 1
    drawn = [
        (
            name,
            [
                _dot(part.name if several else name, n % COLOURS, cell)
                for n, (part, cell) in enumerate(zip(models, cells, strict=True))
                if cell is not None and cell["mean_outcome"] is not None
            ],
        )
        for name, cells in sets
    ]
    return pieces().dots(drawn, several)


def _dot(name: str, colour: int, cell: Row) -> dict[str, Any]:
    """A name, a dot with its whiskers in per cent of the scale, and the numbers."""
    outcome, bounds = float(cell["mean_outcome"]), cell["interval"]
    place, *whisker = (100 * min(max(float(v), 0.0), 1.0) for v in (outcome, *(bounds or ())))
    low, high = whisker or (None, None)
    text = with_interval(outcome, bounds)
    return dict(name=name, colour=colour, place=place, low=low, high=high, text=text)


# column of the results → what its answers have in common
BEHIND: dict[str, Mapping[str, str]] = {
    "outcome [95 %]": {},
    "no answer": {"why": "no_answer"},
    "cut": {"stop": "length"},
    "no outcome": {"outcome": "none"},
}


def _results(parts: Sequence[Shown], links: Links) -> Markup:
    names, *made = results_table(parts)
    lines: list[Line] = []
    for part, line in zip(parts, made, strict=True):
        cells: list[str] = []
        for name, text in zip(names, line, strict=True):
            href = _href(part, links, BEHIND[name]) if name in BEHIND and text != NONE else ""
            value, bracket, _ = text.partition(" [")
            note = ends_text(part.cell["interval"]) if bracket else ""
            cells.append(pieces().cell(value, href, note))
        lines.append(("" if part.baseline else "trained", cells))
    failed = sum(part.cell["no_outcome"] for part in parts)
    note = f" {failed} answers have no outcome and count nowhere." if failed else ""
    return together(
        pieces().table("Results", names, lines),
        pieces().quiet(
            "Outcome: mean of the benchmark's metric, with 95 % intervals clustered by source "
            "(document, table, lake). Reward: mean of what RL sees. Balanced: every class of gold "
            f"counts alike.{note}"
        ),
    )


def _compared(found: Sequence[Comparison], links: Links) -> Markup:
    if not found:
        return EMPTY
    drawn = [i for c in found for i in (c.outcome, c.balanced) if ends(i)]
    reach = max(0.05, *(abs(v) for i in drawn for v in i)) if drawn else 0.05

    def cells(c: Comparison) -> list[str]:
        marks = [
            text
            for i in (c.outcome, c.balanced)
            for text in (signed(i), interval_mark(i, -reach, reach) if ends(i) else "")
        ]
        counts = (
            pieces().link(str(count), links.pairs(c.before, c.after, differ))
            for count, differ in ((c.n, ""), (c.gained, "up"), (c.lost, "down"))
        )
        n, gained, lost = counts
        return [f"{c.before} → {c.after}", n, *marks, gained, lost, f"{c.p:.2g}"]

    heads = ("change", "tasks", "outcome [95 %]", "", "balanced [95 %]", "")
    heads += ("gained", "lost", "McNemar p")
    return together(
        pieces().table("What each stage changed", heads, [("", cells(c)) for c in found]),
        pieces().quiet(
            "Paired over the same tasks, with a bootstrap over their sources; McNemar's test is "
            "exact and two-sided. SFT had the same gold as RL: SFT → RL is what RL adds to it."
        ),
    )


def _curve(parts: Sequence[Shown]) -> Markup:
    """RS@1 to RS@K, as a table and, of models, drawn."""
    lines = curve_table(parts)
    if len(lines) < 2:
        return EMPTY
    drawn = [
        (part.name, [(float(k), v) for k, v in part.cell["rs_curve"].items() if v is not None])
        for part in parts
        if not part.baseline and part.cell.get("rs_curve")
    ]
    note = (
        "Share of instances right in one of K wordings, over the instances that have all of them. "
        "RS@1 is the mean over wordings."
    )
    return together(
        charts(figure("RS@K", drawn, "K") if drawn else EMPTY),
        plain(lines, "RS@K"),
        pieces().quiet(note),
    )


def _slices(models: Sequence[Shown], found: Sequence[Slice], data: Row, links: Links) -> Markup:
    """Results by slice, and what the last stage changed. Slices of few tasks are folded beside
    larger ones."""
    if not found:
        return EMPTY
    rows = named_rows(data)
    pair = [name for name in TRAINED if name in rows][-2:]
    changes = _changed(pair, data) if len(pair) == 2 else {}
    families = len({one.family for one in found})
    reach = max([0.1, *(abs(v) for c in changes.values() if ends(c.outcome) for v in c.outcome)])
    heads = ["slice", asked_as(models), *(p.name for p in models)]
    heads += [f"{pair[0]} → {pair[1]}", ""] if len(pair) == 2 else []

    def body(mine: Sequence[Slice]) -> Markup:
        lines: list[Line] = []
        last = ("", "")
        for one in mine:
            kind = "part" if (one.family, one.name) != last else ""
            last = (one.family, one.name)
            words = {"family": one.family} if families > 1 else {}
            words[f"slice:{one.name}"] = one.value
            cells = [
                _slice_cell(cell, _href(part, links, words))
                for cell, part in zip(one.cells, models, strict=True)
            ]
            change = changes.get((one.family, one.name, one.value))
            more = _change(change, links, words, reach) if len(pair) == 2 else []
            lines.append((kind, [one.said(families), str(one.tasks), *cells, *more]))
        return pieces().table("Slices", heads, lines)

    large = [one for one in found if one.tasks >= FEW] or found
    small = [one for one in found if one not in large]
    few = f"{len(small)} slices of fewer than {FEW} {asked_as(models)}"
    note = (
        "Outcome, and 95 % intervals clustered by source; RS@K is the share of instances right in "
        "one of K wordings. Slices overlap, and none is corrected for how many there are: of "
        "twenty, one interval misses its mark by chance."
    )
    folded = pieces().folded(few, body(small)) if small else EMPTY
    return together(body(large), folded, pieces().quiet(note))


def _changed(pair: Sequence[str], data: Row) -> dict[tuple[str, str, str], Comparison]:
    """(family, slice, value) → what changed on its tasks."""
    rows, found = named_rows(data), dict[tuple[str, str, str], list[Any]]()
    for one in pairs_of(rows[pair[0]], rows[pair[1]]):
        for name, value in (one.row.get("slices") or {}).items():
            key = (str(one.row.get("family") or ""), str(name), str(value))
            found.setdefault(key, []).append(one)
    draw = draw_of(data)
    return {key: compare_pairs(pair[0], pair[1], mine, draw) for key, mine in found.items()}


def _slice_cell(cell: Row | None, href: str) -> str:
    if cell is None:
        return NONE
    wholes = f"{at_k(cell)} {number(cell['rs@k']['value'])}" if "rs@k" in cell else ""
    return pieces().cell(number(cell["mean_outcome"]), href, ends_text(cell["interval"]), wholes)


def _change(
    c: Comparison | None, links: Links, words: Mapping[str, str], reach: float
) -> list[str]:
    if c is None:
        return [NONE, ""]
    bounds, href = ends(c.outcome), links.pairs(c.before, c.after, "outcome", words)
    text = pieces().cell(f"{c.outcome.value:+.3f}", href, ends_text(bounds, "{:+.3f}"))
    return [text, interval_mark(c.outcome, -reach, reach) if bounds else ""]


def _confusion(part: Shown, links: Links) -> Markup:
    """A table that counts, for each class of gold, what classes the answers have."""
    counted = part.cell["confusion"]
    said = sorted({name for counts in counted.values() for name in counts})

    def count(gold: str, name: str) -> str:
        times = counted[gold].get(name, 0)
        href = _href(part, links, {"label": gold, "said": name}) if times else ""
        return pieces().link(str(times), href)

    lines = [("", [f"gold {g}", *(count(g, name) for name in said)]) for g in counted]
    return pieces().grid([part.name, *said], lines, "")


def _reasons(rows: Mapping[str, Sequence[Row]], field: str, head: str, links: Links) -> Markup:
    """How many answers of each model have each value of a field, and their share."""
    counts = {n: Counter(str(row.get(field) or "") for row in mine) for n, mine in rows.items()}
    total = sum(counts.values(), Counter[str]())
    values = [value for value, _ in total.most_common(MOST_REASONS) if value]
    if not values:
        return EMPTY

    def cell(name: str, value: str) -> str:
        count = counts[name][value]
        if not count:
            return NONE
        text = f"{count} ({count / len(rows[name]):.0%})"
        return pieces().link(text, links.answers(name, {field: value}))

    lines = [("", [value, *(cell(name, value) for name in rows)]) for value in values]
    return together(pieces().heading(head), pieces().table(head, [field, *rows], lines))


def tables_in(data: Row) -> Iterator[Table]:
    """The tables that benchmarks bring to the report."""
    for numbers in (data.get("benchmarks") or {}).values():
        yield from (Table(**table) for table in numbers.get("shown") or ())


def tables_text(data: Row) -> str:
    """The same as plain text, "" when there is none."""
    blocks = [[table.title, *aligned(table.lines), ""] for table in tables_in(data)]
    return "\n".join(line for block in blocks for line in block)


def _own(table: Table) -> Markup:
    drawn = any(line for _, line in table.curves)
    chart = charts(figure(table.title, table.curves, table.across)) if drawn else EMPTY
    return together(chart, plain(table.lines, table.title), pieces().quiet(table.note))


def _warnings(metrics: Metrics, record: Row) -> Markup:
    """Faults of the tasks' audit, and stages that learned less than their steps say."""
    audit = record.get("audit")
    refusal = audit.get("refusal") if isinstance(audit, Mapping) else None
    lines = [str(refusal)] if refusal else []
    for stage in ("sft", "rl"):
        lines += warnings_of([row for row in metrics if row.get("stage") == stage], stage).values()
    return pieces().items(lines) if lines else EMPTY


# --- what it took, what it left out, what it was made of -----------------------------------------


def _spent(data: Row, metrics: Metrics, record: Row) -> Markup:
    times = (data.get("meta") or {}).get("times") or record.get("times") or {}
    stages = [["stage", "minutes"], *([name, f"{float(s) / 60:.1f}"] for name, s in times.items())]
    if times:
        stages.append(["all stages", f"{sum(map(float, times.values())) / 60:.1f}"])
    loops = [["loop", "steps", "minutes", "seconds a step", "rollout", "training", "tokens/s"]]
    for stage, name in (("sft", "SFT"), ("rl", "Dr.GRPO")):
        mine = [row for row in metrics if row.get("stage") == stage]

        def logged(key: str, rows: Metrics = mine) -> list[float]:
            return [float(r[key]) for r in rows if r.get(key) is not None]

        if whole := sum(logged("time/step")):
            shares = (sum(logged(f"time/{key}")) / whole or None for key in ("rollout", "train"))
            seconds = (f"{whole / 60:.1f}", f"{whole / len(mine):.1f}")
            speed = number(mean(logged("time/tokens_per_second")), "{:.0f}")
            loops.append([name, str(len(mine)), *seconds, *map(percent, shares), speed])
    models = [
        ["model", "answers", "prompt tokens", "sampled tokens", "seconds an answer", "cost $"]
    ]
    for name, rows in named_rows(data).items() if data else ():
        if rows and not is_baseline(name):
            costs = [float(r["cost"]) for r in rows if r.get("cost") is not None]
            tokens = (
                f"{sum(r.get(key) or 0 for r in rows):,}" for key in ("tokens_in", "tokens_out")
            )
            seconds = number(mean(r.get("seconds") for r in rows), "{:.2f}")
            cost = number(sum(costs) if costs else None, "{:.4f}")
            models.append([name, str(len(rows)), *tokens, seconds, cost])
    return together(
        plain(stages, "Time by stage"),
        plain(loops, "Time of training loops"),
        plain(models, "Answers of evaluations"),
    )


def _left_out(data: Row, metrics: Metrics, links: Links) -> Markup:
    """What counts nowhere, and why."""
    meta = data.get("meta") or {}
    asked, found = int(meta.get("asked") or 0), int(meta.get("found") or 0)
    limit = f"--limit {meta.get('limit')}: a seeded draw was asked"
    trained = (meta.get("trained_on") or {}).get("left_out")
    opened = "the tasks could not be opened; see `opened` below"
    skipped = sum(float(r.get("why/failure") or 0) > 0 for r in metrics)
    skips = "had rollouts without an outcome; those are in no mean and no group"
    noted = [
        ("tasks", max(found - asked, 0) if "asked" in meta else 0, limit),
        ("tasks", trained, "the model was trained on them"),
        ("rows", meta.get("rows_left_out"), opened),
        *_failures(data, links),
        ("RL steps", skipped, skips),
    ]
    lines = [("", [what, count, why]) for what, count, why in noted if count]
    if not lines:
        return EMPTY
    return pieces().table("What was left out", ("what", "how many", "why"), lines, "words")


def _failures(data: Row, links: Links) -> Iterator[tuple[str, str, str]]:
    """Answers without an outcome, by model and reason."""
    for name, rows in named_rows(data).items() if data else ():
        if is_baseline(name) and not isinstance(data["rows"], list):
            continue
        reasons = Counter(
            str(r.get("failure") or r["why"])[:LONGEST_REASON] for r in rows if r["outcome"] is None
        )
        for reason, count in reasons.most_common(8):
            linked = pieces().link(str(count), links.answers(name, {"outcome": "none"}))
            yield f"answers of {name}", linked, f"no outcome: {reason}; counted in no mean"


def _provenance(data: Row, record: Row) -> Markup:
    """A table of what the numbers were made of, and everything that was noted."""
    blocks = (
        ("Measured and noted", data.get("meta") or {}),
        ("Run, versions and inputs", {k: v for k, v in record.items() if k != "config"}),
        ("Settings", record.get("config")),
    )
    folded = [pieces().folded(title, pieces().pre(_yaml(b))) for title, b in blocks if b]
    lines = [["what", "value"], *(list(pair) for pair in _origins(data, record))]
    return together(plain(lines, "Provenance", "words"), *folded)


def _origins(data: Row, record: Row) -> Iterator[tuple[str, str]]:
    made = {**(data.get("meta") or {}), **record}
    if isinstance(command := record.get("command"), list):
        words = [str(word) for word in command]
        yield "command", shlex.join([Path(words[0]).name, *words[1:]] if words else [])
    named = {"model": "model", "tasks": "tasks", "seed": "seed", "config_hash": "hash of settings"}
    for key, name in named.items():
        value = made.get(key)
        if isinstance(value, list):
            yield name, ", ".join(map(str, value))
        elif isinstance(value, str | int):
            yield name, str(value)
    if isinstance(code := made.get("code"), Mapping):
        changed = ", with changes that were not committed" if code.get("dirty") else ""
        yield "code", f"revision {str(code.get('revision'))[:HASH]}{changed}"
    if isinstance(machine := made.get("machine"), Mapping):
        known = [machine.get("cpu"), f"{machine.get('cores')} cores", machine.get("system")]
        yield "machine", ", ".join(map(str, known))
    for name, value in (record.get("inputs") or {}).items():
        yield f"hash of {name}", str(value)[:HASH]
    if isinstance(versions := made.get("versions"), Mapping):
        yield "versions", ", ".join(f"{name} {value}" for name, value in versions.items())


def _yaml(data: Any) -> str:
    plain_data = json.loads(json.dumps(data, default=str))
    return yaml.safe_dump(plain_data, sort_keys=False, allow_unicode=True, width=100)


# --- sample answers ------------------------------------------------------------------------------


def _samples(rows: Mapping[str, Sequence[Row]], links: Links) -> Markup:
    """What the last models say to the same tasks, side by side: two tasks of every kind of
    difference between the last two models, then of every failure."""
    models = [name for name in rows if not is_baseline(name)] or list(rows)[-1:]
    by_task: dict[str, dict[str, Row]] = {}
    for name in models:
        first: dict[str, Row] = by_task.setdefault(name, {})
        for row in rows[name]:
            first.setdefault(str(row["task_id"]), row)
    if not any(by_task.values()):
        return EMPTY
    last, before = models[-1], models[-2] if len(models) > 1 else models[-1]
    seen: Counter[tuple[Any, ...]] = Counter()
    chosen: list[str] = []
    for task, row in by_task[last].items():
        other = by_task[before].get(task, row)
        kind = (_right(other), _right(row), row.get("family"), row.get("label"), row["why"])
        seen[kind] += 1
        if seen[kind] <= OF_A_KIND and len(chosen) < SHOWN:
            chosen.append(task)
    found = ({n: by_task[n][task] for n in models if task in by_task[n]} for task in chosen)
    return together(*(_sample(task, a, links) for task, a in zip(chosen, found, strict=True)))


def _right(row: Row) -> bool | None:
    return None if row["outcome"] is None else float(row["outcome"]) >= RIGHT


def _sample(task: str, answers: Mapping[str, Row], links: Links) -> Markup:
    first = next(iter(answers.values()))
    fields = (("prompt", "prompt"), ("input_text", "input"), ("gold_text", "gold text"))
    asked = [(label, _chat(first[f])) for f, label in fields if first.get(f) is not None]
    tags = [("ok" if _right(row) else "no", f"{n}: {row['why']}") for n, row in answers.items()]
    said = [
        (
            f"{name} (outcome {number(row['outcome'], '{:.2f}')}, reward "
            f"{number(row['reward'], '{:.2f}')}, {number(row.get('tokens_out'), '{}')} tokens)",
            links.rollout(name, task, int(row.get("sample") or 0)),
            str(row.get("output", ""))[:LONGEST],
        )
        for name, row in answers.items()
    ]
    gold = f"gold {first['label']}" if first.get("label") else ""
    return pieces().sample(task, gold, tags, asked, said)


def _chat(messages: Any) -> str:
    if isinstance(messages, list):
        return "\n\n".join(f"{m.get('role')}: {m.get('content')}" for m in messages)
    return messages if isinstance(messages, str) else json.dumps(messages, ensure_ascii=False)
