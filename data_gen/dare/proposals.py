"""What an endpoint is asked about a table, and what of its answer is a proposal.

It sees the columns with what is said of them and a few rows, and answers with choices that the
builder has itself: the kind of task, target, features, the steps of a recipe, the time and the
resampling of a series. It sends no code and no gold; the split, the noise, the seeds and all
answers are the builder's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from data_gen.dare.bins import HOWS, RULES, Resample
from data_gen.dare.layout import Frame
from data_gen.dare.plans import Plan
from data_gen.dare.series import Wanted
from data_gen.dare.tabular import MODELS, Steps
from data_gen.dare.wishes import FAMILIES, Wish
from data_gen.dare.words import plain_about
from data_gen.proposing import Unfit, check_fields, short, text_in, texts_in

FIELDS = ("task", "tracks", "target", "features", "steps", "time", "resample")
STEPS = ("train_on", "filter", "impute", "model")
IMPUTERS = ("mean", "median", "most_frequent")
_TASKS = {"class": "class", "reg": "reg", "series": "ts"}
_TARGETS = 3  # at most
_ROWS, _COLUMNS, _ABOUT, _CELL = 5, 80, 1500, 60
_FORM = """\
Propose {asked} prediction tasks over this table that a data scientist would find worth doing. The
target must be a quantity or a class that somebody would want to know, not an identifier, a part of
a date, or a column that others give away. Reply with JSON alone: {{"proposals": [{{…}}, …]}}. A
proposal has these fields and no others. Write no code and no answers: they are computed.
- "task": {tasks}
- "target": a column, or a list of up to three for class and reg
- "features": the columns to predict from; leave it out for all that do not give the target away
- "tracks": what is asked: {tracks}; leave it out for all
- "steps", for the recipe of IF, each of it optional: {{"train_on": [features in the order of
  training], "filter": [columns whose range the training rows must keep], "impute": {imputers},
  "model": {models}}}
- "time", for series: the column of the time
- "resample", for series: [interval, aggregate] of {rules} and {hows}, or null for none
"""


@dataclass(frozen=True)
class Proposal:
    """One proposal, read: a plan for class and reg, a target and `wanted` for a series."""

    family: str
    plan: Plan
    wanted: Wanted

    @property
    def name(self) -> tuple[str, ...]:
        """What tells it from the others of its table."""
        return (self.family, *sorted(self.plan.targets))


def prompt(
    title: str,
    about: str,
    texts: Mapping[str, str],
    frame: Frame,
    kinds: Mapping[str, Sequence[str]],
    asked: int,
) -> str:
    """What an endpoint is asked about a table. `texts`: what is said of columns; `kinds`: family →
    tracks that the build wants."""
    columns = [str(c) for c in frame.columns][:_COLUMNS]
    lines = [f"Table: {title}", plain_about(about)[:_ABOUT].strip(), f"{len(frame)} rows. Columns:"]
    for place, name in enumerate(columns):
        text = texts.get(name.strip(), "")
        lines.append(f"- `{name}`: {text + '; ' if text else ''}{_fact(frame.iloc[:, place])}")
    lines.append("Some rows:")
    lines.append(" | ".join(columns))
    for row in frame.iloc[:_ROWS, : len(columns)].itertuples(index=False):
        lines.append(" | ".join(_cell(value) for value in row))
    tracks = [f"{word} has {', '.join(kinds[f])}" for word, f in _TASKS.items() if f in kinds]
    form = _FORM.format(
        asked=asked,
        tasks=", ".join(f'"{word}"' for word, family in _TASKS.items() if family in kinds),
        tracks="; ".join(tracks),
        imputers=", ".join(f'"{name}"' for name in IMPUTERS),
        models="; ".join(
            f"for {f} one of {', '.join(MODELS[f][:4])}" for f in MODELS if f in kinds
        ),
        rules=", ".join(RULES),
        hows=", ".join(HOWS),
    )
    return "\n".join([*(line for line in lines if line), "", form])


def _fact(column: Any) -> str:
    known = column.dropna()
    gaps = f", {column.isna().mean():.0%} missing" if len(known) < len(column) else ""
    if column.dtype.kind in "iuf" and len(known):
        return f"{known.nunique()} numbers from {known.min():g} to {known.max():g}{gaps}"
    shown = ", ".join(_cell(value) for value in known.map(str).value_counts().index[:4])
    return f"{known.map(str).nunique()} values, such as {shown or 'none'}{gaps}"


def _cell(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _CELL else f"{text[: _CELL - 2]} …"


def read(row: Mapping[str, Any], kinds: Mapping[str, Sequence[str]]) -> Proposal:
    """A proposal by its fields. Raises `Unfit` with the reason; columns are looked up later."""
    check_fields(row, FIELDS)
    task = text_in(row, "task")
    family = _TASKS.get(task, "")
    if family not in kinds:
        listed = ", ".join(word for word, own in _TASKS.items() if own in kinds)
        raise Unfit(f"task: {task[:40]!r} is none of {listed}")
    tracks = _tracks(texts_in(row, "tracks"), kinds[family])
    targets, features = texts_in(row, "target"), texts_in(row, "features")
    most = 1 if family == "ts" else _TARGETS
    if not 1 <= len(targets) <= most:
        raise Unfit(f"target: wanted {'one' if most == 1 else f'1 to {most}'}, not {len(targets)}")
    if set(targets) & set(features):
        raise Unfit(f"'{targets[0]}' is a target; it cannot be a feature as well")
    if len(features) == 1 and family != "ts":
        raise Unfit("features: wanted two or more, or none for all")
    steps = _steps(row.get("steps"), family)
    if family != "ts":
        for name in ("time", "resample"):
            if row.get(name) is not None:
                raise Unfit(f"{name}: only a series has one")
        return Proposal(family, Plan(family, targets, features, tracks, steps), Wanted())
    if row.get("steps"):
        raise Unfit("steps: a series has no recipe")
    wish = Wish((), features, text_in(row, "time"))
    wanted = Wanted(wish, "resample" in row, _resample(row.get("resample")), tracks)
    return Proposal(family, Plan(family, targets, features, tracks), wanted)


def _tracks(given: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    for name in given:
        if name not in known:
            raise Unfit(f"tracks: '{name[:20]}' is none of {', '.join(known)}")
    return tuple(given)


def _steps(value: Any, family: str) -> Steps:
    if value is None:
        return Steps()
    if not isinstance(value, dict):
        raise Unfit(f"steps: wanted an object, not {short(value)}")
    row = {str(k): v for k, v in cast("dict[Any, Any]", value).items()}
    check_fields(row, STEPS, " in steps")
    impute, model = text_in(row, "impute"), text_in(row, "model")
    if impute and impute not in IMPUTERS:
        raise Unfit(f"steps, impute: '{impute[:40]}' is none of {', '.join(IMPUTERS)}")
    if model and model not in (models := MODELS.get(family, ())[:4]):
        raise Unfit(f"steps, model: '{model[:40]}' is none of {', '.join(models)}")
    train_on, kept = texts_in(row, "train_on"), texts_in(row, "filter")
    if len(train_on) == 1:
        raise Unfit("steps, train_on: wanted two features or more")
    return Steps(train_on, kept, impute, model)


def _resample(value: Any) -> Resample | None:
    if value is None:
        return None
    items: list[Any] = cast("list[Any]", value) if isinstance(value, list) else []
    if len(items) != 2 or items[0] not in RULES or items[1] not in HOWS:
        raise Unfit(f"resample: {short(value)} is not one of {', '.join(RULES)} and of {HOWS}")
    return items[0], items[1]


def kinds_of(wanted: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Family → tracks, for the families that a build wants."""
    return {family: wanted[family] for family in FAMILIES if family in wanted}
