"""The report: hostile text harmless, nothing from elsewhere, runs side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from front import results
from report_runs import make_report_run
from view_pages import elements

import assay
from configs.schema import DemoConfig
from train.evaluation.results import comparisons
from train.report import write
from train.run.log import RunLog, read_metrics
from train.run.record import read_run_record, write_run_record
from train.view.sources import fragment

EVIL = '</pre><script>alert("x")</script><img src="http://elsewhere/x.png"> &amp; \ud800'


def run_with_everything(folder: Path) -> dict[str, Any]:
    log = RunLog(folder)
    for step in range(1, 6):
        log.record("sft", step, {"loss": 2.0 / step, "grad_norm": 1.0})
        log.record("rl", step, {"reward/mean": 0.1 * step, "entropy": float("nan")})
    write_run_record(folder, DemoConfig(), {"tasks": folder / "metrics.jsonl"}, note=EVIL)
    data = results(make_report_run(folder / "other"))
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
    page = write.write_report(tmp_path, data).read_text()
    found = elements(page)
    links = [str(a[name]) for _, a in found for name in ("src", "href") if name in a]
    assert links and all(link[0] == "#" and f'id="{link[1:]}"' in page for link in links)
    assert not {tag for tag, _ in found} & {"script", "img", "link", "iframe"}
    assert "alert(&#34;x&#34;)" in page and "url(" not in page
    assert page.count("<svg") >= 4 + 3  # table, charts
    assert write.write_report(tmp_path, data).read_text() == page


# --- several runs --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[write.One]:
    """Two seeds of one setting, and another setting."""
    folder = tmp_path_factory.mktemp("runs")
    made = [
        make_report_run(folder / "a"),
        make_report_run(folder / "b", seed=1),
        make_report_run(folder / "c", lr=2e-5),
    ]
    return [
        write.One(path.name, path, results(path), read_metrics(path), read_run_record(path))
        for path in made
    ]


def test_seeds_are_pooled_and_settings_compared_on_the_same_tasks(runs: list[write.One]) -> None:
    names = [(c.before, c.after) for c in comparisons(runs[0].data)]
    assert names == [("untouched", "sft"), ("sft", "rl")]
    assert [[r.label for r in g] for g in write.groups(runs)] == [["a", "b"], ["c"]]
    assert write.are_seeds(write.groups(runs)[0]) and not write.are_seeds([runs[0], runs[0]])
    assert write.differing(runs) == {"rl.lr": ["1e-05", "1e-05", "2e-05"]}
    found, each = write.pooled(runs[:2], "sft")
    assert (found["n"], found["sources"], found["mean_outcome"]) == (16, 16, 0.5)
    assert each == [0.5, 0.5]
    (_, _), (rl, differences) = write.stages(runs[:2])
    assert (rl.n, rl.gained, rl.lost) == (16, 8, 2) and differences == [0.375, 0.375]
    same = write.between([runs[0]], [runs[2]])
    assert same is not None and (same[0].n, same[0].outcome.value) == (8, 0.0)
    # the ids are the same, the documents are not
    assert write.between([runs[1]], [runs[2]]) is None


def test_the_command_writes_one_page_and_links_into_each_run(
    runs: list[write.One], tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "all.html"
    assert assay.main(["report", *(str(r.folder) for r in runs), "--out", str(out)]) == 0
    page = out.read_text()
    assert "2 seeds pooled" in page and "a/view.html#?set=rl" in page and "<script" not in page


def test_the_page_says_what_was_left_out_and_links_only_to_rollouts_there(tmp_path: Path) -> None:
    run = make_report_run(tmp_path / "a")
    data, page = results(run), (run / "report.html").read_text()
    name = data["rows"]["rl"][0]["task_id"]
    assert f'href="view.html#{fragment("rl", None, name, 0)}"' in page
    assert "view.html#?set=rl&amp;label=DROP&amp;said=DROP" in page
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
