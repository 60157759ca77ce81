# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""One table → class and reg databases, each with an IF and an MM variant (spec 3.1 and 3.2)."""

from __future__ import annotations

import random
from typing import Any

from data_gen.dare.analyse import Looked, class_targets, clean, giveaways, number_targets
from data_gen.dare.baseline import tabular_baseline
from data_gen.dare.database import Built, Settings, Unproved, list_row, origin, published, write_proved
from data_gen.dare.layout import KIND, json_bytes
from data_gen.dare.sources import Source, database_name, fingerprints
from data_gen.dare.tabular import files_of, metadata_json, propose
from data_gen.dare.validate import Proof, finished, prove
from data_gen.dare.wording import if_question, metadata_text, mini_question, mm_question
from rewards.seeds import derive_seed
from rewards.task import TaskError
from rollouts.sandbox.pool import Pool


def column_lines(source: Source, looked: Looked) -> dict[str, str]:
    """A line for every column: what the source says, and what the values are."""
    out: dict[str, str] = {}
    for name in looked.frame.columns:
        values = looked.frame[name].dropna()
        if looked.kinds[name] == "numerical":
            fact = f"number from {values.min():g} to {values.max():g}"
        else:
            shown = sorted(map(str, values.unique()))[:6]
            fact = f"one of {len(values.unique())} categories, such as {', '.join(shown)}"
        said = source.columns.get(name, "")
        out[name] = f"{said} ({fact})" if said else fact
    return out


async def build_table(source: Source, settings: Settings, pool: Pool, room: int) -> Built:
    """Up to `room` class and reg databases of one table; never raises for what a table is."""
    built = Built(source.name)
    seed = derive_seed(settings.seed, source.name)
    try:
        raw = source.load()
        looked = clean(raw, seed)
    except Exception as error:  # a table of a package may be anything
        built.refused.append(f"unreadable: {type(error).__name__}: {error}"[:200])
        return built
    if looked is None:
        built.refused.append("fewer than 4 usable columns or 120 different rows")
        return built
    built.marks = fingerprints(raw)
    if published(built.marks, settings):
        built.refused.append("the table of a published evaluation database")
        return built
    rng = random.Random(seed)
    groups = {"class": class_targets(looked), "reg": number_targets(looked)}
    for names in groups.values():
        rng.shuffle(names)
    turns = [(i, family, t) for family, names in groups.items() for i, t in enumerate(names)]
    plans = [(family, t) for _, family, t in sorted(turns)]  # families in turn
    if not plans:
        built.refused.append("no column can be a target")
    for number, (family, target) in enumerate(plans[: 3 * room]):
        if len(built.rows) >= room:
            break
        own = random.Random(derive_seed(seed, number, family, target))
        try:
            why = await _database(source, looked, family, target, settings, pool, own, built)
        except Exception as error:  # one odd table must not end a build of hundreds; it is counted
            why = f"broke: {type(error).__name__}: {error}"[:200]
        if why:
            built.refused.append(f"{family} {target}: {why}")
    return built


async def _database(
    source: Source,
    looked: Looked,
    family: str,
    target: str,
    settings: Settings,
    pool: Pool,
    rng: random.Random,
    built: Built,
) -> str:
    """Build and write one tabular database; "" or why it was refused."""
    told = giveaways(looked, target)
    bare = [f for f in looked.frame.columns if f not in told]
    narrowed = Looked(looked.frame[bare], {f: looked.kinds[f] for f in bare})
    made = propose(narrowed, family, [target], rng, settings.mini)
    if made is None:
        return "too few rows or features"
    if not settings.mini and (why := tabular_baseline(made)):
        return why
    try:
        proof, why = await prove(pool, made, rng)
    except TaskError as error:
        return str(error)
    if proof is None:
        return why
    text = metadata_text(source.title, source.about, column_lines(source, narrowed))
    try:
        built.rows.append(_write(source, looked, family, proof, text, settings, rng))
    except Unproved as error:
        return str(error)
    return ""


def _write(
    source: Source,
    looked: Looked,
    family: str,
    proof: Proof,
    text: str,
    settings: Settings,
    rng: random.Random,
) -> dict[str, Any]:
    """Write a proved database; returns its row of the question list. `text`: its metadata.txt."""
    made = finished(proof)
    name = database_name(source, made.recipe["target"][0], family)
    about = origin(source, looked.frame)
    files = files_of(made, text, rng) | {
        "verify/all_metadata.json": metadata_json(made, name, about),
        "verify/simulated_pred_local.csv": proof.answer.encode(),
        "verify/made_with.json": json_bytes(proof.versions),
        "verify/fitted.json": json_bytes(proof.fitted),
    }
    write_proved(source, settings, name, files)
    recipe, ext = made.recipe, made.recipe["save_file_type"]
    ask = mini_question if settings.mini else if_question
    described = [] if settings.mini else ["metadata.txt"]
    asked = {
        "question_v1": ask(recipe, rng),
        "question_v2": "" if settings.mini else mm_question(recipe, rng),
        "needed_files_v1": [f"train_v1.{ext}", f"val_v1.{ext}", *described],
        "needed_files_v2": [f"train_v2.{ext}", f"val_v2.{ext}", "metadata.txt"],
    }
    return list_row(source, about, name, KIND[family], asked)
