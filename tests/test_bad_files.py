"""Every command, with every file that it reads in every bad state: one sentence, a documented exit
status, no traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mixed_tasks import answer, refinement

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
    "a number": b"3\n",
    "a list": b"[]\n",
    "a list of lists": b"[[1, 2], [3]]\n",
    "an empty object": b"{}\n",
    "half an object": b'{"id": "a", "family"',
    "NaN": b'{"id": NaN, "family": Infinity}\n',
    "nested lists": b"[" * DEEP + b"]" * DEEP,
    "nested objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a long line": b"x" * 2_000_000,
    "many digits": b'{"id": ' + b"9" * 10_000 + b"}\n",
    "YAML anchors": b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "a YAML tag": b"!!python/object/apply:os.system ['true']\n",
    "comma separated": b"a,b\n1,2\n1,2,3\n",
    "an unclosed quote": b'a,b\n"1,2\n',
    "Python": b"def f(:\n",
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


def write_bad(name: str, path: Path) -> Path:
    """The file in question at `path`, which is returned."""
    held = BAD[name]
    if held == "folder":
        path.mkdir()
    elif isinstance(held, bytes):
        path.write_bytes(held)
    return path


@dataclass(frozen=True)
class Place:
    """One command with a bad file in one place. `words(bad, good, out)`: the words of the command;
    `good` is a folder with usable files, `out` one to write to. `tail`: the ending that the file
    is given; `inside`: the file stands in a folder of its own under this name."""

    name: str
    words: Callable[[str, Path, Path], Sequence[str]]
    tail: str = ".jsonl"
    inside: str = ""
    states: tuple[str, ...] = ()  # the bad states that are tried; () for all


# What a table or a listing may be, where the command starts processes for every file.
LISTED = ("missing", "a folder", "not UTF-8", "null", "a list of lists", "nested lists")
TABLES = ("missing", "empty", "not UTF-8", "comma separated", "an unclosed quote", "many digits")
# What a file of settings, and the rows of a command that starts processes, may be.
SETTINGS = (*LISTED, "empty", "NUL bytes", "many digits", "YAML anchors", "a YAML tag")
ROWS = ("missing", "empty", "not UTF-8", "half an object", "nested lists", "gzip's first bytes")


def _command(text: str) -> Callable[[str, Path, Path], Sequence[str]]:
    """Words with BAD, GOOD and OUT in them."""

    def words(bad: str, good: Path, out: Path) -> Sequence[str]:
        return [
            word.replace("BAD", bad).replace("GOOD", str(good)).replace("OUT", str(out))
            for word in text.split()
        ]

    return words


def _place(
    text: str, tail: str = ".jsonl", inside: str = "", states: tuple[str, ...] = ()
) -> Place:
    name = f"{text} {inside or tail}".replace("GOOD/", "").replace("OUT", "…")
    return Place(name, _command(text), tail, inside, states)


GOLD = "--model gold --out OUT"
PLACES: tuple[Place, ...] = (
    _place("score BAD"),
    _place("score --tasks BAD GOOD/outputs.jsonl"),
    _place("score --tasks GOOD/tasks.jsonl BAD"),
    _place("score --family BAD GOOD/outputs.jsonl", ".py"),
    _place("audit --tasks BAD"),
    _place("audit --family BAD --tasks GOOD/tasks.jsonl", ".py"),
    _place("rollout --tasks BAD --solver gold --out OUT/r.jsonl"),
    _place("rollout --tasks GOOD/tasks.jsonl --env BAD --solver gold --out OUT/r.jsonl", ".py"),
    _place("select --rollouts BAD --strategy av --out OUT/s.parquet"),
    _place(f"eval --tasks BAD {GOLD}"),
    _place(f"eval --tasks cdr:BAD {GOLD}", "", "atomic.jsonl"),
    _place(f"eval --tasks dare:BAD {GOLD}", "", "question_list.json", LISTED),
    _place("eval --tasks GOOD/tasks.jsonl --model canned:BAD --out OUT"),
    _place("eval --tasks GOOD/tasks.jsonl --model BAD --out OUT", ""),
    _place("compare BAD BAD", "", "results.json"),
    _place("report BAD", "", "results.json"),
    _place("report BAD", "", "metrics.jsonl"),
    _place("sft --tasks BAD --model GOOD/model --out OUT"),
    _place("sft --tasks BAD --model GOOD/model --out OUT", ".parquet"),
    _place("sft --tasks GOOD/tasks.jsonl --model BAD --out OUT", ""),
    _place("grpo --tasks BAD --model GOOD/model --out OUT"),
    _place("grpo --tasks GOOD/tasks.jsonl --validation BAD --model GOOD/model --out OUT"),
    _place("grpo --config BAD", ".yaml", states=SETTINGS),
    _place("demo --config BAD --model GOOD/none --out OUT", ".yaml", states=SETTINGS),
    _place("execute BAD OUT/o.jsonl", states=ROWS),
    _place("execute --recipe BAD GOOD/texts.jsonl OUT/o.jsonl", ".yaml"),
    _place("execute --recipe GOOD/recipe.yaml BAD OUT/o.parquet", ".parquet"),
    _place("tasks check BAD --against GOOD/tasks.jsonl"),
    _place("tasks check GOOD/tasks.jsonl --against BAD"),
    _place("tasks demo --corpus BAD --out OUT"),
    _place("tasks cdr --corpus BAD --out OUT"),
    _place("tasks cdr --config BAD --out OUT", ".yaml", states=SETTINGS),
    _place("tasks semantic --pii BAD --out OUT"),
    _place("tasks semantic --safety BAD --out OUT", ".parquet"),
    _place("tasks dare --import BAD --out OUT", "", "question_list.json", LISTED),
    _place("tasks dare --import-dsbench BAD --out OUT", "", "train.csv", TABLES),
    _place("tasks dare --tables BAD --databases 1 --workers 1 --out OUT", "", "t.csv", TABLES),
    _place("tasks dare --remake BAD --out OUT", states=LISTED),
    _place("tasks krama --workload BAD --lakes GOOD --out OUT", ".json"),
    _place("tasks lake --lakes BAD --count 1 --out OUT", "", "t.csv", TABLES),
    _place("tasks lake --lakes BAD --count 1 --out OUT", "", "t.xlsx", TABLES[:3]),
    _place("tasks own --family BAD --out OUT", ".py"),
    _place("slurm merge out=OUT --input BAD --shards 1 --to OUT/m.jsonl"),
    _place("slurm shard out=OUT --input BAD --shards 1 --index 0 -- true"),
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
