"""`assay eval --tasks krama:DIR` against a real endpoint over HTTP, and a local model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_server import Body, serving
from krama_checkout import make_checkout
from krama_data import KRAMA, needs_krama
from lake_cache import own_cache as own_cache
from small_lake import CODE, PLAN, make_lake

pytest.importorskip("aiohttp")

import front

from data_gen.krama.cli import build
from data_gen.krama.importer import end_to_end, read_workload, sub_task

SUB = {
    "id": "s-1",
    "query": "How many years?",
    "answer": 30,
    "answer_type": "numeric_exact",
    "data_sources": ["rain_amherst.csv"],
    "step": "Load 'rain_amherst.csv'.",
}


def entry(number: int, domain: str, query: str, answer: Any) -> dict[str, Any]:
    return {
        "id": f"{domain}-easy-{number}",
        "domain": domain,
        "query": query,
        "answer": answer,
        "answer_type": "numeric_exact",
        "data_sources": ["rain_amherst.csv"],
        "subtasks": [{**SUB, "id": f"{domain}-easy-{number}-1"}],
    }


def tracks(tmp_path: Path) -> Path:
    """Two domains: one right, one wrong, and one question that the endpoint refuses."""
    rows = [
        entry(1, "north", "What is the mean rain in June in Amherst?", 1.5),
        entry(2, "north", "What is the mean rain in July in Amherst?", 2.5),
        entry(1, "south", "REFUSED: how much rain?", 1.5),
    ]
    for domain in ("north", "south"):
        make_lake(tmp_path / "lakes" / domain / "input")
    (tmp_path / "w.json").write_text(json.dumps(rows), encoding="utf-8")
    build([tmp_path / "w.json"], tmp_path / "lakes", tmp_path / "k", "full")
    return tmp_path / "k"


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[Body]]]:
    """Replies as DS-Guru should; refuses what says REFUSED, and is busy the first time."""

    def reply(body: Body) -> int | Body:
        if len(asked) == 1:
            return 503
        if "REFUSED" in str(body["messages"]):
            return 400
        message = {"role": "assistant", "content": PLAN + CODE}
        usage = {"prompt_tokens": 100, "completion_tokens": 20}
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}

    with serving(reply) as (url, asked):
        yield url, asked


def test_an_endpoint_is_evaluated_and_its_failures_are_no_wrong_answers(
    tmp_path: Path, endpoint: tuple[str, list[Body]], capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate = front.command("eval")

    url, asked = endpoint
    command = [
        "--tasks",
        f"krama:{tracks(tmp_path)}",
        "--model",
        url,
        "server.model=m",
        "--out",
        str(tmp_path / "out"),
        "server.in_flight=2",
    ]
    assert evaluate(command) == 3
    data = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    tables = data["benchmarks"]["krama"]["tables"]
    whole = tables["end-to-end"]
    assert (whole["north"]["score"], whole["north"]["unscored"]) == (0.5, 0)
    assert (whole["south"]["score"], whole["south"]["unscored"]) == (None, 1)
    assert (whole["overall"]["score"], whole["overall"]["tasks"]) == (0.5, 3)
    assert whole["overall"]["release"] == 0.5  # the refused task is no zero there either
    assert tables["pipeline-design"]["north"]["subtask_credit"] is not None
    parts = tables["subtasks"]["overall"]
    assert (parts["tasks"], parts["unscored"]) == (3, 1)
    assert tables["end-to-end categories"]["infrastructure"] == 1
    assert whole["north"]["tokens"] == 120
    refused = [r for r in data["rows"] if r["outcome"] is None]
    assert all("HTTP 400" in r["failure"] and r["reward"] is None for r in refused)
    said = capsys.readouterr()
    assert "| overall | 3 | 50.00 | 1 |" in said.out
    assert "2 of 6 answers have no outcome" in said.err
    assert {b["model"] for b in asked} == {"m"}


def test_the_table_prints_the_ends_of_wilsons_interval() -> None:
    """20 of 32 is 62.5 %; its 95 % interval is 45.3 % to 77.1 % (Wilson's formula, by hand)."""
    from train.evaluation.krama_tables import summary, text_tables

    row = {
        "setting": "end-to-end",
        "domain": "a",
        "parts": {},
        "parent": None,
        "release": None,
        "category": "right",
        "cost": {"tokens": 1, "seconds": 1.0},
    }
    # a correlation that is right is 1 but for the last bit
    outcomes = [*[1.0] * 19, 0.9999999999999998, *[0.0] * 12]
    tables = summary([{**row, "outcome": o} for o in outcomes])
    meta = {"agent": "a", "model": "m", "reading": "table3"}
    assert "| 32 | 62.50 | 20 | 45.3 to 77.1 |" in text_tables(tables, meta)


def test_a_local_model_is_evaluated(tiny_folder: Path, tmp_path: Path) -> None:
    """A random model says nothing useful, and every episode still ends with an outcome."""
    evaluate = front.command("eval")

    for agent, turns in (("ds-guru-one-shot", 1), ("lake-agent", 20)):
        out = tmp_path / agent
        command = [
            "--tasks",
            f"krama:{tracks(tmp_path / 'x')}",
            "--model",
            str(tiny_folder),
            f"krama.agent={agent}",
            "--out",
            str(out),
            "sampling.max_new_tokens=8",
            "tools.snippet_tokens=100",
            "krama.settings=end-to-end",
        ]
        assert evaluate(command) == 0
        rows = json.loads((out / "results.json").read_text("utf-8"))["rows"]
        assert [r["outcome"] for r in rows] == [0.0] * 3
        assert all(1 <= r["turns"] <= turns and r["tokens_in"] + r["tokens_out"] > 0 for r in rows)
        assert {r["more"]["category"] for r in rows} <= {"contract_broken", "ran_no_answer"}


BROKEN = "```python\nraise ValueError('M')\n```"


def swept(tmp_path: Path, name: str, *more: str) -> dict[str, Any]:
    """Results of a model that is right after two tries, writes no code, or is right after six."""
    rows = [
        entry(1, "north", "What is the mean rain in June in Amherst?", 1.5),
        entry(2, "south", "What is the mean rain in July in Amherst?", 1.5),
        entry(3, "north", "What is the mean rain in May in Amherst?", 1.5)
        | {"id": "north-hard-3", "subtasks": []},
    ]
    for domain in ("north", "south"):
        make_lake(tmp_path / "lakes" / domain / "input")
    (tmp_path / "w.json").write_text(json.dumps(rows), encoding="utf-8")
    build([tmp_path / "w.json"], tmp_path / "lakes", tmp_path / "k", "full")
    said = {
        "June": [PLAN + BROKEN, CODE],
        "July": ["Two stations lie there."],
        "May": [PLAN + BROKEN, *[BROKEN] * 4, CODE],
    }
    lines = [json.dumps({"match": month, "replies": texts}) for month, texts in said.items()]
    (tmp_path / "canned.jsonl").write_text("\n".join(lines), "utf-8")
    command = ["--tasks", f"krama:{tmp_path / 'k'}", "--model", f"canned:{tmp_path}/canned.jsonl"]
    command += ["krama.settings=end-to-end", "--out", str(tmp_path / name), *more]
    assert front.command("eval")(command) == 0
    return json.loads((tmp_path / name / "results.json").read_text("utf-8"))["benchmarks"]["krama"]


def test_one_run_of_many_tries_says_what_fewer_come_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = swept(tmp_path, "six", "tools.tries=6", "tools.snippet_rows=20")
    counts = {c["tries"]: c for c in found["tables"]["end-to-end by tries"]}
    assert {n: (c["ran"], c["right"]) for n, c in counts.items()} == {
        **{1: (0, 0), 2: (1, 1), 3: (1, 1), 4: (1, 1), 5: (1, 1)},
        6: (2, 2),
    }
    assert counts[3]["calls"] == pytest.approx((2 + 3 + 3) / 3)
    assert (found["tries"], found["rows"]) == (6, 20)
    rows = json.loads((tmp_path / "six" / "results.json").read_text("utf-8"))["rows"]
    assert [r["more"]["notes"]["tries"] for r in rows] == [2, 6, 6]
    five = swept(tmp_path, "five")
    at_five = five["tables"]["end-to-end"]["overall"]
    assert (at_five["score"], at_five["right"]) == (counts[5]["score"], counts[5]["right"])
    assert five["tables"]["end-to-end by tries"][-1] == counts[5]
    assert "6 tries, 20 rows a file within 8000 tokens" in capsys.readouterr().out
    one = swept(tmp_path, "one", "krama.agent=ds-guru-one-shot")["tables"]
    assert "end-to-end by tries" not in one


def test_tables_hold_difficulty_and_causes(tmp_path: Path) -> None:
    found = swept(tmp_path, "out")["tables"]
    levels = found["end-to-end by difficulty"]
    assert {x: cells["overall"]["right"] for x, cells in levels.items()} == {"easy": 1, "hard": 0}
    assert set(levels["hard"]) == {"north", "overall"}
    assert found["end-to-end categories"] == {"right": 1, "contract_broken": 1, "code_fails": 1}
    text = (tmp_path / "out" / "tables.md").read_text("utf-8")
    header = "| domain | easy tasks | easy score % | easy right, 95 % | hard tasks | hard score %"
    assert header in text
    assert "| south | 1 | 0.00 | 0.0 to 79.3 | - | - | - |" in text
    assert "| domain | easy tasks | easy design, judged % | hard tasks" in text


def test_no_tries_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--tasks", f"krama:{tracks(tmp_path)}", "--model", "canned:x"]
    for option in ("tools.tries=0", "tools.snippet_rows=-1", "tools.snippet_tokens=9"):
        assert front.command("eval")([*command, "--out", str(tmp_path / "o"), option]) == 2
        assert f"{option} is too small" in capsys.readouterr().err


def test_an_answer_that_utf8_cannot_hold_is_written_and_scored(tmp_path: Path) -> None:
    evaluate = front.command("eval")

    code = '```python\nprint(\'{"main-task": "\\\\ud83d"}\')\n```'
    replies = tmp_path / "replies.jsonl"
    replies.write_text(json.dumps({"match": "", "replies": [PLAN + code]}) + "\n", "utf-8")
    out = tmp_path / "out"
    command = ["--tasks", f"krama:{tracks(tmp_path)}", "--model", f"canned:{replies}"]
    assert evaluate([*command, "krama.settings=end-to-end", "--out", str(out)]) == 0
    rows = json.loads((out / "results.json").read_text("utf-8"))["rows"]
    assert [(r["outcome"], r["more"]["answer"]) for r in rows] == [(0.0, "\ud83d")] * 3


def test_a_missing_file_of_replies_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate = front.command("eval")

    command = ["--tasks", f"krama:{tracks(tmp_path)}", "--model", "canned:/nowhere.jsonl"]
    assert evaluate([*command, "--out", str(tmp_path / "o")]) == 2
    assert "/nowhere.jsonl: no such file" in capsys.readouterr().err


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
    evaluate = front.command("eval")

    workload = KRAMA / "data" / "workload_verified.json"
    build([workload], KRAMA / "data" / "lake", tmp_path / "k", "full")
    canned = tmp_path / "canned.jsonl"
    lines = (json.dumps(row) + "\n" for row in gold_replies(workload))
    canned.write_text("".join(lines), encoding="utf-8")
    command = ["--tasks", f"krama:{tmp_path / 'k'}", "--model", f"canned:{canned}"]
    assert evaluate([*command, "--out", str(tmp_path / "o"), "server.in_flight=4"]) == 0
    data = json.loads((tmp_path / "o" / "results.json").read_text("utf-8"))
    wrong = [
        (r["task_id"], r["why"], r["more"]["answer"]) for r in data["rows"] if r["outcome"] != 1.0
    ]
    assert wrong == []
    tables = data["benchmarks"]["krama"]["tables"]
    assert (tables["end-to-end"]["overall"]["tasks"], tables["end-to-end"]["overall"]["right"]) == (
        46,
        46,
    )
    assert tables["subtasks"]["overall"]["tasks"] == 279
    assert len(tables["end-to-end"]) == 7
    assert tables["end-to-end"]["overall"]["subtask_credit"] == 1.0


def test_the_checkout_is_asked_whole_and_says_what_it_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate = front.command("eval")
    place, out = make_checkout(tmp_path / "release"), tmp_path / "o"
    words = ["--tasks", f"krama:{place}", "--model", "gold", "--out"]
    assert evaluate([*words, str(out), "krama.subtask_mode=oracle"]) == 0
    said = capsys.readouterr().out
    data = json.loads((out / "results.json").read_text("utf-8"))
    cells = data["benchmarks"]["krama"]["tables"]["end-to-end"]
    assert (cells["overall"]["tasks"], cells["overall"]["score"]) == (3, 1.0)
    assert (cells["of these doubted"]["tasks"], cells["without the doubted"]["tasks"]) == (1, 2)
    assert cells["legal"]["tasks"] == 2  # the doubted one is in its domain's row
    doubted = {r["task_id"]: r["reward"] for r in data["rows"] if r["more"]["doubt"]}
    assert doubted == {"legal-hard-1": 0.0, "legal-hard-1-1": 0.0}
    assert "Over 3 of the benchmark's 104 tasks, files shown: full; archeology 0 of 12" in said
    assert "Over 3 of the benchmark's 633 sub-tasks, files shown: oracle" in said
    assert "Gold is doubted of 1 tasks and 1 sub-tasks" in said
    assert "legal-hard-1: the reference keeps five rows a state" in said
    assert "quick-start-questions.json: 2 tasks left out" in said
    assert "6 test tasks of the release" in said and "held-out" not in said
    assert evaluate([*words, str(tmp_path / "p"), "krama.doubted=false"]) == 0
    data = json.loads((tmp_path / "p/results.json").read_text("utf-8"))
    assert "of these doubted" not in data["benchmarks"]["krama"]["tables"]["end-to-end"]
    assert len(data["rows"]) == 4
    (place / "data/legal").rename(tmp_path / "elsewhere")
    assert evaluate([*words, str(tmp_path / "q"), "--strict"]) == 2
    assert "the tasks could not be made" in capsys.readouterr().err


def test_tasks_that_are_made_already_have_their_input_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tasks", f"krama:{tracks(tmp_path)}", "--model", "gold", "--out", str(tmp_path)]
    assert front.command("eval")([*words, "krama.input_mode=oracle"]) == 2
    assert "these tasks are made already" in capsys.readouterr().err
