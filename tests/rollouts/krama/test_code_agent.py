"""smolagents' own CodeAgent, its code in the sandbox and its model played."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from said import act
from small_lake import make_lake, make_task

from assay.family import score_answer
from assay.task import Task
from rollouts.krama.code_agent import list_files, prelude, read_answer, read_file, showing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux only")
RAIN = """Thought: read, clean, answer.
<code>
import pandas as pd
t = pd.read_csv("data/rain_amherst.csv")
t = t[t["Year"].astype(str).str.isdigit()]
t["Jun"] = pd.to_numeric(t["Jun"], errors="coerce")
final_answer(round(t["Jun"].mean(), 2))
</code>"""


def test_the_agent_looks_errs_and_answers_in_one_interpreter(lake: Path) -> None:
    pytest.importorskip("smolagents", reason="the extra `agents` is not installed")
    task = make_task(lake, "smolagents")
    look = '<code>\nprint(list_files("rain*"))\nx = 41\nread_file("data/notes.txt")\n</code>'
    errs = "<think><code>final_answer(3)</code></think>\n<code>\nprint(x + 1)\nopen('no')\n</code>"
    run, said = act(task, [look, errs, "no code at all", RAIN])
    assert (run.failure, run.stop, run.turns, run.notes["ended"]) == (None, "done", 4, "answered")
    assert dict(run.errors) == {"error": 1, "no_code": 1}
    assert score_answer(task, run.answer()).outcome == 1.0
    assert run.usage == {"prompt_tokens": 400, "completion_tokens": 40}
    shown = said.asked[1][-1]["content"]
    assert "data/rain_boston.csv" in shown
    assert "2: M is missing." in shown  # the value of the last expression
    failed = said.asked[2][-1]["content"]
    assert "42" in failed  # variables stay; what was printed before an error is shown
    assert "FileNotFoundError" in failed
    assert [m["role"] for m in run.messages] == ["system", *["user", "assistant"] * 4]
    assert "final_answer(round" in run.files["pipeline.py"].decode()


def test_an_agent_out_of_steps_is_asked_for_its_answer(lake: Path) -> None:
    pytest.importorskip("smolagents", reason="the extra `agents` is not installed")
    task = make_task(lake, "smolagents", answer=7)
    run, said = act(task, ["<code>\nprint(1)\n</code>"] * 2 + ["7"], steps=2)
    assert (len(said.asked), run.stop) == (3, "done")
    assert score_answer(task, run.answer()).outcome == 1.0
    cut, _ = act(task, ["<code>\nprint(1)\n</code>"], turns=2)
    assert (cut.stop, cut.notes["ended"], cut.failure) == ("turns", "no_answer", None)
    assert score_answer(task, cut.answer()).outcome == 0.0


def test_an_agent_saves_a_prediction_of_a_table_task(tmp_path: Path) -> None:
    pytest.importorskip("smolagents", reason="the extra `agents` is not installed")
    task = table_task(tmp_path, "smolagents")
    save = (
        "<code>\nrows = open('data.csv').read()\nopen('prediction.csv', 'w').write(rows)\n</code>"
    )
    run, said = act(task, [save, "<code>\nfinal_answer('saved')\n</code>"])
    assert (run.failure, run.files) == (None, {"prediction.csv": b"a\n1\n"})
    assert run.notes["ended"] == "answered"
    assert "holds the files: data.csv" in said.asked[0][-1]["content"]


def table_task(folder: Path, tool: str) -> Task:
    (folder / "data.csv").write_text("a\n1\n", encoding="utf-8")
    asked = [{"role": "user", "content": "Copy it."}]
    files = {"data.csv": str(folder / "data.csv")}
    return Task("t", "table", "class-IF", "heldout", asked, {}, tools=(tool,), files=files)


def test_the_functions_that_code_may_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_lake(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    assert list_files("*.txt") == "data/notes.txt (33 bytes)"
    assert list_files("*.pdf") == "no file matches '*.pdf'"
    assert read_file("data/notes.txt", 2) == "2: M is missing."
    assert read_file("data/notes.txt", 9) == "data/notes.txt ends before line 9"
    names: dict[str, object] = {}
    exec(prelude(), names)
    for answer, want in ((3, 3), ([1, "a"], [1, "a"]), ({4}, "{4}"), (None, None)):
        with pytest.raises(SystemExit):
            names["final_answer"](answer)  # type: ignore[operator]
        assert read_answer(Path("final_answer.json").read_bytes()) == want


def value_of(code: str) -> str | None:
    """What a cell of this code shows, run here."""
    shown = showing(code)
    if shown is None:
        return None
    exec(compile(shown, "cell", "exec"), {})
    return Path("_shown.txt").read_text("utf-8")


def test_the_value_of_a_cells_last_expression_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert value_of("x = 2\nx + 1  # three") == "3"
    assert value_of("f = lambda a: a\nf(\n  'ä'\n)\n") == "ä"
    assert value_of("from __future__ import annotations\n1;") == "1"
    assert value_of("print(end='')") == ""
    for code in ("x = 1", "x = 1; x", "def f(): pass", "1 +", "", "\0", "for i in (): i"):
        assert value_of(code) is None


@given(st.text(), st.binary())
def test_nothing_that_a_model_wrote_breaks_the_reading(code: str, left: bytes) -> None:
    shown = showing(code)
    if shown is not None:
        compile(shown, "cell", "exec")
    json.dumps(read_answer(left))
