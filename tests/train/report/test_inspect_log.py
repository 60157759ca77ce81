"""Evaluations as logs for inspect: every answer a sample with two scores, every number the
evaluation's own."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from front import results
from mixed_tasks import OWN, own, refinement
from mixed_tasks import said as reply_to
from places import ROOT
from report_runs import make_report_run

import assay
from assay import family as families
from assay.task import Task, read_tasks, write_jsonl

# a scorer that fails on one answer
SUMS = OWN.replace(
    "    right =",
    '    if "boom" in answer.text:\n        raise RuntimeError("no ruler")\n    right =',
)
# right, wrong, not scored at all, and half of a surrogate pair
SAID = ["0", "3", "boom", "six \ud83d"]
CALL = (
    'I look.\n<tool_call>\n{"name": "query", "arguments": '
    '{"sql": "SELECT boxes FROM stock WHERE fruit = \'fig\'"}}\n</tool_call>'
)


def evaluated(folder: Path, tasks: list[Task], replies: list[list[str]], *words: str) -> Path:
    """The folder of an evaluation whose model says `replies`, task by task."""
    write_jsonl(folder / "tasks.jsonl", [task.to_json() for task in tasks])
    rows = [
        {"match": task.prompt[-1]["content"], "replies": texts}
        for task, texts in zip(tasks, replies, strict=True)
    ]
    (folder / "canned.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    named = ["--tasks", str(folder / "tasks.jsonl"), "--model", f"canned:{folder}/canned.jsonl"]
    assert assay.main(["eval", *named, "--out", str(folder / "out"), *words]) in (0, 3)
    return folder / "out"


def exported(run: Path, out: Path, *more: str) -> dict[str, dict[str, Any]]:
    """Name of each log → its parts."""
    assert assay.main(["report", str(run), "--no-view", "--inspect", str(out), *more]) == 0
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(out.iterdir()):
        with zipfile.ZipFile(path) as log:
            found[path.name] = {name: json.loads(log.read(name)) for name in log.namelist()}
    return found


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten tasks of two families, two samples each; one task has no outcome."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "sums.py").write_text(SUMS, encoding="utf-8")
    texts = [refinement(i, "KEEP" if i % 3 else "DROP", i // 2) for i in range(6)]
    replies = [[text] for text in (*map(reply_to, texts), *SAID)]
    more = ["--family", str(folder / "sums.py"), "--seed", "7"]
    more += ["sampling.n=2", "sampling.temperature=0.5"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(families, "_added", {})
        patch.setenv(families.VARIABLE, "")
        return evaluated(folder, [*texts, *map(own, range(4))], replies, *more)


@pytest.mark.usefixtures("no_family_of_another_test")
def test_samples_scores_and_numbers_are_those_of_the_evaluation(
    words: Path, tmp_path: Path
) -> None:
    family = ["--family", str(words.parent / "sums.py")]
    (log,) = exported(words, tmp_path / "a", *family).values()
    data = results(words)
    assert len(log) == len(data["rows"]) + 2 == 22
    for row in data["rows"]:
        sample = log[f"samples/{row['task_id']}_epoch_{row['sample'] + 1}.json"]
        if row["outcome"] is None:
            assert sample["scores"] == {} and "no ruler" in sample["error"]["message"]
            continue
        outcome, reward = sample["scores"]["outcome"], sample["scores"]["reward"]
        assert (outcome["value"], reward["value"]) == (row["outcome"], row["reward"])
        assert outcome["explanation"] == row["why"] and "error" not in sample
        assert reward["metadata"]["parts"] == row["parts"]
    assert log["samples/o3_epoch_1.json"]["output"]["completion"] == "six ?"
    cell, header = data["tables"]["overall"], log["header.json"]
    outcome, reward = header["results"]["scores"]
    numbers = {name: metric["value"] for name, metric in outcome["metrics"].items()}
    assert numbers["mean"] == cell["mean_outcome"] and 0 < numbers["mean"] < 1
    assert [numbers["low_95"], numbers["high_95"]] == cell["interval"]
    assert numbers["balanced"] == cell["balanced"] and numbers["pass@2"] == cell["pass@k"]["2"]
    assert reward["metrics"]["mean"]["value"] == cell["mean_reward"] != numbers["mean"]
    assert (outcome["scored_samples"], outcome["unscored_samples"]) == (18, 2)
    drawn = header["eval"]["model_generate_config"]
    assert (drawn["seed"], drawn["temperature"]) == (7, 0.5)
    assert log["samples/o1_epoch_1.json"]["target"] == "2"


@pytest.mark.usefixtures("no_family_of_another_test")
def test_inspect_itself_opens_the_log(words: Path, tmp_path: Path) -> None:
    why = "inspect_ai is not installed; `make test-interop`"
    inspect: Any = pytest.importorskip("inspect_ai.log", reason=why)
    exported(words, tmp_path / "logs", "--family", str(words.parent / "sums.py"))
    (path,) = (str(p) for p in (tmp_path / "logs").iterdir())
    log, found = inspect.read_eval_log(path), results(words)
    samples = {(s.id, s.epoch): s for s in log.samples}
    for row in found["rows"]:
        sample = samples[row["task_id"], row["sample"] + 1]
        assert sample.output.completion == row["output"].replace("\ud83d", "?") and sample.target
        values = [score.value for score in (sample.scores or {}).values()]
        assert values == [v for v in (row["outcome"], row["reward"]) if v is not None]
        assert (sample.error is None) == (row["outcome"] is not None)
    assert log.status == "success" and inspect.read_eval_log_sample(path, "o3", 2).target == "6"


@pytest.mark.usefixtures("no_family_of_another_test")
def test_a_tools_answer_names_its_call(tmp_path: Path) -> None:
    """An episode of examples/own_tools.py that asks the database."""
    family = ["--family", str(shutil.copy(ROOT / "examples" / "own_tools.py", tmp_path))]
    built = tmp_path / "built"
    assert assay.main(["tasks", "shop", *family, "--out", str(built), "count=6"]) in (0, None)
    (task, *_) = read_tasks(built / "heldout.jsonl")
    run = evaluated(tmp_path, [task], [[CALL, task.gold["boxes"]]], *family, "tools.turns=3")
    (log,) = exported(run, tmp_path / "logs", *family).values()
    (sample,) = (value for name, value in log.items() if name.startswith("samples/"))
    asked, called, came, said = sample["messages"][-4:]
    (call,) = called["tool_calls"]
    assert asked["role"] == "user" and call["function"] == "query"
    assert call["arguments"]["sql"].startswith("SELECT boxes")
    assert came["role"] == "tool" and came["tool_call_id"] == call["id"]
    assert sample["target"] in came["content"] and said["content"] == sample["target"]


def test_every_model_of_a_run_has_a_log(tmp_path: Path) -> None:
    logs = exported(make_report_run(tmp_path / "run"), tmp_path / "logs")
    scores = {name: log["header.json"]["results"]["scores"][0] for name, log in logs.items()}
    means = {name: found["metrics"]["mean"]["value"] for name, found in scores.items()}
    assert means.pop("run_rl.eval") == 7 / 8
    assert means == {"run_gold.eval": 1, "run_sft.eval": 0.5, "run_untouched.eval": 0}
