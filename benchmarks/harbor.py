"""Whether exported tasks hold in the real Harbor: its oracle earns 1 and its nop 0 on every one.

    python -m benchmarks.harbor --harbor .interop/harbor/bin/harbor NAME=TASKS.jsonl… \
        [--count 100] [--trials 2] [--out DIR] [--family FILE.py]

Of every file an even draw of `--count` tasks is exported twice. Both exports must have the same
bytes. Harbor then runs one of them in the jail, without Docker. The program prints a line for each
file: how many directories there are, how many of them give outcome 1 with the oracle and 0 with
nop, how many trials ended with an error, and the seconds by the clock and of processors (Harbor and
the processes that it waited for). The exit status is 1 where a task does not hold.
`make test-interop ARGS=harbor` makes the environment with Harbor.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.family import use_families
from assay.task import Task, TaskError, read_tasks, write_jsonl
from data_gen.exports.cli import main as export

ROOT = Path(__file__).resolve().parents[1]
JAIL = "rollouts.harbor.environment:JailEnvironment"
AGENTS = {"oracle": 1.0, "nop": 0.0}
SMALL = 1e-9


@dataclass(frozen=True)
class Ran:
    """Trials of one agent: directories, those with the outcome wanted, errors, seconds."""

    trials: int
    held: int
    errors: tuple[str, ...]
    clock: float
    processors: float


def even(tasks: Sequence[Task], count: int) -> list[Task]:
    """`count` tasks, evenly spaced over the file; all of a shorter one."""
    if len(tasks) <= count:
        return list(tasks)
    return [tasks[i * len(tasks) // count] for i in range(count)]


def prints(folder: Path) -> dict[str, str]:
    """Path → hash of the bytes and the mode of every file below a folder."""

    def each() -> Iterator[tuple[str, str]]:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                mode = f"{path.stat().st_mode & 0o777:o}"
                found = hashlib.sha256(path.read_bytes()).hexdigest()
                yield str(path.relative_to(folder)), f"{mode} {found}"

    return dict(each())


def placed(tasks: Sequence[Task], folder: Path, beside: Path) -> list[Task]:
    """The tasks, with the paths of their files relative to `folder` and no longer to `beside`."""
    moved: list[Task] = []
    for task in tasks:
        files = {n: os.path.relpath(beside / p, folder) for n, p in task.files.items()}
        moved.append(replace(task, files=files))
    return moved


def exported(tasks: Sequence[Task], beside: Path, out: Path) -> tuple[Path, int, bool]:
    """(folder of the directories, tasks left out, whether a second export gave the same bytes)."""
    file = out / "tasks.jsonl"
    write_jsonl(file, (t.to_json() for t in placed(tasks, out, beside)))
    folders = [out / "first", out / "second"]
    for folder in folders:
        export(["harbor", "--tasks", str(file), "--out", str(folder)])
    first, second = (prints(f) for f in folders)
    refused = (folders[0] / "refused.jsonl").read_text(encoding="utf-8").count("\n")
    for folder in folders:
        (folder / "refused.jsonl").unlink()
    return folders[0], refused, first == second


def spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(harbor: str, folder: Path, agent: str, out: Path, trials: int, python: str) -> Ran:
    """`harbor run` of one agent over a folder of directories, read from the trials' own files."""
    job = [harbor, "run", "-p", str(folder), "-a", agent, "-o", str(out), "--job-name", agent, "-q"]
    jail = ["-n", str(trials), "-e", JAIL, "--environment-kwarg", f"python={python}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    clock, used = time.perf_counter(), spent()
    done = subprocess.run(
        [*job, *jail], env=environment, capture_output=True, text=True, check=False, cwd=out
    )
    clock, used = time.perf_counter() - clock, spent() - used
    found: list[dict[str, Any]] = [
        json.loads(p.read_text(encoding="utf-8")) for p in (out / agent).glob("*/result.json")
    ]
    if not found:
        raise TaskError(f"harbor run left no results: {(done.stderr or done.stdout)[-400:]}")
    errors = [str(r["exception_info"]["exception_message"]) for r in found if r["exception_info"]]
    held = 0
    for result in found:
        rewards = (result.get("verifier_result") or {}).get("rewards") or {}
        held += abs(float(rewards.get("outcome", -1.0)) - AGENTS[agent]) < SMALL
    return Ran(len(found), held, tuple(errors), clock, used)


def one(name: str, path: Path, args: argparse.Namespace, out: Path) -> bool:
    """Run one file of tasks and print its line; whether every task held."""
    tasks = even(read_tasks(path), args.count)
    out.mkdir(parents=True)
    folder, refused, same = exported(tasks, path.parent.resolve(), out)
    said = [f"{name}: {len(tasks) - refused} directories ({refused} left out)"]
    said.append("again the same bytes" if same else "AGAIN OTHER BYTES")
    fine = same
    for agent, wanted in AGENTS.items():
        ran = run(args.harbor, folder, agent, out, args.trials, args.python)
        fine = fine and ran.held == ran.trials == len(tasks) - refused and not ran.errors
        rate = ran.trials / ran.clock
        said.append(
            f"{agent} {wanted:g} on {ran.held} of {ran.trials}, {len(ran.errors)} errors, "
            f"{ran.clock:.0f} s by the clock ({rate:.2f} a second), {ran.processors:.0f} s of "
            "processors"
        )
        said += [f"  {message[:200]}" for message in ran.errors[:3]]
    print("\n  ".join(said), flush=True)
    return fine


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="+", metavar="NAME=TASKS.jsonl")
    parser.add_argument("--harbor", default=str(ROOT / ".interop" / "harbor" / "bin" / "harbor"))
    parser.add_argument("--python", default=str(ROOT / ".venv" / "bin" / "python"))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--trials", type=int, default=2, help="side by side")
    parser.add_argument("--family", action="append", default=[])
    parser.add_argument("--out", type=Path, help="keep the directories and the trials here")
    args = parser.parse_args(argv)
    use_families(args.family)
    with tempfile.TemporaryDirectory() as made:
        top = (args.out or Path(made)).resolve()
        pairs = [(name, Path(path)) for name, _, path in (t.partition("=") for t in args.tasks)]
        fine = [one(name, path, args, top / name) for name, path in pairs]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
