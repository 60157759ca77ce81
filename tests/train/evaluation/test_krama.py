"""`assay eval --tasks krama:PLACE`: an endpoint, a model's folder, agents, tables by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chat_server import Body, serving
from front import command
from krama_checkout import make_checkout
from krama_data import KRAMA, needs_krama
from lake_cache import own_cache as own_cache
from small_lake import CODE, PLAN, make_lake

pytest.importorskip("aiohttp")

from assay.task import Task, TaskError, write_jsonl
from data_gen.krama.cli import build
from data_gen.krama.importer import end_to_end, read_workload, sub_task
from rollouts.environments import EnvironmentFactory
from train.evaluation.krama import summary, text_tables

pytestmark = pytest.mark.usefixtures("warm_sandbox")
evaluate = command("eval")
USAGE = {"prompt_tokens": 100, "completion_tokens": 20}
SUB = {
    "id": "s-1",
    "query": "How many years?",
    "answer": 30,
    "answer_type": "numeric_exact",
    "data_sources": ["rain_amherst.csv"],
    "step": "Load 'rain_amherst.csv'.",
}


def entry(name: str, query: str, answer: Any, parts: bool = True) -> dict[str, Any]:
    row = {"id": name, "domain": name.partition("-")[0], "query": query, "answer": answer}
    row |= {"answer_type": "numeric_exact", "data_sources": ["rain_amherst.csv"]}
    return row | {"subtasks": [{**SUB, "id": f"{name}-1"}] if parts else []}


ASKED = "What is the mean rain in {} in Amherst?".format
RAIN = (
    entry("north-easy-1", ASKED("June"), 1.5),
    entry("north-easy-2", ASKED("July"), 2.5),
    entry("south-easy-1", "REFUSED: how much rain?", 1.5),
)


def lakes(folder: Path, rows: Any = RAIN) -> Path:
    """Tasks over two domains."""
    for domain in ("north", "south"):
        make_lake(folder / "lakes" / domain / "input")
    (folder / "w.json").write_text(json.dumps(rows), encoding="utf-8")
    build([folder / "w.json"], folder / "lakes", folder / "k", "full")
    return folder / "k"


def results(out: Path) -> dict[str, Any]:
    return json.loads((out / "results.json").read_text("utf-8"))


def message(text: str) -> Body:
    said = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"choices": [said], "usage": USAGE}


def test_an_endpoints_failures_are_no_wrong_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert (tables["subtasks"]["overall"]["tasks"], tables["subtasks"]["overall"]["unscored"]) == (
        *(3, 1),
    )
    assert tables["end-to-end categories"]["infrastructure"] == 1
    refused = [r for r in data["rows"] if r["outcome"] is None]
    assert all("HTTP 400" in r["failure"] and r["reward"] is None for r in refused)
    said = capsys.readouterr()
    assert "| overall | 3 | 50.00 | 1 |" in said.out and "2 of 6 answers" in said.err


def test_the_table_prints_the_ends_of_wilsons_interval() -> None:
    """20 of 32 is 62.5 %; its 95 % interval is 45.3 % to 77.1 % (Wilson's formula, by hand)."""
    row = {"setting": "end-to-end", "domain": "a", "parts": {}, "parent": None, "release": None}
    row |= {"category": "right", "cost": {"tokens": 1, "seconds": 1.0}}
    # a correlation that is right is 1 but for the last bit
    outcomes = [*[1.0] * 19, 0.9999999999999998, *[0.0] * 12]
    tables = summary([{**row, "outcome": o} for o in outcomes])
    meta = {"agent": "a", "model": "m", "reading": "table3"}
    assert "| 32 | 62.50 | 20 | 45.3 to 77.1 |" in text_tables(tables, meta)


def test_a_local_model_is_evaluated(tiny_folder: Path, tmp_path: Path) -> None:
    """A random model says nothing useful, and every episode still ends with an outcome. An agent
    whose conversation is written anew leaves no ids, but its tokens are counted."""
    place = lakes(tmp_path)
    for agent in ("lake-agent", "datawise"):
        out = tmp_path / agent
        words = ["--tasks", f"krama:{place}", "--model", str(tiny_folder), f"krama.agent={agent}"]
        words += ["sampling.max_new_tokens=8", "tools.snippet_tokens=100", "--no-baselines"]
        words += ["tools.turns=3", "krama.settings=end-to-end", "--limit", "1", "--out", str(out)]
        assert evaluate(words) == 0
        (row,) = results(out)["rows"]
        assert (row["outcome"], row["failure"]) == (0.0, None) and 1 <= row["turns"] <= 3
        assert row["tokens_out"] <= 24 and row["tokens_in"] > 100


BROKEN = "```python\nraise ValueError('M')\n```"


def swept(folder: Path, name: str, *more: str) -> dict[str, Any]:
    """Results of a model that is right after two tries, writes no code, or is right after six."""
    place = folder / "k"
    if not place.exists():
        south = entry("south-easy-2", ASKED("July"), 1.5)
        hard = entry("north-hard-3", ASKED("May"), 1.5, parts=False)
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
    six = swept(tmp_path, "six", "tools.tries=6", "tools.snippet_rows=20")
    counts = {c["tries"]: c for c in six["tables"]["end-to-end by tries"]}
    assert {n: (c["ran"], c["right"]) for n, c in counts.items()} == {
        **{1: (0, 0), 2: (1, 1), 3: (1, 1), 4: (1, 1), 5: (1, 1)},
        6: (2, 2),
    }
    assert counts[3]["calls"] == pytest.approx((2 + 3 + 3) / 3)
    assert (six["tries"], six["rows"]) == (6, 20)
    rows = results(tmp_path / "six")["rows"]
    assert [r["more"]["notes"]["tries"] for r in rows] == [2, 6, 6]
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
    assert "| south | 1 | 0.00 | 0.0 to 79.3 | – | – | – |" in text
    one = swept(tmp_path, "one", "krama.agent=ds-guru-one-shot")
    assert "end-to-end by tries" not in one["tables"]


def test_what_cannot_be_used_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = lakes(tmp_path)
    for word, said in (
        ("tools.tries=0", "tools.tries=0"),
        ("tools.snippet_rows=-1", "tools.snippet_rows=-1"),
        ("tools.snippet_tokens=9", "tools.snippet_tokens=9"),
        ("krama.input_mode=oracle", "these tasks are made already"),
        ("krama.settings=whole", "krama.settings='whole'"),
    ):
        words = ["--tasks", f"krama:{place}", "--model", "gold", "--out", str(tmp_path / "o")]
        assert evaluate([*words, word]) == 2
        assert said in capsys.readouterr().err


def gold_replies(workload: Path) -> list[dict[str, Any]]:
    """For every task and sub-task of a workload the reply of a DS-Guru that knows the answers."""
    rows: list[dict[str, Any]] = []
    for found in read_workload(workload):
        asked = [(sub_task(found, s, "", "full", []), [s.answer]) for s in found.steps]
        asked.append(
            (end_to_end(found, "", "full", []), [found.answer, *(s.answer for s in found.steps)])
        )
        for task, (main, *rest) in asked:
            printed = {"main-task": main} | {f"subtask-{i}": v for i, v in enumerate(rest, 1)}
            code = f"```python\nimport json\nprint(json.dumps({printed!r}))\n```"
            question = f"Question: {task.prompt[-1]['content']}\n"
            rows.append({"match": question, "replies": ["```json\n[]\n```\n" + code]})
    return rows


@pytest.mark.slow
@needs_krama
def test_gold_scores_one_for_every_visible_task_from_lake_to_table(tmp_path: Path) -> None:
    """All 46 tasks and 279 sub-tasks through index, prompt, contract, sandbox and scorer."""
    workload = KRAMA / "data" / "workload_verified.json"
    build([workload], KRAMA / "data" / "lake", tmp_path / "k", "full")
    canned = tmp_path / "canned.jsonl"
    canned.write_text("".join(json.dumps(row) + "\n" for row in gold_replies(workload)), "utf-8")
    words = ["--tasks", f"krama:{tmp_path / 'k'}", "--model", f"canned:{canned}"]
    assert evaluate([*words, "--out", str(tmp_path / "o"), "server.in_flight=4"]) == 0
    data = results(tmp_path / "o")
    assert [(r["task_id"], r["why"]) for r in data["rows"] if r["outcome"] != 1.0] == []
    tables = data["benchmarks"]["krama"]["tables"]
    overall = tables["end-to-end"]["overall"]
    assert (overall["tasks"], overall["right"], overall["subtask_credit"]) == (46, 46, 1.0)
    assert tables["subtasks"]["overall"]["tasks"] == 279 and len(tables["end-to-end"]) == 7


def test_the_checkout_is_asked_whole_and_says_what_it_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = make_checkout(tmp_path / "release")
    words = ["--tasks", f"krama:{place}", "--model", "gold", "--out"]
    assert evaluate([*words, str(tmp_path / "o"), "krama.subtask_mode=oracle"]) == 0
    said, data = capsys.readouterr().out, results(tmp_path / "o")
    cells = data["benchmarks"]["krama"]["tables"]["end-to-end"]
    assert (cells["overall"]["tasks"], cells["overall"]["score"]) == (3, 1.0)
    assert (cells["of these doubted"]["tasks"], cells["without the doubted"]["tasks"]) == (1, 2)
    assert cells["legal"]["tasks"] == 2  # the doubted one is in its domain's row
    doubted = {r["task_id"]: r["reward"] for r in data["rows"] if r["more"]["doubt"]}
    assert doubted == {"legal-hard-1": 0.0, "legal-hard-1-1": 0.0}
    for words_said in (
        "Over 3 of the benchmark's 104 tasks, files shown: full; archeology 0 of 12",
        "Over 3 of the benchmark's 633 sub-tasks, files shown: oracle",
        "doubted of 1 tasks and 1 sub-tasks",
        "quick-start-questions.json: left out ",
        "6 test tasks of the release",
    ):
        assert words_said in said
    assert evaluate([*words, str(tmp_path / "p"), "krama.doubted=false"]) == 0
    data = results(tmp_path / "p")
    assert "of these doubted" not in data["benchmarks"]["krama"]["tables"]["end-to-end"]
    assert len(data["rows"]) == 4
    (place / "data/legal").rename(tmp_path / "elsewhere")
    assert evaluate([*words, str(tmp_path / "q"), "--strict"]) == 2


# --- agents of other projects, also on tables ----------------------------------------------------

SAVE = """```python
import os
if os.path.exists("data.csv"):
    open("prediction.csv", "w").write(open("data.csv").read())
```
"""


def table(folder: Path) -> Path:
    """One table task, whose prediction is the file that it is given."""
    rows = "id,y\n" + "".join(f"{i},{i % 2}\n" for i in range(6))
    (folder / "data.csv").write_text(rows, encoding="utf-8")
    gold = {"task_type": "class-IF", "truth_csv": rows, "targets": ["y"], "key_columns": ["id"]}
    asked = [{"role": "user", "content": "Copy data.csv to prediction.csv."}]
    more = {"tools": ("python_executor",), "files": {"data.csv": "data.csv"}}
    task = Task("t", "table", "class-IF", "heldout", asked, gold, **more)
    write_jsonl(folder / "tasks.jsonl", [task.to_json()])
    return folder / "tasks.jsonl"


def test_an_endpoint_acts_as_the_agent_on_lakes_and_tables(tmp_path: Path) -> None:
    def reply(body: Body) -> Body:
        asked = str(body["messages"][-1]["content"])
        if "Stage: execution" in asked:
            return message("<end_step>")
        if "Stage: planning" in asked:
            return message("<think>not <next_step></think><fulfilled> <answer>1.5</answer>")
        return message(SAVE + "```python\nprint(41 + 1)\n```")

    place = make_checkout(tmp_path / "release")
    with serving(reply) as (url, asked):
        words = ["--model", url, "server.model=m", "krama.agent=datawise", "--no-baselines"]
        lake = ["--tasks", f"krama:{place}", "krama.settings=end-to-end", "krama.doubted=false"]
        assert evaluate([*lake, *words, "--out", str(tmp_path / "k")]) == 0
        tasks = ["--tasks", f"dare:{table(tmp_path)}"]
        assert evaluate([*tasks, *words, "--out", str(tmp_path / "d")]) == 0
    found = results(tmp_path / "k")["rows"]
    outcomes = {r["task_id"]: r["outcome"] for r in found}
    assert outcomes == {"environment-easy-1": 0.0, "legal-easy-3": 1.0}
    assert {(r["turns"], r["tokens_in"], r["tokens_out"]) for r in found} == {(3, 300, 60)}
    (row,) = results(tmp_path / "d")["rows"]
    assert (row["failure"], row["turns"], row["outcome"]) == (None, 3, 1.0)
    assert list(row["files"]) == ["prediction.csv"] and "file_texts" not in row
    kept = json.loads((tmp_path / "d" / "rows.jsonl").read_text().splitlines()[0])
    assert list(kept["file_texts"]) == ["prediction.csv"]
    assert len({str(b["messages"][0]) for b in asked}) == 1  # one system message, always first
    assert max(len(b["messages"]) for b in asked) == 2


def test_agents_that_do_not_fit_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tasks", f"dare:{table(tmp_path)}", "--model", "gold", "--out", str(tmp_path / "o")]
    assert evaluate([*words, "krama.agent=lake-agent"]) == 2
    assert "it works on lakes" in capsys.readouterr().err
    task = Task("t", "table", "class-IF", "train", [], {}, tools=("datawise",))
    EnvironmentFactory(tmp_path).check([task])
    with pytest.raises(TaskError, match="cannot be trained on"):
        EnvironmentFactory(tmp_path).check([task], ids=True)
