"""Exported Harbor directories: the same bytes, no gold in sight, the scores of `assay score`."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sql_tasks import sql_tasks
from travelling import demo_tasks, exported, own_tasks, tasks_file, texts

from assay.family import score_answer
from assay.task import Answer, Task, TaskError
from data_gen.exports.cli import main as export
from data_gen.exports.harbor import Settings, directory, directory_name

TRUTH = "row_id,kind\n1,a\n2,b\n3,a\n4,b\n"
USER = [{"role": "user", "content": "Predict kind of each row into prediction.csv."}]
GOLD = {"task_type": "class-MM", "truth_csv": TRUTH, "key_columns": ["row_id"], "targets": ["kind"]}
TABLE = Task("t", "table", "class-MM", "train", USER, GOLD)
FILES = [
    TRUTH.encode(),
    b"",
    b"row_id,kind\n1,a\n2,a\n3,a\n4,a\n",
    b"row_id,kind\n1,a\n2,b\n",
    b"row_id,kind\n1,a\n1,b\n2,b\n3,a\n4,b\n",
    b"kind,row_id,more\na,1,x\nb,2,y\na,3,z\nb,4,w\n",
    b"row_id\n1\n2\n3\n4\n",
    b'row_id,kind\n1,"a',
    b"\xff\xfe\x00",
    b"row_id,kind\n" + b"9" * 400 + b",a\n",
    b"row_id,kind\nx,a\ny,b\n",
    b"row_id,kind\n1,1\n2,2\n3,1\n4,2\n",
]


def lake(answer: Any, kind: str) -> Task:
    prompt = [{"role": "user", "content": "How many?"}]
    gold = {"answer_type": kind, "answer": answer, "subtasks": []}
    return Task(f"lake-{kind}", "answer", "lake", "train", prompt, gold)


LAKES = [lake(7, "numeric_exact"), lake(0.25, "numeric_approximate"), lake("Bo", "string_exact")]
SAID = [
    *("7", '{"answer": 7}', "<answer>7</answer>", '{"answer": 7.0}', '{"answer": "7"}'),
    *('{"answer": 0.26}', '{"answer": [7]}', '{"answer": null}', "", "[" * 3000),
    *('{"answer": "bo"}', "<answer>Bo</answer>", '{"answer": NaN}', '{"answer": {"a": 1}}'),
]

RUN = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("score", sys.argv[1] + "/tests/score.py")
score = importlib.util.module_from_spec(spec)
spec.loader.exec_module(score)
for folder in sys.argv[2:]:
    score.main([folder, folder + "/out"])
used = [m for n, m in sys.modules.items() if n.partition(".")[0] in ("assay", "rewards")]
print(json.dumps(sorted({str(m.__file__) for m in used})))
"""


def scored(task_folder: Path, answers: list[dict[str, bytes]], at: Path) -> list[dict[str, Any]]:
    """What the exported scorer says of each answer, in a Python that knows no Assay."""
    folders: list[str] = []
    for i, files in enumerate(answers):
        folder = at / str(i)
        folder.mkdir(parents=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        folders.append(str(folder))
    done = subprocess.run(
        [sys.executable, "-I", "-c", RUN, str(task_folder), *folders],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    used = json.loads(done.stdout.strip().splitlines()[-1])
    assert used and all(path.startswith(str(task_folder)) for path in used)
    return [json.loads((Path(f) / "out" / "details.json").read_text()) for f in folders]


def made(task: Task, folder: Path) -> Path:
    return exported("harbor", folder, [task]) / directory_name(task)


def test_the_scorer_says_of_texts_what_assay_says(tmp_path: Path) -> None:
    for number, tasks in enumerate((demo_tasks(12)[:3], own_tasks(3))):
        for i, task in enumerate(tasks):
            at = tmp_path / f"{number}-{i}"
            at.mkdir()
            said = texts(task, tasks[i - 1])
            found = scored(made(task, at), [{"answer.txt": t.encode()} for t in said], at / "a")
            assert found == [score_answer(task, Answer(text)).to_json() for text in said]


@pytest.mark.parametrize("task", LAKES, ids=lambda task: task.id)
def test_the_scorer_says_of_lake_answers_what_assay_says(tmp_path: Path, task: Task) -> None:
    answers = [{"answer.txt": text.encode()} for text in SAID]
    found = scored(made(task, tmp_path), answers, tmp_path / "a")
    assert found == [score_answer(task, Answer(text)).to_json() for text in SAID]
    assert 0 < sum(row["outcome"] for row in found) < len(found)


def test_the_scorer_says_of_queries_what_assay_says(tmp_path: Path) -> None:
    task = sql_tasks()[0]
    gold = str(task.gold["sql"])
    said = [
        gold,
        f"```sql\n{gold}\n```",
        "```sql\nSELECT 1\n```",
        "```sql\nSELEC\n```",
        "",
        "x" * 9,
    ]
    found = scored(made(task, tmp_path), [{"answer.txt": t.encode()} for t in said], tmp_path / "a")
    assert found == [score_answer(task, Answer(text)).to_json() for text in said]
    assert found[1]["outcome"] == found[1]["reward"] == 1.0 and found[2]["outcome"] == 0.0


def test_the_scorer_says_of_files_what_assay_says(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    answers = [{"prediction.csv": data} for data in FILES] + [{}]
    found = scored(made(TABLE, tmp_path), answers, tmp_path / "a")
    ours = [Answer(files=files) for files in answers]
    assert found == [score_answer(TABLE, answer).to_json() for answer in ours]
    assert found[0]["outcome"] == 1.0 and found[-1]["outcome"] == 0.0


def test_a_link_to_gold_is_no_answer(tmp_path: Path) -> None:
    task = demo_tasks(6)[0]
    folder = made(task, tmp_path)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "answer.txt").symlink_to(folder / "solution" / "gold" / "answer.txt")
    program = [sys.executable, "-I", str(folder / "tests" / "score.py")]
    done = subprocess.run(
        [*program, str(tmp_path / "app"), str(tmp_path / "out")], check=False, capture_output=True
    )
    assert done.returncode == 0
    assert json.loads((tmp_path / "out" / "reward.json").read_text())["reward"] == 0.0


def test_a_reward_that_lay_there_before_goes_and_a_broken_scorer_leaves_none(
    tmp_path: Path,
) -> None:
    folder = made(demo_tasks(6)[0], tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "reward.json").write_text('{"reward": 1.0}')
    (tmp_path / "out" / "reward.txt").write_text("1")
    (folder / "tests" / "vendor" / "rewards" / "parse.py").write_text("raise OSError('gone')")
    program = [sys.executable, "-I", str(folder / "tests" / "score.py")]
    done = subprocess.run(
        [*program, str(tmp_path), str(tmp_path / "out")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "the scorer failed: OSError" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_modules_put_beside_the_scorer_are_not_used(tmp_path: Path) -> None:
    """An agent may write below /tests before the tests come."""
    task = demo_tasks(6)[0]
    folder = made(task, tmp_path)
    for name in ("json.py", "rewards.py", "vendor/json.py", "vendor/rewards/extra.py"):
        (folder / "tests" / name).write_text("raise SystemExit('mine')")
    found = scored(folder, [{"answer.txt": b""}], tmp_path / "a")
    assert found[0]["outcome"] == 0.0


def agent_sees(task: Task) -> dict[str, bytes]:
    files = {name: data for name, data, _ in directory(task, Path(), Settings())}
    return {
        n: d for n, d in files.items() if not n.startswith(("tests/", "solution/", "task.toml"))
    }


def test_what_an_agent_sees_does_not_depend_on_gold() -> None:
    task = demo_tasks(6)[0]
    other = {"status": "KEEP", "text": "something else", "input_text": task.gold["input_text"]}
    assert agent_sees(replace(task, gold=other)) == agent_sees(task)
    assert agent_sees(replace(LAKES[0], gold={**LAKES[0].gold, "answer": 8})) == agent_sees(
        LAKES[0]
    )
    assert set(agent_sees(task)) == {"instruction.md", "environment/Dockerfile"}


def test_the_same_tasks_give_the_same_bytes(tmp_path: Path) -> None:
    tasks = [*demo_tasks(6), *own_tasks(4), *LAKES]
    trees: list[dict[str, tuple[bytes, int]]] = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        out = exported("harbor", tmp_path / name, tasks)
        files = [p for p in sorted(out.rglob("*")) if p.is_file()]
        trees.append({str(p.relative_to(out)): (p.read_bytes(), p.stat().st_mode) for p in files})
    assert trees[0] == trees[1] and len(trees[0]) > 60


def test_files_lie_where_prompts_say(tmp_path: Path) -> None:
    (tmp_path / "one" / "deep").mkdir(parents=True)
    (tmp_path / "one" / "deep" / "x.csv").write_text("a\n1\n")
    (tmp_path / "train.csv").write_text("b\n2\n")
    files = {"lake": "one", "train.csv": "train.csv"}
    folder = made(replace(LAKES[0], files=files), tmp_path)
    assert (folder / "environment" / "files" / "data" / "deep" / "x.csv").read_text() == "a\n1\n"
    assert (folder / "environment" / "files" / "train.csv").is_file()
    dockerfile = (folder / "environment" / "Dockerfile").read_text()
    assert dockerfile.splitlines()[-1] == "COPY files/ /app/"
    assert "pip install" not in dockerfile  # its scorer needs the standard library alone


def test_task_toml_is_read_back(tmp_path: Path) -> None:
    odd = replace(LAKES[0], id='a "b"\n\\c\x7f', meta={"licence": "MIT", "domain": "x\ty"})
    row = tomllib.loads((made(odd, tmp_path) / "task.toml").read_text(encoding="utf-8"))
    assert row["metadata"]["assay_id"] == odd.id and row["metadata"]["licence"] == "MIT"
    assert row["environment"]["network_mode"] == "no-network"


def test_a_task_that_cannot_go_is_listed_and_the_others_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = replace(LAKES[0], id="lost", files={"lake": "nowhere"})
    path, out = tasks_file(tmp_path, [lost, *LAKES[1:]]), tmp_path / "out"
    assert export(["harbor", "--tasks", str(path), "--out", str(out)]) == 3
    (row,) = [json.loads(line) for line in (out / "refused.jsonl").read_text().splitlines()]
    assert row["id"] == "lost" and "nowhere" in row["why"]
    assert not (out / directory_name(lost)).exists()
    assert "2 task directories" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--base", "python:latest"], ["--package", "pandas"]])
def test_what_is_not_pinned_is_refused(tmp_path: Path, words: list[str]) -> None:
    path = tasks_file(tmp_path, LAKES)
    with pytest.raises(TaskError, match="pin it"):
        export(["harbor", "--tasks", str(path), "--out", str(tmp_path / "o"), *words])
