"""`assay tasks NAME --family`: settings, the certificate, and everything that is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from own_families import family_file

from assay import main
from assay import scorer_timeout as guard
from assay.task import read_tasks

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


def build(path: Path, out: Path, *words: str) -> int:
    return main(["tasks", "reverse", "--family", str(path), "--out", str(out), *words])


def test_a_family_of_one_file_builds_splits_and_a_certificate(tmp_path: Path) -> None:
    path, out = family_file(tmp_path), tmp_path / "out"
    assert build(path, out, "--seed", "3", "count=4", "letters=up", "words=[a, b]") == 0
    train, heldout = read_tasks(out / "train.jsonl"), read_tasks(out / "heldout.jsonl")
    assert (len(train), len(heldout)) == (4, 3)
    assert {t.meta["family_origin"] for t in train} == {f"{path}:FAMILY"}
    proof = json.loads((out / "certificate.json").read_text())
    assert proof["ok"] and proof["seed"] == 3
    assert (own := proof["reverse"])["settings"] == own["settings"] | {
        "count": 4,
        "letters": "up",
        "words": ["a", "b"],
    }
    assert own["settings"]["share"] == 0.5
    assert proof["tasks"] == {"train": 4, "heldout": 3}
    assert proof["tracks"]["train"] == {"plain": 4}
    assert own["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert proof["shared"] == {"train and heldout": {"exact": 0, "normalised": 0}}
    data = (out / "train.jsonl").read_bytes()
    assert proof["sha256"]["train.jsonl"] == hashlib.sha256(data).hexdigest()
    assert "python" in proof["versions"]


def test_the_same_seed_gives_the_same_bytes_and_another_one_other_tasks(tmp_path: Path) -> None:
    path = family_file(tmp_path)
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert build(path, tmp_path / name, "--seed", seed) == 0
    one, same, other = ((tmp_path / n / "train.jsonl").read_bytes() for n in "abc")
    assert one == same != other


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("coutn=3", "unknown key coutn; did you mean count?"),
        ("count=many", "count='many' is str; wanted a whole number"),
        ("letters=middle", "letters='middle'; wanted one of low, up"),
        ("words=a", "words='a'; wanted a list such as [a, b]"),
        ("three", "'three' is not a setting; write key=value"),
    ],
)
def test_a_setting_that_cannot_be_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str, said: str
) -> None:
    assert build(family_file(tmp_path), tmp_path / "out", word) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_setting_without_default_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = family_file(tmp_path, "build(seed, count: int = 6,", "build(seed, count: int,")
    assert build(path, tmp_path / "out") == 2
    assert "setting count has no default; give count=VALUE" in capsys.readouterr().err
    assert build(path, tmp_path / "out", "count=2") == 0


SCORE = "    right = answer.text.strip() == task.gold["
REFUSED = [
    ("import random\n", "import no_such_module\n", "No module named 'no_such_module'"),
    ("import random\n", "raise SystemExit(3)\n", "SystemExit: 3 (line 3) while it was loaded"),
    ("    rng = random.Random(seed)", "    raise RuntimeError('no data')", "RuntimeError: no data"),
    ("    rng = random.Random(seed)", "    raise SystemExit(0)", "build of family reverse raised"),
    ("    return made", "    return 7", "returned int; return {'train'"),
    ("    return made", "    return {'train': []}", "gave no task"),
    ("    return made", "    return {'train': ['x']}", "split train holds str; wanted a Task"),
    ("    return made", "    return {'../x': made['train']}", "'../x' is no file name"),
    ("reverse-{number}", "reverse-{number % 2}", "two tasks have the id 'reverse-0'"),
    ('"reverse", "plain"', '"revers", "plain"', "says family 'revers'; wanted 'reverse'"),
    ('{"text": text[::-1]}', '{"text": {1, 2}}', "cannot be written as JSON"),
    (
        'gold=lambda task: task.gold["text"]',
        "gold=lambda task: 'x'",
        "gold scores 0, not 1 (wrong)",
    ),
    ('gold=lambda task: task.gold["text"]', "gold=lambda task: None", "gold is None and family"),
    (
        'gold=lambda task: task.gold["text"]',
        "gold=lambda task: 3",
        "returned int; return an Answer",
    ),
    ('gold=lambda task: task.gold["text"]', "gold=lambda task: task.gold['no']", "KeyError: 'no'"),
    ("    build=build,\n", "", "builds no tasks; give Family(build=…)"),
    (
        SCORE,
        "    if not answer.text: return Score(0.5, 0.5)\n" + SCORE,
        "an empty answer scores 0.5",
    ),
    (SCORE, "    if not answer.text: return Score(0.0, 0.5)\n" + SCORE, "earns a reward of 0.5"),
    (SCORE, "    return Score(float('nan'), 0.0)\n" + SCORE, "outcome is nan; return a finite"),
    (SCORE, "    raise ValueError('broken')\n" + SCORE, "raised ValueError: broken"),
    (SCORE, "    raise SystemExit(0)\n" + SCORE, "raised SystemExit: 0"),
    (SCORE, "    while True: pass\n" + SCORE, "did not end within 0.3 s"),
    ('f"Reverse: {text}"', '"Reverse it."', "splits train and heldout: share 1 contents (1 of"),
]


@pytest.mark.parametrize(("old", "new", "said"), REFUSED)
def test_a_family_that_breaks_a_law_is_refused_and_nothing_is_written(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    old: str,
    new: str,
    said: str,
) -> None:
    monkeypatch.setattr(guard, "SECONDS", 0.3)
    assert build(family_file(tmp_path, old, new), tmp_path / "out") == 2
    message = capsys.readouterr().err
    assert said in message and message.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".py"] in ([], ["__pycache__"])


def test_contents_that_differ_in_case_and_space_alone_are_shared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'f"Reverse: {text}"'
    path = family_file(tmp_path, text, '"ask  me" if split == "train" else "Ask me"')
    assert build(path, tmp_path / "out") == 2
    assert "share 1 contents (0 of them exactly)" in capsys.readouterr().err


def test_a_setting_may_be_put_to_none(tmp_path: Path) -> None:
    path = family_file(tmp_path, "share: float = 0.5", "share: float | None = 0.5")
    assert build(path, tmp_path / "out", "share=none") == 0
    proof = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert proof["reverse"]["settings"]["share"] is None


def test_gold_that_is_run_is_proved(tmp_path: Path) -> None:
    path = family_file(
        tmp_path,
        'gold=lambda task: task.gold["text"]',
        'gold=lambda task: None, proof=lambda task: Answer(task.gold["text"])',
    )
    assert build(path, tmp_path / "out") == 0


def test_an_older_build_is_not_mixed_and_other_files_stay(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert build(family_file(tmp_path), out) == 0
    (out / "notes.txt").write_text("mine")
    assert build(family_file(tmp_path, "", ""), out, "heldout=0", "count=2") == 0
    proof = json.loads((out / "certificate.json").read_text())
    assert proof["tasks"] == {"train": 2, "heldout": 0}
    assert len(read_tasks(out / "train.jsonl")) == 2
    assert (out / "notes.txt").read_text() == "mine"
    assert sorted(p.name for p in out.iterdir()) == [
        "certificate.json",
        "heldout.jsonl",
        "notes.txt",
        "provenance.json",
        "refused.jsonl",
        "train.jsonl",
    ]


def test_a_refused_build_leaves_the_older_one_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert build(family_file(tmp_path), out) == 0
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    assert build(tmp_path / "own.py", out, "count=x") == 2
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_a_name_that_is_no_builder_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "dmeo"]) == 2
    assert "no builder and no family 'dmeo'; did you mean 'demo'?" in capsys.readouterr().err


def test_a_name_that_the_file_does_not_bring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--family", str(family_file(tmp_path)), "--out", str(tmp_path / "out")]
    assert main(["tasks", "revers", *words]) == 2
    assert "--family brings reverse; did you mean 'reverse'?" in capsys.readouterr().err
