# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""One table → class and reg databases, each with an IF and an MM variant (spec 3.1 and 3.2)."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.files import machine_failed
from assay.seeds import derive_seed
from data_gen.dare.database import (
    Built,
    Settings,
    Unproved,
    list_row,
    loaded,
    origin,
    published,
    texts_of,
    write_proved,
)
from data_gen.dare.layout import KIND, Frame, json_bytes
from data_gen.dare.reference_solution import versions
from data_gen.dare.sources import Source, database_name, fingerprints, phrases, plain_about
from data_gen.dare.tabular import Candidate, files_of, metadata_json, propose, tabular_baseline
from data_gen.dare.targets import (
    LEAST_COLUMNS,
    LEAST_ROWS,
    Looked,
    Plan,
    clean,
    narrowed,
    plans,
)
from data_gen.dare.time_columns import is_one_series, keys_of
from data_gen.dare.validate import Proof, prove
from data_gen.dare.wishes import Wish
from data_gen.dare.wording import (
    few_columns,
    if_question,
    metadata_text,
    mini_question,
    mm_question,
    mm_short,
)
from data_gen.leaks import given_away

TRIES, OWN_TRIES = 2, 6  # drafts of a database, and of one of a user's own table


@dataclass(frozen=True)
class Table:
    """A table on its way to databases: what it holds, what is said of its columns, and the wish."""

    source: Source
    raw: Frame
    looked: Looked
    texts: Mapping[str, str]
    wish: Wish
    settings: Settings
    keys: frozenset[str] = frozenset()  # columns that with a time name its rows


def column_lines(texts: Mapping[str, str], looked: Looked) -> dict[str, str]:
    """A line for every column: what the source says, and what the values are."""
    said = phrases(list(looked.frame.columns), texts)
    out: dict[str, str] = {}
    for name in looked.frame.columns:
        values = looked.frame[name].dropna()
        if looked.kinds[name] == "numerical":
            fact = f"number from {values.min():g} to {values.max():g}"
        else:
            shown = sorted(map(str, values.unique()))[:6]
            fact = f"one of {len(values.unique())} categories, such as {', '.join(shown)}"
        text = texts.get(name, "")
        if name in said and not text.lower().startswith(said[name].lower()):
            text = f"{said[name]}; {text}"  # the words of the questions stand first
        out[name] = f"{text} ({fact})" if text else fact
    return out


def build_table(source: Source, settings: Settings, room: int) -> Built:
    """Up to `room` class and reg databases of one table; never raises for what a table is."""
    built = Built(source.name, licence=source.licence, once=source.once)
    try:
        table = opened(source, settings, built)
        if table is not None:
            _databases(table, built, derive_seed(settings.seed, source.name), room)
    except Exception as error:  # a table of a package may be anything
        if machine_failed(error):
            raise
        built.refuse("broke", f"broke: {type(error).__name__}: {error}"[:200])
    return built


def opened(source: Source, settings: Settings, built: Built) -> Table | None:
    """The table, ready to be asked about; None, with the reason noted, where it is not fit."""
    seed = derive_seed(settings.seed, source.name)
    wish = settings.wishes.of(source.name)
    listed = [one for one in source.listed if one.kind != "series"]
    if source.many and not listed and not wish.targets:
        return None
    if (raw := loaded(source, built)) is None:
        return None
    built.doubts += source.doubts
    texts = texts_of(source, [str(c).strip() for c in raw.columns])
    if not wish.targets and not listed and is_one_series(raw):
        said = "its rows are points of one series: no random split of them is fair"
        return built.refuse("series", said)
    looked = clean(raw, seed, texts, wish.named(), source.many)
    if looked is None:
        usable = f"fewer than {LEAST_COLUMNS} usable columns or {LEAST_ROWS} different rows"
        return built.refuse("small", usable)
    if lost := [n for n in (*wish.targets, *wish.features) if n not in looked.kinds]:
        said = "; ".join(f"{name}: {looked.lost[name]}" for name in lost)
        return built.refuse("unusable", said)
    built.marks = fingerprints(raw)
    if published(built.marks, settings):
        return built.refuse("published", "the table of a published evaluation database")
    return Table(source, raw, looked, texts, wish, settings, frozenset(keys_of(raw)))


def _databases(table: Table, built: Built, seed: int, room: int) -> None:
    source = table.source
    listed = () if table.wish.targets else source.listed
    made, refused = plans(table.looked, table.wish, table.settings, seed, listed)
    built.refused += refused
    if not table.wish.targets and not listed:
        made = [plan for plan in made if not set(plan.targets) & table.keys]
    for number, plan in enumerate(made[: 3 * room]):
        if len(built.rows) >= room:
            break
        own = random.Random(derive_seed(seed, number, plan.family, *plan.targets))
        where = f"{plan.family} {', '.join(plan.targets)}"
        try:
            if why := _database(table, plan, own, built):
                built.refuse("draft", why, where)
        except Unproved as error:
            built.refused.append(replace(error.why, where=where))
        except Exception as error:  # one odd table must not end a build of hundreds; it is counted
            if machine_failed(error):
                raise
            built.refuse("broke", f"broke: {type(error).__name__}: {error}"[:200], where)


def _database(table: Table, plan: Plan, rng: random.Random, built: Built) -> str:
    """Build and write one tabular database; "" or why it was refused. One of a user's own table is
    drafted several times, and comes without its IF variant when that cannot be proved."""
    own = not table.source.many or bool(table.wish.targets)
    bare, why = narrowed(table.looked, plan, table.wish, table.source.many)
    if bare is None:
        return why
    wanted = table.settings.wishes.variants(plan.family)
    mini = table.settings.mini
    if mini and "IF" not in wanted:
        return _short(table, plan, bare, rng, built)
    fit: Candidate | None = None
    for _ in range(OWN_TRIES if own else TRIES):
        made = propose(bare, plan.family, list(plan.targets), rng, mini)
        if made is None:
            return "too few rows or features"
        if why := _dull(made, mini):
            continue
        made = fit = _worded(made, table)
        if "IF" not in wanted:
            built.rows.append(_write(table, bare, made, None, rng, wanted))
            return ""
        proof, why = prove(made, rng)
        if proof is not None and (alike := _answers_alike(proof.answer)):
            proof, why = None, f"the reference gives every row one answer for {alike}"
        if proof is not None:
            built.rows.append(_write(table, bare, proof.made, proof, rng, wanted))
            return ""
    if fit is not None and own and "MM" in wanted:
        built.rows.append(_write(table, bare, fit, None, rng, wanted))
        return f"only the modelling task: {why}"
    return why


def _short(table: Table, plan: Plan, bare: Looked, rng: random.Random, built: Built) -> str:
    """A modelling task alone, of few columns, with a question of one line; "" or why not."""
    few = few_columns(bare, plan.targets, rng)
    if few is None:
        return "too few columns that a short question can name"
    made = propose(few, plan.family, list(plan.targets), rng, mini=False)
    if made is None:
        return "too few rows or features"
    if why := _dull(made, mini=False):
        return why
    made = replace(made, recipe={**made.recipe, "save_file_type": "csv"})
    built.rows.append(_write(table, few, made, None, rng, ("MM",)))
    return ""


def _answers_alike(answer: str) -> str:
    """A target of which all predictions are equal; "" where none is so."""
    import pandas as pd

    table = pd.read_csv(io.StringIO(answer))
    return next((str(c) for c in table.columns if len(table) > 1 and table[c].nunique() < 2), "")


def _dull(made: Candidate, mini: bool) -> str:
    """Why nobody learns from a draft: one feature gives the answers, or no model finds them."""
    names = made.recipe["related_features"]
    for target in made.recipe["target"]:
        test = made.test.assign(**{target: made.truth[target].to_numpy()})
        if told := given_away(made.train, test, target, names):
            return f"{next(iter(told))} alone gives the answers"
    return "" if mini else tabular_baseline(made)


def _worded(made: Candidate, table: Table) -> Candidate:
    """The draft with the words that its question uses for columns."""
    if table.settings.mini:
        return made
    names = made.recipe["not_filtered_related_features"]
    said = phrases(list(table.looked.frame.columns), table.texts)
    words = {n: said[n] for n in names if n in said}
    return replace(made, recipe={**made.recipe, "column_words": words})


def _write(
    table: Table,
    bare: Looked,
    made: Candidate,
    proof: Proof | None,
    rng: random.Random,
    wanted: Sequence[str],
) -> dict[str, Any]:
    """Write a database; returns its row of the question list. Without proof it has no IF
    variant."""
    source, settings, recipe = table.source, table.settings, made.recipe
    name = database_name(source, "-".join(recipe["target"]), made.family)
    about = origin(source, table.looked.frame)
    text = metadata_text(source.title, plain_about(source.about), column_lines(table.texts, bare))
    files = files_of(made, text, rng) | {
        "verify/all_metadata.json": metadata_json(made, name, about)
    }
    if proof is not None:
        files["verify/simulated_pred_local.csv"] = proof.answer.encode()
        files["verify/made_with.json"] = json_bytes(versions())
        files["verify/fitted.json"] = json_bytes(proof.fitted)
    write_proved(source, settings, name, files)
    asked = _asked(made, settings, proof is not None, rng, "MM" in wanted)
    return list_row(source, about, name, KIND[made.family], asked)


def _asked(
    made: Candidate, settings: Settings, proved: bool, rng: random.Random, modelling: bool
) -> dict[str, Any]:
    """The questions of the variants that are wanted, and the files they need."""
    recipe, ext = made.recipe, made.recipe["save_file_type"]
    ask = mini_question if settings.mini else if_question
    free = mm_short(recipe) if settings.mini else mm_question(recipe, rng) if modelling else ""
    described: Sequence[str] = [] if settings.mini else ["metadata.txt"]
    return {
        **recipe,
        "question_v1": ask(recipe, rng) if proved else "",
        "question_v2": free if modelling else "",
        "needed_files_v1": [f"train_v1.{ext}", f"val_v1.{ext}", *described],
        "needed_files_v2": [f"train_v2.{ext}", f"val_v2.{ext}", *described],
    }
