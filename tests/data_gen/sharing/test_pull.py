"""A set of tasks pushed and pulled: the same tasks with all their files, or one clear sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shared_sets import asking, bytes_of, mixed_set
from travelling import OWN

from assay.family import use_families
from assay.task import TaskError, read_tasks, write_jsonl
from data_gen.sharing.pull import main as pull
from data_gen.sharing.push import main as push
from rewards.adapters.words import said_gold
from rewards.score import main as score

pytest.importorskip("pyarrow")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return mixed_set(tmp_path)


def there_and_back(place: Path, *words: str) -> Path:
    out, back = place.parent / "data-set", place.parent / "back"
    assert push([str(place), "--out", str(out), *words]) == 0
    assert pull([str(out), "--out", str(back)]) == 0
    return back


def test_a_pulled_set_is_the_set_that_was_pushed(place: Path) -> None:
    back = there_and_back(place)
    old, new = bytes_of(place), bytes_of(back)
    assert {name: new[name] for name in old if name != "train.jsonl"} == {
        name: data for name, data in old.items() if name != "train.jsonl"
    }
    assert set(new) - set(old) == {
        "pulled.json",
        *(f"files/rain/{p.name}" for p in (place.parent / "away/rain").iterdir()),
    }
    tasks, pulled = read_tasks(place / "train.jsonl"), read_tasks(back / "train.jsonl")
    assert [t.to_json() | {"files": 0} for t in tasks] == [
        t.to_json() | {"files": 0} for t in pulled
    ]
    for task, other in zip(tasks, pulled, strict=True):
        for name, path in task.files.items():
            assert bytes_of(back / other.files[name]) == bytes_of(place / path)
            assert (back / other.files[name]).is_dir()


def test_answers_get_the_same_scores(place: Path, tmp_path: Path) -> None:
    use_families([OWN])
    back = there_and_back(place)
    for split in ("train", "heldout"):
        tasks = read_tasks(place / f"{split}.jsonl")
        rows = [{"id": t.id, "output": said_gold(t)} for t in tasks]
        rows += [{"id": t.id, "output": f"{said_gold(t)[:9]}…"} for t in tasks]
        write_jsonl(tmp_path / "outputs.jsonl", rows)
        found: list[bytes] = []
        for folder in (place, back):
            out = tmp_path / f"{folder.name}.scores"
            words = ["--tasks", str(folder / f"{split}.jsonl"), "--out", str(out)]
            assert score([str(tmp_path / "outputs.jsonl"), *words, "--workers", "1"]) == 0
            found.append(out.read_bytes())
        assert found[0] == found[1]
        assert found[0].count(b'"outcome": 1.0') >= len(tasks)


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


def test_without_gold_nothing_leads_to_it(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = read_tasks(place / "train.jsonl")
    shutil.copytree(place / "lakes/rain", place / "deep/one/lake")
    (place / "deep/one/solution.txt").write_text("30\n")
    more = [*tasks, asking("deep", {"lake": "deep/one/lake"})]
    write_jsonl(place / "train.jsonl", (t.to_json() for t in more))
    (place / "provenance.json").write_text('{"command": ["tasks", "lake", "--seed", "41"]}')
    back = there_and_back(place, "--without-gold")
    assert "came without gold" in capsys.readouterr().err
    assert not (back / "deep/one/solution.txt").exists() and (back / "deep/one/lake").is_dir()
    assert not (back / "provenance.json").exists() and not (back / "refused.jsonl").exists()
    kept = json.loads((back / "certificate.json").read_text())
    assert kept == {"ok": True, "tasks": {"train": 7}}
    for task, other in zip(more, read_tasks(back / "train.jsonl"), strict=True):
        assert (task.id, task.prompt, other.gold) == (other.id, other.prompt, {})
        assert set(other.meta) <= {"domain", "licence", "licences", "gold_left_out"}
    outputs = tmp_path / "outputs.jsonl"
    write_jsonl(outputs, [{"id": "in", "output": "30"}])
    scores = tmp_path / "scores.jsonl"
    words = ["--tasks", str(back / "train.jsonl"), "--out", str(scores)]
    assert score([str(outputs), *words]) == 3
    assert "came without its gold" in scores.read_text()


def test_with_gold_what_a_builder_put_beside_a_file_comes_along(place: Path) -> None:
    (place / "harbor/one/environment").mkdir(parents=True)
    (place / "harbor/one/environment/a.txt").write_text("a")
    (place / "harbor/one/tests").mkdir()
    test = place / "harbor/one/tests/test.sh"
    test.write_text("#!/bin/bash\n")
    test.chmod(0o755)
    rows = [asking("h", {"environment": "harbor/one/environment"}).to_json()]
    write_jsonl(place / "train.jsonl", rows)
    back = there_and_back(place)
    assert (back / "harbor/one/tests/test.sh").stat().st_mode & 0o111
    assert not (back / "harbor/one/environment/a.txt").stat().st_mode & 0o111


def broken(change: Callable[[Path, dict[str, Any]], None], place: Path) -> tuple[str, Path]:
    """What pull says of a data set that was changed, and where it should have written to."""
    out, back = place.parent / "data-set", place.parent / "back"
    push([str(place), "--out", str(out)])
    listed = json.loads((out / "assay.json").read_text())
    change(out, listed)
    (out / "assay.json").write_text(json.dumps(listed))
    back.mkdir()
    (back / "kept.txt").write_text("mine")
    with pytest.raises(TaskError) as caught:
        pull([str(out), "--out", str(back)])
    assert bytes_of(back) == {"kept.txt": b"mine"}
    return str(caught.value), back


def test_a_changed_file_is_one_sentence_and_nothing_is_written(place: Path) -> None:
    said, _ = broken(
        lambda d, _: (d / "files/lakes/rain/sites.csv").write_text("x") and None, place
    )
    assert "data-set: files/lakes/rain/sites.csv was changed since it was pushed" in said


def test_a_missing_file_is_one_sentence_and_nothing_is_written(place: Path) -> None:
    said, _ = broken(lambda d, _: (d / "data/train.parquet").unlink(), place)
    assert "data-set: data/train.parquet is missing; get the data set again" in said


def test_a_file_that_nobody_listed_is_missed_by_its_task(place: Path) -> None:
    def change(folder: Path, listed: dict[str, Any]) -> None:
        names = [n for n in listed["files"] if n.startswith("files/lakes/rain")]
        for name in names:
            del listed["files"][name]

    said, _ = broken(change, place)
    assert "task in: its file 'lake' (lakes/rain) did not come along" in said


def test_other_tasks_under_the_right_hash_of_a_file_are_refused(place: Path) -> None:
    def change(folder: Path, listed: dict[str, Any]) -> None:
        listed["splits"][0]["sha256"] = "0" * 64

    said, _ = broken(change, place)
    assert "data/heldout.parquet does not hold the tasks that were pushed" in said


@pytest.mark.parametrize("name", ["../up", "/etc/x", "a/../../b", ""])
def test_a_list_that_leads_outside_is_refused(place: Path, name: str) -> None:
    def change(folder: Path, listed: dict[str, Any]) -> None:
        listed["splits"][0]["file"] = name

    said, _ = broken(change, place)
    assert f"names {name!r}, which is no place in a set of tasks" in said


@pytest.mark.parametrize("path", ["/etc/passwd", "../../away/rain", "lakes/../../x"])
def test_a_task_that_leads_outside_is_refused(place: Path, path: str) -> None:
    """A folder that somebody else made must not hand files of this machine to a model."""
    from assay.files import file_hash
    from data_gen.sharing.columns import row_of, write_parquet

    task = asking("x", {"lake": path})

    def change(folder: Path, listed: dict[str, Any]) -> None:
        import hashlib

        from assay.task import json_line

        with open(folder / "data/train.parquet", "wb") as out:
            write_parquet(out, [row_of(task)])
        (split,) = [s for s in listed["splits"] if s["name"] == "train"]
        split["tasks"], split["sha256"] = 1, hashlib.sha256(json_line(task.to_json())).hexdigest()
        listed["files"]["data/train.parquet"][0] = file_hash(folder / "data/train.parquet")

    said, _ = broken(change, place)
    assert f"task x: its file 'lake' ({path}) did not come along" in said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is no list of a pushed set"),
        ('{"assay_dataset": 2}', "was pushed by a newer Assay"),
        ('{"assay_dataset": 1, "files": 3}', "is no list of a pushed set"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "assay.json").write_text(text)
    with pytest.raises(TaskError, match=why):
        pull([str(tmp_path), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_a_folder_that_nobody_pushed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"holds no assay\.json; give what `assay push` wrote"):
        pull([str(tmp_path), "--out", str(tmp_path / "out")])


def test_a_data_set_whose_push_was_killed_is_refused(place: Path) -> None:
    out = place.parent / "data-set"
    push([str(place), "--out", str(out)])
    (out / ".unfinished").touch()  # what a kill leaves
    with pytest.raises(TaskError, match="a push was killed while it put its files here"):
        pull([str(out), "--out", str(place.parent / "back")])
    push([str(place), "--out", str(out)])
    assert pull([str(out), "--out", str(place.parent / "back")]) == 0


def test_a_second_pull_takes_away_what_the_first_one_left(place: Path) -> None:
    back = there_and_back(place)
    (back / "mine.txt").write_text("kept")
    (place / "heldout.jsonl").unlink()
    rows = [t.to_json() for t in read_tasks(place / "train.jsonl") if t.id != "in"]
    write_jsonl(place / "train.jsonl", rows)
    there_and_back(place)
    assert not (back / "heldout.jsonl").exists() and not (back / "lakes/rain/sites.csv").exists()
    assert (back / "mine.txt").exists() and not (
        place.parent / "data-set/data/heldout.parquet"
    ).exists()


def test_only_some_tracks_and_licences_are_pulled(place: Path) -> None:
    out, back = place.parent / "data-set", place.parent / "back"
    push([str(place), "--out", str(out)])
    pull([str(out), "--out", str(back), "--licence", "cc0,mit", "--track", "lake-*"])
    assert [t.id for t in read_tasks(back / "train.jsonl")] == ["in", "none"]
    with pytest.raises(TaskError, match=r"no task is left by --licence GPL; there are tracks"):
        pull([str(out), "--out", str(back), "--licence", "GPL"])


def test_one_file_travels_as_a_folder_does(place: Path, tmp_path: Path) -> None:
    plain = there_and_back(place)
    for name in ("set.tar.gz", "again/set.tar.gz"):
        push([str(place), "--out", str(tmp_path / name), "--name", "rain"])
    packed = tmp_path / "set.tar.gz"
    assert packed.read_bytes() == (tmp_path / "again/set.tar.gz").read_bytes()
    for source in (str(packed), packed.as_uri()):
        pull([source, "--out", str(tmp_path / "one")])
        found = bytes_of(tmp_path / "one")
        assert found.pop("pulled.json")
        assert found == {k: v for k, v in bytes_of(plain).items() if k != "pulled.json"}
        assert (tmp_path / "one/lakes/empty").is_dir()
        shutil.rmtree(tmp_path / "one")


@pytest.mark.parametrize("kept", [0, 40, 2000])
def test_half_an_archive_is_refused(place: Path, tmp_path: Path, kept: int) -> None:
    push([str(place), "--out", str(tmp_path / "set.tgz")])
    data = (tmp_path / "set.tgz").read_bytes()
    assert kept < len(data)
    (tmp_path / "set.tgz").write_bytes(data[:kept])
    with pytest.raises(TaskError, match=r"set\.tgz"):
        pull([str(tmp_path / "set.tgz"), "--out", str(tmp_path / "back")])
    assert not (tmp_path / "back").exists()
