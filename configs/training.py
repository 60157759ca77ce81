"""The settings of training: supervised fine-tuning, and Dr.GRPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from configs.fields import at_least, check_optimiser, check_warmup, fitted, locked, share


@dataclass(frozen=True)
class SftConfig:
    """Supervised fine-tuning; AdamW, linear warm-up, then a cosine to 0."""

    epochs: int = locked(3)
    """Times every example is seen. Steps follow: examples · epochs / batch_size, rounded up."""

    batch_size: int = locked(8)
    """Examples in one optimiser step."""

    lr: float = locked(1.5e-4)
    """Peak learning rate."""

    warmup: float = locked(0.1)
    """Steps of linear warm-up; below 1 a share of all steps."""

    betas: tuple[float, float] = locked((0.9, 0.98))
    """Of AdamW."""

    weight_decay: float = locked(0.0)
    """Of AdamW; norms and biases have none."""

    grad_clip: float = locked(1.0)
    """Largest gradient norm; 0: no clipping."""

    save_every: int = 20
    """Steps between checkpoints."""

    max_length: int = fitted()
    """Prompt and answer, in tokens; longer examples are left out. auto: the longest example, as far
    as the model's context and memory allow (`--dry-run` says what that is)."""

    def __post_init__(self) -> None:
        at_least(self, 0, "weight_decay", "lr", "max_length")
        at_least(self, 1, "epochs", "batch_size", "save_every")
        check_warmup(self.warmup)
        check_optimiser(self.betas, self.grad_clip)


@dataclass(frozen=True)
class GrpoConfig:
    """Dr.GRPO. A preset sets the fields it names; a field set in the same file or command line
    overrides the preset.

    `dr_grpo`: group-mean baseline, no division by the spread, a constant length normaliser, the
    full distribution. `dare`: no division either, but the mean over each answer's tokens, and
    DARE-bench's numbers (`max_length` is its 32,768 tokens for prompt and answer together).
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "dr_grpo": {
            "divide_by_std": False,
            "normaliser": "constant",
            "kl_coef": 0.0,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "clip_low": 0.2,
            "clip_high": 0.2,
        },
        "dare": {
            "divide_by_std": False,
            "normaliser": "sequence_mean",
            "kl_coef": 0.0,
            "lr": 1e-6,
            "prompts_per_step": 64,
            "rollouts_per_prompt": 8,
            "mini_batch": 64,
            "temperature": 1.0,
            "top_p": 0.95,
            "top_k": 50,
            "max_length": 32768,
            "clip_low": 0.2,
            "clip_high": 0.2,  # not given in the paper; the usual value
        },
    }

    preset: Literal["dr_grpo", "dare"] = locked("dr_grpo")
    """Which fields start from which values."""

    steps: int = 20
    """Batches of rollouts. Under `schedule: constant` it may be raised later to go on from the last
    checkpoint; the other schedules end at it, so there a resumed run must keep it."""

    prompts_per_step: int = locked(16)
    """Prompts in a batch of rollouts."""

    rollouts_per_prompt: int = locked(8)
    """Answers per prompt. Their mean reward is the baseline, so at least 2."""

    mini_batch: int = locked(16)
    """Prompts in one optimiser step; a divisor of prompts_per_step."""

    balance: Literal["none", "status", "track"] = locked("none")
    """Equally many tasks of each status or track in a step."""

    lr: float = locked(3e-5)
    """Peak learning rate."""

    schedule: Literal["constant", "linear", "cosine"] = locked("constant")
    """After the warm-up: constant, or linear or cosine down to 0 at `steps`."""

    warmup: float = locked(0)
    """Steps of linear warm-up; below 1 a share of `steps`."""

    betas: tuple[float, float] = locked((0.9, 0.98))
    """Of AdamW."""

    weight_decay: float = locked(0.0)
    """Of AdamW; norms and biases have none."""

    grad_clip: float = locked(1.0)
    """Largest gradient norm; 0: no clipping."""

    clip_low: float = locked(0.2)
    """The ratio new/old probability is clipped to [1 - clip_low, 1 + clip_high]."""

    clip_high: float = locked(0.2)
    """See clip_low."""

    kl_coef: float = locked(0.0)
    """Weight of the KL term to the model the run started from; 0: none."""

    divide_by_std: bool = locked(False)
    """GRPO's division of the advantage by the group's spread."""

    normaliser: Literal["constant", "sequence_mean"] = locked("constant")
    """Token terms are divided by: constant: max_new_tokens; sequence_mean: the answer's length."""

    sampling_correction: Literal["none", "token"] = locked("none")
    """token: weight each token by full / truncated probability (top_k, top_p)."""

    correction_cap: float = locked(2.0)
    """Largest such weight."""

    temperature: float = locked(1.0)
    """Of sampling and of the loss; above 0."""

    top_p: float = locked(1.0)
    """Share of probability that sampling keeps; 1: off."""

    top_k: int = locked(0)
    """Most probable tokens that sampling keeps; 0: off."""

    max_new_tokens: int = fitted()
    """Longest message; an answer cut off here earns 0. auto: half as long again as the longest gold
    answer, at least 96; 512 without gold texts, 1024 for episodes with tools."""

    max_length: int = fitted()
    """Prompt and answer, in tokens; longer prompts are left out. auto: room for an answer behind
    the longest prompt (with tools for all turns), as far as the model's context and memory
    allow."""

    turns: int = locked(5)
    """Model messages of an episode with tools."""

    tool_seconds: float = locked(1000.0)
    """Seconds that an episode's tools may run, all together."""

    save_every: int = 5
    """Steps between checkpoints."""

    dynamic_sampling: int = locked(0)
    """Rounds a step may add: prompts whose rewards are all equal give way to further ones (DAPO).
    0: off."""

    overlong: Literal["keep", "mask", "soft"] = locked("keep")
    """Answers that a token limit cut off. keep: as scored; mask: no advantage; soft: the reward
    falls by up to 1 over the last `overlong_buffer` tokens. The outcome stays as it is (DAPO)."""

    overlong_buffer: int = fitted()
    """Tokens before the limit in which `overlong: soft` begins. auto: a fifth of the limit."""

    audit: Literal["refuse", "warn", "off"] = "refuse"
    """Before the first step a sample of the tasks is audited under the run's own reward settings.
    refuse: a fault ends the run in one sentence; warn: it is said and noted."""

    def __post_init__(self) -> None:
        if self.rollouts_per_prompt == 1:
            raise ValueError(
                "rollouts_per_prompt=1: a group of one has no advantage; set 2 or more"
            )
        at_least(self, 1, "prompts_per_step", "mini_batch", "save_every")
        at_least(self, 0, "max_new_tokens", "max_length")
        at_least(self, 1, "turns", "tool_seconds", "correction_cap")
        at_least(self, 2, "rollouts_per_prompt")
        at_least(self, 0, "steps", "lr", "weight_decay")
        at_least(self, 0, "kl_coef", "clip_low", "clip_high", "top_k")
        at_least(self, 0, "dynamic_sampling", "overlong_buffer")
        share(self, "top_p")
        check_warmup(self.warmup)
        check_optimiser(self.betas, self.grad_clip)
        if self.top_p == 0:
            raise ValueError("top_p=0.0 keeps no token; set a share above 0 (1: off)")
        if self.temperature <= 0:
            raise ValueError(
                f"temperature={self.temperature}: greedy answers of one prompt are all the same, "
                "so no group has an advantage; set a number above 0"
            )
        if self.clip_low >= 1:
            raise ValueError(f"clip_low={self.clip_low}: the ratio never falls to 0; set below 1")
        if self.prompts_per_step % self.mini_batch:
            raise ValueError(
                f"mini_batch={self.mini_batch} does not divide "
                f"prompts_per_step={self.prompts_per_step}; set a divisor"
            )
        if self.max_length and self.max_new_tokens >= self.max_length:
            raise ValueError(
                f"max_new_tokens={self.max_new_tokens} leaves no room for a prompt in "
                f"max_length={self.max_length}; set it lower"
            )

        self._check_choice()

    def _check_choice(self) -> None:
        """What chooses prompts, and what counts as too long."""
        if self.max_new_tokens and self.overlong_buffer > self.max_new_tokens:
            raise ValueError(
                f"overlong_buffer={self.overlong_buffer} is longer than an answer may be "
                f"(max_new_tokens={self.max_new_tokens}); set it lower"
            )

    def also_locked(self) -> tuple[str, ...]:
        """A schedule that goes by `steps` would jump if a resumed run had another number."""
        constant = self.schedule == "constant" and not 0 < self.warmup < 1
        return () if constant else ("steps",)
