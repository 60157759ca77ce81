"""Both loops on a GPU: gradients of the CPU, the same bits each time and after a stop, and the
commands from one end to the other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from grpo_runs import RL, each, few_as, refinement_tasks  # noqa: E402
from qwen3 import write_qwen3  # noqa: E402
from sft_runs import toy_tasks  # noqa: E402
from tiny_model import tiny_config  # noqa: E402

import assay  # noqa: E402
from configs.schema import GrpoRunConfig, SftConfig  # noqa: E402
from rollouts.engines.torch.engine import TorchEngine  # noqa: E402
from rollouts.engines.torch.load import load_llama  # noqa: E402
from rollouts.prompts import ChatTokenizer  # noqa: E402
from rollouts.trajectory import Completion, Sampling  # noqa: E402
from train.examples import Example  # noqa: E402
from train.grpo import train_grpo  # noqa: E402
from train.model.optim import CHUNK, backward, copy_down  # noqa: E402
from train.model.packing import Segment, pack  # noqa: E402
from train.model.policy import load_policy  # noqa: E402
from train.run.checkpoint import Checkpoints  # noqa: E402
from train.run.log import RunLog, read_metrics  # noqa: E402
from train.run.run import Loop  # noqa: E402
from train.sft import train_sft  # noqa: E402

GPU = "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]
SHORT = replace(RL, steps=4, prompts_per_step=4, save_every=2)
# a group that shares its prompt, a long one, tokens that a tool wrote, and a prompt of one token
SEGMENTS = [
    Segment([7, 9, 11], [[5, 6, 7, 8], [5, 6, 9], [40]], [0, 1, 2]),
    Segment(list(range(3, 200)) * 3, [[8, 9] * 200, [9]], [3, 4]),
    Segment([9], [[3, 4, 5, 6]], [5], [[1, 0, 0, 1]]),
]


def gradients(policy: Any, device: str) -> tuple[Any, dict[str, Any]]:
    logp, _ = policy.logp(pack(SEGMENTS, device), 0.8)
    weights = torch.linspace(-1, 1, len(logp), device=device)
    backward((logp * weights).sum())
    return logp.detach().cpu(), {name: t.grad.cpu() for name, t in policy.named()}


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_probabilities_and_gradients_are_those_of_the_cpu(
    tiny_folder: Path, tmp_path: Path, kind: str
) -> None:
    folder = tiny_folder if kind == "llama" else write_qwen3(tmp_path)
    ours, here = gradients(load_policy(folder, "float32"), "cpu")
    theirs, there = gradients(load_policy(folder, "float32", GPU), GPU)
    assert torch.allclose(ours, theirs, atol=2e-4)
    for name, grad in here.items():
        assert float((grad - there[name]).norm()) <= 1e-3 * float(grad.norm()) + 1e-6, name


def test_long_rows_have_the_same_gradients_each_time(tmp_path: Path) -> None:
    """Of a size at which kernels that add up in any order do so."""
    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9}
    config = tiny_config(num_key_value_heads=3, max_position_embeddings=4096, **shape)
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    policy: Any = load_policy(tmp_path, "bfloat16", GPU)

    def ids(count: int, seed: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(3, 259, (count,), generator=generator).tolist()

    alone = [Segment(ids(700, i), [ids(300 + i, 90 + i)], [i]) for i in range(8)]
    group = Segment(ids(700, 50), [ids(300, 60 + i) for i in range(8)], list(range(8)))
    for segments in (alone, [group]):
        found: list[list[Any]] = []
        for _ in range(3):
            logp, _ = policy.logp(pack(segments, GPU))
            backward(-logp.mean())
            found.append([tensor.grad for _, tensor in policy.named()])
            for _, tensor in policy.named():
                tensor.grad = None
        assert all(map(torch.equal, found[0], found[1]))
        assert all(map(torch.equal, found[0], found[2]))


@pytest.mark.parametrize("count", [1, 1000, CHUNK + 5, 3 * CHUNK])
def test_weights_are_copied_down_to_the_same_bits(count: int) -> None:
    master = torch.randn(count, generator=torch.Generator().manual_seed(count)) * 0.1
    here = torch.empty(count, dtype=torch.bfloat16)
    there = here.to(GPU)
    copy_down(master, here)
    copy_down(master.to(GPU), there)
    assert torch.equal(here, there.cpu())


def stopper(at: int | None, step: Any) -> Any:
    def stop(stage: str, number: int, *rest: Any) -> None:
        step(stage, number, *rest)
        if number == at:
            raise KeyboardInterrupt

    return stop


def loop_of(out: Path, stop_at: int | None) -> Loop:
    log = RunLog(out)
    log.step = stopper(stop_at, log.step)  # type: ignore[method-assign]
    return Loop(3, log, Checkpoints(out / "ck", GrpoRunConfig()), 700, 32)


def rl(policy: Any, folder: Path, out: Path, stop_at: int | None = None) -> Any:
    tasks, score = refinement_tasks(20), each(few_as)
    train_grpo(policy, tasks, ChatTokenizer(folder), score, SHORT, loop_of(out, stop_at))
    return policy


def sft(policy: Any, folder: Path, out: Path, stop_at: int | None = None) -> Any:
    tokenizer = ChatTokenizer(folder)
    examples = [
        Example(tokenizer.prompt(t.prompt), tokenizer.answer(t.gold["text"] * 9))
        for t in refinement_tasks(24)
    ]
    config = SftConfig(epochs=2, batch_size=8, lr=3e-3, warmup=2, save_every=2)
    train_sft(policy, examples, config, loop_of(out, stop_at))
    return policy


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("train", [sft, rl])
def test_a_run_and_a_resumed_run_end_in_the_same_bits(
    tiny_folder: Path, tmp_path: Path, train: Any, dtype: str
) -> None:
    def policy() -> Any:
        return load_policy(tiny_folder, dtype, GPU)

    whole = train(policy(), tiny_folder, tmp_path / "a")
    again = train(policy(), tiny_folder, tmp_path / "b")
    with pytest.raises(KeyboardInterrupt):
        train(policy(), tiny_folder, tmp_path / "c", 3)
    resumed = train(policy(), tiny_folder, tmp_path / "c")
    untrained = policy()
    for (name, a), (_, b), (_, c), (_, old) in zip(
        *(p.named() for p in (whole, again, resumed, untrained)), strict=True
    ):
        assert torch.equal(a, b) and torch.equal(a, c), name
        assert not torch.equal(a, old) and torch.isfinite(a).all(), name
    if train is sft:
        losses = [row["loss"] for row in read_metrics(tmp_path / "a")]
        assert losses[-1] < losses[0]


def test_sft_rl_and_evaluation_run_on_the_gpu_that_is_there(
    tiny_folder: Path, tmp_path: Path
) -> None:
    tasks = toy_tasks(tmp_path / "tasks.jsonl")
    torch.cuda.reset_peak_memory_stats()
    shared = [f"data={tasks}", "validation=null"]
    words = ["sft.batch_size=8", "sft.epochs=2", f"model.path={tiny_folder}"]
    assert assay.main(["sft", *shared, f"out={tmp_path / 'sft'}", *words]) == 0
    words = [f"model.path={tmp_path / 'sft' / 'model'}", "rl.steps=2", "rl.prompts_per_step=4"]
    words += ["rl.mini_batch=4", "rl.rollouts_per_prompt=4", "rl.max_new_tokens=16"]
    assert assay.main(["grpo", *shared, f"out={tmp_path / 'rl'}", *words]) == 0
    words = ["--tasks", str(tasks), "--include-trained", "sampling.max_new_tokens=8"]
    words += ["--model", str(tmp_path / "rl" / "model"), "--out", str(tmp_path / "eval")]
    assert assay.main(["eval", *words]) == 0
    assert torch.cuda.max_memory_allocated() > 0
    run = json.loads((tmp_path / "rl" / "run.json").read_text())
    assert run["config"]["engine"]["dtype"] == "bfloat16"
    assert run["machine"]["gpus"][0] == torch.cuda.get_device_name()
    assert json.loads((tmp_path / "eval" / "results.json").read_text())["rows"]


# --- the embedded decoder ------------------------------------------------------------------------


# lengths that differ, a beginning that some share, and one prompt longer than a piece of prefill
PROMPTS = [[7, 9, 11, 30, 5], [7, 9, 11, 30, 8, 8], [44, 3, 17], list(range(3, 40)) * 60, [5]]
SEEDS = list(range(len(PROMPTS)))
LAWS = (
    Sampling(20, temperature=0),
    Sampling(20, temperature=1.0),
    Sampling(20, temperature=0.8, top_k=30),
    Sampling(20, temperature=1.2, top_k=40, top_p=0.9),
)


def engine(folder: Path, device: str, slots: int = 16, dtype: str = "float32") -> TorchEngine:
    return TorchEngine(load_llama(folder, dtype, device), [2, 5], slots=slots)


@pytest.mark.parametrize("slots", [4, 16])  # with few, prompts wait for rows that end
@pytest.mark.parametrize("law", LAWS, ids=["greedy", "plain", "top-k", "top-p"])
def test_tokens_and_log_probabilities_are_those_of_the_cpu(
    tiny_folder: Path, law: Sampling, slots: int
) -> None:
    here = engine(tiny_folder, "cpu").generate_now(PROMPTS, law, 2, SEEDS)
    compare(here, engine(tiny_folder, GPU, slots).generate_now(PROMPTS, law, 2, SEEDS))


def compare(here: list[list[Completion]], there: list[list[Completion]]) -> None:
    for ours, theirs in zip(flat(here), flat(there), strict=True):
        assert ours.ids == theirs.ids and ours.stop == theirs.stop
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=2e-4)
        assert ours.sampling_logprobs == pytest.approx(theirs.sampling_logprobs, abs=2e-4)


def flat(groups: list[list[Completion]]) -> list[Completion]:
    return [one for group in groups for one in group]


def test_a_later_turn_computes_its_new_tokens_alone(tiny_folder: Path) -> None:
    talks = engine(tiny_folder, GPU)
    law = Sampling(12, temperature=1.0, top_k=20)
    rows = [[7, 8, 9, 20 + i, *range(30, 60)] for i in range(4)]
    groups = talks.generate_now(rows, law, 2, range(4))
    rows = [p + c.ids + [50, 61] for p, g in zip(rows, groups, strict=True) for c in g]
    before = talks.prefilled
    later = talks.generate_now(rows, law, 1, range(8))
    new = sum(map(len, rows)) - 8 * 34  # all but the prompts' own tokens
    assert talks.prefilled - before <= new
    compare(engine(tiny_folder, "cpu").generate_now(rows, law, 1, range(8)), later)


def test_a_sample_has_the_probability_that_training_gives_it(tiny_folder: Path) -> None:
    """In bfloat16, where the two ways of computing it round differently."""
    policy = load_policy(tiny_folder, "bfloat16", GPU)
    groups = policy.engine([2], 16).generate_now(  # type: ignore[attr-defined]
        PROMPTS, Sampling(20, temperature=1.0), 4, SEEDS
    )
    drawn = [one for group in groups for one in group]
    segments = [
        Segment(p, [c.ids for c in g], list(range(4 * i, 4 * i + 4)))
        for i, (p, g) in enumerate(zip(PROMPTS, groups, strict=True))
    ]
    packed = pack(segments, GPU)
    with torch.no_grad():
        logp, _ = policy.logp(packed)
    for row, one in enumerate(drawn):
        mine = logp[packed.row == row].cpu()
        assert (mine - torch.tensor(one.logprobs)).abs().mean() < 0.05
