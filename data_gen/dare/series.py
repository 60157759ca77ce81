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
from typing import Any

from data_gen.dare.baseline import FLOOR_R2, best_r2, design, forecasts
from data_gen.dare.database import Built, Settings, list_row, origin, published, texts_of
from data_gen.dare.layout import Frame, csv_bytes, json_bytes, write_database
from data_gen.dare.series_targets import beside, series_targets
from data_gen.dare.sources import Source, database_name, fingerprints
from data_gen.dare.time_columns import (
    Timed,
    entity_columns,
    entity_keys,
    find_time,
    without_counters,
)
from data_gen.dare.wishes import wished_time
from data_gen.dare.wording import cf_question, metadata_text, xf_question
from data_gen.dare.words import plain_about
from rewards.seeds import derive_seed


def build_series(source: Source, settings: Settings, built: Built, room: int = 1) -> None:
    """At most `room` databases, each with a target of its own; the reason is noted when a table
    with a time column gives none."""
    seed = derive_seed(settings.seed, source.name, "series")
    rng = random.Random(seed)
    try:
        raw = source.load()
    except Exception:
        return
    if not 150 <= len(raw) <= 20_000:
        built.refused.append("series: fewer than 150 rows, or more than 20,000")
        return
    loaded, raw = raw, without_counters(raw)
    wish = settings.wishes.of(source.name)
    time = wished_time(raw, wish.time) if wish.time in raw.columns else find_time(raw)
    if time is None:
        return
    built.marks = fingerprints(loaded)
    if published(built.marks, settings):
        built.refused.append("series: the table of a published evaluation database")
        return
    column, when, form = time
    named = entity_columns(raw, column)  # names before codes: people say the state, not its number
    keys = entity_keys(raw, when, sorted(named, key=lambda c: raw[c].dtype.kind in "iuf"))
    if keys is None:
        built.refused.append("series: nothing names a row but the row")
        return
    timed = Timed(raw.assign(_when=when), column, form, keys)
    numbers, refused = series_targets(timed, source, wish)
    built.refused += refused
    rng.shuffle(numbers)
    for target in numbers[: 2 + room]:
        if len(built.rows) >= room:
            return
        why = _one(source, timed, target, rng, settings, built)
        if why:
            built.refused.append(f"series {target}: {why}")


def _resampling(timed: Timed, rng: random.Random) -> tuple[str, str] | None:
    """A rule and an aggregate for some series of days without entities."""
    days = timed.frame["_when"].sort_values().diff().dt.days.median()
    if timed.keys or timed.form == "%Y" or not days <= 2 or len(timed.frame) < 600:
        return None
    return ("1W", rng.choice(("mean", "sum"))) if rng.random() < 0.5 else None


def split(timed: Timed, target: str, ratio: float, resample: tuple[str, str] | None) -> Any:
    """(training rows, later rows, CF answers: time, keys, target); one cut on parsed time."""
    import pandas as pd

    frame, answers = timed.frame, None
    cut = frame["_when"].sort_values().iloc[int(len(frame) * ratio)]
    if resample is not None:
        binned = frame.set_index("_when")[target].resample(resample[0]).agg(resample[1])
        starts = binned.index - pd.Timedelta(days=6)
        first = starts[starts >= cut.normalize()].min()
        if pd.isna(first):
            return None
        asked = binned[starts >= first].dropna().reset_index()
        cut = first
        answers = asked.rename(columns={"_when": timed.column, target: target})
        answers[timed.column] = answers[timed.column].dt.strftime(timed.form)
    late = frame[frame["_when"] >= cut].sort_values(["_when", *timed.keys], kind="stable")
    early = frame[frame["_when"] < cut]
    if answers is None:
        answers = late.sort_values([*timed.keys, "_when"], kind="stable")
        answers = answers[[timed.column, *timed.keys, target]].astype({timed.column: str})
        answers[timed.column] = late.loc[answers.index, "_when"].dt.strftime(timed.form)
    return early, late, answers.reset_index(drop=True)


def _one(
    source: Source, timed: Timed, target: str, rng: random.Random, settings: Settings, built: Built
) -> str:
    """Write the database for one target; "" or why not."""
    ratio = rng.choice((0.7, 0.8, 0.9))
    resample = _resampling(timed, rng)
    parts = split(timed, target, ratio, resample)
    if parts is None:
        return "no whole bin after the cut"
    early, late, answers = parts
    if len(early) < 100 or min(len(late), len(answers)) < 10:
        return "too few rows before or after the cut"
    others = [c for c in timed.frame.columns if c not in (target, "_when", timed.column)]
    kinds = {c: "numerical" if timed.frame[c].dtype.kind in "if" else "categorical" for c in others}
    known, why = beside(timed, target, others, settings.wishes.of(source.name))
    if why:
        return why
    known = [c for c in known if kinds[c] == "numerical" or timed.frame[c].nunique() <= 60]
    known += [k for k in timed.keys if k not in known]
    if not [c for c in known if c not in timed.keys]:
        return "no exogenous column is left"
    guesses = forecasts(early, late, "_when", timed.keys, target)
    x, z = design(early.fillna(0), late.fillna(0), known)
    from sklearn.ensemble import ExtraTreesRegressor

    model = ExtraTreesRegressor(40, random_state=0, min_samples_leaf=2).fit(x, early[target])
    if best_r2(late[target], guesses | {"known": model.predict(z)}) < FLOOR_R2:
        return "XF: no simple model beats a constant answer"
    if resample is None and best_r2(late[target], guesses) < FLOOR_R2:
        return "CF: no simple forecast beats a constant answer"
    if resample is not None and answers[target].nunique() < 5:
        return "CF: the resampled answers hardly vary"
    _write(
        source, timed, target, known, (early, late, answers), resample, ratio, rng, settings, built
    )
    return ""


def _write(
    source: Source,
    timed: Timed,
    target: str,
    known: list[str],
    parts: Any,
    resample: tuple[str, str] | None,
    ratio: float,
    rng: random.Random,
    settings: Settings,
    built: Built,
) -> None:
    early, late, answers = parts
    question = {
        "target": [target],
        "problem_type": "time_series_analysis",
        "time_column": timed.column,
        "time_format": timed.form,
        "is_resampled": resample is not None,
        "resample": list(resample) if resample else None,
        "train_test_ratio": ratio,
        "prediction_starting_time": str(late["_when"].min()),
        "contain_multiple_files": False,
        "save_file_type": "csv",
        "related_features": known,
        "needed_files_v1": ["train.csv", "val_v1.csv", "metadata.txt"],
        "needed_files_v2": ["train.csv", "val_v2.csv", "metadata.txt"],
    }
    about = origin(source, timed.frame.drop(columns="_when"))
    name = database_name(source, target, "ts")
    files = _files(source, timed, target, known, early, late, answers)
    files["verify/all_metadata.json"] = json_bytes({"question": question, "data_info": about})
    write_database(settings.out, name, files)
    keys = [timed.column, *timed.keys]
    wanted = settings.wishes.variants("ts")
    asked = question | {
        "question_v1": xf_question(target, rng) if "XF" in wanted else "",
        "question_v2": cf_question(target, keys, resample, rng) if "CF" in wanted else "",
    }
    built.rows.append(list_row(source, about, name, "time_series_analysis", asked))


def _files(
    source: Source,
    timed: Timed,
    target: str,
    known: list[str],
    early: Frame,
    late: Frame,
    answers: Frame,
) -> dict[str, bytes]:
    """The files of a database, but for its description: tables, metadata.txt and ground truth."""
    keys, columns = [timed.column, *timed.keys], [timed.column, *known, target]

    def written(frame: Frame) -> Frame:
        out = frame[columns].copy()
        out[timed.column] = frame["_when"].dt.strftime(timed.form)
        return out.reset_index(drop=True)

    test = written(late)
    test.insert(0, "row_id", range(1, len(test) + 1))
    texts = texts_of(source, columns)
    facts = {c: _fact(timed.frame[c]) for c in columns}
    lines = {c: f"{texts[c]} ({f})" if c in texts else f for c, f in facts.items()}
    return {
        "source/train.csv": csv_bytes(written(early)),
        "source/val_v1.csv": csv_bytes(test.drop(columns=target)),
        "source/val_v2.csv": csv_bytes(answers[keys]),
        "source/metadata.txt": metadata_text(
            source.title, plain_about(source.about), lines
        ).encode(),
        "verify/ground_truth_v1.csv": csv_bytes(test[["row_id", target]]),
        "verify/ground_truth_v2.csv": csv_bytes(answers[[*keys, target]]),
    }


def _fact(column: Any) -> str:
    if column.dtype.kind in "if":
        return f"number from {column.min():g} to {column.max():g}"
    return f"one of {column.nunique()} values, such as {str(column.iloc[0])[:40]}"
