"""The main job end to end on a tiny random model: every stage runs, and a rerun redoes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import assay
from train.demo import LEAST
from train.run.log import read_metrics


def words(model: Path, out: Path, *more: str) -> list[str]:
    small = f"""demo --minutes 0.1 --seed 3 --out {out} model.path={model} tasks.train_rl=16
        eval.untouched=10 eval.max_new_tokens=8 sft.batch_size=8 sft.max_length=2000
        rl.prompts_per_step=2 rl.mini_batch=2 rl.rollouts_per_prompt=4 rl.max_new_tokens=8
        rl.max_length=2000 rl.save_every=1 eval.every=1 eval.bootstrap=200 engine.threads=1
        engine.dtype=float32"""
    return [*small.split(), *more]


SIZES = "tasks.train_sft=16 tasks.heldout=24 rl.steps=2 eval.tasks=24"


@pytest.fixture(scope="module")
def finished(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A demo that is given less time than the least sizes take."""
    out = tmp_path_factory.mktemp("demo") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LEAST, "train_sft", 16)
        patch.setitem(LEAST, "tasks", 24)
        assert assay.main(words(tiny_folder, out)) == 0
    return out


def test_every_stage_leaves_its_piece(finished: Path) -> None:
    data = json.loads((finished / "results.json").read_text())
    cheats = {"cheat:copy", "cheat:drop", "cheat:filter means drop"}
    sizes = {name: len(rows) for name, rows in data["rows"].items()}
    assert sizes == dict.fromkeys((*cheats, "gold", "sft", "rl"), 24) | {"untouched": 10}
    assert all(r["outcome"] == r["reward"] == 1.0 for r in data["rows"]["gold"])
    stages = [row["stage"] for row in read_metrics(finished)]
    assert [stages.count(s) for s in ("sft", "rl", "eval")] == [2, 2, 2]
    assert "cheat:drop" in (finished / "report.html").read_text()
    record = json.loads((finished / "run.json").read_text())
    found = (record["config"]["tasks"]["train_sft"], record["config"]["rl"]["steps"])
    assert found == (16, 2)
    assert record["seed"] == 3 and record["inputs"]["tasks"] and record["versions"]["torch"]
    for stage in ("sft", "rl"):
        assert (finished / stage / "model.safetensors").is_file()
    assert not (finished / "checkpoints" / "sft").exists()  # nothing goes on from it
    assert len(list((finished / "checkpoints" / "rl").glob("step_*"))) == 1


def test_a_rerun_redoes_nothing_and_keeps_the_sizes(
    finished: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {p: p.stat().st_mtime_ns for p in finished.rglob("*.safetensors")}
    assert assay.main([*words(tiny_folder, finished), "--minutes", "200"]) == 0
    assert f"sizes: {SIZES}\n" in capsys.readouterr().out
    assert before == {p: p.stat().st_mtime_ns for p in finished.rglob("*.safetensors")}


# --- `--minutes`: sizes that fit into a time -----------------------------------------------------
