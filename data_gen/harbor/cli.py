"""`assay tasks harbor DIR --out T`: Harbor task directories as tasks, checked in the jail.

A directory is taken when the jail can honour all of it, its solution scores 1 and doing nothing
scores 0. Every other one is listed with a code, the line of its Dockerfile and the reason, and is
never run in part.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay import console
from assay.files import atomic_write_set, write_bytes
from assay.task import RIGHT, Task, TaskError, json_text, write_jsonl
from data_gen.inputs import Input, say_inputs
from rewards.harbor.family import HARBOR, of_rewards
from rollouts.harbor.container import container_config
from rollouts.harbor.dockerfile import PYTHONS, chosen_python
from rollouts.harbor.task import (
    NAME,
    HarborTask,
    NoReward,
    read_task,
    solve,
    start_container,
    verify,
)
from rollouts.sandbox.model import worker_count
from rollouts.sandbox.pool import Pool

KEPT = "directories"  # the folder of the copies, beside the tasks file


@dataclass(frozen=True)
class Checked:
    """One directory: its task, or why there is none."""

    name: str
    task: Task | None
    why: str = ""
    licence: str = "unknown"


def main(argv: Sequence[str]) -> int:
    """Exit status 0; 1 when no directory could be taken. Raises `TaskError`."""
    args = options().parse_args(argv)
    folders = sorted(p.parent for top in args.folders for p in top.rglob("task.toml"))
    if not folders:
        raise TaskError(f"{args.folders[0]}: holds no task.toml; give a folder of task directories")
    checked = asyncio.run(check_all(folders, tuple(args.python), args.offline, args.split))
    taken = [c.task for c in checked if c.task is not None]
    with atomic_write_set(args.out) as new:
        for folder, one in zip(folders, checked, strict=True):
            if one.task is not None:
                for part in ("environment", "tests", "solution", "task.toml", "instruction.md"):
                    _copy(folder / part, new / KEPT / one.name / part)
        if taken:
            write_jsonl(new / f"{args.split}.jsonl", (t.to_json() for t in taken))
        certificate = {
            "family": HARBOR.name,
            "tasks": len(taken),
            "left_out": len(checked) - len(taken),
        }
        write_bytes(new / "certificate.json", json_text(certificate, indent=2))
    inputs = [
        Input(c.name, int(c.task is not None), (c.why,) if c.why else (), c.licence)
        for c in checked
    ]
    say_inputs(inputs, args.out)
    return console.DONE if taken else console.FAILED


def options() -> console.Parser:
    made = console.parser("tasks harbor", __doc__)
    made.add_argument("folders", nargs="+", type=Path, help="task directories, or folders of them")
    console.add_out(made, "folder to write into", required=True)
    made.add_argument("--split", default="train", help="split of the tasks")
    made.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="PATH",
        help=f"an interpreter that may stand in for an image's (later runs: ${PYTHONS})",
    )
    made.add_argument(
        "--offline", action="store_true", help="take tasks that may use the network, without one"
    )
    return made


async def check_all(
    folders: Sequence[Path], more: tuple[str, ...], offline: bool, split: str
) -> list[Checked]:
    """Every directory checked, in order."""
    pools: dict[str, Pool] = {}
    turns = asyncio.Semaphore(worker_count())
    names = _names(folders)

    async def one(folder: Path, name: str) -> Checked:
        async with turns:
            return await check(folder, name, more, offline, split, pools)

    try:
        pairs = zip(folders, names, strict=True)
        return list(await asyncio.gather(*(one(folder, name) for folder, name in pairs)))
    finally:
        for pool in pools.values():
            await pool.close()


async def check(
    folder: Path,
    name: str,
    more: tuple[str, ...],
    offline: bool,
    split: str,
    pools: dict[str, Pool],
) -> Checked:
    """One directory: read, its solution and doing nothing verified."""
    try:
        task = read_task(folder, offline)
        about = task.part("metadata")
        licence = str(about.get("licence") or about.get("license") or "unknown")
        if task.problems:
            return Checked(name, None, "; ".join(task.problems), licence)

        python = chosen_python(task.image, more)
        pool = pools.setdefault(python, Pool(container_config(python, worker_count())))
        solved = await _trial(task, pool, solving=True)
        idle = await _trial(task, pool, solving=False)
    except (TaskError, NoReward) as error:
        return Checked(name, None, str(error))
    oracle, nop = of_rewards(solved), of_rewards(idle)
    if (oracle.outcome or 0.0) < RIGHT:
        return Checked(name, None, f"its solution scores {oracle.outcome}, not 1", licence)
    if nop.outcome:
        return Checked(name, None, f"doing nothing scores {nop.outcome}, not 0", licence)
    return Checked(name, _task(task, name, split, solved, licence), "", licence)


async def _trial(task: HarborTask, pool: Pool, solving: bool) -> dict[str, float]:
    container = start_container(task, pool)
    if solving:
        await solve(task, container)
    return await verify(task, container)


def _task(task: HarborTask, name: str, split: str, solved: dict[str, float], licence: str) -> Task:
    about = {**task.part("metadata"), "name": task.part("task").get("name", "")}
    known = {k: v for k, v in about.items() if isinstance(v, str | int | float | bool)}
    image = {"python": task.image.python, "requirements": task.image.requirements}
    meta: dict[str, Any] = {**known, "licence": licence, "image": image}
    return Task(
        id=name,
        family=HARBOR.name,
        track=str(about.get("category") or HARBOR.name),
        split=split,
        prompt=[{"role": "user", "content": task.instruction}],
        gold={"oracle": solved},
        tools=(NAME,),
        files={"environment": f"{KEPT}/{name}/environment"},
        meta=meta,
    )


def _names(folders: Sequence[Path]) -> list[str]:
    """Folder names; where one occurs twice, with a number."""
    seen: dict[str, int] = {}
    names: list[str] = []
    for folder in folders:
        name = folder.resolve().name
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
