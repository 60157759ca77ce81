"""What every builder writes at its end: nothing where splits share anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from travelling import demo_tasks

from assay.task import TaskError
from data_gen.certificate import Input
from data_gen.pipeline import finish


def test_what_splits_share_is_refused_and_what_an_older_build_left_goes(tmp_path: Path) -> None:
    made, inputs = {"train": demo_tasks(6), "heldout": []}, [Input("number 1", 1)]
    with pytest.raises(TaskError, match=r"share .*tables.*; nothing was written"):
        finish("sums", tmp_path, made, {"train and heldout": {"tables": 1}}, [], 0)
    assert not [*tmp_path.iterdir()]
    assert finish("sums", tmp_path, made, {}, inputs, 0) == 0
    assert (tmp_path / "heldout.jsonl").exists()
    assert finish("sums", tmp_path, {"train": made["train"], "more": []}, {}, inputs, 0) == 0
    assert not (tmp_path / "heldout.jsonl").exists() and (tmp_path / "refused.jsonl").exists()
    proof = json.loads((tmp_path / "certificate.json").read_text())
    assert proof["tasks"] == {"train": len(made["train"]), "more": 0}
