"""A place that a user names is a path of this machine, or a data set of the hub by name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay import hub
from assay.hub import local_place
from assay.task import TaskError


@pytest.mark.parametrize("place", ["no/such/folder", "./none", "none", "x/rows.jsonl"])
def test_what_no_hub_can_have_is_told_without_asking_one(tmp_path: Path, place: str) -> None:
    with pytest.raises(TaskError, match=f"^{place}: no such file or folder; give one, .*own/Bench"):
        local_place(place, "own/Bench")
    assert local_place(str(tmp_path), "own/Bench") == tmp_path


NAMES = [
    ("own/Bench", (None, ["*.jsonl"]), ""),
    ("own/Bench@v1", ("v1", ["*.jsonl"]), ""),
    ("hf://datasets/own/Bench@main/data", ("main", ["data/*.jsonl", "data"]), "data"),
]


@pytest.mark.parametrize(("place", "wanted", "inner"), NAMES)
def test_a_name_is_asked_of_the_hub(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, wanted: Any, inner: str
) -> None:
    """With its revision and folder; what cannot be had is one sentence."""

    def fetch(repo: str, repo_type: str, revision: str | None, allow_patterns: list[str]) -> str:
        assert (repo, repo_type) == ("own/Bench", "dataset")
        assert (revision, allow_patterns) == wanted
        if not folder.exists():
            raise OSError("it is gone\nfor ever")
        return str(tmp_path)

    monkeypatch.setattr(hub, "client", lambda: SimpleNamespace(snapshot_download=fetch))
    folder = tmp_path / "x" / inner
    with pytest.raises(TaskError, match=rf"^{place}: [^\n]*\(it is gone\)[^\n]*$"):
        local_place(place, "own/Bench", ["*.jsonl"])
    (tmp_path / inner).mkdir(exist_ok=True)
    folder.mkdir(parents=True)
    assert local_place(place, "own/Bench", ["*.jsonl"]) == tmp_path / inner
