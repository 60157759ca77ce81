"""The short form of `benchmarks/fuzz.py`: every reading, a few thousand outputs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from places import ROOT

from assay.task import Score
from benchmarks import fuzz
from benchmarks.fuzz_read import Read, Reading
from benchmarks.fuzz_readings import READINGS

COUNT = 110  # outputs of each reading
TABLES = 40  # a table costs more
CONFINED = 12  # and one read in a process of its own still more


@pytest.mark.parametrize("name", [r.name for r in READINGS])
def test_every_output_is_read(name: str) -> None:
    if name.startswith("table"):
        pytest.importorskip("pandas")
    count = CONFINED if "confined" in name else TABLES if "table " in name else COUNT
    found = [one for one in fuzz.findings(1, 0, count, name) if isinstance(one, fuzz.Finding)]
    assert found == []


def test_a_number_gives_the_same_output_in_any_range() -> None:
    assert fuzz.case(3, 41) == fuzz.case(3, 41)
    assert len({fuzz.case(3, n)[2] for n in range(40)}) > 25
    assert {fuzz.case(3, n)[0].name for n in range(3000)} == {r.name for r in READINGS}


def raises(pick: int, text: str) -> Read:
    raise KeyError(text)


def hangs(pick: int, text: str) -> Read:
    while True:
        pass


def draws(pick: int, text: str) -> Read:
    return Read(object())


def scores(outcome: float | None, reward: float | None) -> Reading:
    gold = Score(1.0, 1.0)
    return Reading("x", 1, str, lambda pick, text: Read(0, Score(outcome, reward), gold))


@pytest.mark.parametrize(
    ("reading", "rule"),
    [
        (Reading("x", 1, str, raises), "exception"),
        (Reading("x", 1, str, hangs), "deadline"),
        (Reading("x", 1, str, draws), "same twice"),
        (scores(None, None), "no outcome"),
        (scores(1.5, 1.0), "bounds"),
        (scores(0.5, float("nan")), "bounds"),
        (scores(1.0, 1.1), "above gold"),
        (scores(0.5, -0.2), ""),
    ],
)
def test_what_breaks_a_rule_is_found(
    reading: Reading, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "HANGS", 0.2)
    assert fuzz.broken(reading, 0, "text")[0] == rule


def test_the_command_prints_its_rate() -> None:
    words = ["--outputs", "20", "--only", "refinement strict", "--json"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "fuzz.py"), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["outputs"] == 20 and report["findings"] == {}
    assert report["outputs_per_cpu_s"] > 0
