"""The report: numbers computed from rows by hand, hostile text harmless, nothing from elsewhere."""

from __future__ import annotations

import json
import math
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import assay
from configs.schema import DemoConfig
from train.evaluation.comparing import compare_rows
from train.evaluation.results import (
    ResultsError,
    check_results,
    comparisons,
    figures,
    text_table,
)
from train.evaluation.stats import Interval
from train.evaluation.tables import Draw, tables
from train.report.svg import interval_mark, line_chart
from train.report.write import write_report
from train.run.log import RunLog
from train.run.record import write_run_record

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
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, chance in (("rl", 0.5), ("sft", 0.4), ("untouched", 0.0), ("cheat:drop", 0.2)):
        rows[name] = [
            row(i, "DROP" if i % 3 == 0 else "KEEP", draw.random() < chance) for i in range(n)
        ]
    return {"rows": rows, "meta": {"bootstrap": 300}}


def test_a_summary_by_hand() -> None:
    rows = [
        row(0, "KEEP", True),
        row(1, "KEEP", False),
        row(2, "KEEP", False),
        row(3, "DROP", True),
        row(4, "DROP", False, outcome=None, reward=None, why="timeout"),
        row(5, "DROP", False, why="no_answer", said="none"),
    ]
    found = tables(rows)
    s = found["overall"]
    assert (s["n"], s["no_outcome"], s["mean_outcome"]) == (5, 1, 0.4)
    assert s["balanced"] == pytest.approx((1 / 3 + 1 / 2) / 2)
    by_status = found["by_slice"]["refinement"]["gold status"]
    assert by_status["KEEP"]["mean_outcome"] == pytest.approx(1 / 3)
    assert (by_status["DROP"]["mean_outcome"], by_status["DROP"]["no_outcome"]) == (0.5, 1)
    kept = [r for r in rows if r["label"] == "KEEP"]
    by_filter = tables(kept)["by_slice"]["refinement"]["filter"]
    assert (by_filter["with"]["mean_outcome"], by_filter["without"]["mean_outcome"]) == (0.5, 0.0)
    assert s["mean_reward"] == pytest.approx((2 + 3 * 0.25) / 5) and s["parts"] == {"rg": 0.4}
    assert s["no_answer"] == 0.2
    assert s["tokens_out"] == pytest.approx((10 + 11 + 12 + 13 + 15) / 5)
    assert s["confusion"] == {"KEEP": {"DROP": 2, "KEEP": 1}, "DROP": {"DROP": 1, "none": 1}}
    assert "pass@k" not in s and tables([])["overall"]["mean_reward"] is None
    assert figures(rows) == {
        "outcome": 0.4,
        "reward": pytest.approx(0.55),
        "balanced": pytest.approx(5 / 12),
        "outcome/KEEP": pytest.approx(1 / 3),
        "outcome/DROP": 0.5,
    }


def test_pass_at_k_that_rows_bring_is_a_mean_where_all_have_it() -> None:
    rows = [
        row(0, "KEEP", True, **{"pass@1": 0.5, "pass@8": 1.0}),
        row(1, "KEEP", True, **{"pass@1": 0.1, "pass@8": 0.5}),
    ]
    assert tables(rows)["overall"]["pass@k"] == {"1": 0.3, "8": 0.75}
    fewer = [*rows, row(2, "KEEP", True, **{"pass@1": 0.0})]
    assert tables(fewer)["overall"]["pass@k"] == {"1": pytest.approx(0.2)}
    assert tables([*rows, row(2, "KEEP", True)])["overall"]["pass@k"] == {}


def test_comparison_pairs_by_task_not_by_place() -> None:
    before = [row(i, "KEEP", i < 2) for i in range(4)]
    after = [row(i, "KEEP", i >= 1) for i in reversed(range(5))]
    got = compare_rows("sft", "rl", before, after, Draw(300))
    assert (got.n, got.gained, got.lost, got.outcome.value) == (4, 2, 1, 0.25)


def test_the_table_has_baselines_first_and_both_steps_compared() -> None:
    data = demo_data()
    text = text_table(data)
    first = [line.split()[0] for line in text.splitlines()[2:6]]
    assert first == ["cheat:drop", "untouched", "sft", "rl"]
    assert [(c.before, c.after) for c in comparisons(data)] == [("untouched", "sft"), ("sft", "rl")]
    assert "sft → rl: outcome" in text and "where gold is KEEP:" in text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, 'wanted {"rows"'),
        ({"rows": {"rl": [{"task_id": 1}]}}, "row 0 of 'rl' lacks outcome, reward"),
    ],
)
def test_bad_results_are_named(data: Any, said: str) -> None:
    with pytest.raises(ResultsError, match=re.escape(said)):
        check_results(data)


class Tags(HTMLParser):
    """Collects tag names and outside references, and checks that tags close in order."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.outside: list[str] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        for name, value in attrs:
            if name == "href" and value is not None and value.startswith("#"):
                self.inside.append(value[1:])  # a place of the page itself
            elif name in ("src", "href"):
                self.outside.append(f"{name}={value}")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()


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


def test_the_page_is_well_formed_and_hostile_text_is_only_text(tmp_path: Path) -> None:
    page = write_report(tmp_path, run_with_everything(tmp_path)).read_text()
    tags = Tags()
    tags.feed(page)
    assert tags.open == [] and tags.outside == []
    assert tags.inside and all(f'id="{place}"' in page for place in tags.inside)
    assert not tags.seen & {"script", "img", "link", "iframe"}
    assert "alert(&quot;x&quot;)" in page and "url(" not in page
    assert page.count("<svg") >= 4 + 2 * 2 + 3  # table, comparisons, charts
    assert "max_new_tokens: 96" in page and "transformers" in page


def test_the_same_input_gives_the_same_page(tmp_path: Path) -> None:
    data = run_with_everything(tmp_path)
    first = write_report(tmp_path, data).read_bytes()
    assert write_report(tmp_path, data).read_bytes() == first


def test_the_command_prints_the_table_and_compares_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in ("a", "b"):
        write_report(tmp_path / seed, demo_data())
        (tmp_path / seed / "report.html").unlink()
    assert assay.main(["report", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert (tmp_path / "b" / "report.html").is_file()
    assert "balanced" in out and "2 runs: mean over runs" in out


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert assay.main(["report", str(tmp_path)]) == 2
    assert "give a run directory" in capsys.readouterr().err
    assert assay.main(["report", str(tmp_path / "none")]) == 2
    assert "results.json: cannot be read" in capsys.readouterr().err
    (tmp_path / "results.json").write_text("{")
    assert assay.main(["report", str(tmp_path)]) == 2
    assert "not valid JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", [[(1.0, 0.5)], [(1.0, 0.0), (2.0, 0.0)], [(1.0, -3e-7), (90.0, 4e6)], []]
)
def test_charts_stay_inside_their_box(line: list[tuple[float, float]]) -> None:
    svg = line_chart([("a<b", line)])
    for x, y in re.findall(r'cx="([-\d.]+)" cy="([-\d.]+)"', svg):
        assert 0 <= float(x) <= 340 and 0 <= float(y) <= 170
    assert svg.count("<circle") == len(line) and "a<b" not in svg


def test_an_interval_beyond_the_scale_is_cut_at_its_edge() -> None:
    mark = interval_mark(Interval(0.5, -2.0, 3.0))
    assert 'x1="5.0" x2="105.0" y1="9" y2="9"/><circle' in mark
    assert interval_mark(Interval(math.nan, 0, 1)) == ""


def test_results_json_survives_lone_surrogates(tmp_path: Path) -> None:
    write_report(tmp_path, run_with_everything(tmp_path))
    assert json.loads((tmp_path / "results.json").read_text())["rows"]["rl"][1]["output"] == EVIL


def sliced(n: int, **slices: str) -> dict[str, Any]:
    return row(n, "KEEP", n % 3 > 0) | {"slices": slices}


def test_results_are_a_picture_first_and_small_slices_are_folded(tmp_path: Path) -> None:
    """Of slices that part the tasks alike the first is shown; one of few tasks is folded."""
    kinds = ["a"] * 12 + ["b"] * 10 + ["<c>"] * 3
    rows = [sliced(n, kind=kind, track=f"t-{kind}") for n, kind in enumerate(kinds)]
    page = write_report(tmp_path, {"rows": {"m": rows}, "meta": {"bootstrap": 50}}).read_text()
    drawn, rest = page.split('<div class="dots one">')[1].split("</div>", 1)
    assert re.findall(r'class="name">([^<]*)<', drawn) == [
        "all tasks",
        "kind = a (12)",
        "kind = b (10)",
    ]
    places = [float(found) for found in re.findall(r'<b style="left:([\d.]+)%', drawn)]
    assert places == pytest.approx([64.0, 66.7, 60.0])
    large, small = rest.split('id="slices"')[1].split("<details>")[:2]
    assert "kind = a" in large and "kind = &lt;c&gt;" not in large
    assert "kind = &lt;c&gt;" in small and "track = " not in page


def test_graded_outcomes_without_a_status_have_means(tmp_path: Path) -> None:
    plain = {"label": None, "said": None, "slices": {}, "parts": {}, "family": "own"}
    rows = [
        row(0, "KEEP", True, **plain) | {"outcome": 0.2, "reward": 0.1},
        row(1, "KEEP", True, **plain) | {"outcome": 0.5, "reward": 0.6},
        row(2, "KEEP", True, **plain) | {"outcome": None, "reward": None, "why": "failure: x"},
    ]
    s = tables(rows)["overall"]
    assert (s["mean_outcome"], s["mean_reward"]) == (0.35, 0.35)
    assert (s["n"], s["no_outcome"]) == (2, 1)
    data = {"rows": {"m": rows}, "meta": {}}
    assert "counted nowhere: 1 answers" in text_table(data) and "balanced" not in text_table(data)
    page = write_report(tmp_path, data).read_text()
    assert ">0.350</td>" in page and "gold None" not in page


def test_a_run_that_was_trained_and_not_evaluated_has_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_with_everything(tmp_path)
    assert not (tmp_path / "results.json").exists()
    assert assay.main(["report", str(tmp_path)]) == 0
    assert "not evaluated" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    assert "SFT loss" in page and "Held-out results" not in page
    tags = Tags()
    tags.feed(page)
    assert tags.open == []


def test_the_numbers_of_an_axis_differ() -> None:
    for line in (
        [(1.0, 1e-4), (2.0, 1e-4)],
        [(1.0, 2.5e5), (2.0, 2.6e5)],
        [(1.0, 0.3), (2.0, 0.4)],
    ):
        said = re.findall(r'text-anchor="end">([^<]+)<', line_chart([("a", line)]))
        assert len(said) > 2 and len(set(said)) == len(said)
