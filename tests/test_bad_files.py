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


# What a table or a listing may be, where the command starts processes for every file.
LISTED = ("missing", "a folder", "not UTF-8", "null", "a list of lists", "nested lists")
TABLES = ("missing", "empty", "not UTF-8", "comma separated", "an unclosed quote", "many digits")
# What a file of settings, and the rows of a command that starts processes, may be.
SETTINGS = (*LISTED, "empty", "NUL bytes", "many digits", "YAML anchors", "a YAML tag")
ROWS = ("missing", "empty", "not UTF-8", "half an object", "nested lists", "gzip's first bytes")
# (a command with BAD where the bad file stands, GOOD a folder with usable files, OUT one to write
# to; the ending of the bad file, or its name in a folder that is given in its place; the states
# that are tried, all without)
Place = tuple[str, str, tuple[str, ...]]
JSONL = (
    "score BAD",
    "score --tasks BAD GOOD/outputs.jsonl",
    "score --tasks GOOD/tasks.jsonl BAD",
    "audit --tasks BAD",
    "rollout --tasks BAD --solver gold --out OUT/r.jsonl",
    "select --rollouts BAD --strategy av --out OUT/s.parquet",
    "eval --tasks BAD --model gold --out OUT",
    "eval --tasks GOOD/tasks.jsonl --model canned:BAD --out OUT",
    "sft --tasks BAD --model GOOD/model --out OUT",
    "grpo --tasks BAD --model GOOD/model --out OUT",
    "grpo --tasks GOOD/tasks.jsonl --validation BAD --model GOOD/model --out OUT",
    "tasks check BAD --against GOOD/tasks.jsonl",
    "tasks demo --corpus BAD --out OUT",
    "tasks cdr --corpus BAD --out OUT",
    "tasks semantic --pii BAD --out OUT",
    "slurm merge out=OUT --input BAD --shards 1 --to OUT/m.jsonl",
    "slurm shard out=OUT --input BAD --shards 1 --index 0 -- true",
)
PLACES: tuple[Place, ...] = (
    *((text, ".jsonl", ()) for text in JSONL),
    ("execute BAD OUT/o.jsonl", ".jsonl", ROWS),
    ("tasks dare --remake BAD --out OUT", ".jsonl", LISTED),
    ("score --family BAD GOOD/outputs.jsonl", ".py", ()),
    ("rollout --tasks GOOD/tasks.jsonl --env BAD --solver gold --out OUT/r.jsonl", ".py", ()),
    ("tasks own --family BAD --out OUT", ".py", ()),
    ("eval --tasks cdr:BAD --model gold --out OUT", "atomic.jsonl", ()),
    ("eval --tasks dare:BAD --model gold --out OUT", "question_list.json", LISTED),
    ("eval --tasks GOOD/tasks.jsonl --model BAD --out OUT", "", ()),
    ("compare BAD BAD", "results.json", ()),
    ("report BAD", "metrics.jsonl", ()),
    ("sft --tasks BAD --model GOOD/model --out OUT", ".parquet", ()),
    ("grpo --config BAD", ".yaml", SETTINGS),
    ("execute --recipe BAD GOOD/texts.jsonl OUT/o.jsonl", ".yaml", ()),
    ("tasks cdr --config BAD --out OUT", ".yaml", SETTINGS),
    ("tasks dare --import BAD --out OUT", "question_list.json", LISTED),
    ("tasks dare --import-dsbench BAD --out OUT", "train.csv", TABLES),
    ("tasks dare --tables BAD --databases 1 --workers 1 --out OUT", "t.csv", TABLES),
    ("tasks krama --workload BAD --lakes GOOD --out OUT", ".json", ()),
    ("tasks lake --lakes BAD --count 1 --out OUT", "t.csv", TABLES),
    ("tasks lake --lakes BAD --count 1 --out OUT", "t.xlsx", TABLES[:3]),
)


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
@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[0]} {place[1]}")
def test_a_bad_file_is_said_in_one_sentence(
    place: Place,
    good: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, file, states = place
    if "model GOOD" in command:
        pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    wrong: list[str] = []
    for number, (name, held) in enumerate(BAD.items()):
        if states and name not in states:
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
