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
from dataclasses import dataclass, replace
from typing import Any

from assay.errors import TaskError
from assay.files import machine_failed
from assay.seeds import derive_seed
from assay.tables.plan import Unreadable
from data_gen.columns import look, look_at, speaks_of, words_of
from data_gen.dare.baseline import TREES, any_beats, design, forecasts
from data_gen.dare.bins import Resample, binned, choose, named, until
from data_gen.dare.database import (
    Built,
    Settings,
    Unproved,
    list_row,
    origin,
    published,
    texts_of,
    write_proved,
)
from data_gen.dare.layout import Frame, json_bytes
from data_gen.dare.series_files import Shape, sentences, shape_of, tables_of
from data_gen.dare.short import few_known, series_short, unfit_series
from data_gen.dare.sources import Listed, Source, database_name, fingerprints
from data_gen.dare.tabular import RATIOS
from data_gen.dare.targets import judge, near_ones
from data_gen.dare.time_columns import (
    Timed,
    are_things,
    doubled,
    entity_columns,
    entity_keys,
    find_time,
    is_regular,
    shifted,
    times_in,
    without_counters,
)
from data_gen.dare.wishes import Wish
from data_gen.dare.wording import cf_question, metadata_text, xf_question
from data_gen.dare.words import plain_about
from data_gen.leaks import is_number, tells_within, told_by_key
from data_gen.tally import Refusal


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


def build_series(source: Source, settings: Settings, built: Built, room: int = 1) -> None:
    """At most `room` databases, each with a target of its own; the reason is noted when a table
    with a time column gives none."""
    seed = derive_seed(settings.seed, source.name, "series")
    rng = random.Random(seed)
    wish = settings.wishes.of(source.name)
    asked = {one.target: one for one in source.listed if one.kind == "series"}
    if source.many and not asked and not wish.targets:
        return
    timed = opened(source, settings, built, wish.time)
    if timed is None:
        return
    texts = texts_of(source, [str(c) for c in timed.frame.columns])
    found = targets_of(timed, wish, list(asked), texts)
    built.refused += [why for why in found.values() if why is not None]
    numbers = [name for name, why in found.items() if why is None]
    rng.shuffle(numbers)
    for target in numbers[: 2 + room]:
        if len(built.rows) >= room:
            return
        one = asked.get(target)
        try:
            if why := _one(source, timed, target, rng, settings, built, wish, one):
                built.refuse("series", why, f"series {target}")
        except Unproved as error:
            built.refused.append(replace(error.why, where=f"series {target}"))


def opened(source: Source, settings: Settings, built: Built, time: str) -> Timed | None:
    """The table as a series; None, with the reason noted where it has one, when it is none."""
    try:
        raw = source.load()
    except TaskError as error:
        built.doubts += error.doubts if isinstance(error, Unreadable) else ()
        return built.refuse("unreadable", str(error))
    except Exception as error:  # a table of a package may be anything
        if machine_failed(error):
            raise
        return built.refuse("unreadable", f"unreadable: {type(error).__name__}: {error}"[:200])
    loaded, raw = raw, without_counters(raw)
    found = times_in(time, raw[time], said=True) if time in raw.columns else find_time(raw)
    if found is None:
        return None
    if not 150 <= len(raw) <= 20_000:
        return built.refuse("rows", "series: fewer than 150 rows, or more than 20,000")
    built.marks = fingerprints(loaded)
    if published(built.marks, settings):
        return built.refuse("published", "series: the table of a published evaluation database")
    column, when, form = found
    if not time and not source.many and (name := are_things(raw, column)):
        said = f"its rows are things that {name!r} names, with no series of times"
        return built.refuse("things", f"series: {said}; --time {column} takes them for one")
    words = entity_columns(raw, column)
    keys = entity_keys(raw, when, words)
    tried = [[], *([w] for w in words if keys is None)]
    if doubt := next((d for k in tried if (d := doubled(raw, column, when, k))), None):
        built.doubts.append(replace(doubt, path=source.path, part=source.part))
        return None
    if keys is None:
        return built.refuse("keys", "series: several rows have one time, and no column names them")
    if not time and not source.many and not is_regular(raw, when, keys):
        said = "series: its rows come at no regular times: single events, which nobody foresees"
        return built.refuse("events", said)
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
) -> tuple[list[str], str]:
    """(the exogenous columns and keys that may stand beside a target, "" or why it is refused).
    `one`: what `packages.yaml` says of the target."""
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
        return [], verdict.why
    if wish.features and verdict.left_out:
        name, how = next(iter(verdict.left_out.items()))
        return [], f"feature {name} gives the target away ({how}); leave it out of --features"
    left = set(verdict.left_out)
    if not wish.features and one is None:
        left |= set(near_ones(frame, target, exogenous))
        left |= {c for c in exogenous if look(c, frame[c]).kind in ("id", "code", "text", "date")}
    if keys:
        entity = frame.groupby(list(keys), sort=False).ngroup()
        numbers = [c for c in exogenous if is_number(frame[c]) and c not in left]
        left |= {c for c in numbers if tells_within(frame[c], frame[target], entity)}
    return [c for c in free if c not in left], ""


def split(timed: Timed, target: str, ratio: float, resample: Resample | None) -> Any:
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


def _one(
    source: Source,
    timed: Timed,
    target: str,
    rng: random.Random,
    settings: Settings,
    built: Built,
    wish: Wish,
    asked: Listed | None,
) -> str:
    """Write the database for one target; "" or why not."""
    resample = choose(timed, rng)
    if settings.mini:
        resample = None
        if why := unfit_series(len(timed.frame), [target, timed.column, *timed.keys]):
            return why
    if resample is not None and resample[1] == "sum" and not look(target, timed.frame[target]).adds:
        resample = (resample[0], "mean")
    # whether a series fits must not hang on the seed: every ratio is tried, in a drawn order
    drawn = ((r, split(timed, target, r, resample)) for r in rng.sample(RATIOS, len(RATIOS)))
    ratio, parts = next(((r, p) for r, p in drawn if _fits(p)), (0.0, None))
    if parts is None:
        return "too few rows, or whole bins, before or after the cut"
    others = [c for c in timed.frame.columns if c not in (target, "_when", timed.column)]
    kinds = {c: "numerical" if timed.frame[c].dtype.kind in "if" else "categorical" for c in others}
    known, why = beside(timed, target, others, wish, asked)
    if why:
        return why
    fewest = {c: timed.frame[c].nunique() for c in known}
    known = [c for c in known if fewest[c] > 1 and (kinds[c] == "numerical" or fewest[c] <= 60)]
    known = [c for c in known if c in timed.keys or not shifted(timed, target, c)]
    known += [k for k in timed.keys if k not in known]
    known = few_known(timed.frame, known, timed.keys) if settings.mini else known
    if not [c for c in known if c not in timed.keys]:
        return "no exogenous column is left"
    if why := _dull(timed, target, known, parts, resample):
        return why
    shape = Shape() if settings.mini else shape_of(timed, known, rng)
    plan = Plan(target, known, {**kinds, target: "numerical"}, ratio, resample, shape)
    tracks = [t for t in settings.wishes.variants("ts") if t in ("XF", "CF")]
    _write(source, timed, plan, parts, rng, settings, built, tracks)
    return ""


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


def _write(
    source: Source,
    timed: Timed,
    plan: Plan,
    parts: Parts,
    rng: random.Random,
    settings: Settings,
    built: Built,
    wanted: Sequence[str],
) -> None:
    """Write a database, proved, and its row of the question list. Raises `Unproved`."""
    target, shape, resample = plan.target, plan.shape, plan.resample
    question = {
        "target": [target],
        "problem_type": "time_series_analysis",
        "time_column": timed.column,
        "time_format": timed.form,
        "entity_columns": timed.keys,
        "is_resampled": resample is not None,
        "resample": list(resample) if resample else None,
        "resample_until": str(until(timed)) if resample else None,
        "train_test_ratio": plan.ratio,
        "prediction_starting_time": str(parts.cut),
        "contain_multiple_files": shape.several,
        "save_file_type": "csv",
        "related_features": plan.known,
        "column_type_inference": {n: plan.kinds[n] for n in [*plan.known, target]},
        "needed_files_v1": shape.needed("v1"),
        "needed_files_v2": shape.needed("v2"),
    }
    about = origin(source, timed.frame.drop(columns="_when"))
    name = database_name(source, target, "ts")
    files = tables_of(timed, target, plan.known, shape, (parts.early, parts.late, parts.answers))
    files["source/metadata.txt"] = _described(source, timed, plan).encode()
    files["verify/all_metadata.json"] = json_bytes({"question": question, "data_info": about})
    write_proved(source, settings, name, files)
    keys = [timed.column, *timed.keys]
    more = sentences(timed, shape)
    names = f" {named(resample[0])}" if resample else ""
    exogenous = xf_question(target, rng) + more["v1"]
    forecast = cf_question(target, keys, resample, rng) + names + more["v2"]
    if settings.mini:
        short = series_short(target, timed.column, timed.keys, plan.known, plan.kinds)
        exogenous, forecast = short["v1"], short["v2"]
        question |= {f"needed_files_{v}": shape.needed(v)[:2] for v in short}  # no metadata.txt
    asked = question | {
        "question_v1": exogenous if "XF" in wanted else "",
        "question_v2": forecast if "CF" in wanted else "",
    }
    built.rows.append(list_row(source, about, name, "time_series_analysis", asked))


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
