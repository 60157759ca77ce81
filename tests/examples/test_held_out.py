"""From a folder of seven tables to a trained and evaluated model, with defaults alone."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from assay_command import assay, run
from tiny_model import tiny_config, write_tiny_tokenizer

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")


def seven_tables(folder: Path) -> None:
    folder.mkdir()
    for name in range(7):
        draw = random.Random(name)
        rows = ["site,area,rooms,price,kind"]
        for _ in range(160):
            area, rooms = draw.uniform(20, 200), draw.randrange(1, 8)
            price = 900 * area + 5000 * rooms + draw.gauss(0, 4000)
            kind = "house" if area + draw.gauss(0, 12) > 110 else "flat"
            rows.append(f"{draw.choice('abc')},{area:.1f},{rooms},{price:.0f},{kind}")
        (folder / f"homes{name}.csv").write_text("\n".join(rows) + "\n", "utf-8")


def tiny_with_room(folder: Path) -> None:
    """A letter is a token here, so the context has to be long."""
    from transformers import AutoModelForCausalLM

    folder.mkdir()
    vocab = write_tiny_tokenizer(folder)
    torch.manual_seed(0)
    config = tiny_config(vocab, max_position_embeddings=32768, num_hidden_layers=1)
    AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)


# what is given to eval is for this test's time
COMMANDS = {
    "tasks": "tasks dare --tables tables --out tasks --short",
    "check": "tasks check tasks/train.jsonl --against tasks/heldout.jsonl",
    "rollout": "rollout --tasks tasks/train.jsonl --solver reference --model tiny sampling.n=1 "
    "--out traces.jsonl",
    "select": "select --rollouts traces.jsonl --strategy fv --out kept.parquet",
    "sft": "sft --tasks kept.parquet --model tiny --out sft",
    "eval": "eval --model sft/model --tasks tasks --out eval --limit 1 sampling.max_new_tokens=32",
}


@pytest.mark.slow
def test_seven_tables_to_a_model_that_is_tested_on_what_it_did_not_see(tmp_path: Path) -> None:
    seven_tables(tmp_path / "tables")
    tiny_with_room(tmp_path / "tiny")
    said = {name: assay(tmp_path, *words.split()) for name, words in COMMANDS.items()}
    assert "(auto): the longest of" in said["sft"] and "tokens a second" in said["sft"]
    assert "rows was trained on (base tiny, then sft on" in said["eval"]
    found = json.loads((tmp_path / "eval" / "results.json").read_text("utf-8"))
    assert found["rows"] and found["meta"]["heldout"] and not found["meta"]["trained_on"]["rows"]

    again = "eval --model sft/model --tasks tasks/train.jsonl --out seen"
    done = run(tmp_path, *again.split())
    count = len((tmp_path / "tasks" / "train.jsonl").read_text("utf-8").splitlines())
    assert done.returncode == 2
    assert f"all {count} rows of --tasks were trained on" in done.stderr
    assert not (tmp_path / "seen").exists()
