"""The report as one HTML file: no scripts, nothing loaded from elsewhere, all text escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import yaml

from train.evaluation.results import (
    HEADINGS,
    PLAIN_HEADINGS,
    PREDICTED,
    STATUSES,
    Comparison,
    Summary,
    cells,
    comparisons,
    has_status,
    heldout,
    ordered,
    show_interval,
    summarise,
)
from train.report.svg import interval_mark, line_chart

STYLE = """
:root { --ink:#1b1f24; --soft:#5b6570; --faint:#e4e8ec; --page:#fff; --panel:#f7f8fa;
  --c0:#2563b0; --c1:#c4571b; --c2:#2e7d4f; --c3:#8346a8; --good:#dcefe2; --bad:#f9e1dc; }
@media (prefers-color-scheme: dark) { :root { --ink:#e6e9ec; --soft:#9aa5b0; --faint:#333a42;
  --page:#15181c; --panel:#1d2126; --c0:#6ea8ee; --c1:#ef9862; --c2:#6cc08e; --c3:#c08fe0;
  --good:#1d3a28; --bad:#45251e; } }
* { box-sizing:border-box }
body { margin:0 auto; max-width:1240px; padding:32px 24px 64px; background:var(--page);
  color:var(--ink); font:15px/1.5 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif }
h1 { font-size:26px; margin:0 0 4px } h2 { font-size:18px; margin:40px 0 10px }
p { margin:6px 0 } .quiet { color:var(--soft) } .scroll { overflow-x:auto }
table { border-collapse:collapse; font-variant-numeric:tabular-nums; font-size:13.5px }
th { text-align:right; font-weight:600; color:var(--soft); font-size:12.5px }
td { text-align:right; white-space:nowrap } th,td { padding:6px 8px; vertical-align:bottom }
th:first-child, td:first-child { text-align:left; padding-left:0 }
tr + tr td { border-top:1px solid var(--faint) } tr.trained td { font-weight:600 }
.charts { display:grid; grid-template-columns:repeat(auto-fill,minmax(320px,1fr)); gap:16px }
figure { margin:0; background:var(--panel); border-radius:8px; padding:12px }
figcaption { font-size:13px; font-weight:600; margin-bottom:4px }
.key { font-weight:400; margin-left:8px; white-space:nowrap }
.key i { display:inline-block; width:9px; height:9px;
  border-radius:50%; margin-right:4px }
svg { display:block; width:100%; height:auto } svg.mark { width:110px; margin-left:auto }
svg text { font-size:10.5px; fill:var(--soft) } .grid { stroke:var(--faint) }
.zero { stroke:var(--soft); stroke-dasharray:2 2 }
.line { fill:none; stroke-width:1.8 } .whisker { stroke:var(--c0); stroke-width:2.5 }
.value { fill:var(--c0) }
.line.c0 { stroke:var(--c0) } .line.c1 { stroke:var(--c1) } .line.c2 { stroke:var(--c2) }
.line.c3 { stroke:var(--c3) } .dot.c0 { fill:var(--c0) } .dot.c1 { fill:var(--c1) }
.dot.c2 { fill:var(--c2) } .dot.c3 { fill:var(--c3) }
.grids { display:flex; flex-wrap:wrap; gap:16px } .grids table { background:var(--panel);
  border-radius:8px; padding:10px } .grids table th, .grids table td { padding:5px 12px }
.grids td:first-child, .grids th:first-child { padding-left:12px }
details { border-top:1px solid var(--faint); padding:8px 0 } summary { cursor:pointer }
pre { white-space:pre-wrap; overflow-wrap:anywhere; background:var(--panel); border-radius:6px;
  padding:10px; margin:6px 0; font:12.5px/1.45 ui-monospace,"DejaVu Sans Mono",monospace }
.tag { border-radius:4px; padding:1px 7px; font-size:12.5px; margin-left:6px }
.ok { background:var(--good) } .no { background:var(--bad) }
.label { font-size:12px; color:var(--soft); margin-top:10px }
"""

# title, (stage, metric, name in the key)
CHARTS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    ("SFT loss", (("sft", "loss", "loss"),)),
    ("Reward and RS of rollouts", (("rl", "reward/mean", "reward"), ("rl", "outcome/mean", "RS"))),
    (
        "RS on held-out tasks",
        (
            ("eval", "rs", "RS"),
            ("eval", "rs_balanced", "balanced"),
            ("eval", "keep", "KEEP"),
            ("eval", "drop", "DROP"),
        ),
    ),
    (
        "Groups that teach",
        (("rl", "by_group/frac_mixed", "mixed"), ("rl", "by_group/frac_flat", "flat")),
    ),
    ("Entropy (nats a token)", (("rl", "entropy", "entropy"),)),
    ("Gradient norm", (("sft", "grad_norm", "SFT"), ("rl", "grad_norm", "RL"))),
    (
        "Answer length (tokens)",
        (("rl", "response_length/mean", "mean"), ("rl", "response_length/max", "max")),
    ),
    (
        "Cut off and unanswered",
        (("rl", "response_length/clip_ratio", "cut off"), ("rl", "why/no_answer", "no answer")),
    ),
    (
        "Seconds a step",
        (
            ("rl", "time/rollout", "rollout"),
            ("rl", "time/train", "train"),
            ("rl", "time/step", "all"),
        ),
    ),
)


def render(
    title: str,
    data: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    record: Mapping[str, Any],
) -> str:
    """The whole page from results.json, metrics.jsonl and run.json."""
    names = ordered(list(data["rows"]))
    summaries = [summarise(n, data["rows"][n]) for n in names]
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="quiet">{escape(_subtitle(summaries, data, record))}</p>',
        f"<h2>{'Held-out results' if heldout(data) else 'Results'}</h2>",
        _results(summaries) if has_status(data) else _plain_results(summaries),
        _compared(comparisons(data)),
        _confusions(summaries) if has_status(data) else "",
        _charts(metrics),
        _samples(data["rows"], names),
        _facts(data.get("meta") or {}, record),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _subtitle(
    summaries: Sequence[Summary], data: Mapping[str, Any], record: Mapping[str, Any]
) -> str:
    what = "held-out tasks" if heldout(data) else "tasks"
    parts = [f"{max((s.n for s in summaries), default=0)} {what}, greedy answers"]
    if "seed" in record:
        parts.append(f"seed {record['seed']}")
    if record.get("starts"):
        parts.append(f"started {record['starts'][0]}")
    return " · ".join(parts)


def _table(headings: Iterable[str], rows: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Headings are escaped here; cells come as HTML. Rows are (class, cells)."""
    head = "".join(f"<th>{escape(h)}</th>" for h in headings)
    lines = "".join(
        f'<tr class="{kind}">' + "".join(f"<td>{c}</td>" for c in line) + "</tr>"
        for kind, line in rows
    )
    return f"<table><tr>{head}</tr>{lines}</table>"


def _results(summaries: Sequence[Summary]) -> str:
    ks = [s.passed[0] for s in summaries if s.passed]
    headings = [HEADINGS[0], "", *HEADINGS[1:], *(f"pass@{k}" for k in ks[:1])]
    rows: list[tuple[str, list[str]]] = []
    for s in summaries:
        texts = [escape(c) for c in cells(s)]
        texts += ["–"] * (len(headings) - 1 - len(texts))
        kind = "trained" if s.name in ("sft", "rl") else ""
        rows.append((kind, [texts[0], interval_mark(s.rs), *texts[1:]]))
    failed = sum(s.failed for s in summaries)
    note = f" {failed} answers were lost to the infrastructure and count nowhere." if failed else ""
    return (
        f'<div class="scroll">{_table(headings, rows)}</div>'
        '<p class="quiet">RS: status and text exactly right, with Wilson 95 % intervals. Balanced '
        "RS: mean of KEEP and DROP. KEEP+filter: tasks whose recipe has a filter and gold keeps. "
        f"RG: share of the edit distance to gold that was closed.{note}</p>"
    )


def _plain_results(summaries: Sequence[Summary]) -> str:
    """The table of tasks without a status: means of outcome and reward."""
    ks = [s.passed[0] for s in summaries if s.passed]
    headings = [*PLAIN_HEADINGS, *(f"pass@{k}" for k in ks[:1])]
    rows: list[tuple[str, list[str]]] = []
    for s in summaries:
        texts = [escape(c) for c in cells(s, status=False)]
        rows.append(("", texts + ["–"] * (len(headings) - len(texts))))
    failed = sum(s.failed for s in summaries)
    note = f" {failed} answers were lost to the infrastructure and count nowhere." if failed else ""
    return (
        f'<div class="scroll">{_table(headings, rows)}</div>'
        '<p class="quiet">Outcome: mean of the metric of the tasks. Reward: mean of what RL sees.'
        f"{note}</p>"
    )


def _compared(found: Sequence[Comparison]) -> str:
    if not found:
        return ""
    reach = max(0.05, *(abs(v) for c in found for i in (c.rs, c.balanced) for v in i if v == v))
    rows = [
        (
            "",
            [
                f"{escape(c.before)} → {escape(c.after)}",
                str(c.n),
                show_interval(c.rs, True),
                interval_mark(c.rs, -reach, reach),
                show_interval(c.balanced, True),
                interval_mark(c.balanced, -reach, reach),
                str(c.gained),
                str(c.lost),
                f"{c.p:.2g}",
            ],
        )
        for c in found
    ]
    headings = (
        "change",
        "tasks",
        "RS [95 %]",
        "",
        "balanced RS [95 %]",
        "",
        "gained",
        "lost",
        "McNemar p",
    )
    return (
        f'<h2>What each stage changed</h2><div class="scroll">{_table(headings, rows)}</div>'
        '<p class="quiet">Paired bootstrap over the same tasks (balanced: within KEEP and DROP); '
        "McNemar's test is exact and two-sided.</p>"
    )


def _confusions(summaries: Sequence[Summary]) -> str:
    grids = "".join(map(_confusion, summaries))
    return f'<h2>Status: gold against answer</h2><div class="grids">{grids}</div>'


def _confusion(summary: Summary) -> str:
    rows = [
        ("", [f"gold {gold}", *(str(summary.confusion[gold][p]) for p in PREDICTED)])
        for gold in STATUSES
    ]
    return _table((summary.name, *PREDICTED), rows)


def _charts(metrics: Sequence[Mapping[str, Any]]) -> str:
    figures: list[str] = []
    for title, wanted in CHARTS:
        series = [
            (
                name,
                [
                    (float(r["step"]), float(r[key]))
                    for r in metrics
                    if r.get("stage") == stage and r.get(key) is not None
                ],
            )
            for stage, key, name in wanted
        ]
        series = [(name, line) for name, line in series if line]
        if not series:
            continue
        key = "".join(
            f'<span class="key"><i style="background:var(--c{i})"></i>{escape(name)}</span>'
            for i, (name, _) in enumerate(series)
        )
        caption = f"{escape(title)}{key if len(series) > 1 else ''}"
        figures.append(f"<figure><figcaption>{caption}</figcaption>{line_chart(series)}</figure>")
    if not figures:
        return ""
    return f'<h2>Training</h2><div class="charts">{"".join(figures)}</div>'


def _samples(rows: Mapping[str, Sequence[Mapping[str, Any]]], names: Sequence[str]) -> str:
    """Tasks on which the last two models differ first, then whatever went wrong."""
    models = [n for n in names if n in ("untouched", "sft", "rl")] or list(names)[-1:]
    if not models:
        return ""
    by_task = {n: {r["task_id"]: r for r in rows[n]} for n in models}
    last, before = models[-1], models[-2] if len(models) > 1 else models[-1]
    seen: dict[tuple[Any, ...], int] = {}
    chosen: list[str] = []
    for task, row in by_task[last].items():
        other = by_task[before].get(task, row)
        kind = (other["outcome"], row["outcome"], row["status_gold"], row["why"])
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= 2 and len(chosen) < 16:
            chosen.append(task)
    shown = "".join(_sample(task, {n: by_task[n].get(task) for n in models}) for task in chosen)
    return f"<h2>Sample answers</h2>{shown}"


def _sample(task: str, answers: Mapping[str, Mapping[str, Any] | None]) -> str:
    first = next(r for r in answers.values() if r is not None)
    tags, blocks = [], []
    for field, label in (("prompt", "prompt"), ("input_text", "input"), ("gold_text", "gold text")):
        if first.get(field) is not None:
            text = first[field] if isinstance(first[field], str) else _chat(first[field])
            blocks.append(f'<div class="label">{label}</div><pre>{escape(text)}</pre>')
    for name, row in answers.items():
        if row is None:
            continue
        kind = "ok" if row["outcome"] == 1 else "no"
        tags.append(f'<span class="tag {kind}">{escape(name)}: {escape(str(row["why"]))}</span>')
        label = f"{escape(name)} (reward {_brief(row['reward'])}, {row['tokens']} tokens)"
        output = escape(str(row.get("output", "")))
        blocks.append(f'<div class="label">{label}</div><pre>{output}</pre>')
    gold = f"gold {escape(str(first['status_gold']))}" if first["status_gold"] else ""
    head = f"{escape(task)} <span class=quiet>{gold}</span>"
    return f"<details><summary>{head}{''.join(tags)}</summary>{''.join(blocks)}</details>"


def _chat(messages: Any) -> str:
    if isinstance(messages, list):
        return "\n\n".join(f"{m.get('role')}: {m.get('content')}" for m in messages)
    return json.dumps(messages, ensure_ascii=False)


def _brief(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


def _facts(meta: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    config = record.get("config")
    rest = {k: v for k, v in record.items() if k != "config"}
    blocks = (
        ("Measured and noted", meta),
        ("Run, versions and inputs", rest),
        ("Settings", config),
    )
    parts = [
        f"<details><summary>{title}</summary><pre>{escape(_yaml(data))}</pre></details>"
        for title, data in blocks
        if data
    ]
    return f"<h2>How it was made</h2>{''.join(parts)}" if parts else ""


def _yaml(data: Any) -> str:
    plain = json.loads(json.dumps(data, default=str))
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)
