"""What a command cannot do it refuses: with exit status 2, and one sentence that names what is
wrong. Nothing is written."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from dare_worlds import sold_houses
from mixed_tasks import refinement, write_mixed
from own_families import family_file
from places import tables
from small_corpus import write_corpus

import assay
from assay import family as families
from assay.task import write_jsonl

pytest.importorskip("duckdb", reason="needs the extra `build`")
pytestmark = pytest.mark.usefixtures("no_family_of_another_test")

TABLE = tables("refused_commands")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small inputs."""
    top = tmp_path_factory.mktemp("world")
    write_mixed(top)
    (top / "in").mkdir()
    (top / "empty").mkdir()
    for name, text in TABLE["files"].items():
        (top / name).parent.mkdir(exist_ok=True)
        (top / name).write_text(text)
    sold_houses().to_csv(top / "in" / "houses.csv", index=False)
    write_corpus(top / "corpus", 4)
    family_file(top)
    one = refinement(1, "KEEP", 1).to_json()
    said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    right = {"task_id": "t", "sample": 0, "outcome": 1.0, "reward": 1.0, "track": "own"}
    right |= {"tokens": 1, "messages": said}
    for name, rows in {
        "one": [one],
        "one/train": [one],
        "nobody": [one | {"family": "nobody"}],
        "right": [right],
        "twice": [right] * 2,
        "wrong": [right | {"outcome": 0.0}],
        "published": [right | {"published": True}],
    }.items():
        write_jsonl(top / f"{name}.jsonl", rows)
    return top


Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    families._added.clear()  # pyright: ignore[reportPrivateUsage]


def refused(words: str, capsys: Said) -> str:
    """The sentence with which a command refuses; of a builder all lines, which speak of its inputs
    too."""
    try:
        status = assay.main(shlex.split(words))
    except SystemExit as ended:  # the parser's own
        status = ended.code
    *above, last = said = capsys.readouterr().err.strip().splitlines()
    assert status == 2
    assert not [*Path("out").rglob("train*.jsonl"), *Path("out").glob("*.parquet")]
    assert not Path("o", "results.json").exists() and not Path("view.html").exists()
    if words.startswith("tasks "):
        return "\n".join(said)
    assert not above or above[0].startswith("usage: ")
    return last


def test_an_unknown_command_is_named_above_the_known_ones(capsys: Said) -> None:
    assert assay.main(["rollot"]) == 2
    assert capsys.readouterr().err.startswith("assay: no command 'rollot'; did you mean 'rollout'?")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{name} {more}".strip(), said)
        for name, rows in TABLE["refused"].items()
        for more, said in rows
    ],
)
def test_what_cannot_be_done_is_refused_in_one_sentence(
    words: str, said: str, capsys: Said
) -> None:
    assert said in refused(words, capsys)


@pytest.mark.parametrize("words", ["cdr --corpus corpus", "dare --tables in"])
def test_a_builder_without_its_library_names_the_extra(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert "[build]" in refused(f"tasks {words} --out out", capsys)
