"""One definition of a step: the embedded trainer's update is verl's, on the same rollouts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

pytest.importorskip("verl", reason="the extra `cluster` is not installed")
torch = pytest.importorskip("torch")

from assay.task import Score, Task  # noqa: E402
from configs.loader import load  # noqa: E402
from configs.schema import GrpoRunConfig  # noqa: E402
from rollouts.trajectory import Trajectory  # noqa: E402
from train.backends.verl.settings import MODES  # noqa: E402
from train.grpo import Batch, update  # noqa: E402
from train.model.loss import centre  # noqa: E402
from train.model.optim import MasterAdamW, learning_rate  # noqa: E402
from train.model.policy import LlamaPolicy, load_policy  # noqa: E402

pytestmark = pytest.mark.slow

PROMPTS, GROUP = 2, 4


def rollouts() -> list[list[Trajectory]]:
    """Ragged answers, some with tool tokens in between; the end-of-turn token stands in prompts."""
    generator = torch.Generator().manual_seed(7)

    def ids(n: int) -> list[int]:
        return torch.randint(3, 259, (n,), generator=generator).tolist()

    groups = []
    for p in range(PROMPTS):
        prompt, group = [1, *ids(5 + 3 * p), 2, *ids(2)], []
        for g in range(GROUP):
            said, heard, more = ids(2 + g), ids(3 * (g % 2)), ids(1 + p + g)
            mask = [0] * len(prompt) + [1] * len(said) + [0] * len(heard) + [1] * len(more)
            whole = [*prompt, *said, *heard, *more]
            none = [0.0] * len(whole)
            group.append(Trajectory(f"t{p}", g, whole, mask, none, none, "eos", "", 0))
        groups.append(group)
    return groups


def ours(folder: Path, config: GrpoRunConfig) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """(weights after the update, metrics, rows for verl) of the embedded trainer."""
    groups = rollouts()
    rewards = torch.tensor([[0.0, 1.0, 0.4, 0.1], [0.55, 0.3, 0.3, 1.0]])
    adv = centre(rewards)
    tasks = [Task(f"t{p}", "refinement", "toy", "train", [], {}) for p in range(PROMPTS)]
    scores = [[Score(1.0, float(r), {}, "ok") for r in row] for row in rewards]
    valid = torch.ones(PROMPTS, GROUP, dtype=torch.bool)
    batch = Batch(tasks, groups, scores, adv, valid, rewards)
    policy = load_policy(folder, "float32")
    assert isinstance(policy, LlamaPolicy)
    rows = [
        row_of(policy, t, float(adv[p, g]), config)
        for p, group in enumerate(groups)
        for g, t in enumerate(group)
    ]
    rl = config.rl
    optimiser = MasterAdamW(policy.named(), rl.betas, weight_decay=rl.weight_decay)
    lr = learning_rate(0, rl.steps, rl.lr, rl.warmup, rl.schedule)
    said = update(policy, optimiser, batch, rl, lr=lr, micro_tokens=4096, reference=None)
    from rollouts.engines.torch.llama import to_state

    return to_state(policy.model), said, rows


def row_of(policy: LlamaPolicy, t: Trajectory, advantage: float, config: GrpoRunConfig) -> Any:
    """A rollout as verl holds it, with the log-probabilities of the policy before the update."""
    from train.model.packing import Segment, pack

    first = t.loss_mask.index(1)
    prompt, response, mask = t.ids[:first], t.ids[first:], t.loss_mask[first:]
    with torch.no_grad():
        everything = pack([Segment(prompt, [response], [0])])
        old = policy.logp(everything, config.rl.temperature)[0].tolist()
    row = {"prompt": prompt, "response": response, "mask": mask}
    return row | {"old": old, "advantage": advantage}


@pytest.mark.parametrize(
    ("preset", "mini", "micro"), [("dr_grpo", 1, 2), ("dr_grpo", 2, 0), ("dare", 1, 0)]
)
def test_an_update_is_verls(
    tiny_folder: Path, tmp_path: Path, preset: str, mini: int, micro: int
) -> None:
    settings = f"""model.path={tiny_folder} out={tmp_path / "run"} rl.preset={preset}
        rl.prompts_per_step={PROMPTS} rl.rollouts_per_prompt={GROUP} rl.mini_batch={mini}
        rl.max_new_tokens=16 rl.max_length=64 rl.temperature=0.8 rl.lr=1e-3 rl.steps=4
        rl.schedule=constant rl.warmup=0 rl.top_k=0 rl.top_p=1.0 rl.sampling_correction=none
        rl.grad_clip=0.05 cluster.device=cpu cluster.gpus_per_node=1 cluster.micro_batch={micro}
        cluster.micro_tokens=64""".split()
    config = load(GrpoRunConfig, None, settings)
    assert config.rl.normaliser in MODES
    mine, said, rows = ours(tiny_folder, config)
    torch.save({"settings": settings, "rows": rows}, tmp_path / "job.pt")
    program = str(ROOT / "tests/support/verl_worker.py")
    words = [sys.executable, program, "job.pt", str(tmp_path / "out.pt")]
    done = subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    verls = torch.load(tmp_path / "out.pt", weights_only=False)
    assert max(flat(verls["metrics"]["grad_norm"])) == pytest.approx(said["grad_norm"], rel=1e-4)
    before = load_policy(tiny_folder, "float32")
    assert isinstance(before, LlamaPolicy)
    from rollouts.engines.torch.llama import to_state

    start, moved = to_state(before.model), 0.0
    for name, weight in mine.items():
        other = verls["state"][name]
        assert torch.allclose(weight, other, atol=2e-5), (name, (weight - other).abs().max())
        moved = max(moved, float((weight - start[name]).abs().max()))
    assert moved > 5e-4  # a step of Adam moves weights by about the rate


def flat(value: Any) -> list[float]:
    """Numbers out of verl's lists of lists."""
    return [float(x) for v in value for x in flat(v)] if isinstance(value, list) else [float(value)]
