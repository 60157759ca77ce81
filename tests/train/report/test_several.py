"""Several runs on one page: which are pooled, and what is compared with what."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from report_runs import make_report_run

import assay
from train.report.pooled import One, are_seeds, between, differing, groups, pooled, stages
from train.run.log import read_metrics
from train.run.record import read_run_record


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[One]:
    folder = tmp_path_factory.mktemp("runs")
    made = [
        make_report_run(folder / "a"),
        make_report_run(folder / "b", seed=1),
        make_report_run(folder / "c", lr=2e-5),
    ]
    return [one(path) for path in made]


def one(path: Path) -> One:
    data = json.loads((path / "results.json").read_text())
    return One(path.name, path, data, read_metrics(path), read_run_record(path))


def test_seeds_of_one_setting_are_a_group(runs: list[One]) -> None:
    assert [[r.label for r in g] for g in groups(runs)] == [["a", "b"], ["c"]]
    assert are_seeds(groups(runs)[0]) and not are_seeds([runs[0], runs[0]])
    assert differing(runs) == {"rl.lr": ["1e-05", "1e-05", "2e-05"]}


def test_pooling_holds_all_answers_and_clusters_by_source(runs: list[One]) -> None:
    found, each = pooled(runs[:2], "sft")
    assert (found["n"], found["sources"], found["mean_outcome"]) == (16, 16, 0.5)
    assert each == [0.5, 0.5]
    (_, _), (rl, differences) = stages(runs[:2])
    assert (rl.n, rl.gained, rl.lost) == (16, 8, 2) and differences == [0.375, 0.375]


def test_settings_are_compared_on_the_same_tasks_alone(runs: list[One]) -> None:
    same = between([runs[0]], [runs[2]])
    assert same is not None and (same[0].n, same[0].outcome.value) == (8, 0.0)
    # the ids are the same, the documents are not
    assert between([runs[1]], [runs[2]]) is None


def test_the_command_writes_one_page_and_links_into_each_run(
    runs: list[One], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "all.html"
    assert assay.main(["report", *(str(r.folder) for r in runs), "--out", str(out)]) == 0
    assert f"side by side: {out}" in capsys.readouterr().out
    page = out.read_text()
    assert "2 seeds pooled" in page and "a/view.html#?set=rl" in page and "<script" not in page


def test_a_run_without_rollouts_has_numbers_without_links(tmp_path: Path) -> None:
    run = make_report_run(tmp_path / "a")
    assert "view.html#?set=rl&amp;label=DROP&amp;said=DROP" in (run / "report.html").read_text()
    (run / "rollouts" / "step_000001.jsonl").write_text("damaged\n")
    assert assay.main(["report", str(run)]) == 0
    assert not (run / "view.html").exists()
    assert "view.html" not in (run / "report.html").read_text()


def test_the_page_says_what_was_left_out_and_what_it_took(tmp_path: Path) -> None:
    run = make_report_run(tmp_path / "a")
    path = run / "results.json"
    data: dict[str, Any] = json.loads(path.read_text())
    broken = {"outcome": None, "reward": None, "why": "failure", "failure": "endpoint gone <b>"}
    data["rows"]["rl"][0] |= broken
    data["meta"] |= {"rows_left_out": 3, "trained_on": {"left_out": 2}}
    path.write_text(json.dumps(data))
    assert assay.main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert "no outcome: endpoint gone &lt;b&gt;; counted in no mean" in page
    assert "the model was trained on them" in page
    assert "<td>all stages</td><td>3.0</td>" in page
    cells = re.sub(r' data-head="[^"]*"', "", page)
    assert "<td>Dr.GRPO</td><td>3</td><td>0.1</td><td>2.0</td><td>50%</td>" in cells
