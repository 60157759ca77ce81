# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""One table → a time-series database with an XF and a CF variant (spec 3.3).

One cut for both, on parsed time: the training file ends before every asked time point, so no CF
answer is in it. Resampling bins start at the cut.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.errors import pandas as pd
from assay.task import derive_seed
from data_gen.certificate import Refusal, Refused
from data_gen.columns import (
    Timed,
    are_things,
    doubled,
    entity_columns,
    entity_keys,
    find_time,
    is_regular,
    look,
    look_at,
    shifted,
    speaks_of,
    times_in,
    without_counters,
    words_of,
)
from data_gen.dare.database import (
    Database,
    DatabaseBuilder,
    Questions,
    loaded,
    mark,
    origin,
    texts_of,
)
from data_gen.dare.layout import Frame, csv_bytes, json_bytes
from data_gen.dare.leaks import is_number, tells_within, told_by_key
from data_gen.dare.models import TREES, any_beats, design, forecasts
from data_gen.dare.sources import Listed, Source, database_name
from data_gen.dare.tabular import RATIOS
from data_gen.dare.targets import Built, Settings, Wish, judge, near_ones, told_by
from data_gen.dare.wording import (
    cf_question,
    check_series,
    few_known,
    metadata_text,
    plain_about,
    quoted,
    series_short,
    xf_question,
)


@dataclass(frozen=True)
class Parts:
    """A series cut in two: training rows, later rows, and the answers without covariates."""

    early: Frame
    late: Frame
    answers: Frame
    cut: Any


@dataclass(frozen=True)
class Plan:
    """What is asked of a series: `known` are the columns beside the target, keys included."""

    target: str
    known: list[str]
    kinds: dict[str, str]
    ratio: float
    resample: Resample | None
    shape: Shape


@dataclass(frozen=True)
class Draft:
    """One target to try; `asked` is what `packages.yaml` says of it."""

    timed: Timed
    target: str
    asked: Listed | None
    rng: random.Random


@dataclass(frozen=True)
class SeriesDatabase(Database):
    """A database of a series, and what it asks."""

    plan: Plan = field(kw_only=True)


class SeriesBuilder(DatabaseBuilder[Draft, SeriesDatabase]):
    """Time-series databases of one table, each with a target of its own."""

    def drafts(self, source: Source, rng: random.Random, made: Sequence[Any]) -> Iterator[Draft]:
        """The columns that can be forecast, in a drawn order. Raises `Refused` where a table with a
        time column has none."""
        rng = random.Random(derive_seed(self.settings.seed, source.name, "series"))
        asked = {one.target: one for one in source.listed if one.kind == "series"}
        if source.many and not asked and not self.wish.targets:
            return
        timed = opened(source, self.settings, self.built, self.wish.time)
        if timed is None:
            return
        texts = texts_of(source, [str(c) for c in timed.frame.columns])
        found = targets_of(timed, self.wish, list(asked), texts)
        self.built.refused += [why for why in found.values() if why is not None]
        numbers = [name for name, why in found.items() if why is None]
        rng.shuffle(numbers)
        for target in numbers[: 2 + self.room]:
            yield Draft(timed, target, asked.get(target), rng)

    def gold(self, draft: Draft) -> SeriesDatabase:
        """One cut for both variants, and what may stand beside the target."""
        timed, target, rng, frame = draft.timed, draft.target, draft.rng, draft.timed.frame
        mini = self.settings.mini
        resample = choose(timed, rng)
        if mini:
            resample = None
            check_series(len(frame), [target, timed.column, *timed.keys])
        if resample is not None and resample[1] == "sum" and not look(target, frame[target]).adds:
            resample = (resample[0], "mean")
        # whether a series fits must not hang on the seed: every ratio is tried, in a drawn order
        drawn = ((r, split(timed, target, r, resample)) for r in rng.sample(RATIOS, len(RATIOS)))
        ratio, parts = next(((r, p) for r, p in drawn if _fits(p)), (0.0, None))
        if parts is None:
            raise Refused("series", "too few rows, or whole bins, before or after the cut")
        others = [c for c in frame.columns if c not in (target, "_when", timed.column)]
        kinds = {c: "numerical" if frame[c].dtype.kind in "if" else "categorical" for c in others}
        known = beside(timed, target, others, self.wish, draft.asked)
        fewest = {c: frame[c].nunique() for c in known}
        known = [c for c in known if fewest[c] > 1 and (kinds[c] == "numerical" or fewest[c] <= 60)]
        known = [c for c in known if c in timed.keys or not shifted(timed, target, c)]
        known += [k for k in timed.keys if k not in known]
        known = few_known(frame, known, timed.keys) if mini else known
        if not [c for c in known if c not in timed.keys]:
            raise Refused("series", "no exogenous column is left")
        if why := _dull(timed, target, known, parts, resample):
            raise Refused("series", why)
        shape = Shape() if mini else shape_of(timed, known, rng)
        plan = Plan(target, known, {**kinds, target: "numerical"}, ratio, resample, shape)
        return self._filled(timed, plan, parts)

    def _filled(self, timed: Timed, plan: Plan, parts: Parts) -> SeriesDatabase:
        """The database's files."""
        source, resample = self.source, plan.resample
        recipe = {
            "target": [plan.target],
            "problem_type": "time_series_analysis",
            "time_column": timed.column,
            "time_format": timed.form,
            "entity_columns": timed.keys,
            "is_resampled": resample is not None,
            "resample": list(resample) if resample else None,
            "resample_until": str(until(timed)) if resample else None,
            "train_test_ratio": plan.ratio,
            "prediction_starting_time": str(parts.cut),
            "contain_multiple_files": plan.shape.several,
            "save_file_type": "csv",
            "related_features": plan.known,
            "column_type_inference": {n: plan.kinds[n] for n in [*plan.known, plan.target]},
            "needed_files_v1": plan.shape.needed("v1"),
            "needed_files_v2": plan.shape.needed("v2"),
        }
        about = origin(source, timed.frame.drop(columns="_when"))
        files = tables_of(timed, plan, parts)
        files["source/metadata.txt"] = _described(source, timed, plan).encode()
        files["verify/all_metadata.json"] = json_bytes({"question": recipe, "data_info": about})
        if self.settings.mini:  # no metadata.txt
            recipe |= {f"needed_files_{v}": plan.shape.needed(v)[:2] for v in ("v1", "v2")}
        name = database_name(source, plan.target, "ts")
        return SeriesDatabase(name, about, recipe, files, plan=plan)

    def words(self, draft: Draft, gold: SeriesDatabase) -> Questions:
        """The questions of XF and CF."""
        timed, plan, rng = draft.timed, gold.plan, draft.rng
        more = sentences(timed, plan.shape)
        names = f" {named(plan.resample[0])}" if plan.resample else ""
        keys = [timed.column, *timed.keys]
        exogenous = xf_question(plan.target, rng) + more["v1"]
        forecast = cf_question(plan.target, keys, plan.resample, rng) + names + more["v2"]
        if self.settings.mini:
            short = series_short(plan.target, timed.column, timed.keys, plan.known, plan.kinds)
            exogenous, forecast = short["v1"], short["v2"]
        wanted = self.settings.wishes.variants("ts")
        return exogenous if "XF" in wanted else "", forecast if "CF" in wanted else ""

    def inputs(self, draft: Draft) -> list[str]:
        return [f"series {draft.target}"]


def opened(source: Source, settings: Settings, built: Built, time: str) -> Timed | None:
    """The table as a series; None where it has no time column, or is in doubt. Raises `Refused`
    where it is none that can be asked."""
    whole = loaded(source, built)
    raw = without_counters(whole)
    found = times_in(time, raw[time], said=True) if time in raw.columns else find_time(raw)
    if found is None:
        return None
    if not 150 <= len(raw) <= 20_000:
        raise Refused("rows", "series: fewer than 150 rows, or more than 20,000")
    mark(built, whole, settings)
    column, when, form = found
    free = not time and not source.many
    if free and (name := are_things(raw, column)):
        said = f"its rows are things that {name!r} names, with no series of times"
        raise Refused("things", f"series: {said}; --time {column} takes them for one")
    words = entity_columns(raw, column)
    keys = entity_keys(raw, when, words)
    tried = [[], *([w] for w in words if keys is None)]
    if doubt := next((d for k in tried if (d := doubled(raw, column, when, k))), None):
        built.doubts.append(replace(doubt, path=source.path, part=source.part))
        return None
    if keys is None:
        raise Refused("keys", "series: several rows have one time, and no column names them")
    if free and not is_regular(raw, when, keys):
        said = "series: its rows come at no regular times: single events, which nobody foresees"
        raise Refused("events", said)
    return Timed(raw.assign(_when=when), column, form, keys)


def targets_of(
    timed: Timed, wish: Wish, listed: Sequence[str], texts: Mapping[str, str]
) -> dict[str, Refusal | None]:
    """Column → why it cannot be forecast, None where it can. A wished or listed target is refused
    only when it is no number in every row, or the keys of a row give it."""
    frame, chosen = timed.frame, [*(wish.targets or listed)]
    sense = look_at(frame.drop(columns="_when"), texts)
    found: dict[str, Refusal | None] = {}
    for name in chosen or [str(c) for c in frame.columns]:
        if name in ("_when", timed.column, *timed.keys) or name not in frame:
            continue
        found[name] = None
        column, what = frame[name], f"series {name}"
        if column.dtype.kind not in "if" or column.nunique() < 30 or column.isna().any():
            said = "not a number in every row with 30 different values"
            found[name] = Refusal("unfit", said, what)
        elif not chosen and sense[name].kind != "measure":
            found[name] = Refusal(sense[name].kind, sense[name].why or "no measure", what)
        elif not chosen and speaks_of(words_of(name), "who"):
            found[name] = Refusal("who", "it says who or what a row is of", what)
        elif why := told_by_key(frame, name, frame["_when"], timed.keys):
            found[name] = Refusal("given", why, what)
    return found


def beside(
    timed: Timed, target: str, others: Sequence[str], wish: Wish, one: Listed | None
) -> list[str]:
    """The exogenous columns and keys that may stand beside a target; `one` is what `packages.yaml`
    says of it. Raises `Refused` where the target may not be asked for."""
    frame, keys = timed.frame, timed.keys
    apart = one.without if one is not None else frozenset[str]()
    free = [
        c
        for c in others
        if c in keys or c in wish.features or (not wish.features and c not in apart)
    ]
    exogenous = [c for c in free if c not in keys]
    verdict = judge(frame[[*exogenous, target]], target, exogenous, bool(wish.targets))
    if verdict.why:
        raise Refused("series", verdict.why)
    if wish.features and verdict.left_out:
        raise Refused("series", told_by(verdict.left_out))
    left = set(verdict.left_out)
    if not wish.features and one is None:
        left |= set(near_ones(frame, target, exogenous))
        left |= {c for c in exogenous if look(c, frame[c]).kind in ("id", "code", "text", "date")}
    if keys:
        entity = frame.groupby(list(keys), sort=False).ngroup()
        numbers = [c for c in exogenous if is_number(frame[c]) and c not in left]
        left |= {c for c in numbers if tells_within(frame[c], frame[target], entity)}
    return [c for c in free if c not in left]


def split(timed: Timed, target: str, ratio: float, resample: Resample | None) -> Parts | None:
    """(training rows, later rows, CF answers: time, keys, target); one cut on parsed time. None:
    no whole bin lies after it."""
    frame, keys = timed.frame, timed.keys
    cut = frame["_when"].sort_values().iloc[int(len(frame) * ratio)]
    if resample is None:
        asked = frame[frame["_when"] >= cut].assign(_bin=frame["_when"])
    else:
        whole = binned(timed, target, resample)
        cut = whole["_start"][whole["_start"] >= cut].min()
        asked = whole[(whole["_start"] >= cut) & (whole["_end"] <= until(timed))]
        if asked.empty:
            return None
    late = frame[frame["_when"] >= cut].sort_values(["_when", *keys], kind="stable")
    early = frame[frame["_when"] < cut]
    answers = asked.sort_values([*keys, "_bin"], kind="stable").reset_index(drop=True)
    answers[timed.column] = answers["_bin"].dt.strftime(timed.form)
    return Parts(early, late, answers[[timed.column, *keys, target]], cut)


def _fits(parts: Parts | None) -> bool:
    if parts is None or len(parts.early) < 100:
        return False
    return min(len(parts.late), len(parts.answers)) >= 10


def _dull(
    timed: Timed, target: str, known: list[str], parts: Parts, resample: Resample | None
) -> str:
    """Why nobody learns from a series: no simple model, or no forecast, finds its answers."""
    early, late = parts.early, parts.late
    told = any_beats(late[target], forecasts(early, late, "_when", timed.keys, target))
    if not told and not any_beats(late[target], _with_known(early, late, target, known)):
        return "XF: no simple model beats a constant answer"
    if resample is None:
        return "" if told else "CF: no simple forecast beats a constant answer"
    if parts.answers[target].nunique() < 5:
        return "CF: the resampled answers hardly vary"
    whole = binned(timed, target, resample)
    before, asked = whole[whole["_start"] < parts.cut], whole[whole["_start"] >= parts.cut]
    if not any_beats(asked[target], forecasts(before, asked, "_bin", timed.keys, target)):
        return "CF: no simple forecast beats a constant answer"
    return ""


def _with_known(early: Frame, late: Frame, target: str, known: list[str]) -> Iterator[Any]:
    """Answers from the covariates alone, by a small forest."""
    from sklearn.ensemble import ExtraTreesRegressor

    x, z = design(early.fillna(0), late.fillna(0), known)
    for trees in TREES:
        model = ExtraTreesRegressor(trees, random_state=0, min_samples_leaf=2)
        yield model.fit(x, early[target]).predict(z)


def _described(source: Source, timed: Timed, plan: Plan) -> str:
    """metadata.txt."""
    columns = [timed.column, *plan.known, plan.target]
    texts = texts_of(source, columns)
    facts = {c: _fact(timed.frame[c]) for c in columns}
    lines = {c: f"{texts[c]} ({f})" if c in texts else f for c, f in facts.items()}
    return metadata_text(source.title, plain_about(source.about), lines)


def _fact(column: Any) -> str:
    if column.dtype.kind in "if":
        return f"number from {column.min():g} to {column.max():g}"
    return f"one of {column.nunique()} values, such as {str(column.iloc[0])[:40]}"


# --- resampling as the published tasks do it: a rule and an aggregate, entity by entity ---
# A bin is named by its start; a week, ending on Sunday, and a month by their last day, as pandas
# names them. Bins without rows have no mean and no sum, and count 0.

HOWS = ("mean", "sum", "count")
LEAST = 40  # bins that are worth forecasting from
_PANDAS = {"1min": "1min", "30min": "30min", "1H": "1h", "1D": "1D", "1W": "1W", "1M": "1ME"}
_FITS = (  # a series with a row every so many seconds at most → its rules
    (20, ("1min",)),
    (600, ("30min", "1H")),
    (6 * 3600, ("1D",)),
    (2 * 86400, ("1W", "1M")),
    (10 * 86400, ("1M",)),
)
Resample = tuple[str, str]


def choose(timed: Timed, rng: random.Random) -> Resample | None:
    """A rule and an aggregate that fit a series, for some of those that any fits."""
    if timed.form == "%Y" or rng.random() >= 0.5:
        return None
    rules, hows = fitting(timed)
    return (rng.choice(rules), rng.choice(hows)) if rules else None


def fitting(timed: Timed) -> tuple[list[str], tuple[str, ...]]:
    """(the rules, the aggregates) that fit a series; no rules where none does."""
    gaps = _gaps(timed)
    if timed.form == "%Y" or not len(gaps):
        return [], HOWS
    step = float(gaps.median())
    rules = next((rules for most, rules in _FITS if step <= most), ())
    uneven = bool(gaps.std() > 0.5 * gaps.mean())
    return [r for r in rules if _many(timed, r)], HOWS if uneven else HOWS[:2]


def _gaps(timed: Timed) -> Any:
    """Seconds between one time of an entity and the next."""
    frame = timed.frame.sort_values([*timed.keys, "_when"], kind="stable")
    times = frame.groupby(timed.keys)["_when"] if timed.keys else frame["_when"]
    return times.diff().dt.total_seconds().dropna()


def _many(timed: Timed, rule: str) -> bool:
    """Whether an entity has enough bins, and far fewer of them than rows."""
    span = timed.frame["_when"].max() - timed.frame["_when"].min()
    entities = len(timed.frame[timed.keys].drop_duplicates()) if timed.keys else 1
    bins = span / _length(rule)
    return bins >= LEAST and len(timed.frame) / entities >= 2.5 * bins


def _length(rule: str) -> Any:
    return pd.Timedelta(days=30) if rule == "1M" else pd.Timedelta(_PANDAS[rule])


def binned(timed: Timed, target: str, resample: Resample) -> Frame:
    """Every bin that has a value: the keys, `_bin` (its name), `_start`, `_end`, the target."""
    rule, how = resample
    frame = timed.frame
    grouped = frame.groupby(timed.keys, sort=True) if timed.keys else [((), frame)]
    parts: list[Any] = []
    for names, part in grouped:
        values = part.set_index("_when")[target].resample(_PANDAS[rule])
        found = values.sum(min_count=1) if how == "sum" else values.agg(how)
        rows = found.dropna().rename(target).rename_axis("_bin").reset_index()
        parts.append(rows.assign(**dict(zip(timed.keys, names, strict=True))))
    whole = pd.concat(parts, ignore_index=True)
    whole["_start"] = _start(whole["_bin"], rule)
    over = pd.offsets.MonthBegin(1) if rule == "1M" else pd.Timedelta(_PANDAS[rule])
    whole["_end"] = whole["_start"] + over
    return whole


def _start(labels: Any, rule: str) -> Any:
    if rule == "1W":
        return labels - pd.Timedelta(days=6)
    return labels.dt.to_period("M").dt.start_time if rule == "1M" else labels


def until(timed: Timed) -> Any:
    """The moment up to which the series is whole: one usual step after its last time."""
    last = timed.frame["_when"].max()
    return last + pd.Timedelta(seconds=float(_gaps(timed).median()))


def named(rule: str) -> str:
    """How a bin is named, in words."""
    if rule == "1W":
        return "A week runs from Monday to Sunday and is named by its Sunday."
    if rule == "1M":
        return "A month is a calendar month and is named by its last day."
    return "An interval is named by the moment at which it begins."


# --- files: one table, or several that have to be joined ---
# Some series stand in several files, as the published ones with `contain_multiple_files`: what does
# not change over time in `entities.csv`, a row an entity; or the covariates in files of their own,
# by time and entity. Forecasts without covariates are never handed the later ones.

ONE, ENTITIES, COVARIATES = "one", "entities", "covariates"


@dataclass(frozen=True)
class Shape:
    """How a series lies in files: `moved` are the columns that stand beside the target's file."""

    kind: str = ONE
    moved: tuple[str, ...] = ()

    @property
    def several(self) -> bool:
        return self.kind != ONE

    def needed(self, variant: str) -> list[str]:
        """The files of a variant, `v1` (with covariates) or `v2`."""
        more = ["entities.csv"] if self.kind == ENTITIES else []
        if self.kind == COVARIATES:
            more = ["covariates_train.csv"]
            more += ["covariates_val.csv"] if variant == "v1" else []
        return ["train.csv", f"val_{variant}.csv", *more, "metadata.txt"]


def shape_of(timed: Timed, known: Sequence[str], rng: random.Random) -> Shape:
    """One file for most series; for some, what does not change by entity, or the covariates, stand
    apart."""
    free = [name for name in known if name not in timed.keys]
    steady = [name for name in free if timed.keys and _steady(timed, name)]
    apart = rng.random()
    if steady and apart < 0.6:
        return Shape(ENTITIES, tuple(steady))
    if len(free) >= 2 and apart < 0.25:
        return Shape(COVARIATES, tuple(free))
    return Shape()


def _steady(timed: Timed, name: str) -> bool:
    """Whether an entity has one value throughout."""
    return bool((timed.frame.groupby(timed.keys)[name].nunique(dropna=False) <= 1).all())


def tables_of(timed: Timed, plan: Plan, parts: Parts) -> dict[str, bytes]:
    """Tables and ground truths by their place in the database."""
    early, late, answers = parts.early, parts.late, parts.answers
    target, shape, keys = plan.target, plan.shape, [timed.column, *timed.keys]
    stay = [name for name in plan.known if name not in shape.moved]
    columns = [timed.column, *stay, target]

    def written(frame: Frame, names: Sequence[str]) -> Frame:
        out = frame[list(names)].copy()
        out[timed.column] = frame["_when"].dt.strftime(timed.form)
        return out.reset_index(drop=True)

    test = written(late, columns)
    test.insert(0, "row_id", range(1, len(test) + 1))
    files = {
        "source/train.csv": csv_bytes(written(early, columns)),
        "source/val_v1.csv": csv_bytes(test.drop(columns=target)),
        "source/val_v2.csv": csv_bytes(answers[keys]),
        "verify/ground_truth_v1.csv": csv_bytes(test[["row_id", target]]),
        "verify/ground_truth_v2.csv": csv_bytes(answers[[*keys, target]]),
    }
    moved = list(shape.moved)
    if shape.kind == COVARIATES:
        for name, frame in (("train", early), ("val", late)):
            files[f"source/covariates_{name}.csv"] = csv_bytes(written(frame, [*keys, *moved]))
    if shape.kind == ENTITIES:
        rows = timed.frame[[*timed.keys, *moved]].drop_duplicates(subset=timed.keys)
        files["source/entities.csv"] = csv_bytes(rows.sort_values(timed.keys))
    return files


def sentences(timed: Timed, shape: Shape) -> Mapping[str, str]:
    """What the question of each variant says of further files."""
    if shape.kind == ENTITIES:
        said = (
            f" `entities.csv` holds what does not change over time ({quoted(shape.moved)}), one "
            f"row for each {' and '.join(f'`{k}`' for k in timed.keys)}."
        )
        return {"v1": said, "v2": said}
    if shape.kind == COVARIATES:
        on = " and ".join(f"`{k}`" for k in [timed.column, *timed.keys])
        past = f" `covariates_train.csv` holds {quoted(shape.moved)} for the rows of `train.csv`"
        return {
            "v1": f"{past}, `covariates_val.csv` those of `val_v1.csv`; both are joined on {on}.",
            "v2": f"{past}, to be joined on {on}.",
        }
    return {"v1": "", "v2": ""}
