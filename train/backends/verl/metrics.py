"""What verl logs of our rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def reward_metrics(infos: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over one step's rollouts, under the names of our own log."""
    values: dict[str, list[float]] = {}
    for info in infos:
        for name, value in info.items():
            values.setdefault(name, []).append(value)
    names = {"acc": "outcome/mean", "valid": "outcome/valid"}
    out: dict[str, float] = {}
    for name, found in values.items():
        key = names.get(name, f"rollout/{name}/mean")
        if name.startswith("part_"):
            key = f"reward/{name.removeprefix('part_')}/mean"
        out[key] = sum(found) / len(found)
    return out
