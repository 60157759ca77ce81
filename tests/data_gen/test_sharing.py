"""Sets of tasks pushed and pulled: the same tasks with all their files, or one clear sentence."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_lake import make_lake
from travelling import demo_tasks, own_tasks

from assay.files import file_hash
from assay.task import Task, TaskError, json_line, read_tasks, write_jsonl
from data_gen.dataset import row_of, write_parquet
from data_gen.pull import main as pull
from data_gen.push import main as push
from rewards.score import main as score

pytest.importorskip("pyarrow")


def asking(name: str, files: dict[str, str], **more: Any) -> Task:
    """A question over a lake."""
    row: dict[str, Any] = {
        **{"id": name, "family": "answer", "track": "lake-rain", "split": "train"},
        "prompt": [{"role": "user", "content": f"How many years are there ({name})?"}],
        "gold": {"answer_type": "numeric_exact", "answer": 30, "subtasks": []},
        "files": files,
        "meta": {"licences": ["CC0", "MIT"], "draw": 7},
    }
    return Task.from_json(row | more)


def write(path: Path, tasks: list[Task]) -> None:
    write_jsonl(path, (task.to_json() for task in tasks))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Texts, and questions over a lake inside of the set, one beside it, and an empty folder."""
    place = tmp_path / "T"
    make_lake(place / "lakes" / "rain", settled=True)
    make_lake(tmp_path / "away" / "rain", settled=True)
    (place / "lakes" / "empty").mkdir()
    away = asking("out", {"lake": "../away/rain"}, track="lake-away", meta={"licence": "CC-BY-4.0"})
    lakes = [asking("in", {"lake": "lakes/rain"}), away, asking("none", {"lake": "lakes/empty"})]
    write(place / "train.jsonl", [*demo_tasks(6)[:4], *lakes])
    write(place / "heldout.jsonl", own_tasks(3))
    write(place / "validation.jsonl", [])
    write_jsonl(place / "refused.jsonl", [{"name": "x", "why": ["too short"]}])
    (place / "certificate.json").write_text('{"ok": true, "seed": 41, "tasks": {"train": 7}}\n')
    return place


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}


def there_and_back(place: Path, *words: str) -> Path:
    out, back = place.parent / "data-set", place.parent / "back"
    assert push([str(place), "--out", str(out), *words]) == 0
    assert pull([str(out), "--out", str(back)]) == 0
    return back


# numbers, texts and keys that a column of one type, or text without its escapes, would lose
ODD = [1.0, 1, True, None, float("inf"), 2**70, "half a \ud800 character", {"": [{}], "a": [[]]}]


def test_a_pulled_set_is_the_set_that_was_pushed(place: Path) -> None:
    plain = own_tasks(3)
    asked = [*plain[0].prompt, {"role": "user", "content": "\u2028", "name": "x"}]
    odd = replace(plain[0], id="odd", prompt=asked, gold={"x": ODD}, meta={"x": ODD}, group="g")
    write(place / "heldout.jsonl", [*plain, odd])
    back = there_and_back(place)
    old, new = bytes_of(place), bytes_of(back)
    assert all(new[name] == data for name, data in old.items() if name != "train.jsonl")
    away = {f"files/rain/{p.name}" for p in (place.parent / "away/rain").iterdir()}
    assert set(new) - set(old) == {"pulled.json", *away}
    tasks, pulled = (read_tasks(folder / "train.jsonl") for folder in (place, back))
    for task, other in zip(tasks, pulled, strict=True):
        assert task.to_json() | {"files": 0} == other.to_json() | {"files": 0}
        for name, path in task.files.items():
            assert (back / other.files[name]).is_dir()
            assert bytes_of(back / other.files[name]) == bytes_of(place / path)
    # a second one takes away what the first one left
    (back / "mine.txt").write_text("kept")
    (place / "heldout.jsonl").unlink()
    write(place / "train.jsonl", [task for task in tasks if task.id != "in"])
    there_and_back(place)
    assert not (back / "heldout.jsonl").exists() and not (back / "lakes/rain/sites.csv").exists()
    assert (back / "mine.txt").exists()
    assert not (place.parent / "data-set/data/heldout.parquet").exists()


def test_the_same_set_gives_the_same_bytes(place: Path, tmp_path: Path) -> None:
    for out in ("one/x", "two/x"):
        push([str(place), "--out", str(tmp_path / out)])
        (place / "train.jsonl").touch()
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")
    # what was pulled is pushed again as what it came from
    pull([str(tmp_path / "one/x"), "--out", str(tmp_path / "back")])
    (tmp_path / "back/pulled.json").unlink()
    push([str(tmp_path / "back"), "--out", str(tmp_path / "three/x")])
    assert bytes_of(tmp_path / "three") == bytes_of(tmp_path / "one")
    # one file travels as a folder does
    packed = tmp_path / "x.tar.gz"
    push([str(place), "--out", str(packed), "--name", "rain"])
    pull([packed.as_uri(), "--out", str(tmp_path / "unpacked")])
    found = bytes_of(tmp_path / "unpacked")
    assert found.pop("pulled.json") and found == bytes_of(tmp_path / "back")
    assert (tmp_path / "unpacked/lakes/empty").is_dir()
    (tmp_path / "half.tgz").write_bytes(packed.read_bytes()[:2000])
    with pytest.raises(TaskError, match=r"half\.tgz"):
        pull([str(tmp_path / "half.tgz"), "--out", str(tmp_path / "no")])
    assert not (tmp_path / "no").exists()


def test_without_gold_nothing_leads_to_it(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "lakes/rain", place / "deep/one/lake")
    (place / "deep/one/solution.txt").write_text("30\n")
    tasks = [*read_tasks(place / "train.jsonl"), asking("deep", {"lake": "deep/one/lake"})]
    write(place / "train.jsonl", tasks)
    (place / "provenance.json").write_text('{"command": ["tasks", "lake", "--seed", "41"]}')
    back = there_and_back(place, "--without-gold")
    assert not (back / "deep/one/solution.txt").exists() and (back / "deep/one/lake").is_dir()
    assert not (back / "provenance.json").exists() and not (back / "refused.jsonl").exists()
    kept = json.loads((back / "certificate.json").read_text())
    assert kept == {"ok": True, "tasks": {"train": 7}}
    for task, other in zip(tasks, read_tasks(back / "train.jsonl"), strict=True):
        assert (task.id, task.prompt, other.gold) == (other.id, other.prompt, {})
        assert set(other.meta) <= {"domain", "licence", "licences", "gold_left_out"}
    write_jsonl(tmp_path / "outputs.jsonl", [{"id": "in", "output": "30"}])
    scores = tmp_path / "scores.jsonl"
    words = ["--tasks", str(back / "train.jsonl"), "--out", str(scores)]
    assert score([str(tmp_path / "outputs.jsonl"), *words]) == 3
    assert "came without its gold" in scores.read_text()


def test_with_gold_what_a_builder_put_beside_a_file_comes_along(place: Path) -> None:
    for name, text in (("environment/a.txt", "a"), ("tests/test.sh", "#!/bin/bash\n")):
        (place / "harbor/one" / name).parent.mkdir(parents=True)
        (place / "harbor/one" / name).write_text(text)
    (place / "harbor/one/tests/test.sh").chmod(0o755)
    write(place / "train.jsonl", [asking("h", {"environment": "harbor/one/environment"})])
    back = there_and_back(place)
    assert (back / "harbor/one/tests/test.sh").stat().st_mode & 0o111
    assert not (back / "harbor/one/environment/a.txt").stat().st_mode & 0o111


def test_a_part_of_a_set_takes_its_files_alone(place: Path, tmp_path: Path) -> None:
    push([str(place), "--out", str(tmp_path / "d"), "--track", "lake-away"])
    files = [name for name in bytes_of(tmp_path / "d") if name.endswith(".csv")]
    assert files and all(name.startswith("files/files/rain/") for name in files)
    back = there_and_back(place)
    more = ["--out", str(back), "--licence", "cc0,mit", "--track", "lake-*"]
    pull([str(place.parent / "data-set"), *more])
    assert [t.id for t in read_tasks(back / "train.jsonl")] == ["in", "none"]


# --- data sets that are not whole

Change = Callable[[Path, dict[str, Any]], object]


def _other_file(path: str) -> Change:
    """A task that names a file that leads outside: a folder that somebody else made must not hand
    files of this machine to a model."""

    def change(folder: Path, listed: dict[str, Any]) -> None:
        task = asking("x", {"lake": path})
        with open(folder / "data/train.parquet", "wb") as out:
            write_parquet(out, [row_of(task)])
        (split,) = [s for s in listed["splits"] if s["name"] == "train"]
        split["tasks"], split["sha256"] = 1, hashlib.sha256(json_line(task.to_json())).hexdigest()
        listed["files"]["data/train.parquet"][0] = file_hash(folder / "data/train.parquet")

    return change


def _unlisted(_: Path, listed: dict[str, Any]) -> None:
    for name in [n for n in listed["files"] if n.startswith("files/lakes/rain")]:
        del listed["files"][name]


CHANGES: list[tuple[Change, str]] = [
    (lambda d, _: (d / "files/lakes/rain/sites.csv").write_text("x"), "sites.csv was changed"),
    (lambda d, _: (d / "data/train.parquet").unlink(), "data/train.parquet is missing"),
    (_unlisted, "task in: its file 'lake'"),
    (lambda _, row: row["splits"][0].update(sha256="0" * 64), "data/heldout.parquet does not hold"),
    *(
        (lambda _, row, name=name: row["splits"][0].update(file=name), f"names {name!r}")
        for name in ("../up", "/etc/x", "a/../../b", "")
    ),
    *(
        (_other_file(path), f"task x: its file 'lake' ({path})")
        for path in ("/etc/passwd", "../../away/rain", "lakes/../../x")
    ),
    (lambda _, row: row.update(assay_dataset=2), "newer Assay"),
    (lambda d, _: (d / ".unfinished").touch(), "a push was killed"),
]


@pytest.mark.parametrize(("change", "why"), CHANGES)
def test_a_set_that_is_not_what_was_pushed_writes_nothing(
    place: Path, change: Change, why: str
) -> None:
    out, back = place.parent / "data-set", place.parent / "back"
    push([str(place), "--out", str(out)])
    listed = json.loads((out / "assay.json").read_text())
    change(out, listed)
    (out / "assay.json").write_text(json.dumps(listed))
    back.mkdir()
    (back / "kept.txt").write_text("mine")
    with pytest.raises(TaskError) as caught:
        pull([str(out), "--out", str(back)])
    assert why in str(caught.value) and bytes_of(back) == {"kept.txt": b"mine"}
    push([str(place), "--out", str(out)])  # which mends it
    assert pull([str(out), "--out", str(back)]) == 0


@pytest.mark.parametrize(
    ("lake", "why"), [("lakes/gone", "is not at lakes/gone"), (".", "this whole folder")]
)
def test_a_task_whose_files_cannot_travel_is_refused(place: Path, lake: str, why: str) -> None:
    write(place / "train.jsonl", [asking("x", {"lake": lake})])
    with pytest.raises(TaskError, match=why):
        push([str(place), "--out", str(place.parent / "d")])
    assert not bytes_of(place.parent / "d")


# --- cards, columns, places


def test_the_card_says_what_readers_of_data_sets_look_for(place: Path, tmp_path: Path) -> None:
    push([str(place), "--out", str(tmp_path / "d"), "--name", "Rain | years"])
    text = (tmp_path / "d/README.md").read_text()
    front = yaml.safe_load(text.split("---\n")[1])
    (config,) = front["configs"]
    assert [part["split"] for part in config["data_files"]] == ["heldout", "train"]
    assert all((tmp_path / "d" / part["path"]).is_file() for part in config["data_files"])
    assert {"mit", "cc0-1.0", "cc-by-4.0", "other"} <= set(front["license"])


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


def test_a_set_goes_to_a_url_and_comes_back(place: Path, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    url, top, system = "memory://pushed/rain", "/pushed/rain/", fsspec.filesystem("memory")
    push([str(place), "--out", url])
    push([str(place), "--out", str(tmp_path / "rain")])
    found = {str(name).removeprefix(top): system.cat_file(name) for name in system.find(top)}
    assert found == bytes_of(tmp_path / "rain")
    pull([url, "--out", str(tmp_path / "one")])
    assert bytes_of(tmp_path / "one/lakes/rain") == bytes_of(place / "lakes/rain")
    # a smaller set takes its place whole, and one that lost a file is refused
    push([str(place), "--out", url, "--track", "lake-away"])
    assert not [name for name in system.find(top) if "sites" in name and "lakes" in name]
    system.rm_file(f"{top}data/train.parquet")
    with pytest.raises(TaskError, match=r"data/train\.parquet is missing"):
        pull([url, "--out", str(tmp_path / "three")])
    system.rm("/pushed", recursive=True)
