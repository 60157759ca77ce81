"""The report as one HTML file: no scripts, nothing loaded from elsewhere, all text escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import yaml

from train.evaluation.comparing import Comparison, signed
from train.evaluation.results import (
    Shown,
    columns,
    comparisons,
    family_table,
    heldout,
    named_rows,
    provenance,
    shown,
    slice_table,
    texts,
)
from train.evaluation.stats import Interval
from train.evaluation.tables import ends
from train.report.samples import samples
from train.report.signs import warnings_of
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
    (
        "Reward and outcome of rollouts",
        (("rl", "reward/mean", "reward"), ("rl", "outcome/mean", "outcome")),
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
    viewer: str = "",
) -> str:
    """The whole page from results.json ({} for a run without one), metrics.jsonl and run.json.
    `viewer`: a page of `assay view` beside it, which example answers link to."""
    parts = shown(data) if data else []
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="quiet">{escape(_subtitle(parts, data, record))}</p>',
        *(_evaluation(parts, data) if parts else ()),
        warnings_of(metrics, record),
        _charts(metrics),
        samples(named_rows(data), viewer, isinstance(data["rows"], list)) if data else "",
        _facts(data.get("meta") or {}, record),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _evaluation(parts: Sequence[Shown], data: Mapping[str, Any]) -> list[str]:
    return [
        f"<h2>{'Held-out results' if heldout(data) else 'Results'}</h2>",
        *(f'<p class="quiet">{escape(line)}</p>' for line in provenance(data)),
        _results(parts),
        _plain("Families", family_table(parts)),
        _compared(comparisons(data)),
        _plain("Slices", slice_table(parts)),
        _confusions(parts),
    ]


def _subtitle(parts: Sequence[Shown], data: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    said: list[str] = []
    if parts:
        what = "held-out tasks" if heldout(data) else "tasks"
        said.append(f"{max(part.cell['tasks'] for part in parts)} {what}")
    if "seed" in record:
        said.append(f"seed {record['seed']}")
    if record.get("starts"):
        said.append(f"started {record['starts'][0]}")
    return " · ".join(said)


def _table(headings: Iterable[str], rows: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Headings are escaped here; cells come as HTML. Rows are (class, cells)."""
    head = "".join(f"<th>{escape(h)}</th>" for h in headings)
    lines = "".join(
        f'<tr class="{kind}">' + "".join(f"<td>{c}</td>" for c in line) + "</tr>"
        for kind, line in rows
    )
    return f"<table><tr>{head}</tr>{lines}</table>"


def _results(parts: Sequence[Shown]) -> str:
    names = columns(parts)
    headings = [names[0], "", *names[1:]]
    rows: list[tuple[str, list[str]]] = []
    for part in parts:
        cells = [escape(text) for text in texts(part, names)]
        kind = "" if part.baseline else "trained"
        rows.append((kind, [cells[0], _mark(part), *cells[1:]]))
    failed = sum(part.cell["no_outcome"] for part in parts)
    note = f" {failed} answers have no outcome and count nowhere." if failed else ""
    return (
        f'<div class="scroll">{_table(headings, rows)}</div>'
        '<p class="quiet">Outcome: mean of the benchmark\'s metric, with 95 % intervals clustered '
        "by source (document, table, lake). Reward: mean of what RL sees. Balanced: every class of "
        f"gold counts alike.{note}</p>"
    )


def _mark(part: Shown) -> str:
    bounds = part.cell["interval"]
    return interval_mark(Interval(part.cell["mean_outcome"], *bounds)) if bounds else ""


def _plain(title: str, lines: Sequence[Sequence[str]]) -> str:
    """A table of texts, its first line the headings; "" where it has no other."""
    if len(lines) < 2:
        return ""
    rows = [("", [escape(text) for text in line]) for line in lines[1:]]
    return f'<h2>{title}</h2><div class="scroll">{_table(lines[0], rows)}</div>'


def _compared(found: Sequence[Comparison]) -> str:
    if not found:
        return ""
    drawn = [i for c in found for i in (c.outcome, c.balanced) if ends(i)]
    reach = max(0.05, *(abs(v) for i in drawn for v in i)) if drawn else 0.05
    rows = [
        (
            "",
            [
                f"{escape(c.before)} → {escape(c.after)}",
                str(c.n),
                *(
                    text
                    for i in (c.outcome, c.balanced)
                    for text in (signed(i), interval_mark(i, -reach, reach) if ends(i) else "")
                ),
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
        "outcome [95 %]",
        "",
        "balanced [95 %]",
        "",
        "gained",
        "lost",
        "McNemar p",
    )
    return (
        f'<h2>What each stage changed</h2><div class="scroll">{_table(headings, rows)}</div>'
        '<p class="quiet">Paired over the same tasks, with a bootstrap over their sources; '
        "McNemar's test is exact and two-sided.</p>"
    )


def _confusions(parts: Sequence[Shown]) -> str:
    """Which class is taken for which, where tasks fall into classes."""
    grids = "".join(_confusion(part) for part in parts if part.cell.get("confusion"))
    return f'<h2>Gold against answer</h2><div class="grids">{grids}</div>' if grids else ""


def _confusion(part: Shown) -> str:
    table = part.cell["confusion"]
    said = sorted({name for counts in table.values() for name in counts})
    rows = [
        ("", [escape(f"gold {gold}"), *(str(counts.get(name, 0)) for name in said)])
        for gold, counts in table.items()
    ]
    return _table((part.name, *said), rows)


def _charts(metrics: Sequence[Mapping[str, Any]]) -> str:
    figures: list[str] = []
    for title, wanted in [*CHARTS, *_eval_chart(metrics)]:
        series = [(name, _line(metrics, stage, key)) for stage, key, name in wanted]
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


def _line(metrics: Sequence[Mapping[str, Any]], stage: str, key: str) -> list[tuple[float, float]]:
    rows = [r for r in metrics if r.get("stage") == stage and r.get(key) is not None]
    return [(float(r["step"]), float(r[key])) for r in rows]


def _eval_chart(metrics: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What evaluations during training measured: the first four numbers they logged."""
    rows = [row for row in metrics if row.get("stage") == "eval"]
    names = dict.fromkeys(k for row in rows for k in row if k not in ("stage", "step", "time"))
    return [("Evaluation", tuple(("eval", n, n) for n in list(names)[:4]))] if names else []


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
