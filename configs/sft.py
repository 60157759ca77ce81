"""The settings of supervised fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass

from configs.checks import at_least, check_optimiser
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

    warmup: int = locked(5)
    """Steps of linear warm-up."""

    betas: tuple[float, float] = locked((0.9, 0.98))
    """Of AdamW."""

    weight_decay: float = locked(0.0)
    """Of AdamW."""

    grad_clip: float = locked(1.0)
    """Largest gradient norm."""

    max_length: int = fitted()
    """Prompt and answer, in tokens; longer examples are left out. auto: the longest example, as far
    as the model's context and memory allow (`--dry-run` says what that is)."""

    def __post_init__(self) -> None:
        at_least(self, 0, "warmup", "weight_decay", "lr", "max_length")
        at_least(self, 1, "epochs", "batch_size")
        check_optimiser(self.betas, self.grad_clip)
