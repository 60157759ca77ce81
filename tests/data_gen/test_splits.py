"""What is held out is what the user says, and a split that is missing is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from own_families import family_file

from assay import family as families
from assay import main
from assay.task import Task, read_tasks
from data_gen.corpora import CorpusError, Document, read_corpus
from data_gen.splits import read_list, split_documents

SMALL = ["train_sft=12", "train_rl=8", "heldout=10", "validation=6"]


pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


def documents(count: int) -> list[Document]:
    return [Document(f"d{i}", "web", "s", "CC0", f"Text {i}.") for i in range(count)]


def test_listed_documents_are_held_out_and_count_in_the_share() -> None:
    listed = {"d3", "d7"}
    for share, size in ((0.0, 2), (0.5, 10)):
        train, heldout = split_documents(documents(20), share, 1, listed)
        assert listed <= {d.id for d in heldout} and len(heldout) == size
        assert len(train) + len(heldout) == 20
    with pytest.raises(CorpusError, match="no document has the id 'x'"):
        split_documents(documents(3), 0.5, 1, {"x"})


def test_a_list_has_comments_and_may_not_be_empty(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("# ours\na b # why\n\n  c#1\n")
    assert read_list(str(tmp_path / "list")) == {"a b", "c#1"}
    assert read_list(None) == frozenset()
    (tmp_path / "list").write_text("# nothing\n")
    with pytest.raises(CorpusError, match="no id in it"):
        read_list(str(tmp_path / "list"))
    with pytest.raises(CorpusError, match="cannot be read"):
        read_list(str(tmp_path / "gone"))


@pytest.mark.parametrize("builder", ["demo", "order"])
def test_builders_keep_three_sides_apart(builder: str, tmp_path: Path) -> None:
    chosen = sorted(d.id for d in read_corpus().documents)[::40]
    (tmp_path / "list").write_text("\n".join(chosen))
    words = ["--out", str(tmp_path / "t"), "--heldout", str(tmp_path / "list"), *SMALL]
    shares = ["--heldout-share", "0.3", "--validation-share", "0.2"]
    assert main(["tasks", builder, *words, *shares]) == 0
    found = {
        name: read_tasks(tmp_path / "t" / f"{name}.jsonl")
        for name in ("train_sft", "train_rl", "validation", "heldout")
    }
    sides = {name: {t.meta["document"] for t in tasks} for name, tasks in found.items()}
    train = sides["train_sft"] | sides["train_rl"]
    assert found["validation"] and found["heldout"]
    assert not train & sides["validation"] and not train & sides["heldout"]
    assert not sides["validation"] & sides["heldout"]
    assert not (train | sides["validation"]) & set(chosen)
    proof = json.loads((tmp_path / "t" / "certificate.json").read_text())
    assert proof["ok"] and "train_sft and validation" in proof["shared"]


def test_held_out_tasks_do_not_depend_on_validation(tmp_path: Path) -> None:
    for count in (0, 6):
        out = tmp_path / str(count)
        assert main(["tasks", "demo", "--out", str(out), *SMALL[:3], f"validation={count}"]) == 0
    one, two = ((tmp_path / n / "heldout.jsonl").read_bytes() for n in ("0", "6"))
    assert one == two and not (tmp_path / "0" / "validation.jsonl").exists()


def test_an_empty_split_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train_sft=4", "train_rl=4", "heldout=0", "validation=0"]
    assert main(["tasks", "demo", "--out", str(tmp_path / "t"), *words]) == 0
    said = capsys.readouterr().err
    assert "heldout.jsonl is empty: there is nothing to test on" in said
    assert "validation.jsonl was not written: there is nothing to choose settings on" in said


def own(folder: Path, *words: str) -> tuple[int, dict[str, list[Task]]]:
    family = family_file(folder, 'made["heldout"] = [task(count', 'made["x"] = [task(count')
    out = folder / "out"
    code = main(["tasks", "reverse", "--family", str(family), "--out", str(out), *words])
    files = [p for p in out.glob("*.jsonl") if p.name != "refused.jsonl"]
    return code, {p.stem: read_tasks(p) for p in files}


def test_own_families_are_split_by_source_where_the_user_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, plain = own(tmp_path, "count=10")
    assert code == 0 and set(plain) == {"train", "x"}
    assert "--heldout-share 0.2" in capsys.readouterr().err
    (tmp_path / "list").write_text("reverse-4\n")
    shares = ["--heldout-share", "0.3", "--validation-share", "0.2"]
    code, split = own(tmp_path, "count=10", *shares, "--heldout", str(tmp_path / "list"))
    assert code == 0
    assert {n: len(t) for n, t in split.items()} == {
        "train": 6,
        "validation": 1,
        "heldout": 3,
        "x": 3,
    }
    assert "reverse-4" in {t.id for t in split["heldout"]}
    assert all(t.split == "heldout" for t in split["heldout"])
    assert (
        own(tmp_path, "count=10", *shares)[1]["validation"]
        == own(tmp_path, "count=10", *shares)[1]["validation"]
    )


def test_what_cannot_be_split_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "list").write_text("nobody\n")
    assert own(tmp_path, "--heldout", str(tmp_path / "list"))[0] == 2
    assert "no task of split train has the id or source 'nobody'" in capsys.readouterr().err
    assert own(tmp_path, "count=1", "--heldout-share", "0.5")[0] == 2
    assert "nothing would be left to train on" in capsys.readouterr().err
    (tmp_path / "whole").mkdir()
    families._added.clear()
    family, out = str(family_file(tmp_path / "whole")), str(tmp_path / "o")
    words = ["tasks", "reverse", "--family", family, "--out", out, "--heldout-share", "0.5"]
    assert main(words) == 2
    assert "gives 3 tasks for heldout itself" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*words[:-1], "1.5"])
    assert "1.5: wanted a share from 0 to below 1" in capsys.readouterr().err
