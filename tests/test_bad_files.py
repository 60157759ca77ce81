"""Every command, with every file that it reads in every bad state: one sentence, a documented exit
status, no traceback."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mixed_tasks import answer, refinement
from places import tables
from tiny_model import write_tiny_tokenizer

import assay
from assay import family as families
from assay.task import write_jsonl

DEEP = 20_000


def _task(**changes: Any) -> bytes:
    return (json.dumps({**refinement(1, "KEEP", 1).to_json(), **changes}) + "\n").encode()


# What a file may hold that nobody meant: None is no file at all, "folder" a folder in its place.
BAD: Mapping[str, bytes | str | None] = {
    "missing": None,
    "a folder": "folder",
    "empty": b"",
    "not UTF-8": b"\xff\xfe\x00\x81 caf\xe9\n",
    "UTF-16": '{"id": "a"}\n'.encode("utf-16"),
    "NUL bytes": b"\0" * 4096,
    "null": b"null\n",
    "a list": b"[]\n",
    "a list of lists": b"[[1, 2], [3]]\n",
    "an empty object": b"{}\n",
    "half an object": b'{"id": "a", "family"',
    "nested lists": b"[" * DEEP + b"]" * DEEP,
    "a long line": b"x" * 2_000_000,
    "many digits": b'{"id": ' + b"9" * 10_000 + b"}\n",
    "YAML anchors": b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "a YAML tag": b"!!python/object/apply:os.system ['true']\n",
    "comma separated": b"a,b\n1,2\n1,2,3\n",
    "an unclosed quote": b'a,b\n"1,2\n',
    "Python that exits": b"raise SystemExit(0)\n",
    "gzip's first bytes": b"\x1f\x8b\x08\x00\x00",
    "parquet's first bytes": b"PAR1\x00\x00PAR1",
    "task: no id": b'{"family": "refinement"}\n',
    "task: prompt is text": _task(prompt="x"),
    "task: gold is a list": _task(gold=[]),
    "task: gold of other types": _task(gold={"input_text": 3, "status": [], "text": None}),
    "task: no such family": _task(family="nobody"),
    "task: files of numbers": _task(files={"a": 1}),
    "task: an id twice": _task() + _task(),
    "task: an odd id": _task(id="../../\ud800\x00"),
    "task: no such file": _task(files={"a.csv": "nowhere.csv"}),
    "task: odd answer": (
        json.dumps({**answer(1).to_json(), "gold": {"answer": {"a": 1}, "answer_type": "x"}}) + "\n"
    ).encode(),
}


# Commands, by the ending of the bad file or by its name in a folder that is given in its place, and
# the bad states that are tried: all where none are named.
TABLE = tables("bad_files")
PLACES = [(file, *row) for file, rows in TABLE["places"].items() for row in rows]
STATUSES = {0, 1, 2, 3}  # docs: done, failed, cannot be used, some rows without an outcome
LONGEST = 3_000  # characters that a command may say of a bad file


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with usable files."""
    folder = tmp_path_factory.mktemp("good")
    write_jsonl(folder / "tasks.jsonl", [refinement(1, "KEEP", 1).to_json()])
    (folder / "outputs.jsonl").write_text('{"id": "r1", "output": "x"}\n')
    (folder / "texts.jsonl").write_text('{"id": 1, "input_text": "a"}\n')
    if importlib.util.find_spec("transformers"):
        (folder / "model").mkdir()
        write_tiny_tokenizer(folder / "model")
    return folder


@pytest.mark.usefixtures("no_family_of_another_test")
@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[1]} {place[0]}")
def test_a_bad_file_is_said_in_one_sentence(
    place: list[str],
    good: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, command, *named = place
    states = TABLE["states"][named[0]] if named else BAD
    if "model GOOD" in command:
        pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    wrong: list[str] = []
    for number, (name, held) in enumerate(BAD.items()):
        if name not in states:
            continue
        bad = (top := tmp_path / str(number)) / (f"bad{file}" if file[:1] in "." else f"in/{file}")
        (top / "out").mkdir(parents=True)
        bad.parent.mkdir(exist_ok=True)
        if held == "folder":
            bad.mkdir()
        elif isinstance(held, bytes):
            bad.write_bytes(held)
        text = command.replace("BAD", str(bad if bad.parent == top else bad.parent))
        words = text.replace("GOOD", str(good)).replace("OUT", str(top / "out")).split()
        wrong += [f"{name}: {why}" for why in _wrong(words, capsys)]
        families._added.clear()
        os.environ.pop(families.VARIABLE, None)
    assert wrong == []


def _wrong(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What is wrong with how the command takes it."""
    capsys.readouterr()
    try:
        status = assay.main(words)
    except SystemExit as stop:  # argparse
        status = int(stop.code or 0)
    except Exception as error:
        return [f"{type(error).__name__}: {str(error)[:200]}"]
    said = capsys.readouterr()
    found = [f"exit status {status}"] if status not in STATUSES else []
    if "Traceback" in said.err + said.out:
        found.append("a traceback")
    if status and not (said.err + said.out).strip():
        found.append(f"exit status {status} without a word")
    if len(said.err) > LONGEST:
        found.append(f"{len(said.err)} characters of errors: {said.err[:200]!r}")
    return found
