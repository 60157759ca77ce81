"""FV, AV, BV and DV: by the numbers of the paper's appendix, and byte for byte."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from front import command
from picked import select

from assay.task import TaskError
from data_gen.selection.strategies import Rules, pick

main = command("select")


def row(
    task: str,
    sample: int,
    outcome: float | None,
    track: str = "class-MM",
    wall: float = 1.0,
    **more: Any,
) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}}]
    return {
        "task_id": task,
        "sample": sample,
        "outcome": outcome,
        "reward": outcome,
        "track": track,
        "tokens": 10 + sample,
        "wall_s": wall,
        "tool_calls": [],
        "tools": tools,
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "a"},
            {"role": "tool", "content": "r"},
        ],
        "ids": [1, 2, 3, 4],
        "loss_mask": [0, 1, 0, 1],
        **more,
    }


def kept(rows: list[dict[str, Any]], strategy: str, **rules: Any) -> list[tuple[str, int]]:
    found = select(rows, strategy, Rules(**rules)).rows
    return [(str(r["task_id"]), int(r["sample"])) for r in found]


IF = [
    row("i", 0, 1.0, "class-IF", 3.0),
    row("i", 1, 0.0, "class-IF"),
    row("i", 2, 1.0, "class-IF", 1.0),
    row("i", 3, 1.0, "class-IF", 2.0),
]
MM = [row("m", i, v) for i, v in enumerate((0.9, 0.0, 0.95, 0.85, 0.05))]


def test_if_tasks_go_by_speed_and_others_by_score() -> None:
    assert kept(IF + MM, "fv") == [("i", 2), ("m", 2)]
    assert kept(IF + MM, "av") == [("i", 0), ("i", 2), ("i", 3), ("m", 0), ("m", 2), ("m", 3)]
    assert kept(IF + MM, "bv") == [("i", 2), ("m", 2)]
    assert kept(IF + MM, "dv") == [("i", 2), ("i", 3), ("m", 2), ("m", 0)]
    assert kept(IF, "fv", fastest_by="cost") == [("i", 0)]


def test_only_diverse_tasks_under_bv_and_dv() -> None:
    sure = [row("s", i, 1.0, "reg-IF") for i in range(3)]
    narrow = [row("n", i, v) for i, v in enumerate((0.9, 0.6, 0.9, 0.6))]
    for strategy in ("bv", "dv"):
        assert kept(sure + narrow, strategy) == []
    assert kept(sure + narrow, "fv") == [("n", 0), ("s", 0)]


@pytest.mark.parametrize(
    ("track", "least"),
    [
        ("class-MM", 0.8),
        ("reg-MM", 0.7),
        ("time-XF", 0.6),
        ("time-CF", 0.3),
        ("reg-IF", 1.0),
    ],
)
def test_thresholds(track: str, least: float) -> None:
    assert kept([row("t", 0, least, track)], "fv") == [("t", 0)]
    assert kept([row("t", 0, least - 1e-6, track)], "fv") == []


@pytest.mark.parametrize(
    ("track", "spread"),
    [("class-MM", 0.15), ("reg-MM", 0.15), ("time-XF", 0.15), ("time-CF", 0.1)],
)
def test_spreads_from_which_a_task_is_diverse(track: str, spread: float) -> None:
    for variance, wanted in ((spread + 1e-4, 1), (spread - 1e-4, 0)):
        low = 1.0 - 2 * variance**0.5
        rows = [row("t", i, v, track) for i, v in enumerate((1.0, low))]
        for strategy in ("bv", "dv"):
            assert len(kept(rows, strategy)) == wanted


@pytest.mark.parametrize("track", ["class-IF", "reg-IF"])
def test_if_is_diverse_with_one_right_and_one_wrong(track: str) -> None:
    for scores, wanted in (((1.0, 0.0), 1), ((1.0, 1.0), 0), ((0.0, 0.0), 0)):
        rows = [row("t", i, v, track) for i, v in enumerate(scores)]
        assert len(kept(rows, "bv")) == wanted


def test_how_many_each_strategy_keeps_of_a_task() -> None:
    for rows in (IF, MM):
        counts = {name: len(kept(rows, name)) for name in ("fv", "av", "bv", "dv")}
        assert counts == {"fv": 1, "av": 3, "bv": 1, "dv": 2}


def test_dv_keeps_only_what_is_above_the_mean_and_valid() -> None:
    rows = [row("m", i, v) for i, v in enumerate((1.0, 0.0, 0.7, 0.0))]
    assert kept(rows, "dv") == [("m", 0)]
    assert kept(rows, "dv", allow_invalid=True) == [("m", 0), ("m", 2)]


def test_infrastructure_failures_are_not_there() -> None:
    found = select([*IF, row("i", 4, None, "class-IF")], "bv")
    assert len(found.rows) == 1 and found.dropped["no outcome (infrastructure)"] == 1
    assert sum(found.dropped.values()) + len(found.rows) == 5
    with pytest.raises(TaskError, match="wanted one of"):
        pick(IF, "xv", Rules(), Counter())


def test_the_same_rollouts_give_the_same_bytes(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    source = tmp_path / "r.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in IF + MM))
    for name in ("a", "b"):
        out = str(tmp_path / f"{name}.parquet")
        assert main(["--rollouts", str(source), "--strategy", "dv", "--out", out]) == 0
    a, b = (tmp_path / f"{n}.parquet" for n in "ab")
    assert a.read_bytes() == b.read_bytes()
    rows = pq.read_table(a).to_pylist()
    assert rows[0]["tools"] == IF[0]["tools"] and rows[0]["loss_mask"] == [0, 1, 0, 1]
    assert [m["role"] for m in rows[0]["messages"]] == ["user", "assistant"]
    manifest = json.loads((tmp_path / "a.parquet.manifest.json").read_text())
    assert manifest["kept"] == {"rows": 4, "tasks": 2, "tracks": {"class-IF": 2, "class-MM": 2}}
    assert manifest["rollouts"]["tasks"] == 2 and sum(manifest["dropped"].values()) == 5


def test_a_tool_without_parameters_is_text(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    bare = [{"type": "function", "function": {"name": "now", "parameters": {}}}]
    source, out = tmp_path / "r.jsonl", tmp_path / "s.parquet"
    source.write_text("".join(json.dumps(r | {"tools": bare}) + "\n" for r in IF))
    assert main(["--rollouts", str(source), "--strategy", "fv", "--out", str(out)]) == 0
    assert json.loads(pq.read_table(out).to_pylist()[0]["tools"]) == bare


def test_verl_s_own_dataset_reads_it_as_it_is(tmp_path: Path, tiny_folder: Path) -> None:
    module = pytest.importorskip("verl.utils.dataset.multiturn_sft_dataset")
    omegaconf = pytest.importorskip("omegaconf")
    from transformers import AutoTokenizer

    source = tmp_path / "r.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in IF))
    out = tmp_path / "s.parquet"
    assert main(["--rollouts", str(source), "--strategy", "av", "--out", str(out)]) == 0
    settings = {
        "messages_key": "messages",
        "tools_key": "tools",
        "max_length": 200,
        "truncation": "right",
        "pad_mode": "no_padding",
        "ignore_input_ids_mismatch": True,
    }
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    rows = module.MultiTurnSFTDataset(str(out), tokenizer, omegaconf.OmegaConf.create(settings))
    assert len(rows) == 3 and int(rows[0]["loss_mask"].sum()) > 0


def test_datasets_as_trl_loads_them_read_it_as_it_is(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    source = tmp_path / "r.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in IF))
    out = tmp_path / "s.parquet"
    assert main(["--rollouts", str(source), "--strategy", "av", "--out", str(out)]) == 0
    loaded = datasets.Dataset.from_parquet(str(out), cache_dir=str(tmp_path / "cache"))
    assert loaded[0]["messages"][-1] == {"role": "assistant", "content": "a"}
    assert loaded[0]["tools"] == IF[0]["tools"]  # no nulls filled in


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            json.dumps(row("t", 0, 1.0, published=True)) + "\n",
            "task t is a published benchmark task",
        ),
        ("", "no rollouts"),
        ("{}\n", "field 'task_id' is missing"),
        ("x\n", "not valid JSON"),
        (json.dumps(row("t", 0, 0.0)) + "\n", "keeps nothing"),
    ],
)
def test_rollouts_that_cannot_be_used_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    source = tmp_path / "r.jsonl"
    source.write_text(text)
    out = str(tmp_path / "s.parquet")
    assert main(["--rollouts", str(source), "--strategy", "fv", "--out", out]) == 2
    assert why in capsys.readouterr().err


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(path)


def selected(folder: Path, *words: str) -> list[tuple[str, int]]:
    pq = pytest.importorskip("pyarrow.parquet")
    out = folder / "s.parquet"
    assert main([*words, "--strategy", "av", "--out", str(out)]) == 0
    return [(r["task_id"], r["sample"]) for r in pq.read_table(out).to_pylist()]


def test_runs_are_put_together_and_samples_renumbered(tmp_path: Path) -> None:
    first = write(tmp_path / "a", [row("t", i, 1.0, "own", run_seed=0) for i in (0, 2)])
    rows = [row("t", 0, 1.0, "own", run_seed=s) for s in (5, 6)]  # two runs in one file
    second = write(tmp_path / "b", rows)
    found = selected(tmp_path, "--rollouts", first, second)
    assert found == [("t", 0), ("t", 2), ("t", 3), ("t", 4)]


def test_tracks_families_and_thresholds_can_be_chosen(tmp_path: Path) -> None:
    rows = [
        row("a", 0, 0.6, "own", family="mine"),
        row("b", 0, 0.6, "class-MM", family="table"),
        row("c", 0, 1.0, "own", family="table"),
    ]
    source = ("--rollouts", write(tmp_path / "r", rows))
    assert selected(tmp_path, *source) == [("c", 0)]
    assert selected(tmp_path, *source, "--valid", "0.5") == [("a", 0), ("c", 0)]
    assert selected(tmp_path, *source, "--valid", "class-MM=0.5", "--track", "class-MM") == [
        ("b", 0)
    ]
    assert selected(tmp_path, *source, "--valid", "0.5", "--only-family", "mine") == [("a", 0)]
    manifest = json.loads((tmp_path / "s.parquet.manifest.json").read_text())
    assert manifest["dropped"]["another track or family"] == 2
    assert manifest["rules"]["otherwise"] == 0.5


def test_a_track_without_a_threshold_is_diverse_with_one_valid_and_one_not() -> None:
    rows = [row("t", i, v, "own") for i, v in enumerate((1.0, 0.5, 0.5))]
    assert kept(rows, "bv") == [("t", 0)]
    assert kept([row("t", i, v, "reg-IF") for i, v in enumerate((1.0, 0.5))], "bv") == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--valid", "class-MM=x"), "--valid class-MM=x: wanted TRACK=X with X from 0 to 1"),
        (("--valid", "2"), "wanted TRACK=X"),
        (("--spread", "0.1"), "name the track"),
        (("--track", "owm"), "no rollout has track 'owm'; there is own"),
        (("--family", "nowhere.py"), "nowhere.py: no such file"),
    ],
)
def test_bad_choices_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    source = write(tmp_path / "r", [row("a", 0, 1.0, "own")])
    out = str(tmp_path / "s.parquet")
    assert main(["--rollouts", source, "--strategy", "av", "--out", out, *words]) == 2
    assert why in capsys.readouterr().err
    assert main(["--rollouts", source, source, "--strategy", "av", "--out", out]) == 2
    assert "given twice" in capsys.readouterr().err
    double = write(tmp_path / "d", [row("a", 0, 1.0, "own")] * 2)
    assert main(["--rollouts", double, "--strategy", "av", "--out", out]) == 2
    assert "has sample 0 twice" in capsys.readouterr().err
