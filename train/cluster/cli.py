"""`assay slurm`: submit a chain of jobs, and what its array tasks and merges run.

submit PLAN.yaml   submit every stage with its dependencies (--dry-run: print the sbatch calls)
shard              one shard of an input: run by slurm/data_array.sbatch
merge              put the shards together, checking that none is missing or there twice
item, check        one entry of a list of evaluations, and whether all are finished
part, gather       one part of an evaluation of a served checkpoint, and all parts together
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from assay import console
from assay.task import TaskError, write_jsonl
from configs.loader import ConfigError
from train.cluster.plan import Job, Plan, read_plan, sbatch_call
from train.cluster.serve import gather, run_part
from train.cluster.shards import Cut, check_items, merge, read_items, run_item, run_shard

ROOT = Path(__file__).resolve().parent.parent.parent  # relative paths of a plan start here
RECORD = "submitted.json"
# Where the checkout has no .venv, jobs take the Python that submits them ($0), unless a container
# has its own.
SBATCH = """
export ASSAY_ROOT="${ASSAY_ROOT:-$PWD}"
. "$ASSAY_ROOT/slurm/env.sh" || exit
[ -x "$ASSAY_PYTHON" ] || [ "${#ASSAY_RUN[@]}${#ASSAY_SRUN[@]}" != 00 ] || export ASSAY_PYTHON="$0"
exec "$@"
"""


class SubmitError(TaskError):
    """sbatch refused a job; the message carries its words."""


def submit(plan: Plan, dry_run: bool = False) -> dict[str, str]:
    """Submit the jobs in order; returns {job: Slurm id}. What was submitted stays on record.

    slurm/env.sh is read first, so the site's SBATCH_* variables hold. When a call is refused,
    the jobs before it are left waiting or running, and the message names them. Raises `SubmitError`
    while jobs of an earlier submission into the same folder are there: two runs would share it.
    """
    if not (ROOT / "slurm" / "env.sh").is_file():
        raise SubmitError(f"{ROOT} has no slurm/env.sh; submit from a checkout of Assay")
    if not dry_run:
        _refuse_twice(plan)
    ids: dict[str, str] = {}
    for job in plan.jobs:
        call = sbatch_call(job, ids if not dry_run else {j.name: f"<{j.name}>" for j in plan.jobs})
        if dry_run:
            print(shlex.join(call))
            continue
        _prepare(plan, job)
        ids[job.name] = _sbatch(call, ids)
        print(f"{job.name}: job {ids[job.name]}", flush=True)
        record = ROOT / plan.out / RECORD
        record.write_text(json.dumps({"plan": plan.name, "jobs": ids}, indent=2) + "\n")
    return ids


def _refuse_twice(plan: Plan) -> None:
    try:
        jobs = json.loads((ROOT / plan.out / RECORD).read_text(encoding="utf-8"))["jobs"]
    except (OSError, ValueError, KeyError):
        return
    try:
        asked = subprocess.run(
            ["squeue", "--noheader", "--format=%A", f"--jobs={','.join(jobs.values())}"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return  # sbatch will say that Slurm is not here
    there = set(asked.stdout.split())
    left = [f"{name} {job}" for name, job in jobs.items() if job in there]
    if left:
        ids = " ".join(job for job in jobs.values() if job in there)
        raise SubmitError(
            f"{plan.out}: jobs of the last submission are still there: {', '.join(left)}; wait for "
            f"them, or: scancel {ids}"
        )


def _prepare(plan: Plan, job: Job) -> None:
    (ROOT / plan.out / "logs").mkdir(parents=True, exist_ok=True)
    if job.items:
        write_jsonl(ROOT / plan.out / job.name / "items.jsonl", job.items)


def _sbatch(call: list[str], ids: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            ["bash", "-c", SBATCH, sys.executable, *call],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise SubmitError(f"bash cannot be run: {error}") from error
    if done.returncode != 0:
        before = ", ".join(f"{k} {v}" for k, v in ids.items())
        left = f"; already submitted: {before}" if before else ""
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SubmitError(f"{shlex.join(call)}: {said}{left}")
    return done.stdout.strip().split(";")[0].splitlines()[-1]


def _assay(argv: list[str]) -> int:
    """Another `assay` command in this process."""
    import assay

    return assay.main(argv)


def _submit(args: argparse.Namespace) -> int:
    plan = read_plan(args.plan)
    ids = submit(plan, args.dry_run)
    if ids:
        print(f"logs: {plan.out}/logs; cancel all: scancel {' '.join(ids.values())}")
    return 0


def _cut(args: argparse.Namespace) -> Cut:
    return Cut(args.input, _out(args), args.shards, args.align)


def _out(args: argparse.Namespace) -> Path:
    if not args.out.startswith("out="):
        raise ConfigError(f"{args.out!r}: wanted out=DIR")
    return Path(args.out.removeprefix("out="))


def _shard(args: argparse.Namespace) -> int:
    return run_shard(_cut(args), args.index, args.words, _assay)


def _merge(args: argparse.Namespace) -> int:
    print(f"{args.to}: {merge(_cut(args), args.to)} rows of {args.shards} shards")
    return 0


def _item(args: argparse.Namespace) -> int:
    rows = read_items(args.items)
    if not 0 <= args.index < len(rows):
        raise ConfigError(f"--index {args.index}: {args.items} has {len(rows)} entries")
    return run_item(args.items, args.index, _assay)


def _check(args: argparse.Namespace) -> int:
    for row in check_items(args.items):
        print(f"{row['name']}: {row['out']}")
    return 0


def _part(args: argparse.Namespace) -> int:
    return run_part(_out(args), args.index, args.parts, args.words, _assay)


def _gather(args: argparse.Namespace) -> int:
    return gather(_out(args), args.parts, _assay)


def parser() -> argparse.ArgumentParser:
    made = console.parser("slurm", __doc__)
    kinds = made.add_subparsers(dest="kind", required=True)

    def add(name: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        one = kinds.add_parser(name, formatter_class=console.Layout)
        one.set_defaults(run=run)
        return one

    one = add("submit", _submit)
    one.add_argument("plan", type=Path)
    one.add_argument(
        "--dry-run", action="store_true", help="print the sbatch calls and estimates only"
    )
    for name, run in (("shard", _shard), ("merge", _merge)):
        one = add(name, run)
        one.add_argument("out", metavar="out=DIR")
        one.add_argument("--input", type=Path, required=True)
        one.add_argument("--shards", type=int, required=True)
        one.add_argument("--align", type=int, default=1, help="rows that stay together")
        if name == "merge":
            one.add_argument("--to", type=Path, required=True)
        else:
            one.add_argument("--index", type=int, required=True)
    for name, run in (("item", _item), ("check", _check)):
        one = add(name, run)
        one.add_argument("out", metavar="out=DIR", nargs="?")
        one.add_argument("--items", type=Path, required=True)
        if name == "item":
            one.add_argument("--index", type=int, required=True)
    for name, run in (("part", _part), ("gather", _gather)):
        one = add(name, run)
        one.add_argument("out", metavar="out=DIR")
        one.add_argument("--parts", type=int, required=True)
        if name == "part":
            one.add_argument("--index", type=int, required=True)
    return made


def main(argv: list[str]) -> int:
    """Exit status of what was run. Errors that a user can mend are raised."""
    at = argv.index("--") if "--" in argv else len(argv)
    args = parser().parse_args(argv[:at])
    args.words = argv[at + 1 :]  # of `shard` and `part`: the command to run
    return int(args.run(args))
