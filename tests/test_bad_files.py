"""Every command, with every file that it reads in every bad state: one sentence, a documented exit
status, no traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bad_files import BAD, PLACES, Place, write_bad
from mixed_tasks import refinement

import assay
from assay import family as families
from assay.task import write_jsonl

STATUSES = {0, 1, 2, 3}  # docs: done, failed, cannot be used, some rows without an outcome
LONGEST = 3_000  # characters that a command may say of a bad file


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with usable files."""
    folder = tmp_path_factory.mktemp("good")
    write_jsonl(folder / "tasks.jsonl", [refinement(1, "KEEP", 1).to_json()])
    (folder / "outputs.jsonl").write_text('{"id": "r1", "output": "x"}\n')
    (folder / "texts.jsonl").write_text('{"id": 1, "input_text": "a"}\n')
    (folder / "recipe.yaml").write_text("- operator: clean_email_mapper\n")
    return folder


pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


def model_in(folder: Path) -> None:
    pytest.importorskip("transformers")
    from tiny_model import write_tiny_tokenizer

    if not folder.is_dir():
        folder.mkdir()
        write_tiny_tokenizer(folder)


@pytest.mark.parametrize("place", PLACES, ids=[p.name for p in PLACES])
def test_a_bad_file_is_said_in_one_sentence(
    place: Place,
    good: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "model" in place.name:
        model_in(good / "model")
    monkeypatch.chdir(tmp_path)
    wrong: list[str] = []
    for number, name in enumerate(place.states or BAD):
        folder = tmp_path / str(number)
        (folder / "out").mkdir(parents=True)
        if place.inside:
            (folder / "in").mkdir()
            write_bad(name, folder / "in" / place.inside)
            bad = folder / "in"
        else:
            bad = write_bad(name, folder / f"bad{place.tail}")
        wrong += [f"{name}: {why}" for why in _wrong(place, bad, good, folder / "out", capsys)]
        families._added.clear()
        os.environ.pop(families.VARIABLE, None)
    assert wrong == []


def _wrong(
    place: Place, bad: Path, good: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """What is wrong with how the command takes it."""
    capsys.readouterr()
    try:
        status = assay.main([*place.words(str(bad), good, out)])
    except SystemExit as stop:  # argparse
        status = int(stop.code or 0)
    except Exception as error:
        return [f"{type(error).__name__}: {str(error)[:200]}"]
    said = capsys.readouterr()
    found = [f"exit status {status}"] if status not in STATUSES else []
    if "Traceback" in said.err + said.out:
        found.append("a traceback")
    if status and not (said.err + said.out).strip():
        found.append(f"exit status {status} without a word: {said.err[-200:]!r}")
    if len(said.err) > LONGEST:
        found.append(f"{len(said.err)} characters of errors: {said.err[:200]!r}")
    return found
