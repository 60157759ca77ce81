"""How fast rollouts and a training step are beside transformers, as ratios within one run.

    python -m benchmarks.engine [--model DIR] [--threads N] [--repeats R] [--dtype auto]
        [--device cpu|cuda] [--prompts P] [--only NAME]

Rollouts: 4 prompts (`--prompts`) of 100 tokens, 8 samples each, 48 forced new tokens, top-k 50 and
top-p 0.95, against `generate` on the same prompts. Evaluation: 32 prompts that share 50 of 112
tokens, 24 forced greedy tokens each. Single: 4 prompts of `assay tasks demo` one at a time, 48
forced greedy tokens each, against `generate` with prompt lookup (`prompt_lookup_num_tokens=8`);
what is guessed right depends on the model. Fallback: the same rollouts as models without our
decoder get them, all prompts side by side and one prompt at a time, against `generate`. Training:
forward and backward of one policy-gradient step on as many groups of 8 completions of 40 tokens,
against transformers with logits for the completions only. The sides alternate; the
ratio is theirs over ours, and counts. `--device cuda` puts all sides on the GPU, and waits for it.

The floor, timed in the same rounds, is the matrix products that each work cannot do without and
nothing else: every prompt token once, each sampled token in a batch of all rows; three times the
forward products for training (the prompt once a group).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from assay.task import read_tasks
from benchmarks.runner import compare, machine
from rollouts.engines.torch.engine import TorchEngine, TransformersEngine, set_threads
from rollouts.engines.torch.llama import Llama, Products, can_prepack, products
from rollouts.engines.torch.load import choose_device, choose_dtype
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Sampling
from train.model.optim import backward
from train.model.packing import Segment, pack
from train.model.policy import LlamaPolicy, load_policy
from train.model.source import resolve_model

GROUP, PROMPT, NEW, TRAIN_NEW = 8, 100, 48, 40
DRAW = {"do_sample": True, "top_k": 50, "top_p": 0.95, "num_return_sequences": GROUP}
EVAL_PROMPTS, EVAL_PROMPT, SHARED, EVAL_NEW, SINGLE = 32, 112, 50, 24, 4


def body(run: Products, model: Llama, rows: int) -> None:
    """The matrix products of all layers for `rows` tokens at once."""
    x = model.embed.new_ones(rows, model.shape.hidden)
    wide = model.embed.new_ones(rows, model.shape.mlp)
    heads = model.embed.new_ones(rows, model.shape.heads * model.shape.head_dim)
    for qkv, o, gated, down in run.layers:
        for product, given in ((qkv, x), (o, heads), (gated, x), (down, wide)):
            product(given)


@torch.inference_mode()
def decode_floor(run: Products, model: Llama, prefill: int, rows: int, new: int) -> None:
    """Products of `prefill` prompt tokens, and of `new` tokens in each of `rows` rows."""
    body(run, model, prefill)
    x = model.embed.new_ones(rows, model.shape.hidden)
    for token in range(new):
        if token:  # the first one is drawn from the prompt's last position
            body(run, model, rows)
        run.head(x)


@torch.inference_mode()
def train_floor(run: Products, model: Llama, tokens: int, predicted: int) -> None:
    """Forward products and twice as many backward."""
    x = model.embed.new_ones(predicted, model.shape.hidden)
    for _ in range(3):
        body(run, model, tokens)
        run.head(x)


def hf_step(model: Any, ids: torch.Tensor) -> None:
    """Forward and backward with full sequences, logits only where a completion is predicted."""
    logits = model(ids, logits_to_keep=TRAIN_NEW + 1).logits[:, :-1]
    law = logits.float().log_softmax(-1)
    logp = law.gather(2, ids[:, -TRAIN_NEW:, None])[..., 0]
    (-logp.mean()).backward()
    model.zero_grad(set_to_none=True)


Work = tuple[str, int, dict[str, Callable[[], Any]]]
"""A title, the tokens of a round, and the sides: ours first."""


def rollout(hf: Any, policy: Any, run: Products, count: int) -> Work:
    """Groups of samples."""
    prompts, rows = random_ids(count, PROMPT), count * GROUP
    engine = TorchEngine(policy.model, [], slots=rows)
    sampling = Sampling(NEW, temperature=1.0, top_k=50, top_p=0.95, last=True)
    sides = {
        "ours": lambda: engine.generate_now(prompts, sampling, GROUP, range(count)),
        "transformers": lambda: hf_generate(hf, prompts, NEW, DRAW),
        "floor": lambda: decode_floor(run, policy.model, count * PROMPT, rows, NEW),
    }
    return f"rollout, {rows} rows", rows * NEW, sides


def evaluation(hf: Any, policy: Any, run: Products, count: int) -> Work:
    """Greedy answers to prompts that begin alike."""
    head = random_ids(1, SHARED)[0]
    prompts = [head + own for own in random_ids(EVAL_PROMPTS, EVAL_PROMPT - SHARED)]
    engine = TorchEngine(policy.model, [], slots=EVAL_PROMPTS)
    prefill = SHARED + EVAL_PROMPTS * (EVAL_PROMPT - SHARED)
    greedy = Sampling(EVAL_NEW, 0, last=True)
    sides = {
        "ours": lambda: engine.generate_now(prompts, greedy, 1, range(EVAL_PROMPTS)),
        "transformers": lambda: hf_generate(hf, prompts, EVAL_NEW, {"do_sample": False}),
        "floor": lambda: decode_floor(run, policy.model, prefill, EVAL_PROMPTS, EVAL_NEW),
    }
    return f"evaluation, {EVAL_PROMPTS} prompts", EVAL_PROMPTS * EVAL_NEW, sides


def single(hf: Any, policy: Any, run: Products, count: int) -> Work:
    """Greedy answers to refinement prompts, one at a time."""
    tokenizer = ChatTokenizer(policy.folder)
    with tempfile.TemporaryDirectory() as made:
        demo_tasks(made)
        tasks = read_tasks(Path(made) / "heldout.jsonl")[:SINGLE]
    prompts = [tokenizer.prompt(task.prompt) for task in tasks]
    engine = TorchEngine(policy.model, [], slots=SINGLE)
    greedy, draw = Sampling(NEW, 0), {"do_sample": False, "prompt_lookup_num_tokens": 8}
    sides = {
        "ours": lambda: [engine.generate_now([ids], greedy, 1, [0]) for ids in prompts],
        "transformers": lambda: [hf_generate(hf, [ids], NEW, draw) for ids in prompts],
        "floor": lambda: [decode_floor(run, policy.model, len(ids), 1, NEW) for ids in prompts],
    }
    return f"single, {SINGLE} prompts", SINGLE * NEW, sides


def training(hf: Any, policy: Any, run: Products, count: int) -> Work:
    """Forward and backward of one step."""
    rows = count * GROUP
    answers = random_ids(rows, TRAIN_NEW)
    groups = [
        (p, answers[i * GROUP : (i + 1) * GROUP]) for i, p in enumerate(random_ids(count, PROMPT))
    ]
    packed = pack(
        [Segment(p, c, list(range(i * GROUP, (i + 1) * GROUP))) for i, (p, c) in enumerate(groups)],
        hf.device,
    )
    full = torch.tensor([p + c for p, completions in groups for c in completions], device=hf.device)

    def ours() -> None:
        backward(-policy.logp(packed)[0].mean())
        for _, tensor in policy.named():
            tensor.grad = None

    tokens = rows * TRAIN_NEW
    sides = {
        "ours": ours,
        "transformers": lambda: hf_step(hf, full),
        "floor": lambda: train_floor(run, policy.model, count * PROMPT + tokens, tokens),
    }
    return f"training step, {rows} rows", tokens, sides


def fallback(hf: Any, count: int) -> Work:
    """Groups of samples of a model that transformers computes."""
    top, rows = hf.config.get_text_config().vocab_size, count * GROUP
    prompts = [[token % top for token in prompt] for prompt in random_ids(count, PROMPT)]
    engine = TransformersEngine(hf, [], slots=rows)
    sampling = Sampling(NEW, temperature=1.0, top_k=50, top_p=0.95, last=True)
    sides = {
        "side by side": lambda: engine.generate_now(prompts, sampling, GROUP, range(count)),
        "one prompt at a time": lambda: [
            engine.generate_now([prompt], sampling, GROUP, [i]) for i, prompt in enumerate(prompts)
        ],
        "transformers": lambda: hf_generate(hf, prompts, NEW, DRAW),
    }
    return f"fallback, {rows} rows", rows * NEW, sides


WORKS = {"rollout": rollout, "evaluation": evaluation, "single": single, "training": training}


def random_ids(count: int, length: int) -> list[list[int]]:
    """`count` rows of `length` ids, the same in every run."""
    generator = torch.Generator().manual_seed(length)
    return torch.randint(3, 40_000, (count, length), generator=generator).tolist()


def demo_tasks(folder: str) -> None:
    """Write a build of `assay tasks demo` into a folder."""
    words = [sys.executable, "-m", "assay", "tasks", "demo", "--out", folder]
    subprocess.run([*words, "difficulty=easy"], check=True, capture_output=True)


def hf_generate(hf: Any, prompts: list[list[int]], new: int, how: dict[str, Any]) -> None:
    """Exactly `new` tokens a row."""
    batch = torch.tensor(prompts, device=hf.device)
    fixed = {"min_new_tokens": new, "max_new_tokens": new, "pad_token_id": 2}
    hf.generate(batch, attention_mask=torch.ones_like(batch), **fixed, **how)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="Hugging Face folder (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", choices=("fallback", *WORKS))
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--prompts", type=int, default=4, help="of rollouts and training")
    args = parser.parse_args()
    from transformers import AutoModelForCausalLM

    folder = resolve_model(args.model) if args.model is None else Path(args.model)
    threads, device = set_threads(args.threads or "auto"), choose_device(args.device)
    dtype = choose_dtype(args.dtype, device)
    where = torch.cuda.get_device_name() if device == "cuda" else machine()
    print(f"torch {torch.__version__}, {dtype}, {threads} thread(s), {where}")
    hf: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    hf.to(device)
    policy: Any = load_policy(folder, dtype, device)

    def works() -> Iterator[Work]:
        if args.only in (None, "fallback"):
            yield fallback(hf, args.prompts)
        if isinstance(policy, LlamaPolicy):
            run = products(policy.model, args.prompts * GROUP, can_prepack(policy.model.embed))
            for name, work in WORKS.items():
                if args.only in (None, name):
                    yield work(hf, policy, run, args.prompts)

    for title, tokens, sides in works():
        compare(title, sides, args.repeats, tokens, "tok")


if __name__ == "__main__":
    main()
