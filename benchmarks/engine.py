"""Rollouts and a training step against transformers, as ratios within one run.

    python -m benchmarks.engine [--model DIR] [--threads N] [--repeats R]

Rollouts: 4 prompts of 100 tokens, 8 samples each (32 rows), 48 forced new tokens, top-k 50 and
top-p 0.95, against `generate` in bf16 on the same prompts. Training: forward and backward of one
policy-gradient step on 4 groups of 8 completions of 40 tokens, against transformers in bf16 with
logits for the completions only. The two sides alternate, so that a change in the machine's load
meets both; the medians' ratio is what counts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rollouts.engines.torch import TorchEngine, set_threads
from rollouts.trajectory import Sampling
from train.model.batch import Segment, pack
from train.model.policy import load_policy
from train.model.source import resolve_model

PROMPTS, GROUP, PROMPT, NEW, TRAIN_NEW = 4, 8, 100, 48, 40


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """(wall, CPU) seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def compare(
    name: str, unit: float, ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int
) -> None:
    """Alternate the two after one warm-up each; print rates and the medians' ratios."""
    timed(ours), timed(theirs)
    pairs = [(timed(ours), timed(theirs)) for _ in range(repeats)]
    for index, kind in ((0, "wall"), (1, "CPU")):
        a = statistics.median(p[0][index] for p in pairs)
        b = statistics.median(p[1][index] for p in pairs)
        ratios = sorted(p[1][index] / p[0][index] for p in pairs)
        print(
            f"{name:<22} {kind:<5} ours {unit / a:8.1f} tok/s   transformers {unit / b:8.1f} tok/s"
            f"   ratio {b / a:5.2f}x   (pairs {ratios[0]:.2f} to {ratios[-1]:.2f})",
            flush=True,
        )


def hf_step(model: Any, ids: torch.Tensor) -> None:
    """Forward and backward with full sequences, logits only where a completion is predicted."""
    logits = model(ids, logits_to_keep=TRAIN_NEW + 1).logits[:, :-1]
    law = logits.float().log_softmax(-1)
    logp = law.gather(2, ids[:, -TRAIN_NEW:, None])[..., 0]
    (-logp.mean()).backward()
    model.zero_grad(set_to_none=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="Hugging Face folder (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    from transformers import AutoModelForCausalLM

    folder = resolve_model(args.model) if args.model is None else Path(args.model)
    threads = set_threads(args.threads or "auto")
    print(f"torch {torch.__version__}, {threads} thread(s), bf16, {PROMPTS} prompts x {GROUP}")
    hf: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    policy: Any = load_policy(folder)
    generator = torch.Generator().manual_seed(0)

    def ids(count: int, length: int) -> list[list[int]]:
        return torch.randint(3, 40_000, (count, length), generator=generator).tolist()

    prompts = ids(PROMPTS, PROMPT)
    engine = TorchEngine(policy.model, [], slots=PROMPTS * GROUP)
    sampling = Sampling(NEW, temperature=1.0, top_k=50, top_p=0.95)
    batch = torch.tensor(prompts)

    def generate() -> None:
        hf.generate(
            batch,
            attention_mask=torch.ones_like(batch),
            do_sample=True,
            top_k=50,
            top_p=0.95,
            num_return_sequences=GROUP,
            min_new_tokens=NEW,
            max_new_tokens=NEW,
            pad_token_id=2,
        )

    rows = PROMPTS * GROUP
    compare(
        "rollout, 32 rows",
        rows * NEW,
        lambda: engine.generate_now(prompts, sampling, GROUP, range(PROMPTS)),
        generate,
        args.repeats,
    )

    groups = [(p, ids(GROUP, TRAIN_NEW)) for p in prompts]
    packed = pack(
        [Segment(p, c, list(range(i * GROUP, (i + 1) * GROUP))) for i, (p, c) in enumerate(groups)]
    )
    full = torch.tensor([p + c for p, completions in groups for c in completions])

    def ours() -> None:
        (-policy.logp(packed)[0].mean()).backward()
        for _, tensor in policy.named():
            tensor.grad = None

    compare("training step", rows * TRAIN_NEW, ours, lambda: hf_step(hf, full), args.repeats)


if __name__ == "__main__":
    main()
