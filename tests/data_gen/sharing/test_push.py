"""What `assay push` writes: the card, the columns, only what was asked for; to folders and URLs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from places import ROOT
from shared_sets import asking, bytes_of, mixed_set

from assay.task import TaskError, read_tasks, write_jsonl
from data_gen.sharing.pull import main as pull
from data_gen.sharing.push import main as push

pytest.importorskip("pyarrow")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return mixed_set(tmp_path)


def test_the_card_says_what_readers_of_data_sets_look_for(place: Path, tmp_path: Path) -> None:
    push([str(place), "--out", str(tmp_path / "d"), "--name", "Rain | years"])
    text = (tmp_path / "d/README.md").read_text()
    front = yaml.safe_load(text.split("---\n")[1])
    (config,) = front["configs"]
    assert [part["split"] for part in config["data_files"]] == ["heldout", "train"]
    assert all((tmp_path / "d" / part["path"]).is_file() for part in config["data_files"])
    assert front["pretty_name"] == "Rain | years" and front["size_categories"] == ["n<1K"]
    assert {"mit", "cc0-1.0", "cc-by-4.0", "other"} <= set(front["license"])
    assert "Gold travels with the tasks" in text and "| CC0 | 2 |" in text
    assert "| validation | `data/validation.parquet` | 0 |" in text


def test_datasets_loads_it_without_a_script(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets", reason="not installed; `make test-interop`")
    push([str(place), "--out", str(tmp_path / "d")])
    found = datasets.load_dataset(str(tmp_path / "d"), cache_dir=str(tmp_path / "cache"))
    assert set(found) == {"heldout", "train"}
    for name, rows in found.items():
        tasks = read_tasks(place / f"{name}.jsonl")
        assert rows["id"] == [task.id for task in tasks]
        assert list(rows["prompt"]) == [task.prompt for task in tasks]
    assert found["train"][-1]["licences"] == ["CC0", "MIT"]


def test_a_part_of_a_set_takes_its_files_alone(place: Path, tmp_path: Path) -> None:
    push([str(place), "--out", str(tmp_path / "d"), "--track", "lake-away"])
    files = [name for name in bytes_of(tmp_path / "d") if name.endswith(".csv")]
    assert files and all(name.startswith("files/files/rain/") for name in files)
    with pytest.raises(TaskError, match="no task is left by --track none; there are tracks"):
        push([str(place), "--out", str(tmp_path / "e"), "--track", "none"])
    assert not bytes_of(tmp_path / "e")


def test_a_set_goes_to_a_url_and_comes_back(place: Path, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    url = "memory://pushed/rain"
    push([str(place), "--out", url])
    push([str(place), "--out", str(tmp_path / "rain")])
    system = fsspec.filesystem("memory")
    found = {
        str(name).removeprefix("/pushed/rain/"): system.cat_file(name)
        for name in system.find("/pushed/rain")
    }
    assert found == bytes_of(tmp_path / "rain")
    pull([url, "--out", str(tmp_path / "one")])
    pull([str(tmp_path / "rain"), "--out", str(tmp_path / "two")])
    one, two = bytes_of(tmp_path / "one"), bytes_of(tmp_path / "two")
    assert one.pop("pulled.json") != two.pop("pulled.json") and one == two
    # a smaller set takes its place whole, and one that lost a file is refused
    push([str(place), "--out", url, "--track", "lake-away"])
    assert not [name for name in system.find("/pushed/rain") if "sites" in name and "lakes" in name]
    system.rm_file("/pushed/rain/data/train.parquet")
    with pytest.raises(TaskError, match=r"data/train\.parquet is missing"):
        pull([url, "--out", str(tmp_path / "three")])
    with pytest.raises(TaskError, match=r"memory://nowhere/assay\.json: no such file"):
        pull(["memory://nowhere", "--out", str(tmp_path / "four")])
    system.rm("/pushed", recursive=True)


def test_a_hub_that_cannot_be_reached_is_one_sentence(place: Path, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    for words in (
        ["push", str(place), "--out", "hf://datasets/me/rain"],
        ["pull", "hf://datasets/me/rain", "--out", str(tmp_path / "back")],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "assay", *words],
            cwd=ROOT,
            env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"},
            capture_output=True,
            text=True,
            check=False,
        )
        said = f"assay {words[0]}: hf://datasets/me/rain: the hub cannot be used ("
        assert (done.returncode, done.stderr.startswith(said)) == (2, True), done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("name", ["hf://me/rain", "hf://datasets/rain", "hf://models/me/rain"])
def test_a_place_of_the_hub_that_is_no_data_set_is_refused(place: Path, name: str) -> None:
    with pytest.raises(TaskError, match="wanted hf://datasets/OWNER/NAME"):
        push([str(place), "--out", name])


def test_what_is_no_set_is_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no such folder; give the one that `assay tasks` wrote"):
        push([str(tmp_path / "nowhere"), "--out", str(tmp_path / "d")])
    with pytest.raises(TaskError, match="holds no task; give the folder"):
        push([str(place / "lakes"), "--out", str(tmp_path / "d")])
    with pytest.raises(TaskError, match="is the set itself"):
        push([str(place), "--out", str(place)])
    write_jsonl(place / "train.jsonl", [asking("x", {"lake": "lakes/gone"}).to_json()])
    with pytest.raises(TaskError, match="task x: its file 'lake' is not at lakes/gone"):
        push([str(place), "--out", str(tmp_path / "d")])
    write_jsonl(place / "train.jsonl", [asking("x", {"lake": "."}).to_json()])
    with pytest.raises(TaskError, match="names this whole folder"):
        push([str(place), "--out", str(tmp_path / "d")])
    assert not bytes_of(tmp_path / "d")
