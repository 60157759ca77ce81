# What other libraries type is unknown in this environment.
# pyright: reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
"""One side of `benchmarks.peers`: the embedded engine, vLLM or TRL, in a process of its own.

    python benchmarks/peer_sides.py SIDE WORK SETUP.json

Prints `ready`, then for every line `go` it does the work once and prints a line of JSON: wall and
processor seconds, tokens, and what else the work tells. vLLM's and TRL's sides need nothing of this
project, because they run in environments of their own. What the libraries print goes to standard
error.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Setup = dict[str, Any]
Said = dict[str, Any]
Gate = Callable[[Said | None], None]
"""Tells what the work before has cost (None: nothing yet), then waits for the next `go`."""


def timed(work: Callable[[], Said]) -> Said:
    """What `work` tells, and its wall and processor seconds, of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    said = work()
    return said | {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def gate_on(pipe: Any) -> Gate:
    def gate(said: Said | None) -> None:
        print("ready" if said is None else json.dumps(said), file=pipe, flush=True)
        if sys.stdin.readline().strip() != "go":
            sys.exit(0)

    return gate


def again(gate: Gate, work: Callable[[], Said]) -> None:
    """The same work at every `go`, after one that nobody counts."""
    work()
    gate(None)
    while True:
        gate(timed(work))


def texts_reward(texts: list[str]) -> list[float]:
    """Any reward that differs within a group: the share of words that stand once."""
    return [len(set(t.split())) / max(1, len(t.split())) for t in texts]


# ---- the embedded engine


def our_samples(gate: Gate, setup: Setup) -> None:
    from rollouts.engines.torch.engine import TorchEngine
    from rollouts.trajectory import Sampling
    from train.model.policy import load_policy

    ask = setup["ask"]
    policy: Any = load_policy(Path(setup["model"]), setup["dtype"])
    engine = TorchEngine(policy.model, setup["stop"] if ask["stop"] else [], slots=ask["slots"])
    how = Sampling(ask["new"], ask["temperature"], ask["top_k"], ask["top_p"], last=True)
    keys = range(len(ask["prompts"]))

    def work() -> Said:
        groups = engine.generate_now(ask["prompts"], how, ask["n"], keys)
        rows = [list(x.ids) for group in groups for x in group]
        return {"tokens": sum(map(len, rows)), "rows": rows}

    again(gate, work)


def our_step(gate: Gate, setup: Setup) -> None:
    """A whole step of `train_grpo`, its loop and log included."""
    from assay.task import Score, Task
    from configs.schema import GrpoConfig, GrpoRunConfig
    from rollouts.prompts import ChatTokenizer
    from train.grpo import train_grpo
    from train.model.policy import load_policy
    from train.run.checkpoint import Checkpoints
    from train.run.log import RunLog
    from train.run.run import Loop

    ask = setup["ask"]
    config = GrpoConfig(
        steps=1000,
        prompts_per_step=ask["prompts_per_step"],
        mini_batch=ask["prompts_per_step"],
        rollouts_per_prompt=ask["n"],
        max_new_tokens=ask["new"],
        max_length=2048,
        lr=1e-6,
        save_every=10_000,
    )
    gold = {"input_text": "", "status": "KEEP", "text": ""}
    tasks = [
        Task(f"t{i}", "refinement", "x", "train", chat, gold) for i, chat in enumerate(ask["chats"])
    ]

    def scored(_: Any, groups: Any) -> Any:
        rewards = [texts_reward([x.answer().text for x in group]) for group in groups]
        return [[Score(r, r) for r in row] for row in rewards]

    began: list[tuple[float, float]] = []

    def show(_stage: str, step: int, _of: int, _line: str, metrics: Any) -> None:
        if began:
            wall, cpu = began.pop()
            tokens = metrics["response_length/mean"] * ask["prompts_per_step"] * ask["n"]
            took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
            gate(took | {"tokens": tokens})
        elif step > 1:  # the first step is nobody's
            gate(None)
        if step > 1:
            began.append((time.perf_counter(), time.process_time()))

    folder = Path(setup["model"])
    with tempfile.TemporaryDirectory() as out:
        log = RunLog(Path(out))
        log.show = show
        checkpoints = Checkpoints(Path(out) / "ck", GrpoRunConfig(rl=config))
        policy = load_policy(folder, setup["dtype"])
        loop = Loop(0, log, checkpoints, 4096, 64)
        train_grpo(policy, tasks, ChatTokenizer(folder), scored, config, loop)


def our_sft(gate: Gate, setup: Setup) -> None:
    from configs.schema import SftConfig, SftRunConfig
    from rollouts.prompts import ChatTokenizer
    from train.examples import example_of
    from train.model.policy import load_policy
    from train.run.checkpoint import Checkpoints
    from train.run.log import RunLog
    from train.run.run import Loop
    from train.sft import train_sft

    ask, folder = setup["ask"], Path(setup["model"])
    tokenizer = ChatTokenizer(folder)
    chats = [{"messages": chat} for chat in ask["chats"]]
    examples = [example_of(chat, "chat", tokenizer, Path()) for chat in chats]
    config = SftConfig(
        epochs=1000, batch_size=len(chats), lr=1e-6, max_length=2048, save_every=10_000
    )
    tokens = sum(e.tokens for e in examples)
    began: list[tuple[float, float]] = []

    def show(*_: Any) -> None:
        if began:
            wall, cpu = began.pop()
            took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
            gate(took | {"tokens": tokens})
        else:
            gate(None)
        began.append((time.perf_counter(), time.process_time()))

    with tempfile.TemporaryDirectory() as out:
        log = RunLog(Path(out))
        log.show = show
        checkpoints = Checkpoints(Path(out) / "ck", SftRunConfig(sft=config))
        policy = load_policy(folder, setup["dtype"])
        train_sft(policy, examples, config, Loop(0, log, checkpoints, 4096))


# ---- vLLM


def vllm_samples(gate: Gate, setup: Setup) -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # its processor time is this process's
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")  # GiB; else most of the memory
    from vllm import LLM, SamplingParams

    ask = setup["ask"]
    llm = LLM(setup["model"], dtype=setup["dtype"], max_model_len=2048, max_num_seqs=ask["slots"])
    how = SamplingParams(
        n=ask["n"],
        temperature=ask["temperature"],
        top_k=ask["top_k"],
        top_p=ask["top_p"],
        max_tokens=ask["new"],
        min_tokens=0 if ask["stop"] else ask["new"],
        ignore_eos=not ask["stop"],
        stop_token_ids=setup["stop"] if ask["stop"] else None,
        logprobs=0,
        detokenize=False,  # no seed: with one, vLLM 0.32 ends where it cuts a prompt on a CPU
    )
    prompts: Any = [{"prompt_token_ids": ids} for ids in ask["prompts"]]

    def work() -> Said:
        # what the round before left: an evaluation asks a prompt once
        if not llm.reset_prefix_cache():
            raise RuntimeError("vLLM kept the prompts of the round before")
        found = llm.generate(prompts, how, use_tqdm=False)
        rows = [list(x.token_ids) for row in found for x in row.outputs]
        return {"tokens": sum(map(len, rows)), "rows": rows}

    again(gate, work)


# ---- TRL


def gated(gate: Gate, tokens: Callable[[Any], float]) -> Any:
    """A callback that waits before every step but the first."""
    from transformers import TrainerCallback

    began: list[tuple[float, float]] = []

    class Gated(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 1:
                gate(None)
            began[:] = [(time.perf_counter(), time.process_time())]

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            wall, cpu = began.pop()
            took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
            if state.global_step > 1:
                gate(took | {"tokens": tokens(state)})

    return Gated()


def trl_common(setup: Setup, out: str) -> dict[str, Any]:
    return {
        "output_dir": out,
        "max_steps": 1000,
        "learning_rate": 1e-6,
        "use_cpu": True,
        "bf16": setup["dtype"] == "bfloat16",
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1000,
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "model_init_kwargs": {"dtype": setup["dtype"]},
    }


def trl_step(gate: Gate, setup: Setup) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    ask = setup["ask"]
    said: list[float] = []

    def reward(completions: list[Any], completion_ids: list[Any], **_: Any) -> list[float]:
        said[:] = [float(sum(map(len, completion_ids)))]
        return texts_reward([c[-1]["content"] for c in completions])

    rows = ask["prompts_per_step"] * ask["n"]
    with tempfile.TemporaryDirectory() as out:
        settings = GRPOConfig(
            **trl_common(setup, out),
            loss_type="dr_grpo",
            scale_rewards=False,
            beta=0.0,
            temperature=1.0,
            top_k=0,
            per_device_train_batch_size=rows,
            num_generations=ask["n"],
            max_completion_length=ask["new"],
        )
        data = Dataset.from_list([{"prompt": chat} for chat in ask["chats"]])
        trainer = GRPOTrainer(
            model=setup["model"],
            reward_funcs=reward,
            args=settings,
            train_dataset=data,
            callbacks=[gated(gate, lambda _: said[0])],
        )
        trainer.train()


def trl_sft(gate: Gate, setup: Setup) -> None:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    ask = setup["ask"]
    rows = [{"prompt": chat[:-1], "completion": chat[-1:]} for chat in ask["chats"]]
    with tempfile.TemporaryDirectory() as out:
        settings = SFTConfig(
            **trl_common(setup, out),
            per_device_train_batch_size=len(rows),
            max_length=2048,
        )
        trainer = SFTTrainer(
            model=setup["model"],
            args=settings,
            train_dataset=Dataset.from_list(rows),
        )
        tokens = float(sum(len(row["input_ids"]) for row in trainer.train_dataset))
        trainer.add_callback(gated(gate, lambda _: tokens))
        trainer.train()


SIDES: dict[tuple[str, str], Callable[[Gate, Setup], None]] = {
    ("ours", "samples"): our_samples,
    ("ours", "step"): our_step,
    ("ours", "sft"): our_sft,
    ("vllm", "samples"): vllm_samples,
    ("trl", "step"): trl_step,
    ("trl", "sft"): trl_sft,
}


def main(side: str, work: str, file: str) -> None:
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    setup = json.loads(Path(file).read_text(encoding="utf-8"))
    import torch

    torch.set_num_threads(setup["threads"])
    SIDES[side, work](gate_on(pipe), setup)


if __name__ == "__main__":
    main(*sys.argv[1:])
