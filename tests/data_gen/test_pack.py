"""A set of tasks in one archive: whole, relative, and the same bytes each time."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from assay.task import Task, TaskError, read_tasks, write_jsonl
from data_gen.pack import pack


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """As `filter="data"`, which Python 3.11 knows from 3.11.4 on."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
    else:
        archive.extractall(folder)


def task(name: str, files: dict[str, str]) -> Task:
    return Task(name, "table", "x", "train", [{"role": "user", "content": "q"}], {}, files=files)


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Tasks that name a file and a folder of their own, and two of one name elsewhere."""
    for place in ("T/own/lake", "away/lake", "far/lake"):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "a.csv").write_text(f"{place}\n")
    rows = [
        task("1", {"data": "own/lake", "one": "own/lake/a.csv"}),
        task("2", {"data": "../away/lake"}),
        task("3", {"data": str(tmp_path / "far/lake")}),
    ]
    write_jsonl(tmp_path / "T/train.jsonl", (row.to_json() for row in rows))
    (tmp_path / "T/sub").mkdir()
    write_jsonl(tmp_path / "T/sub/heldout.jsonl", [task("4", {"d": "../own/lake"}).to_json()])
    write_jsonl(tmp_path / "T/other.jsonl", [{"no": "task"}])
    (tmp_path / "T/certificate.json").write_text("{}")
    return tmp_path / "T"


def test_what_is_unpacked_elsewhere_has_every_file(tasks: Path, tmp_path: Path) -> None:
    assert pack(tasks, tmp_path / "T.tar.gz") == (4, 3)
    new = tmp_path / "new"
    with tarfile.open(tmp_path / "T.tar.gz") as archive:
        unpack(archive, new)
    found = {
        row.id: {k: (path.parent / v / "a.csv").read_text().strip() for k, v in row.files.items()}
        for path in (new / "T/train.jsonl", new / "T/sub/heldout.jsonl")
        for row in map(without_single, read_tasks(path))
    }
    assert found == {
        "1": {"data": "T/own/lake"},
        "2": {"data": "away/lake"},
        "3": {"data": "far/lake"},
        "4": {"d": "T/own/lake"},
    }
    assert (new / "T/certificate.json").is_file() and not (new / "T/other.jsonl").exists()
    every = [p for row in read_tasks(new / "T/train.jsonl") for p in row.files.values()]
    assert not [p for p in every if Path(p).is_absolute() or p.startswith("..")]


def without_single(row: Task) -> Task:
    return Task(
        row.id,
        row.family,
        row.track,
        row.split,
        row.prompt,
        row.gold,
        files={k: v for k, v in row.files.items() if k != "one"},
    )


def test_the_same_tasks_give_the_same_bytes(tasks: Path, tmp_path: Path) -> None:
    pack(tasks, tmp_path / "a.tar.gz")
    (tasks / "own/lake/a.csv").touch()
    pack(tasks, tmp_path / "b.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_what_a_builder_put_beside_a_file_is_packed_too(tmp_path: Path) -> None:
    """A task directory: the task names what the model sees, and its verifier lies beside that."""
    for part in ("environment", "tests"):
        (tmp_path / "T/made/one" / part).mkdir(parents=True)
        (tmp_path / "T/made/one" / part / "a.txt").write_text(part)
    rows = [task("1", {"environment": "made/one/environment"}).to_json()]
    write_jsonl(tmp_path / "T/train.jsonl", rows)
    assert pack(tmp_path / "T", tmp_path / "T.tar.gz") == (1, 2)
    with tarfile.open(tmp_path / "T.tar.gz") as archive:
        assert "T/made/one/tests/a.txt" in archive.getnames()


def test_a_file_outside_takes_no_place_of_one_inside(tmp_path: Path) -> None:
    for place in ("T/files", "away"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "a.csv").write_text(place)
    rows = [task("1", {"in": "files/a.csv", "out": "../away/a.csv"}).to_json()]
    write_jsonl(tmp_path / "T/train.jsonl", rows)
    assert pack(tmp_path / "T", tmp_path / "T.tar.gz") == (1, 2)
    with tarfile.open(tmp_path / "T.tar.gz") as archive:
        unpack(archive, tmp_path / "new")
    (found,) = read_tasks(tmp_path / "new/T/train.jsonl")
    texts = [(tmp_path / "new/T" / path).read_text() for path in found.files.values()]
    assert texts == ["T/files", "away"]


def test_a_file_that_is_missing_is_named(tasks: Path, tmp_path: Path) -> None:
    (tmp_path / "away/lake/a.csv").unlink()
    (tmp_path / "away/lake").rmdir()
    with pytest.raises(TaskError, match=r"task 2: its file 'data' is not at \.\./away/lake"):
        pack(tasks, tmp_path / "T.tar.gz")
    assert not (tmp_path / "T.tar.gz").exists()


def test_a_folder_without_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="holds no task file"):
        pack(tmp_path, tmp_path / "x.tar.gz")
    with pytest.raises(TaskError, match="no such folder"):
        pack(tmp_path / "nowhere", tmp_path / "x.tar.gz")
