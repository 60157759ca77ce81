"""`assay score` over blocks, processes, several inputs and files of tasks."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
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
    return [
        Task(
            f"t{n}",
            "refinement",
            "x",
            "train",
            [{"role": "user", "content": "?"}],
            {"status": "KEEP", "text": f"gold {n}", "input_text": f"text {n}"},
        )
        for n in range(count)
    ]


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
    write_jsonl(plain, [tasks[0].to_json() | {"family": "poem"}])
    with pytest.raises(TaskError, match="no family 'poem'"):
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


def test_an_interrupt_ends_all_processes_and_leaves_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "assay", "score", "-", "--workers", "2"]
    words += ["--out", str(tmp_path / "out.jsonl")]
    with subprocess.Popen(
        words,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(lines(rows(2000)) * 5)  # and then it waits for more
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()
        assert process.wait() == 130, said
    assert b"Traceback" not in said
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize(
    ("row", "tasks", "said"),
    [
        ({"task_id": "t0", "text": "x"}, None, "a rollout, which holds no gold"),
        ({"task_id": "t9", "text": "x"}, {}, "field 'task_id' is 't9', which is no task of"),
        ({"task_id": "t0"}, {"t0": task_rows(1)[0]}, "a rollout without `text`"),
        ({"task_id": "t0", "messages": [3]}, {"t0": task_rows(1)[0]}, "without `text`"),
    ],
)
def test_a_rollout_that_cannot_be_scored_is_one_sentence(
    row: dict[str, Any], tasks: dict[str, Task] | None, said: str
) -> None:
    (found,) = score_lines([json.dumps(row)], tasks)
    assert found["id"] == row["task_id"] and said in found["error"]


EMAIL = {"input_text": "a x@y.z b", "reference_status": "KEEP", "reference_text": "a  b"}
GOLD = "<status>KEEP</status><clean_text>a b</clean_text>"


def row_of(**changes: Any) -> str:
    return json.dumps({"id": "1", "family": "refinement", "task": EMAIL, "output": GOLD} | changes)


def run(given: bytes, folder: Path) -> tuple[int, list[dict[str, Any]]]:
    (folder / "in.jsonl").write_bytes(given)
    status = main([str(folder / "in.jsonl"), "--out", str(folder / "out.jsonl")])
    return status, [json.loads(line) for line in (folder / "out.jsonl").read_bytes().splitlines()]


def test_rows_are_scored_in_order(tmp_path: Path) -> None:
    made = [row_of(), row_of(id="2", output="a b")]
    made += [row_of(id="3", output="a b", parsing="release")]
    made += [row_of(id="4", output="<status>KEEP</status><clean_text>\ud800</clean_text>")]
    status, out = run("\n".join(made).encode(), tmp_path)
    assert status == 0
    assert [(r["id"], r["outcome"], r["why"]) for r in out] == [
        ("1", 1.0, "ok"),
        ("2", 0.0, "no_answer"),
        ("3", 1.0, "ok"),
        ("4", 0.0, "wrong_text"),
    ]
    assert set(out[0]) == {"id", "outcome", "reward", "parts", "why"}


@pytest.mark.parametrize(
    ("line", "message"), [*TABLES["a_bad_row_is_named_and_the_rest_goes_on"], ("\xff\xfe", "")]
)
def test_a_bad_row_is_named_and_the_rest_goes_on(line: str, message: str, tmp_path: Path) -> None:
    code = "utf-8" if message else "latin-1"  # bytes that are no text spoil only their row
    status, out = run(f"{line}\n\n{row_of(id='good')}\n".encode(code), tmp_path)
    assert status == 3
    assert message in out[0]["error"]
    assert (out[1]["id"], out[1]["reward"]) == ("good", 1.0)


def test_standard_streams_and_a_missing_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(row_of() + "\n"))
    assert main(["-"]) == 0
    assert json.loads(capsys.readouterr().out)["reward"] == 1.0
    assert main([str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err
