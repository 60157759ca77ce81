"""What is held out is what the user says, what belongs together stays so, and a split that is
missing is said."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_families import family_file

from assay import main
from assay.task import Task, read_tasks
from data_gen.corpora import read_corpus
from data_gen.overlap import Together
from data_gen.splits import sides_of

SMALL = ["train_sft=12", "train_rl=8", "heldout=10", "validation=6"]
pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


@given(st.integers(1, 30), st.sampled_from((0.0, 0.01, 0.4)), st.sampled_from((0.0, 0.01, 0.4)))
def test_a_share_takes_one_at_least_and_leaves_one(n: int, held: float, valid: float) -> None:
    side = [*sides_of(map(str, range(n)), held, valid, rank=str).values()]
    assert (side.count("heldout") > 0) == (held > 0 and n > 1)
    left = n - side.count("heldout")
    assert (side.count("validation") > 0) == (valid > 0 and left > 1) and "train" in side


@pytest.mark.parametrize("builder", ["demo", "order"])
def test_builders_keep_three_sides_apart(builder: str, tmp_path: Path) -> None:
    chosen = sorted(d.id for d in read_corpus().documents)[::40]
    (tmp_path / "list").write_text("\n".join(chosen))
    words = ["--out", str(tmp_path / "t"), "--heldout", str(tmp_path / "list"), *SMALL]
    shares = ["--heldout-share", "0.3", "--validation-share", "0.2"]
    assert main(["tasks", builder, *words, *shares]) == 0
    names = ("train_sft", "train_rl", "validation", "heldout")
    found = {n: read_tasks(tmp_path / "t" / f"{n}.jsonl") for n in names}
    sides = {name: {t.meta["document"] for t in tasks} for name, tasks in found.items()}
    train, validation, heldout = sides["train_sft"] | sides["train_rl"], *list(sides.values())[2:]
    assert validation and heldout
    assert not train & validation and not train & heldout and not validation & heldout
    assert not (train | validation) & set(chosen)
    proof = json.loads((tmp_path / "t" / "certificate.json").read_text())
    assert proof["ok"] and "train_sft and validation" in proof["shared"]


def own(folder: Path, *words: str) -> tuple[int, dict[str, list[Task]]]:
    family = family_file(folder, 'made["heldout"] = [task(count', 'made["x"] = [task(count')
    out = folder / "out"
    code = main(["tasks", "reverse", "--family", str(family), "--out", str(out), *words])
    files = [p for p in out.glob("*.jsonl") if p.name != "refused.jsonl"]
    return code, {p.stem: read_tasks(p) for p in files}


def test_own_families_are_split_by_source_where_the_user_asks(tmp_path: Path) -> None:
    code, plain = own(tmp_path, "count=10")
    assert code == 0 and set(plain) == {"train", "x"}
    (tmp_path / "list").write_text("# ours\nreverse-4 # why\n\n")
    shares = ["count=10", "--heldout-share", "0.3", "--validation-share", "0.2"]
    code, split = own(tmp_path, *shares, "--heldout", str(tmp_path / "list"))
    sizes = {name: len(tasks) for name, tasks in split.items()}
    assert (code, sizes) == (0, {"train": 6, "validation": 1, "heldout": 3, "x": 3})
    assert "reverse-4" in {t.id for t in split["heldout"]}
    assert all(t.split == "heldout" for t in split["heldout"])
    assert own(tmp_path, *shares) == own(tmp_path, *shares)


NAMES = [f"n{i:02d}" for i in range(12)]


LINKS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=20)


@given(LINKS, st.randoms(use_true_random=False))
def test_groups_are_what_following_every_link_gives(
    pairs: list[tuple[str, str]], rng: Random
) -> None:
    plain = {name: {name} for name in NAMES}
    for one, two in pairs:
        whole = plain[one] | plain[two]
        plain |= dict.fromkeys(whole, whole)
    made = Together()
    rng.shuffle(pairs)
    for one, two in pairs:
        made.join(one, two)
    assert made.heads(NAMES) == {name: min(plain[name]) for name in NAMES}
