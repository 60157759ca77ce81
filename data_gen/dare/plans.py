# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""What a table is asked: families, their targets, and the features that may stand beside them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from data_gen.dare.analyse import Looked, refusals
from data_gen.dare.beside import OF_FEW, beside_none, two_give
from data_gen.dare.combined import made_of
from data_gen.dare.database import Settings
from data_gen.dare.made_with import made_with
from data_gen.dare.outcomes import best, outcomes_beside
from data_gen.dare.sources import Source
from data_gen.dare.targets import is_background, judge
from data_gen.dare.wishes import Wish, families_of
from rewards.seeds import derive_seed

SEVERAL = 0.2  # share of plans with two or three targets, as in the published tasks
_NO_MATTER = ("no numbers", "too few different", "numbers that are", "a class has")


@dataclass(frozen=True)
class Plan:
    """One database to try."""

    family: str
    targets: tuple[str, ...]
    rank: int = 0  # how little speaks for its first target (`outcomes.rank`)
    apart: frozenset[str] = frozenset()  # columns that are no features beside its targets


def plans(
    looked: Looked,
    texts: Mapping[str, str],
    wish: Wish,
    settings: Settings,
    seed: int,
    source: Source | None = None,
) -> tuple[list[Plan], list[str]]:
    """(what to try, what the source models first and families in turn; why columns that could be
    targets are none). `source`: where the table is from."""
    families = [f for f in ("class", "reg") if f in settings.wishes.kinds]
    if wish.targets:
        found = families_of(looked.frame, wish, settings.wishes)
        return [Plan(f, wish.targets) for f in found if f in families], []
    rng = random.Random(derive_seed(seed, "plans"))
    refused: list[str] = []
    turns: list[tuple[int, int, str, Plan]] = []
    fit: dict[str, list[str]] = {family: [] for family in families}
    for family in families:
        for name, why in refusals(looked, family, texts).items():
            why = why or ("it says who or where" if is_background(name) else "")
            if not why and name not in (*wish.features, wish.time):
                fit[family].append(name)
            elif why and "class" not in why and not why.startswith(_NO_MATTER):
                refused.append(f"{family} {name}: {why}")
    free = list(dict.fromkeys(name for names in fit.values() for name in names))
    about, title = (source.about, source.title) if source else ("", "")
    columns = list(map(str, looked.frame.columns))
    ranks = best(free, columns, texts, about, title)
    refused += [f"{name}: nothing says that it is an outcome" for name in free if name not in ranks]
    for family, listed in fit.items():
        names = [name for name in listed if name in ranks]
        rng.shuffle(names)
        names.sort(key=ranks.__getitem__)
        for i, name in enumerate(names):
            alike = [n for n in names if ranks[n] == ranks[name]]
            several = _several(looked, family, name, alike, rng)
            apart: set[str] = set()
            if source and source.many and not settings.less_sure:
                for one in several:
                    apart |= outcomes_beside(one, columns, texts, about, title)
            plan = Plan(family, several, rank=ranks[name], apart=frozenset(apart))
            turns.append((ranks[name], i, family, plan))
    order = [plan for *_, plan in sorted(turns, key=lambda t: t[:3])]
    alone = [replace(p, targets=p.targets[:1]) for p in order if len(p.targets) > 1]
    whole = (
        [replace(p, targets=p.targets[:1]) for p in order] if settings.mini else [*order, *alone]
    )
    return sorted(whole, key=lambda plan: plan.rank), list(dict.fromkeys(refused))


def _several(
    looked: Looked, family: str, first: str, names: list[str], rng: random.Random
) -> tuple[str, ...]:
    """The target alone, or, for some, with one or two more of its kind."""
    alike = [
        n
        for n in names
        if n != first and (family == "reg" or looked.kinds[n] == looked.kinds[first])
    ]
    if rng.random() >= SEVERAL or not alike or len(looked.kinds) < 5:
        return (first,)
    more = min(len(alike), 1 if rng.random() < 0.7 else 2, len(looked.kinds) - 3)
    return (first, *rng.sample(alike, more))


def narrowed(
    looked: Looked, plan: Plan, wish: Wish, near: float = OF_FEW
) -> tuple[Looked | None, str]:
    """The table without the features that give a target away; (None, why) where the target is
    refused or too little is left. `near`: the R2 from which on all numbers together give it."""
    targets = list(plan.targets)
    features = list(wish.features) or looked.features(targets)
    gone: dict[str, str] = {}
    drawn = not wish.targets
    for target in targets:
        verdict = judge(looked.frame, target, features, bool(wish.targets))
        if verdict.why:
            return None, verdict.why
        gone |= verdict.left_out
        others = [t for t in targets if t != target]
        if drawn:
            gone |= {f: "it is an outcome as well" for f in features if f in plan.apart}
            gone |= beside_none(looked.frame, target, features, looked.texts)
            free = [f for f in features if f not in gone]
            gone |= made_with(looked.frame, target, free, looked.texts)
            free = [f for f in features if f not in gone]
            if why := two_give(looked.frame, target, free, near):
                return None, why
            if kin := beside_none(looked.frame, target, others, looked.texts):
                return None, f"{next(iter(kin))}, another target, is too near"
        if told := judge(looked.frame, target, others, True).left_out:
            return None, f"{next(iter(told))}, another target, gives it"
        made, how = made_of(looked.frame, target, [*others, *features]) if others else ((), "")
        if set(made) & set(others):
            return None, f"{' and '.join(made[:4])} give it ({how})"
    if wish.features and gone:
        name, how = next(iter(gone.items()))
        return None, f"feature {name} gives the target away ({how}); leave it out of --features"
    keep = [c for c in looked.frame.columns if c in targets or (c in features and c not in gone)]
    least = 3 if drawn and gone else 2
    if len(keep) < len(targets) + least:
        return None, f"fewer than {'three' if least == 3 else 'two'} features are left"
    return Looked(looked.frame[keep], {c: looked.kinds[c] for c in keep}), ""
