"""`assay tasks harbor DIR --out T`: Harbor task directories as tasks, checked in the jail.

A directory is taken when the jail can honour all of it, its solution scores 1 and doing nothing
scores 0. Every other one is listed with a code and the reason, and is never run in part.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay import console
from assay.files import atomic_write_set, write_bytes
from assay.task import RIGHT, Task, TaskError, json_text, write_jsonl
from data_gen.certificate import Input, say_inputs
from rewards.harbor import HARBOR, of_rewards
from rollouts.environment import EnvironmentFailure
from rollouts.harbor.container import Container, container_config, refuse_lacking, tree
from rollouts.harbor.task import NAME, read_task, verify
from rollouts.sandbox.model import worker_count
from rollouts.sandbox.pool import Pool

KEPT = "directories"  # the folder of the copies, beside the tasks file
# what task.toml can ask for and the jail has none of
_NONE = (
    *(
        ("environment", name)
        for name in ("mcp_servers", "gpus", "tpu", "healthcheck", "skills_dir")
    ),
    *(("verifier", name) for name in ("environment", "collect")),
)


def main(argv: Sequence[str]) -> int:
    """Exit status 0; 1 when no directory could be taken. Raises `TaskError`."""
    made = console.parser("tasks harbor", __doc__)
    made.add_argument("folders", nargs="+", type=Path, help="task directories, or folders of them")
    console.add_out(made, "folder to write into", required=True)
    made.add_argument("--split", default="train", help="split of the tasks")
    made.add_argument(
        "--offline", action="store_true", help="take tasks that may use the network, without one"
    )
    args = made.parse_args(argv)
    folders = sorted(p.parent for top in args.folders for p in top.rglob("task.toml"))
    if not folders:
        raise TaskError(f"{args.folders[0]}: holds no task.toml; give a folder of task directories")
    checked = asyncio.run(_check_all(folders, args))
    taken = [one.task for one in checked if one.task is not None]
    with atomic_write_set(args.out) as new:
        for one in checked:
            if one.task is not None:
                shutil.copytree(one.folder, new / KEPT / one.name)
        if taken:
            write_jsonl(new / f"{args.split}.jsonl", (t.to_json() for t in taken))
        said = {"family": HARBOR.name, "tasks": len(taken), "left_out": len(checked) - len(taken)}
        write_bytes(new / "certificate.json", json_text(said, indent=2))
    inputs = [
        Input(c.name, int(c.task is not None), (c.why,) if c.why else (), c.licence)
        for c in checked
    ]
    say_inputs(inputs, args.out)
    return console.DONE if taken else console.FAILED


@dataclass
class _Checked:
    """One directory: its task, or why there is none."""

    folder: Path
    name: str
    task: Task | None = None
    why: str = ""
    licence: str = "unknown"


async def _check_all(folders: Sequence[Path], args: argparse.Namespace) -> list[_Checked]:
    """Every directory checked, in order; where a folder's name occurs twice, with a number."""
    seen: Counter[str] = Counter()
    found: list[_Checked] = []
    for folder in folders:
        name = folder.resolve().name
        seen[name] += 1
        found.append(_Checked(folder, name if seen[name] == 1 else f"{name}-{seen[name]}"))
    turns = asyncio.Semaphore(worker_count())
    async with Pool(container_config(worker_count())) as pool:

        async def check(one: _Checked) -> None:
            async with turns:
                try:
                    await _check(one, args, pool)
                except (TaskError, EnvironmentFailure) as error:
                    one.why = str(error)

        await asyncio.gather(*map(check, found))
    return found


async def _check(one: _Checked, args: argparse.Namespace, pool: Pool) -> None:
    """Read one task directory; run its verifier on its solution, and on nothing done. Raises the
    reason for which it is refused."""
    task = read_task(one.folder)
    _refuse(task.config, args.offline)
    about = task.config["metadata"]
    one.licence = str(about.get("licence") or about.get("license") or "unknown")
    refuse_lacking(task.image, sys.executable)
    idle, solved = Container(pool, task.image), Container(pool, task.image)
    solved.put(tree(task.folder / "solution", "/solution"))
    await task.run(solved, "solution", "/solution/solve.sh", "/logs/agent/oracle.txt")
    earned = await verify(task, solved)
    oracle, nop = of_rewards(earned).outcome or 0.0, of_rewards(await verify(task, idle)).outcome
    if oracle < RIGHT:
        raise TaskError(f"its solution scores {oracle}, not 1")
    if nop:
        raise TaskError(f"doing nothing scores {nop}, not 0")
    about = {**about, "name": task.config["task"].get("name", "")}
    known = {k: v for k, v in about.items() if isinstance(v, str | int | float | bool)}
    image = {"python": task.image.python, "requirements": task.image.requirements}
    one.task = Task(
        id=one.name,
        family=HARBOR.name,
        track=str(about.get("category") or HARBOR.name),
        split=args.split,
        prompt=[{"role": "user", "content": task.instruction}],
        gold={"oracle": earned},
        tools=(NAME,),
        files={"environment": f"{KEPT}/{one.name}/environment"},
        meta={**known, "licence": one.licence, "image": image},
    )


def _refuse(config: Mapping[str, dict[str, Any]], offline: bool) -> None:
    """Raise `TaskError`, a code and a sentence, for what the jail cannot honour."""
    for table, name in _NONE:
        if config[table].get(name):
            raise TaskError(f"environment: {table}.{name}: the jail has none")
    if config.get("steps") or config["verifier"].get("environment_mode") == "separate":
        raise TaskError("steps: several steps, or a verifier with a container of its own")
    public = config["environment"].get("allow_internet") is True
    mode = "public" if public else config["environment"].get("network_mode") or "no-network"
    if mode != "no-network" and not offline:
        raise TaskError(f"network: network_mode {mode}; --offline runs it without a network")
