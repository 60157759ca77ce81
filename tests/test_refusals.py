"""What cannot be asked for is named in the words of its refusal, with exit status 2; no task is
written."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from dare_worlds import sold_houses
from mixed_tasks import refinement
from own_families import family_file
from places import tables
from small_corpus import write_corpus

import assay
from assay import family as families
from assay.task import write_jsonl

pytest.importorskip("duckdb", reason="needs the extra `build`")
pytestmark = pytest.mark.usefixtures("no_family_of_another_test")

REFUSED = tables("refused_commands")  # command → what is added to it, and what the refusal names


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small inputs."""
    top = tmp_path_factory.mktemp("world")
    for name in ("in", "empty", "one"):
        (top / name).mkdir()
    sold_houses().to_csv(top / "in" / "houses.csv", index=False)
    write_corpus(top / "corpus", 4)
    family_file(top)
    (top / "short.jsonl").write_text('{"id": "a", "text": "Only this one sentence is here."}\n')
    (top / "column.yaml").write_text("columns: {sise: words}")
    (top / "table.yaml").write_text("tables: {house: {title: x}}")
    (top / "nobody.txt").write_text("nobody\n")
    (top / "notes.txt").write_text("# nothing\n")
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
    try:
        status = assay.main(shlex.split(words))
    except SystemExit as stop:  # argparse
        status = stop.code
    assert status == 2 and not [*Path("out").rglob("train*.jsonl"), *Path("out").glob("*.parquet")]
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [(f"{command} {more}", said) for command, rows in REFUSED.items() for more, said in rows],
)
def test_what_cannot_be_is_named(words: str, said: str, capsys: Said) -> None:
    assert said in refused(words, capsys)


@pytest.mark.parametrize("words", ["cdr --corpus corpus", "dare --tables in"])
def test_a_builder_without_its_library_names_the_extra(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert "[build]" in refused(f"tasks {words} --out out", capsys)
