"""Does a training signal that only exact gold gives help on order tasks? Three arms, same budget.

    python -m benchmarks.ablation_cdr --seed 0 --out runs/ablation        # and seeds 1, 2
    python -m benchmarks.ablation_cdr --table --out runs/ablation

Per seed: short order groups (`assay tasks order`), one SFT start shared by all arms, then Dr.GRPO
from it with reward = success only, success + per-step process credit, success + order-group bonus
(both bonuses weigh as much as success). Same batches (whole groups), rollouts, rate and steps. The
held-out tasks are answered greedily; RS is per task, OCS per order group whose text is rejected
(the groups in which the two orders have different golds). One thread.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
BASE = ("reward.format=0", "reward.status=0", "reward.progress=0", "reward.success=1")
ARMS: dict[str, tuple[str, ...]] = {
    "outcome": BASE,
    "process": (*BASE, "reward.refinement.process=1"),
    "order_group": (*BASE, "reward.refinement.order_group=1"),
}
RL = (
    "rl.steps=6",
    "rl.prompts_per_step=8",
    "rl.mini_batch=8",
    "rl.rollouts_per_prompt=6",
    "rl.balance=group",
    "rl.lr=5e-5",
    "rl.temperature=0.7",
    "rl.max_new_tokens=64",
    "rl.max_length=320",
    "rl.save_every=1000",
)
SFT = ("sft.epochs=1", "sft.max_length=320", "checkpoint.sft_every=1000")
SHARED = ("engine.threads=1", "engine.micro_tokens=1536")


def assay(*words: object) -> None:
    """One `assay` command, shown and run; stops the script when it fails."""
    command = [sys.executable, str(ROOT / "assay.py"), *map(str, words)]
    print("$ assay", *words, flush=True)
    subprocess.run(command, cwd=ROOT, check=True)


def run_seed(seed: int, out: Path, model: str | None, extra: Sequence[str]) -> None:
    """Tasks, SFT, three arms and their evaluations of one seed; finished pieces are kept."""
    folder = out / f"seed{seed}"
    if not (folder / "tasks" / "certificate.json").is_file():
        assay("tasks", "order", "--out", folder / "tasks", "--seed", seed)
    path = [f"model.path={model}"] if model else []
    stage(
        folder / "sft",
        "sft",
        seed,
        folder / "tasks" / "train_sft.jsonl",
        [*SFT, *SHARED, *path, *[e for e in extra if not e.startswith("rl.")]],
    )
    start = f"model.path={folder / 'sft' / 'model'}"
    for arm, reward in ARMS.items():
        stage(
            folder / arm,
            "grpo",
            seed,
            folder / "tasks" / "train_rl.jsonl",
            [*RL, *SHARED, start, *reward, *[e for e in extra if not e.startswith("sft.")]],
        )
    for name in ("sft", *ARMS):
        answer(folder / name, folder / "tasks" / "heldout.jsonl")


def stage(folder: Path, command: str, seed: int, data: Path, settings: Sequence[str]) -> None:
    if (folder / "model").is_dir():
        return
    assay(command, f"data={data}", f"out={folder}", f"seed={seed}", *settings)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # 2 GB a stage


def answer(folder: Path, heldout: Path) -> None:
    """Greedy answers to the held-out tasks, as answers.jsonl."""
    target = folder / "answers.jsonl"
    if target.is_file():
        return
    from configs.schema import EngineConfig
    from rewards.task import read_tasks, write_jsonl
    from rollouts.prompts import ChatTokenizer
    from train.evaluation.evaluate import evaluate_tasks, scorer
    from train.run.setup import load_checked, prepare

    config = EngineConfig(threads=1)
    machine = prepare(config)
    tokenizer = ChatTokenizer(folder / "model")
    policy = load_checked(folder / "model", config, machine, train=False)
    engine = policy.engine(tokenizer.stop_ids, config.slots)
    tasks = read_tasks(heldout)
    rows = evaluate_tasks(tasks, engine, tokenizer, scorer(), max_new_tokens=64, pass_k=0, seed=0)
    extra = [{"group": t.group, "sensitive": t.meta["sensitive"]} for t in tasks]
    write_jsonl(target, (row | more for row, more in zip(rows, extra, strict=True)))
    print(f"{target}: RS {sum(r['outcome'] for r in rows) / len(rows):.3f}", flush=True)


def groups_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["group"], []).append(row)
    return found


def measure(groups: Sequence[list[Row]]) -> dict[str, float]:
    """RS over tasks, and over the order-sensitive groups RS, OCS and RS by slot."""
    rows = [row for group in groups for row in group]
    hard = [group for group in groups if group[0]["sensitive"]]
    slot = {
        s: [r["outcome"] for g in hard for r in g if r["task_id"].endswith(s)]
        for s in ("pre", "post")
    }
    return {
        "RS": mean([r["outcome"] for r in rows]),
        "RS order-sensitive": mean([r["outcome"] for g in hard for r in g]),
        "OCS": mean([float(all(r["outcome"] == 1.0 for r in g)) for g in hard]),
        "pre": mean(slot["pre"]),
        "post": mean(slot["post"]),
    }


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def table(out: Path, resamples: int = 4000) -> None:
    """Every seed and arm, and differences to outcome-only with paired bootstrap intervals over
    order groups (resampled within each seed, sensitive and other groups apart)."""
    seeds = sorted(p.name for p in out.glob("seed*") if (p / "order_group/answers.jsonl").is_file())
    data = {
        (seed, arm): groups_of(
            [json.loads(line) for line in (out / seed / arm / "answers.jsonl").open()]
        )
        for seed in seeds
        for arm in ("sft", *ARMS)
    }
    names = ("RS", "RS order-sensitive", "OCS", "pre", "post")
    print("| seed | arm | " + " | ".join(names) + " |\n|---|---|" + "---|" * len(names))
    for (seed, arm), groups in data.items():
        values = measure(list(groups.values()))
        print(f"| {seed[4:]} | {arm} | " + " | ".join(f"{values[n]:.3f}" for n in names) + " |")
    rng = np.random.default_rng(0)
    print("\n| difference | " + " | ".join(names[:3]) + " |\n|---|---|---|---|")
    for arm, base in (
        *((a, "sft") for a in ARMS),
        ("process", "outcome"),
        ("order_group", "outcome"),
    ):
        for chosen in (*([s] for s in seeds), seeds):
            label = "all seeds" if len(chosen) > 1 else f"seed {chosen[0][4:]}"
            print(
                f"| {base} → {arm}, {label} | "
                + " | ".join(
                    difference(data, chosen, base, arm, n, rng, resamples) for n in names[:3]
                )
                + " |"
            )


def difference(
    data: dict[tuple[str, str], dict[str, list[Row]]],
    seeds: Sequence[str],
    base: str,
    arm: str,
    name: str,
    rng: np.random.Generator,
    resamples: int,
) -> str:
    """Mean over seeds of (arm − base), with its 95 % interval."""

    def pick(keys: dict[str, list[str]]) -> float:
        changes: list[float] = []
        for seed in seeds:
            one = [measure([data[seed, a][k] for k in keys[seed]])[name] for a in (base, arm)]
            changes.append(one[1] - one[0])
        return mean(changes)

    all_keys = {s: list(data[s, base]) for s in seeds}
    draws: list[float] = []
    for _ in range(resamples // 4):
        keys: dict[str, list[str]] = {}
        for seed in seeds:
            hard = [k for k in all_keys[seed] if data[seed, base][k][0]["sensitive"]]
            rest = [k for k in all_keys[seed] if k not in set(hard)]
            keys[seed] = [p[i] for p in (hard, rest) for i in rng.integers(0, len(p), len(p))]
        draws.append(pick(keys))
    low, high = np.percentile(draws, [2.5, 97.5])
    return f"{pick(all_keys):+.3f} [{low:+.3f}, {high:+.3f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", help="rl.* and sft.* settings instead of the above")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/ablation"))
    parser.add_argument("--model", help="Hugging Face folder (default: as in the demo)")
    parser.add_argument("--table", action="store_true", help="print the table of finished seeds")
    args = parser.parse_args()
    if args.table:
        table(args.out)
    else:
        run_seed(args.seed, args.out.resolve(), args.model, args.settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
