"""examples/own_family.py and examples/own_tools.py, copied to a folder outside the checkout: every
command works on them, tools answer, and models train on them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from assay_command import assay, rows, run
from places import ROOT

pytest.importorskip("torch")

from rollouts.prompts import ChatTokenizer
from train.examples import example_of

OWN, TOOLS = (["--family", f"{name}.py"] for name in ("own_family", "own_tools"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the families' files and tasks, and with modules of the user's own that are
    called as Assay's floors are."""
    folder = tmp_path_factory.mktemp("own")
    for name in ("train.py", "rewards/__init__.py", "configs/__init__.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"raise SystemExit('this is the {name} of the user')\n")
    for family in (OWN, TOOLS):
        shutil.copy(ROOT / "examples" / family[1], folder)
    assay(folder, "tasks", "json_repair", *OWN, "--out", "T", "--seed", "0", "count=48")
    assay(folder, "tasks", "shop", *TOOLS, "--out", "S", "--seed", "0", "count=16")
    return folder


def test_tasks_have_splits_and_a_certificate(built: Path) -> None:
    assert json.loads((built / "T" / "certificate.json").read_text("utf-8"))["ok"] is True
    names = {path.stem for path in (built / "T").glob("*.jsonl")}
    assert names == {"train", "validation", "heldout", "refused"}
    assay(built, "audit", *OWN, "--tasks", "T/train.jsonl")
    done = run(built, "audit", "--tasks", "T/train.jsonl")
    assert done.returncode == 2 and "json_repair" in done.stderr and "--family" in done.stderr


def test_outputs_are_scored_by_task_id(built: Path) -> None:
    tasks = rows(built / "T" / "heldout.jsonl")
    said = {tasks[0]["id"]: json.dumps(tasks[0]["gold"]["object"]), tasks[1]["id"]: "no JSON"}
    lines = [json.dumps({"id": name, "output": text}) + "\n" for name, text in said.items()]
    (built / "out.jsonl").write_text("".join(lines), "utf-8")
    told = assay(built, "score", *OWN, "--tasks", "T/heldout.jsonl", "out.jsonl")
    assert [json.loads(line)["outcome"] for line in told.splitlines()] == [1.0, 0.0]


def test_the_solver_makes_rollouts_to_learn_from(built: Path, tiny_folder: Path) -> None:
    """The solver's calls are run. A student learns them as its template writes them."""
    words = ["--tasks", "S/train.jsonl", "--solver", "own", "--out", "solved.jsonl"]
    assay(built, "rollout", *TOOLS, *words)
    found = rows(built / "solved.jsonl")
    assert len(found) == 8 and {row["outcome"] for row in found} == {1.0}
    assert {call["kind"] for row in found for call in row["tool_calls"]} == {"ok"}
    chat = ChatTokenizer(tiny_folder)
    learned = example_of(found[0], "row 1", chat, built)
    mask = learned.mask or [1] * len(learned.answer)
    text = chat.raw([i for i, m in zip(learned.answer, mask, strict=True) if m])
    assert "SELECT boxes" in text and text.count("<tool_call>") == 1
    assert "<tool_response>" not in text
