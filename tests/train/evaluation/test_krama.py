"""`assay eval --tasks krama:PLACE`: an endpoint, a model's folder, agents, tables by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chat_server import Body, serving
from front import command, results
from krama_checkout import make_checkout, task
from lake_cache import own_cache as own_cache
from small_lake import CODE, PLAN, make_lake

pytest.importorskip("aiohttp")

from assay.task import Task, TaskError
from data_gen.krama.cli import build
from rollouts.environments import EnvironmentFactory

pytestmark = pytest.mark.usefixtures("warm_sandbox")
evaluate = command("eval")
USAGE = {"prompt_tokens": 100, "completion_tokens": 20}
ASKED = "What is the mean rain in {} in Amherst?".format
RAIN = (
    task("north-easy-1", ASKED("June"), 1.5, domain="north"),
    task("north-easy-2", ASKED("July"), 2.5, domain="north"),
    task("south-easy-1", "REFUSED: how much rain?", 1.5, domain="south"),
)


def lakes(folder: Path, rows: Any = RAIN) -> Path:
    """Tasks over two domains."""
    for domain in ("north", "south"):
        make_lake(folder / "lakes" / domain / "input")
    (folder / "w.json").write_text(json.dumps(rows), encoding="utf-8")
    build([folder / "w.json"], folder / "lakes", folder / "k", "full")
    return folder / "k"


def message(text: str) -> Body:
    said = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"choices": [said], "usage": USAGE}


def test_an_endpoints_failures_are_no_wrong_answers(tmp_path: Path) -> None:
    def reply(body: Body) -> int | Body:
        if len(asked) == 1:
            return 503  # busy the first time
        return 400 if "REFUSED" in str(body["messages"]) else message(PLAN + CODE)

    with serving(reply) as (url, asked):
        words = ["--tasks", f"krama:{lakes(tmp_path)}", "--model", url, "server.model=m"]
        assert evaluate([*words, "--out", str(tmp_path / "out"), "server.in_flight=2"]) == 3
    data = results(tmp_path / "out")
    tables = data["benchmarks"]["krama"]["tables"]
    whole = tables["end-to-end"]
    assert {n: (c["score"], c["unscored"], c["tasks"]) for n, c in whole.items()} == {
        "north": (0.5, 0, 2),
        "south": (None, 1, 1),
        "overall": (0.5, 1, 3),
    }
    assert whole["overall"]["release"] == 0.5  # the refused task is no zero there either
    assert whole["north"]["tokens"] == 120
    assert tables["pipeline-design"]["north"]["subtask_credit"] is not None
    assert tables["subtasks"]["overall"]["unscored"] == 1
    assert tables["end-to-end categories"]["infrastructure"] == 1
    refused = [r for r in data["rows"] if r["outcome"] is None]
    assert all("HTTP 400" in r["failure"] and r["reward"] is None for r in refused)


def test_a_local_model_is_evaluated(tiny_folder: Path, tmp_path: Path) -> None:
    """An agent whose conversation is written anew leaves no ids, but its tokens are counted."""
    words = ["--tasks", f"krama:{lakes(tmp_path)}", "--model", str(tiny_folder), "--no-baselines"]
    words += ["sampling.max_new_tokens=8", "tools.snippet_tokens=100", "krama.agent=datawise"]
    words += ["tools.turns=3", "krama.settings=end-to-end", "--limit", "1"]
    assert evaluate([*words, "--out", str(tmp_path / "o")]) == 0
    (row,) = results(tmp_path / "o")["rows"]
    assert (row["outcome"], row["failure"]) == (0.0, None) and 1 <= row["turns"] <= 3
    assert row["tokens_out"] <= 24 and row["tokens_in"] > 100


BROKEN = "```python\nraise ValueError('M')\n```"


def swept(folder: Path, name: str, *more: str) -> dict[str, Any]:
    """Results of a model that is right after two tries, writes no code, or is right after six."""
    place = folder / "k"
    if not place.exists():
        south = task("south-easy-2", ASKED("July"), 1.5, domain="south")
        hard = task("north-hard-3", ASKED("May"), 1.5, domain="north", subtasks=[])
        lakes(folder, (RAIN[0], south, hard))
        said = {
            "June": [PLAN + BROKEN, CODE],
            "July": ["Two stations lie there."],
            "May": [PLAN + BROKEN, *[BROKEN] * 4, CODE],
        }
        lines = [json.dumps({"match": month, "replies": texts}) for month, texts in said.items()]
        (folder / "canned.jsonl").write_text("\n".join(lines), "utf-8")
    words = ["--tasks", f"krama:{place}", "--model", f"canned:{folder}/canned.jsonl", *more]
    assert evaluate([*words, "krama.settings=end-to-end", "--out", str(folder / name)]) == 0
    return results(folder / name)["benchmarks"]["krama"]


def test_one_run_of_many_tries_says_what_fewer_come_to(tmp_path: Path) -> None:
    six = swept(tmp_path, "six", "tools.tries=6")
    counts = {c["tries"]: c for c in six["tables"]["end-to-end by tries"]}
    assert {n: (c["ran"], c["right"]) for n, c in counts.items()} == {
        **{1: (0, 0), 2: (1, 1), 3: (1, 1), 4: (1, 1), 5: (1, 1)},
        6: (2, 2),
    }
    assert counts[3]["calls"] == pytest.approx((2 + 3 + 3) / 3)
    five = swept(tmp_path, "five")
    at_five = five["tables"]["end-to-end"]["overall"]
    assert (at_five["score"], at_five["right"]) == (counts[5]["score"], counts[5]["right"])
    assert five["tables"]["end-to-end by tries"][-1] == counts[5]
    levels = five["tables"]["end-to-end by difficulty"]
    assert {x: cells["overall"]["right"] for x, cells in levels.items()} == {"easy": 1, "hard": 0}
    assert five["tables"]["end-to-end categories"] == {
        **{"right": 1, "contract_broken": 1, "code_fails": 1}
    }
    text = (tmp_path / "five" / "tables.md").read_text("utf-8")
    assert "| south | 1 | 0.00 | 0.0 to 79.3 | – | – | – |" in text  # Wilson's interval


def test_the_checkout_is_asked_whole_and_says_what_it_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = make_checkout(tmp_path / "release")
    words = ["--tasks", f"krama:{place}", "--model", "gold", "--out"]
    assert evaluate([*words, str(tmp_path / "o"), "krama.subtask_mode=oracle"]) == 0
    said, data = capsys.readouterr().out, results(tmp_path / "o")
    cells = data["benchmarks"]["krama"]["tables"]["end-to-end"]
    names = ("overall", "legal", "of these doubted", "without the doubted")
    assert [cells[name]["tasks"] for name in names] == [3, 2, 1, 2]
    assert cells["overall"]["score"] == 1.0
    doubted = {r["task_id"]: r["reward"] for r in data["rows"] if r["more"]["doubt"]}
    assert doubted == {"legal-hard-1": 0.0, "legal-hard-1-1": 0.0}
    assert "Over 3 of the benchmark's 104 tasks, files shown: full; archeology 0 of 12" in said
    assert "Over 3 of the benchmark's 633 sub-tasks, files shown: oracle" in said
    assert evaluate([*words, str(tmp_path / "p"), "krama.doubted=false"]) == 0
    assert len(results(tmp_path / "p")["rows"]) == 4


# --- agents of other projects, also on tables ----------------------------------------------------


def test_what_leaves_no_ids_is_not_trained_on(tmp_path: Path) -> None:
    one = Task("t", "table", "class-IF", "train", [], {}, tools=("datawise",))
    EnvironmentFactory(tmp_path).check([one])
    with pytest.raises(TaskError, match="cannot be trained on"):
        EnvironmentFactory(tmp_path).check([one], ids=True)
