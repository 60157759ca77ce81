"""Rules that several sections share. Each raises `ValueError` naming the field, what it is and what
to set; the loader adds where it stands."""

from __future__ import annotations

from typing import Any


def at_least(section: Any, least: float, *names: str) -> None:
    for name in names:
        value = getattr(section, name)
        if value < least:
            raise ValueError(f"{name}={value} is too small; set {least:g} or more")


def share(section: Any, *names: str) -> None:
    for name in names:
        value = getattr(section, name)
        if not 0 <= value <= 1:
            raise ValueError(f"{name}={value} is not a share; set a number from 0 to 1")


def check_optimiser(betas: tuple[float, float], grad_clip: float) -> None:
    for i, beta in enumerate(betas):
        if not 0 <= beta < 1:
            raise ValueError(f"betas[{i}]={beta}: wanted 0 or more and below 1")
    if grad_clip < 0:
        raise ValueError(f"grad_clip={grad_clip}: wanted a number above 0 (0: off)")


def check_warmup(warmup: float) -> None:
    if warmup < 0 or warmup != int(warmup) > 0:
        raise ValueError(f"warmup={warmup:g}: wanted whole steps, or a share of them below 1")


def warmup_steps(warmup: float, steps: int) -> int:
    """Steps of warm-up: the setting itself, or below 1 that share of all `steps`, rounded."""
    return round(warmup * steps) if warmup < 1 else int(warmup)
