"""`assay score` over blocks, processes, several inputs and files of tasks."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from front import command
from places import ROOT, tables

from assay.rows import blocks
from assay.task import Task, TaskError, json_line, write_jsonl
from rewards.score import KEPT, TaskFile, open_tasks, prepare, score_block, score_lines

TABLES = tables("rewards")

main = command("score")
TEXT = "See ana{n}@acme.io  now , or \u2028 later .\n\n\n\nEnd"


def rows(count: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for n in range(count):
        text, gold = TEXT.format(n=n), TEXT.format(n=n).replace(f"ana{n}@acme.io", "")
        task = {"input_text": text, "reference_status": "KEEP", "reference_text": gold}
        said = (gold, text, "", gold.replace("End", "end"))[n % 4]
        output = (
            f"<status>{'DROP' if n % 7 == 0 else 'KEEP'}</status><clean_text>{said}</clean_text>"
        )
        made.append({"id": f"r{n}", "family": "refinement", "task": task, "output": output})
    return made


def lines(made: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made).encode()


@pytest.mark.parametrize("size", [7, 400, 5000])
def test_bad_rows_are_numbered_however_a_file_is_cut(tmp_path: Path, size: int) -> None:
    made = rows(40)
    made[33]["task"]["reference_text"] = None
    texts = lines(made).decode().split("\n")
    for place, bad in ((3, "{torn"), (4, ""), (17, "[1]"), (18, "nan nan"), (41, '{"id": "x"}')):
        texts.insert(place, bad)
    names = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    for name in names:
        Path(name).write_text("\n".join(texts))
    prepare(None, {}, several=True)
    found = map(score_block, blocks(names, size))
    wanted = [
        json_line(result)
        for name in names
        for result in score_lines(texts, None, where=f"{name} line")
    ]
    assert b"".join(done.results for done in found) == b"".join(wanted)
    errors = [json.loads(line)["error"] for line in wanted if b'"error"' in line]
    assert [int(e.split(" line ")[1].split(":")[0]) for e in errors[:5]] == [4, 18, 19, 38, 42]


def task_rows(count: int) -> list[Task]:
    ask = [{"role": "user", "content": "?"}]
    golds = [
        {"status": "KEEP", "text": f"gold {n}", "input_text": f"text {n}"} for n in range(count)
    ]
    return [Task(f"t{n}", "refinement", "x", "train", ask, gold) for n, gold in enumerate(golds)]


def test_rows_that_name_tasks_find_them_over_workers(tmp_path: Path) -> None:
    tasks = task_rows(KEPT + 100)
    write_jsonl(tmp_path / "tasks.jsonl", (task.to_json() for task in tasks))
    made = [
        {"id": f"t{n}", "output": f"<status>KEEP</status><clean_text>gold {n}</clean_text>"}
        for n in [*range(len(tasks)), 0, 1]
    ]
    (tmp_path / "in.jsonl").write_bytes(lines([*made, {"id": "none", "output": ""}]))
    for workers in ("1", "2"):
        out = str(tmp_path / f"{workers}.jsonl")
        words = ["--tasks", str(tmp_path / "tasks.jsonl"), "--out", out, "--workers", workers]
        assert main([str(tmp_path / "in.jsonl"), *words]) == 3
    one, two = ((tmp_path / f"{n}.jsonl").read_bytes() for n in "12")
    assert one == two
    found = [json.loads(line) for line in one.splitlines()]
    assert [r["id"] for r in found[:-1]] == [r["id"] for r in made]
    assert all(r["outcome"] == 1.0 for r in found[:-1])
    assert "which is no task of --tasks" in found[-1]["error"]


def test_a_file_of_tasks_is_read_by_place_with_a_mark_before_it(tmp_path: Path) -> None:
    tasks = task_rows(30)
    data = lines([task.to_json() for task in tasks])
    plain, packed = tmp_path / "t.jsonl", tmp_path / "t.jsonl.gz"
    plain.write_bytes(b"\xef\xbb\xbf" + data)
    packed.write_bytes(gzip.compress(data))
    on_disk, in_memory = open_tasks(str(plain)), open_tasks(str(packed))
    assert isinstance(on_disk, TaskFile) and isinstance(in_memory, dict)
    for task in tasks:
        assert on_disk.get(task.id) == in_memory.get(task.id) == task
    assert on_disk.get("none") is None
    plain.write_bytes(data[:-40])
    with pytest.raises(TaskError):
        open_tasks(str(plain)).get("t29")
    write_jsonl(plain, [tasks[0].to_json(), tasks[0].to_json()])
    with pytest.raises(TaskError, match="two tasks have the id 't0'"):
        open_tasks(str(plain))


def test_rows_from_a_pipe_are_answered_as_they_come() -> None:
    words = [sys.executable, "-m", "assay", "score"]
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        for row in rows(3):
            process.stdin.write(lines([row]))
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == row["id"]
        process.stdin.close()
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("row", "outcome", "said"), TABLES["a_rollout_is_scored_from_what_it_keeps_or_says_why_not"]
)
def test_a_rollout_is_scored_from_what_it_keeps_or_says_why_not(
    row: dict[str, Any], outcome: float | None, said: str
) -> None:
    tasks = {task.id: task for task in task_rows(1)}
    (found,) = score_lines([json.dumps({"task_id": "t0", "sample": 3, **row})], tasks)
    assert (found["id"], found["sample"], found["outcome"]) == ("t0", 3, outcome)
    assert said in found["why"]


@pytest.mark.parametrize(("line", "message"), TABLES["a_bad_row_is_named_and_the_rest_goes_on"])
def test_a_bad_row_is_named_and_the_rest_goes_on(line: str, message: str) -> None:
    (good,) = rows(1)
    bad, scored = score_lines([line, json.dumps(good | {"id": "good"})])
    assert message in bad["error"] and scored["id"] == "good" and "error" not in scored
