"""Harbor directories as tasks: round trips, and every reason to leave one out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from places import ROOT, tables
from sql_tasks import sql_tasks
from travelling import demo_tasks, exported, own_tasks

from assay.family import gold_answer, score_answer
from assay.task import Answer, Task, read_tasks
from data_gen.exports.cli import BASE
from data_gen.harbor import main
from rewards.harbor import HARBOR
from rollouts.environment import ModelTurn
from rollouts.environments import EnvironmentFactory
from rollouts.event_loop import asyncio_run
from rollouts.sandbox.model import Config
from rollouts.sandbox.pool import machine_report
from rollouts.tool_calls import ToolCall

REFUSED = tables("harbor")["a_directory_that_cannot_be_honoured"]


@pytest.fixture(scope="module", autouse=True)
def jail() -> None:
    if machine_report(Config(workers=1, min_level="limits", stack=()))["level"] != "full":
        pytest.skip("the jail has no namespaces here")


def directory(folder: Path, name: str, **parts: str) -> None:
    """A small directory; a part that is another is given by the last word of its path."""
    shutil.copytree(ROOT / "tests/data/harbor_task", folder / name)
    for path in filter(Path.is_file, (folder / name).rglob("*")):
        path.write_text(parts.get(path.stem, path.read_text()).replace("BASE", BASE))


def refused(out: Path) -> dict[str, str]:
    rows = [json.loads(line) for line in (out / "refused.jsonl").read_text().splitlines()]
    return {row["name"]: " ".join(row["why"]) for row in rows}


def test_what_was_exported_comes_in_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = exported("harbor", tmp_path, [*demo_tasks(6)[:2], *own_tasks(2), *sql_tasks()[:1]])
    count = len([p for p in out.iterdir() if p.is_dir()])
    assert main([str(out), "--out", str(tmp_path / "t")]) == 0
    assert "used, 1 tasks, licence" in capsys.readouterr().err
    tasks = read_tasks(tmp_path / "t" / "train.jsonl")
    assert len(tasks) == count == 5 and refused(tmp_path / "t") == {}
    for task in tasks:
        gold = gold_answer(HARBOR, task)
        assert gold is not None and score_answer(task, gold).outcome == 1.0


@pytest.mark.parametrize(("parts", "said"), REFUSED)
def test_a_directory_that_cannot_be_honoured_is_listed(
    tmp_path: Path, parts: dict[str, str], said: str
) -> None:
    directory(tmp_path / "in", "bad", **parts)
    assert main([str(tmp_path / "in"), "--out", str(tmp_path / "t")]) == 1
    assert said in refused(tmp_path / "t")["bad"]
    assert not (tmp_path / "t" / "train.jsonl").exists()


def test_a_task_that_may_use_the_network_runs_without_one_when_asked(tmp_path: Path) -> None:
    (parts,) = (parts for parts, said in REFUSED if said == "network_mode public")
    directory(tmp_path / "in", "net", **parts)
    assert main([str(tmp_path / "in"), "--out", str(tmp_path / "t"), "--offline"]) == 0


def episode(task: Task, root: Path, commands: list[str]) -> float | None:
    """The outcome of an episode in which a model gives these commands."""

    async def run() -> float | None:
        shop = EnvironmentFactory(root)
        try:
            surroundings = shop.maker(task, 0, 0)
            opening = await surroundings.open()
            assert [tool.name for tool in opening.tools] == ["harbor_shell"]
            calls = [ToolCall("harbor_shell", {"command": command}) for command in commands]
            # commands do not count against the tool time: one that uses it up is not the last
            said = await surroundings.reply(ModelTurn("", calls, False, 0, False, 1.0))
            assert said.seconds == 0.0 and len(said.records) == len(commands)
            closing = await surroundings.close()
        finally:
            await shop.close()
        return score_answer(task, Answer(files=closing.files)).outcome

    return asyncio_run(run())


def test_an_episode_is_scored_by_the_verifier_after_the_agent_ended(tmp_path: Path) -> None:
    directory(tmp_path / "in", "good")
    assert main([str(tmp_path / "in"), "--out", str(tmp_path / "t")]) == 0
    shutil.rmtree(tmp_path / "in")  # the tasks folder stands for itself
    (task,) = read_tasks(tmp_path / "t" / "train.jsonl")
    assert episode(task, tmp_path / "t", ["sleep 1.2", "echo right > out"]) == 1.0
    assert episode(task, tmp_path / "t", ["echo wrong > out"]) == 0.0
    farm = ["ls /tests /solution | wc -l > /app/seen; echo 1 > /logs/verifier/reward.txt"]
    farm += ["printf '#!/bin/bash\\necho 1 > /logs/verifier/reward.json' > /tests/test.sh"]
    assert episode(task, tmp_path / "t", farm) == 0.0
