"""Injects real faults into real commands, and says whether each ended as docs/checks.md says.

    python -m benchmarks.faults [--only WORD] [--seed N] [--jobs N] [--short] [--json] [--keep DIR]

Every command runs once undisturbed; then each injection runs in a folder of its own: the fault,
what it left, the same command again, and what is there then. Looked at: no broken file under a
final name; the second run ends with the undisturbed run's bytes, or refuses in one sentence; the
exit status; the message; nothing left running or lying about; no fault scored as a wrong answer.
The exit status is 1 when a command did not end as documented.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

QUIET = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
}
SHORT = (  # (command, kind) of the short form: one row of each
    *(("tasks demo", kind) for kind in ("kill -9", "TERM", "disk full", "two at once")),
    ("tasks demo", "killed over older"),
    *(("execute", kind) for kind in ("kill -9", "worker killed", "input cut off")),
    ("score", "kill -9"),  # tests of their own hold its TERM and its killed worker
    *(("score tables", kind) for kind in ("memory", "clock jumps")),
    *(("rollout endpoint", kind) for kind in ("kill -9", "endpoint", "two at once")),
    *(("rollout endpoint", kind) for kind in ("state cut off", "state bit flipped")),
    *(("select", kind) for kind in ("disk read-only", "folder not ours")),
    *(("slurm shard", kind) for kind in ("kill -9", "two at once", "state cut off")),
)


def options() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("--only", default="", help="commands and faults with this word")
    made.add_argument("--seed", type=int, default=0, help="of the moments")
    made.add_argument("--jobs", type=int, default=1, help="injections side by side")
    made.add_argument("--short", action="store_true", help="about twenty, without torch")
    made.add_argument("--json", action="store_true", help="print one JSON object at the end")
    made.add_argument("--keep", type=Path, help="folder for the cases that are not as documented")
    return made


def main() -> int:
    args = options().parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & makes it ignored
    os.environ.update(QUIET)
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    sys.path.insert(0, os.environ["PYTHONPATH"])
    home = Path(tempfile.mkdtemp(prefix="assay-faults-", dir=args.keep))
    home.chmod(0o755)
    try:
        rows = _all(args, home)
    finally:
        if args.keep is None:
            shutil.rmtree(home, ignore_errors=True)
    wrong = [row for row in rows if row.problems]
    if args.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "wrong": len(wrong)}))
    else:
        print(table(rows))
    return int(bool(wrong) or not rows)


def _all(args: argparse.Namespace, home: Path) -> list[Any]:
    """Every row, from `--jobs` processes."""
    from benchmarks.faults import launch
    from benchmarks.faults.commands import COMMANDS, make_inputs

    chosen = _chosen(COMMANDS, args)
    torch = any("torch" in c.needs for c in chosen)
    _warm(torch)
    launch.adopt()

    def run(words: Sequence[str], folder: Path) -> None:
        ended = launch.command(words, folder)
        if ended.status != 0:
            raise RuntimeError(f"assay {' '.join(words)}: {ended}")

    make_inputs(home, run, torch)
    words = ("eval", "--tasks", "in/tasks.jsonl", "--model", "gold", "--out", "evaluated")
    if any(c.name == "report" for c in chosen):
        run(words, home)
        (home / "evaluated" / "metrics.jsonl").write_text('{"stage": "rl", "step": 1, "a": 1}\n')
    pids = []
    for job in range(args.jobs):
        sys.stdout.flush()
        if (pid := os.fork()) == 0:
            status = 1
            try:
                _job(args, home, chosen[job :: args.jobs], home / f"rows-{job}.jsonl")
                status = 0
            except BaseException:
                traceback.print_exc()  # `_exit` says nothing
            finally:
                sys.stdout.flush()
                os._exit(status)
        pids.append(pid)
    ends = [os.waitpid(pid, 0)[1] for pid in pids]
    if any(ends):
        raise RuntimeError("a job of the benchmark itself ended early; its words stand above")
    return [row for job in range(args.jobs) for row in _read(home / f"rows-{job}.jsonl")]


def _job(args: argparse.Namespace, home: Path, chosen: Sequence[Any], out: Path) -> None:
    """The rows of some commands, one after the other."""
    from benchmarks.faults import launch
    from benchmarks.faults.endpoint import serve
    from benchmarks.faults.inject import inject, whole_of
    from benchmarks.faults.mounts import can_mount
    from benchmarks.faults.plan import injections

    launch.adopt()
    mounts = can_mount()
    endpoint = serve() if any("endpoint" in c.needs for c in chosen) else None
    with open(out, "w", encoding="utf-8") as file:
        for command in chosen:
            own = endpoint if "endpoint" in command.needs else None
            whole = whole_of(command, home, own)
            found = list(injections(command, whole.ended, whole.size, args.seed))
            if args.short:
                first = {i.kind: i for i in reversed(found)}
                found = [first[kind] for name, kind in SHORT if name == command.name]
            if args.only and args.only not in command.name:
                found = [i for i in found if args.only in i.kind]
            for injection in found:
                begun = time.process_time()
                row = inject(injection, home, whole, own, args.keep is not None, mounts)
                file.write(json.dumps(asdict(row)) + "\n")
                print(line(row), flush=True, file=sys.stderr if args.json else sys.stdout)
                del begun


def _chosen(commands: Sequence[Any], args: argparse.Namespace) -> list[Any]:
    from benchmarks.faults.inject import KINDS

    if args.short:
        names = {name for name, kind in SHORT if args.only in name or args.only in kind}
        return [c for c in commands if c.name in names]
    kinds = {*KINDS, "kill -9", "TERM", "interrupt"}
    if any(args.only in kind for kind in kinds):
        return list(commands)
    return [c for c in commands if args.only in c.name]


def _warm(torch: bool) -> None:
    """Import what the commands import, once."""

    if torch:
        import torch as library
        import transformers

        from rollouts.engines.torch.engine import load_engine

        library.set_num_threads(1)
        assert transformers.LlamaForCausalLM and load_engine


def _read(path: Path) -> list[Any]:
    from benchmarks.faults.inject import Row

    rows = map(json.loads, path.read_text().splitlines())
    return [Row(**{**row, "problems": tuple(row["problems"])}) for row in rows]


def line(row: Any) -> str:
    """One row: what was done, the two exit statuses, and what is not as documented."""
    what = f"{row.command:<17} {row.kind:<21} {row.moment[:44]:<44}"
    status = "hung" if row.status is None else row.status
    again = "hung" if row.again is None else row.again
    said = "as documented" if not row.problems else "NOT: " + "; ".join(row.problems[:4])
    said += "" if row.met else " (it had ended before)"
    told = f"\n{'':<20}it said: {row.said}" if row.problems and row.said else ""
    return f"{what} {status!s:>4} then {again!s:>3}  {said}{told}"


def table(rows: Sequence[Any]) -> str:
    """Rows as documented, of all, by command and fault."""
    kinds = list(dict.fromkeys(row.kind for row in rows))
    names = list(dict.fromkeys(row.command for row in rows))
    count: Counter[tuple[str, str]] = Counter((r.command, r.kind) for r in rows)
    good: Counter[tuple[str, str]] = Counter((r.command, r.kind) for r in rows if not r.problems)
    lines = ["", f"{'fault':<22}" + " ".join(f"{n.replace(' ', '-')[:11]:>11}" for n in names)]
    for kind in kinds:
        cells = [
            f"{good[name, kind]}/{count[name, kind]}" if count[name, kind] else "" for name in names
        ]
        lines.append(f"{kind:<22}" + " ".join(f"{cell:>11}" for cell in cells))
    wrong = sum(bool(row.problems) for row in rows)
    met = sum(row.met for row in rows)
    lines.append(f"{len(rows)} injections, {met} met the run; {wrong} not as documented")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
