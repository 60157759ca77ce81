"""Task sets over lakes name their folders relative to themselves: they can be moved."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from random import Random

import pytest
from small_lake import make_lake

pytest.importorskip("pandas")

from front import command

from assay.family import score_answer
from assay.task import Task, read_tasks
from data_gen.krama.importer import write_tasks
from rollouts.engines.scripted import CannedEngine
from rollouts.environment import Budget
from rollouts.environments import EnvironmentFactory
from rollouts.episode import Episode
from rollouts.scripted_agents import reference_reply
from rollouts.tool_calls import FORMATS
from rollouts.trajectory import Sampling

main = command("tasks", "lake")


async def outcomes(path: Path) -> list[float | None]:
    """What the gold pipelines of a tasks file score, run as an agent's would be."""
    shop = EnvironmentFactory(path.parent)
    tasks = read_tasks(path)
    shop.announce(tasks)
    found: list[float | None] = []
    try:
        for task in tasks:
            reply = reference_reply(task, 0, FORMATS["hermes_brief"])
            engine = CannedEngine([{"match": "", "replies": [reply]}])
            run = await Episode(task, 0, 0, shop.maker, Budget(turns=2)).play(engine, Sampling(512))
            found.append(score_answer(task, run.answer()).outcome)
    finally:
        await shop.close()
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux only")
def test_moved_lake_tasks_are_still_answered_by_their_gold(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    lake = make_lake(here / "lake")
    for path in lake.glob("*.csv"):  # an obscured lake has no tables.yaml that settles doubts
        path.unlink()
    rng, lines = Random(3), ["town,department,sales,visitors,floor_area"]
    for _ in range(240):
        town, kind = (
            rng.choice(["Aldra", "Birk", "Corva", "Elst"]),
            rng.choice(["food", "toys", "books"]),
        )
        sales, area = rng.uniform(20, 900), rng.uniform(30, 400)
        lines.append(f"{town},{kind},{sales:.2f},{rng.randrange(200, 9000)},{area:.1f}")
    (lake / "shops.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = [
        "--lakes",
        str(lake),
        "--count",
        "8",
        "--heldout-share",
        "0",
        "--obscured",
        "--out",
        str(here / "tasks"),
    ]
    assert main(words) == 0
    here.rename(there)
    for name in ("train", "train_obscured"):
        path = there / "tasks" / f"{name}.jsonl"
        assert len(read_tasks(path)) >= 1
        assert str(tmp_path) not in path.read_text("utf-8")
        assert set(asyncio.run(outcomes(path))) == {1.0}


def test_names_are_relative_to_the_tasks_file_even_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real/deep")
    (tmp_path / "lake").mkdir()
    task = Task("t", "answer", "x", "test", [], {}, files={"lake": str(tmp_path / "lake")})
    write_tasks(tmp_path / "link" / "tasks.jsonl", [task])
    (row,) = map(json.loads, (tmp_path / "link/tasks.jsonl").read_text("utf-8").splitlines())
    assert row["files"] == {"lake": "../../lake"}
    assert (tmp_path / "link" / row["files"]["lake"]).is_dir()
