"""Numbers of one batch of scored rollouts, under the field's usual names."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rewards.task import Score
from rollouts.trajectory import Trajectory


def group_metrics(
    groups: Sequence[Sequence[Trajectory]], scores: Sequence[Sequence[Score]]
) -> dict[str, float]:
    """Rewards, outcomes, lengths and group statistics. Failed rollouts are counted apart.

    `by_group/frac_mixed` is the share of groups whose outcomes differ, `frac_zero_variance` the
    share whose rewards are all equal; both over groups with at least one scored rollout.
    """
    flat = [s for row in scores for s in row]
    scored = [s for s in flat if s.outcome is not None]
    lengths = [sum(t.loss_mask) for group in groups for t in group]
    stops = [t.stop for group in groups for t in group]
    out = {
        "response_length/mean": fmean(lengths),
        "response_length/max": float(max(lengths)),
        "response_length/clip_ratio": fmean([float(s == "length") for s in stops]),
        "rollouts/failed": float(len(flat) - len(scored)),
    }
    if not scored:
        return out
    out["reward/mean"] = fmean([s.reward or 0.0 for s in scored])
    out["outcome/mean"] = fmean([s.outcome or 0.0 for s in scored])
    names = sorted({name for s in scored for name in s.parts if not name.startswith("d_")})
    for name in names:
        out[f"reward/{name}/mean"] = fmean([s.parts.get(name, 0.0) for s in scored])
    out["no_answer"] = fmean([float(s.why in ("no_answer", "truncated")) for s in scored])
    mixed: list[float] = []
    flat_groups: list[float] = []
    for row in scores:
        kept = [s for s in row if s.outcome is not None]
        if kept:
            mixed.append(float(len({s.outcome for s in kept}) > 1))
            flat_groups.append(float(len({s.reward for s in kept}) == 1))
    out["by_group/frac_mixed"] = fmean(mixed)
    out["by_group/frac_zero_variance"] = fmean(flat_groups)
    return out
