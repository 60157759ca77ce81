"""The settings of supervised fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass

from configs.checks import at_least, check_optimiser, check_warmup
from configs.fields import fitted, locked


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
