"""The report: hostile text harmless, nothing from elsewhere, runs side by side."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest
from report_runs import make_report_run
from view_pages import elements

import assay
from configs.schema import DemoConfig
from train.evaluation.results import ResultsError, check_results, comparisons, text_table
from train.evaluation.stats import Interval
from train.report.markup import interval_mark, line_chart
from train.report.write import (
    One,
    are_seeds,
    between,
    differing,
    groups,
    pooled,
    stages,
    write_report,
)
from train.run.log import RunLog, read_metrics
from train.run.record import read_run_record, write_run_record

EVIL = '</pre><script>alert("x")</script><img src="http://elsewhere/x.png"> &amp; \ud800'


def row(task: int, gold: str, right: bool, **more: Any) -> dict[str, Any]:
    said = gold if right else {"KEEP": "DROP", "DROP": "KEEP"}[gold]
    return {
        "task_id": f"t{task}",
        "family": "refinement",
        "label": gold,
        "said": said,
        "slices": {"gold status": gold, "filter": "with" if task % 2 == 0 else "without"},
        "outcome": float(right),
        "reward": 1.0 if right else 0.25,
        "parts": {"rg": float(right)},
        "why": "ok" if right else "bad_status",
        "output": f"<status>{said}</status>",
        "tokens_out": 10 + task,
        **more,
    }


def demo_data(n: int = 60) -> dict[str, Any]:
    draw = random.Random(0)
    rows = {
        name: [row(i, "DROP" if i % 3 == 0 else "KEEP", draw.random() < chance) for i in range(n)]
        for name, chance in (("rl", 0.5), ("sft", 0.4), ("untouched", 0.0), ("cheat:drop", 0.2))
    }
    return {"rows": rows, "meta": {"bootstrap": 300}}


def test_the_table_has_baselines_first_and_both_steps_compared() -> None:
    data = demo_data()
    first = [line.split()[0] for line in text_table(data).splitlines()[2:6]]
    assert first == ["cheat:drop", "untouched", "sft", "rl"]
    assert [(c.before, c.after) for c in comparisons(data)] == [("untouched", "sft"), ("sft", "rl")]
    for bad, said in (
        ({}, 'wanted {"rows"'),
        ({"rows": {"rl": [{"task_id": 1}]}}, "row 0 of 'rl' lacks outcome, reward"),
    ):
        with pytest.raises(ResultsError, match=re.escape(said)):
            check_results(bad)


def run_with_everything(folder: Path) -> dict[str, Any]:
    log = RunLog(folder)
    for step in range(1, 6):
        log.record("sft", step, {"loss": 2.0 / step, "grad_norm": 1.0})
        log.record("rl", step, {"reward/mean": 0.1 * step, "entropy": float("nan")})
    write_run_record(folder, DemoConfig(), {"tasks": folder / "metrics.jsonl"}, note=EVIL)
    data = demo_data()
    for name in ("sft", "rl"):
        data["rows"][name][1] |= {"output": EVIL, "why": EVIL, "input_text": EVIL, "task_id": EVIL}
    data["rows"][EVIL] = data["rows"]["untouched"]
    return data


def test_the_page_is_well_formed_and_hostile_text_is_only_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = run_with_everything(tmp_path)
    assert assay.main(["report", str(tmp_path)]) == 0  # trained, and not evaluated
    assert "not evaluated" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    assert elements(page) and "SFT loss" in page and "Held-out results" not in page
    page = write_report(tmp_path, data).read_text()
    found = elements(page)
    links = [str(a[name]) for _, a in found for name in ("src", "href") if name in a]
    assert links and all(link[0] == "#" and f'id="{link[1:]}"' in page for link in links)
    assert not {tag for tag, _ in found} & {"script", "img", "link", "iframe"}
    assert "alert(&#34;x&#34;)" in page and "url(" not in page
    assert page.count("<svg") >= 4 + 2 * 2 + 3  # table, comparisons, charts
    assert "max_new_tokens: 96" in page and "transformers" in page
    assert 'id="rs-k"' not in page  # nothing was asked in several ways
    assert json.loads((tmp_path / "results.json").read_text())["rows"]["rl"][1]["output"] == EVIL
    assert write_report(tmp_path, data).read_text() == page


def test_the_command_compares_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in ("a", "b"):
        write_report(tmp_path / seed, demo_data())
        (tmp_path / seed / "report.html").unlink()
    assert assay.main(["report", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert (tmp_path / "b" / "report.html").is_file()
    assert "balanced" in out and "2 runs: mean over runs" in out


@pytest.mark.parametrize(
    "line",
    [
        [],
        [(1.0, 0.5)],
        [(1.0, 0.0), (2.0, 0.0)],
        [(1.0, -3e-7), (90.0, 4e6)],
        [(1.0, 1e-4), (2.0, 1e-4)],
        [(1.0, 2.5e5), (2.0, 2.6e5)],
    ],
)
def test_charts_stay_inside_their_box_and_their_ticks_differ(
    line: list[tuple[float, float]],
) -> None:
    svg = line_chart([("a<b", line)])
    for x, y in re.findall(r'cx="([-\d.]+)" cy="([-\d.]+)"', svg):
        assert 0 <= float(x) <= 340 and 0 <= float(y) <= 170
    assert svg.count("<circle") == len(line) and "a<b" not in svg
    ticks = re.findall(r'text-anchor="end">([^<]+)<', svg)
    assert len(set(ticks)) == len(ticks) and len(ticks) >= 3 * bool(line)


def test_an_interval_beyond_the_scale_is_cut_at_its_edge() -> None:
    assert 'x1="5.0" x2="105.0"' in interval_mark(Interval(0.5, -2.0, 3.0))
    assert interval_mark(Interval(math.nan, 0, 1)) == ""


def test_graded_outcomes_without_a_status_have_means(tmp_path: Path) -> None:
    plain = {"label": None, "said": None, "slices": {}, "parts": {}, "family": "own"}
    rows = [
        row(0, "KEEP", True, **plain) | {"outcome": 0.2, "reward": 0.1},
        row(1, "KEEP", True, **plain) | {"outcome": 0.5, "reward": 0.6},
        row(2, "KEEP", True, **plain) | {"outcome": None, "reward": None, "why": "failure: x"},
    ]
    data = {"rows": {"m": rows}, "meta": {}}
    assert "counted nowhere: 1 answers" in text_table(data) and "balanced" not in text_table(data)
    page = write_report(tmp_path, data).read_text()
    assert ">0.350</td>" in page and "gold None" not in page


# --- several runs --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[One]:
    """Two seeds of one setting, and another setting."""
    folder = tmp_path_factory.mktemp("runs")
    made = [
        make_report_run(folder / "a"),
        make_report_run(folder / "b", seed=1),
        make_report_run(folder / "c", lr=2e-5),
    ]
    data = [json.loads((path / "results.json").read_text()) for path in made]
    return [
        One(path.name, path, found, read_metrics(path), read_run_record(path))
        for path, found in zip(made, data, strict=True)
    ]


def test_seeds_are_pooled_and_settings_compared_on_the_same_tasks_alone(runs: list[One]) -> None:
    assert [[r.label for r in g] for g in groups(runs)] == [["a", "b"], ["c"]]
    assert are_seeds(groups(runs)[0]) and not are_seeds([runs[0], runs[0]])
    assert differing(runs) == {"rl.lr": ["1e-05", "1e-05", "2e-05"]}
    found, each = pooled(runs[:2], "sft")
    assert (found["n"], found["sources"], found["mean_outcome"]) == (16, 16, 0.5)
    assert each == [0.5, 0.5]
    (_, _), (rl, differences) = stages(runs[:2])
    assert (rl.n, rl.gained, rl.lost) == (16, 8, 2) and differences == [0.375, 0.375]
    same = between([runs[0]], [runs[2]])
    assert same is not None and (same[0].n, same[0].outcome.value) == (8, 0.0)
    # the ids are the same, the documents are not
    assert between([runs[1]], [runs[2]]) is None


def test_the_command_writes_one_page_and_links_into_each_run(
    runs: list[One], tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "all.html"
    assert assay.main(["report", *(str(r.folder) for r in runs), "--out", str(out)]) == 0
    page = out.read_text()
    assert "2 seeds pooled" in page and "a/view.html#?set=rl" in page and "<script" not in page


def test_the_page_says_what_was_left_out_and_links_only_to_rollouts_there(tmp_path: Path) -> None:
    run = make_report_run(tmp_path / "a")
    assert "view.html#?set=rl&amp;label=DROP&amp;said=DROP" in (run / "report.html").read_text()
    data: dict[str, Any] = json.loads((run / "results.json").read_text())
    broken = {"outcome": None, "reward": None, "why": "failure", "failure": "endpoint gone <b>"}
    data["rows"]["rl"][0] |= broken
    data["meta"] |= {"rows_left_out": 3, "trained_on": {"left_out": 2}}
    (run / "results.json").write_text(json.dumps(data))
    (run / "rollouts" / "step_000001.jsonl").write_text("damaged\n")
    assert assay.main(["report", str(run)]) == 0
    assert not (run / "view.html").exists()
    page = (run / "report.html").read_text()
    assert "view.html" not in page
    assert "no outcome: endpoint gone &lt;b&gt;; counted in no mean" in page
    assert "the model was trained on them" in page
    assert "<td>all stages</td><td>3.0</td>" in page
    cells = re.sub(r' data-head="[^"]*"', "", page)
    assert "<td>Dr.GRPO</td><td>3</td><td>0.1</td><td>2.0</td><td>50%</td>" in cells
