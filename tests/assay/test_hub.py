"""A place that a user names is a path of this machine, or a data set of the hub by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import SHA, environment, hub_server
from places import ROOT

from assay.hub import local_place
from assay.task import TaskError

pytest.importorskip("huggingface_hub")
CALL = """
import sys
from assay.hub import local_place
from assay.task import TaskError
try:
    print(local_place(sys.argv[1], "own/Bench", sys.argv[2:]))
except TaskError as error:
    print("refused:", error)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    for name in ("tracks/a.jsonl", "tracks/b.jsonl", "all.jsonl", "data/x/test.jsonl"):
        (tmp_path / "bench" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bench" / name).write_text(f'{{"name": "{name}"}}\n')
    return tmp_path / "bench"


def ask(tmp_path: Path, url: str, *words: str, **more: str) -> str:
    """What `local_place` gives in a process of its own, which reads the hub's address once."""
    ran = subprocess.run(
        [sys.executable, "-c", CALL, *words],
        cwd=tmp_path,
        env={**environment(url, tmp_path / "cache"), "PYTHONPATH": str(ROOT), **more},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.mark.parametrize("place", ["no/such/folder", "./none", "none", "x/rows.jsonl"])
def test_what_no_hub_can_have_is_told_without_asking_one(bench: Path, place: str) -> None:
    with pytest.raises(TaskError, match=f"^{place}: no such file or folder; give one, .*own/Bench"):
        local_place(place, "own/Bench")
    assert local_place(str(bench), "own/Bench") == bench


def test_a_name_is_fetched_in_part_and_kept(bench: Path, tmp_path: Path) -> None:
    with hub_server({"own/Bench": bench}) as (url, fetched):
        place = Path(ask(tmp_path, url, "own/Bench", "tracks/*.jsonl"))
        assert sorted(fetched) == ["tracks/a.jsonl", "tracks/b.jsonl"]
        assert place.name == SHA
        assert (place / "tracks/a.jsonl").read_bytes() == (bench / "tracks/a.jsonl").read_bytes()
        same = ask(tmp_path, url, "own/Bench@v1", "tracks/*.jsonl")
        assert Path(same) == place and len(fetched) == 2  # nothing again
        inner = Path(ask(tmp_path, url, "hf://datasets/own/Bench@main/data", "*.jsonl"))
        assert (inner / "x/test.jsonl").is_file() and fetched[2:] == ["data/x/test.jsonl"]
    dead = "http://127.0.0.1:9"  # the hub is gone: what the cache holds is used
    assert Path(ask(tmp_path, dead, "own/Bench", "tracks/*.jsonl")) == place
    offline = ask(tmp_path, dead, "own/Bench", "tracks/*.jsonl", HF_HUB_OFFLINE="1")
    assert Path(offline) == place


def test_what_cannot_be_had_is_one_sentence(bench: Path, tmp_path: Path) -> None:
    with hub_server({"own/Bench": bench}) as (url, _):
        for place, why in (
            ("own/Bensh", "no such file or folder here"),
            ("own/Bench@v2", "no such"),
        ):
            said = ask(tmp_path, url, place)
            assert said.startswith(f"refused: {place}: ") and why in said and "\n" not in said
