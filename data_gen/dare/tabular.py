# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""One table → class and reg databases, each with an IF and an MM variant (spec 2-4): split,
ranges, noise, recipe, files; and whether an IF task is worth asking: its reference twice, a
faithful solver, every step broken once.

Where the published construction is weak (spec 3.1, section 9) this differs: a noise row breaks a
random non-empty set of ranges, and every range is broken alone by some rows, so each one matters;
noise goes beyond a range by a share of its width, not by at most 10; equal feature rows never stand
on both sides of the split; metadata names every column.

A step is *stated* only if breaking it changes the answer; a range whose loss changes nothing is
dropped and the noise made again; an answer that is one label throughout is refused. A step that one
wrong way leaves alone may still matter another way (five seeds, an imputer left out rather than
exchanged), and steps that do not matter one by one may matter together: so a reader who does only
what is stated, with other seeds, must come to the same answer.
"""

from __future__ import annotations

import io
import random
import string
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import pandas as pd
from assay.files import machine_failed
from assay.task import derive_seed
from data_gen.certificate import Refused
from data_gen.columns import is_one_series, keys_of
from data_gen.dare.database import (
    Database,
    DatabaseBuilder,
    Questions,
    loaded,
    mark,
    origin,
    texts_of,
)
from data_gen.dare.layout import SIMULATED, Frame, csv_bytes, json_bytes, metadata_json, table_bytes
from data_gen.dare.leaks import given_away
from data_gen.dare.models import in_range, read, solve, tabular_baseline, versions
from data_gen.dare.sources import Source, database_name
from data_gen.dare.targets import LEAST_COLUMNS, LEAST_ROWS, Looked, Plan, clean, narrowed, plans
from data_gen.dare.wording import (
    column_lines,
    few_columns,
    if_question,
    metadata_text,
    mini_question,
    mm_question,
    mm_short,
    phrases,
    plain_about,
)
from rewards.dare.score import TableGold, score_table

MODELS = {
    "class": (
        "LogisticRegression",
        "DecisionTreeClassifier",
        "GaussianNB",
        "LinearSVC",
        "MLPClassifier",
    ),
    "reg": ("LinearRegression", "DecisionTreeRegressor", "Ridge", "Lasso", "MLPRegressor"),
}
NOISE = 0.2
RATIOS = (0.7, 0.8, 0.9)  # shares of the rows to train on
LEAST_TRAIN, LEAST_TEST = 80, 20  # rows
SHUFFLES = 20  # orders of the rows until each side has two labels
TOO_FEW = "too few rows or features"


@dataclass(frozen=True)
class Candidate:
    """A database before its answer is known. `recipe` holds what the reference needs."""

    family: str
    recipe: dict[str, Any]
    train: Frame  # clean: targets and all features
    test: Frame  # row_id and all features
    truth: Frame  # row_id and targets
    noisy: Frame  # train_v1: targets and kept features

    def clean_v1(self) -> Frame:
        names = [*self.recipe["target"], *self.recipe["not_filtered_related_features"]]
        return self.train[names]

    def test_v1(self) -> Frame:
        return self.test[["row_id", *self.recipe["not_filtered_related_features"]]]


def propose(
    looked: Looked, family: str, targets: list[str], rng: random.Random, mini: bool
) -> Candidate:
    """Split and noise for one choice of targets. Raises `Refused` when too little is left."""
    features = looked.features(targets)
    if mini:
        features = [f for f in features if looked.kinds[f] == "numerical" and len(f) <= 14]
    train, test, ratio = _split(looked, family, targets, features, rng, mini)
    usable = [f for f in features if train[f].nunique() > 1]
    if len(usable) < 2:
        raise Refused("draft", TOO_FEW)
    kept = _kept(train, targets, usable, rng.randint(2, 3) if mini else rng.randint(3, 8), rng)
    chosen = rng.sample(kept, max(2, len(kept) - (0 if mini else rng.randint(0, 2))))
    ranges = {
        f: r for f in kept if f in usable and (r := _range(train[f], looked.kinds[f])) is not None
    }
    if mini:
        ranges = dict(list(ranges.items())[: rng.randint(1, 2)])
    recipe: dict[str, Any] = {
        "target": targets,
        "related_features": features,
        "not_filtered_related_features": kept,
        "selected_features": chosen,
        "numerical_features": [f for f in chosen if looked.kinds[f] == "numerical"],
        "categorical_features": [f for f in chosen if looked.kinds[f] != "numerical"],
        "column_type_inference": {c: looked.kinds[c] for c in [*targets, *features]},
        "expected_ranges": ranges,
        "train_test_ratio": ratio,
        "problem_type": "classification" if family == "class" else "regression",
        **_drawn(family, rng, mini),
    }
    test.insert(0, "row_id", range(1, len(test) + 1))
    made = Candidate(
        family, recipe, train, test[["row_id", *features]], test[["row_id", *targets]], train
    )
    return with_noise(made, ranges, rng)


def _split(
    looked: Looked,
    family: str,
    targets: list[str],
    features: list[str],
    rng: random.Random,
    mini: bool,
) -> tuple[Frame, Frame, float]:
    """(training rows, test rows, share of the first) of different features. Raises `Refused`."""
    if len(features) < 2:
        raise Refused("draft", TOO_FEW)
    frame = looked.frame.dropna(subset=targets)
    frame = frame[[*targets, *features]].drop_duplicates(subset=features)
    order = list(range(len(frame)))
    rng.shuffle(order)
    if mini:
        order = order[:300]
    # whether a table fits must not hang on the seed: every ratio is tried, in a drawn order
    for ratio in rng.sample(RATIOS, len(RATIOS)):
        cut = int(len(order) * ratio)
        for _ in range(SHUFFLES):
            train, test = frame.iloc[sorted(order[:cut])], frame.iloc[order[cut:]]
            if len(train) < LEAST_TRAIN or len(test) < LEAST_TEST:
                break
            labels = (part[t].nunique() for part in (train, test) for t in targets)
            if family == "reg" or min(labels) >= 2:
                return train.reset_index(drop=True), test.reset_index(drop=True).copy(), ratio
            rng.shuffle(order)
    raise Refused("draft", TOO_FEW)


def _drawn(family: str, rng: random.Random, mini: bool) -> dict[str, Any]:
    """The parts of a recipe that no column decides."""
    return {
        "save_file_type": "csv" if mini else rng.choice(("csv", "sqlite", "parquet")),
        "imputer_type": rng.choice(("mean", "median", "most_frequent")),
        "random_state": rng.randint(0, 99),
        "model_type": rng.choice(MODELS[family][: 4 - mini]),
    }


def _kept(
    train: Frame, targets: list[str], usable: list[str], size: int, rng: random.Random
) -> list[str]:
    """So many features, half of them from those most related to the target: a recipe of features
    that say nothing has answers of one label, and nobody would ask for it."""
    strength = {f: max(_related(train[f], train[t]) for t in targets) for f in usable}
    first = sorted(usable, key=lambda f: -strength[f])[: max(3, len(usable) // 3)]
    kept = rng.sample(first, min(len(first), (size + 1) // 2))
    rest = [f for f in usable if f not in kept]
    kept += rng.sample(rest, min(len(rest), size - len(kept)))
    rng.shuffle(kept)
    return kept


def _related(feature: Frame, target: Frame) -> float:
    """Share of the target's variance (of each label's, for text) between ten bins of a feature."""
    sample = slice(0, 600)
    bins = feature.iloc[sample]
    if feature.dtype.kind in "iuf" and bins.nunique() > 10:
        bins = pd.qcut(bins.rank(method="first"), 10, labels=False)
    codes = pd.factorize(bins, use_na_sentinel=False)[0]
    y = target.iloc[sample]
    numbers = target.dtype.kind in "iuf"
    goal = y.to_numpy(float)[:, None] if numbers else pd.get_dummies(y).to_numpy(float)
    sizes = np.bincount(codes)
    means = np.stack([np.bincount(codes, g) / sizes for g in goal.T], 1)
    spread = ((goal - goal.mean(axis=0)) ** 2).sum()
    return (
        float((sizes[:, None] * (means - goal.mean(axis=0)) ** 2).sum() / spread) if spread else 0.0
    )


def _range(column: Frame, kind: str) -> list[Any] | None:
    """Whole numbers around the values, or the list of values; None where neither says much."""
    values = column.dropna()
    if not len(values):
        return None
    if kind == "categorical":
        allowed = sorted(str(v) for v in values.unique())
        return allowed if len(allowed) <= 8 else None
    low, high = float(values.min()), float(values.max())
    bounds = (int(low // 1), int(-(-high // 1)))
    return list(bounds) if column.dtype.kind == "i" else [float(b) for b in bounds]


def with_noise(made: Candidate, ranges: dict[str, Any], rng: random.Random) -> Candidate:
    """The same with `ranges` as its expected ranges, and fresh noise that breaks them."""
    clean = replace(made, recipe={**made.recipe, "expected_ranges": ranges})
    base = clean.clean_v1()
    cells = {name: base[name].to_numpy(object) for name in base.columns}
    rows: list[dict[str, Any]] = []
    names = list(ranges)
    for number in range(int(NOISE * len(base)) if names else 0):
        place, other = rng.randrange(len(base)), rng.randrange(len(base))
        values: dict[str, Any] = {name: column[place] for name, column in cells.items()}
        values |= {t: cells[t][other] for t in made.recipe["target"]}
        broken = {names[number % len(names)]}
        if rng.random() < 0.5:
            broken |= {n for n in names if rng.random() < 0.3}
        rows.append(values | {n: _outside(ranges[n], base[n], rng) for n in sorted(broken)})
    noise = pd.DataFrame(rows, columns=base.columns)
    places = sorted(rng.sample(range(len(base) + len(rows)), len(rows)))
    order = list(range(len(base)))
    for at, place in enumerate(places):
        order.insert(place, len(base) + at)
    whole = (
        pd.concat([base, noise.astype(base.dtypes.to_dict())], ignore_index=True) if rows else base
    )
    return replace(clean, noisy=whole.iloc[order].reset_index(drop=True))


def _outside(allowed: list[Any], column: Frame, rng: random.Random) -> Any:
    """A value beyond a range: a whole number, or a short string that is no category."""
    if column.dtype.kind not in "if":
        while True:
            size = rng.randint(3, 9)
            word = "".join(rng.choices(string.ascii_letters + string.digits, k=size))
            if word not in allowed and not word.isdigit():
                return word
    far = rng.randint(1, 10) + int(rng.uniform(0.0, 0.5) * (allowed[1] - allowed[0]))
    value = allowed[0] - far if rng.random() < 0.5 else allowed[1] + far
    return int(value) if column.dtype.kind == "i" else float(value)


def files_of(made: Candidate, metadata: str, rng: random.Random) -> dict[str, bytes]:
    """All files of the database but the IF answer and the construction parameters."""
    kind = made.recipe["save_file_type"]
    parts = rng.choice((2, 3)) if len(made.noisy.columns) > 2 else 2
    train_v1 = table_bytes(made.noisy, kind, "train_set", parts if kind == "sqlite" else 1)
    return {
        f"source/train_v1.{kind}": train_v1,
        f"source/train_v1_no_err.{kind}": table_bytes(made.clean_v1(), kind, "train_set"),
        f"source/val_v1.{kind}": table_bytes(made.test_v1(), kind, "val_set"),
        f"source/train_v2.{kind}": table_bytes(made.train, kind, "train_set"),
        f"source/val_v2.{kind}": table_bytes(made.test, kind, "val_set"),
        "source/metadata.txt": metadata.encode(),
        "verify/ground_truth.csv": csv_bytes(made.truth),
    }


# --- from one table to its databases

IF_ANSWER = f"verify/{SIMULATED}"
TRIES, OWN_TRIES = 2, 6  # drafts of a database, and of one of a user's own table


@dataclass(frozen=True)
class Draft:
    """One database to try: what it asks, and what its table holds and is said to hold."""

    plan: Plan
    looked: Looked
    texts: Mapping[str, str]
    rng: random.Random


class TabularBuilder(DatabaseBuilder[Draft, Database]):
    """Class and reg databases of one table."""

    def drafts(self, source: Source, rng: random.Random, made: Sequence[Any]) -> Iterator[Draft]:
        """What the table is asked, each by a seed of its own. Raises `Refused` where the table
        gives nothing."""
        wish, settings, built = self.wish, self.settings, self.built
        listed = [one for one in source.listed if one.kind != "series"]
        if source.many and not listed and not wish.targets:
            return
        raw = loaded(source, built)
        built.doubts += source.doubts
        texts = texts_of(source, [str(c).strip() for c in raw.columns])
        free = not wish.targets and not listed
        if free and is_one_series(raw):
            said = "its rows are points of one series: no random split of them is fair"
            raise Refused("series", said)
        seed = derive_seed(settings.seed, source.name)
        looked = clean(raw, seed, texts, wish.named(), source.many)
        if looked is None:
            usable = f"fewer than {LEAST_COLUMNS} usable columns or {LEAST_ROWS} different rows"
            raise Refused("small", usable)
        if lost := [n for n in (*wish.targets, *wish.features) if n not in looked.kinds]:
            raise Refused("unusable", "; ".join(f"{name}: {looked.lost[name]}" for name in lost))
        mark(built, raw, settings)
        kinds, asked = settings.wishes.kinds, () if wish.targets else source.listed
        found, refused = plans(looked, wish, kinds, seed, asked, several=not settings.mini)
        built.refused += refused
        if free:
            keys = {*keys_of(raw)}  # columns that with a time name its rows
            found = [plan for plan in found if not set(plan.targets) & keys]
        for number, plan in enumerate(found[: 3 * self.room]):
            own = random.Random(derive_seed(seed, number, plan.family, *plan.targets))
            yield Draft(plan, looked, texts, own)

    def gold(self, draft: Draft) -> Database:
        """Split, noise and reference. A database of a user's own table is drafted several times,
        and comes without its IF variant when that cannot be proved."""
        plan, rng, mini = draft.plan, draft.rng, self.settings.mini
        bare = narrowed(draft.looked, plan, self.wish, self.source.many)
        wanted = self.settings.wishes.variants(plan.family)
        own = not self.source.many or bool(self.wish.targets)  # the user gives it, or its targets
        short = mini and "IF" not in wanted  # a modelling task alone, a question of one line
        if short:
            bare = few_columns(bare, plan.targets, rng)
        fits: Candidate | None = None
        why = ""
        for _ in range(1 if short else OWN_TRIES if own else TRIES):
            made = propose(bare, plan.family, list(plan.targets), rng, mini and not short)
            if why := _dull(made, mini and not short):
                continue
            if short:
                made = replace(made, recipe={**made.recipe, "save_file_type": "csv"})
            made = fits = self._worded(draft, made)
            if "IF" not in wanted:
                return self._filled(draft, bare, made)
            proof, why = worth_asking(made, rng)
            if proof is not None:
                return self._filled(draft, bare, proof.made, proof.answer)
        if fits is None or not own or "MM" not in wanted:
            raise Refused("draft", why)
        only = f"only the modelling task: {why}"
        return replace(self._filled(draft, bare, fits), only=only)

    def _worded(self, draft: Draft, made: Candidate) -> Candidate:
        """The candidate with the words that its question uses for columns."""
        if self.settings.mini:
            return made
        names = made.recipe["not_filtered_related_features"]
        said = phrases(list(draft.looked.frame.columns), draft.texts)
        words = {n: said[n] for n in names if n in said}
        return replace(made, recipe={**made.recipe, "column_words": words})

    def _filled(self, draft: Draft, bare: Looked, made: Candidate, answer: str = "") -> Database:
        """The database's files. Without the reference's answer it has no IF variant."""
        source, recipe = self.source, made.recipe
        name = database_name(source, "-".join(recipe["target"]), made.family)
        about = origin(source, draft.looked.frame)
        lines = column_lines(draft.texts, bare)
        text = metadata_text(source.title, plain_about(source.about), lines)
        files = files_of(made, text, draft.rng) | {
            "verify/all_metadata.json": metadata_json(recipe, name, about)
        }
        if answer:
            files[IF_ANSWER] = answer.encode()
            files["verify/made_with.json"] = json_bytes(versions())
        ext = recipe["save_file_type"]
        described: Sequence[str] = [] if self.settings.mini else ["metadata.txt"]
        asked = {
            **recipe,
            "needed_files_v1": [f"train_v1.{ext}", f"val_v1.{ext}", *described],
            "needed_files_v2": [f"train_v2.{ext}", f"val_v2.{ext}", *described],
        }
        return Database(name, about, asked, files)

    def words(self, draft: Draft, gold: Database) -> Questions:
        """The questions of IF and MM."""
        recipe, rng, mini = dict(gold.asked), draft.rng, self.settings.mini
        exact = free = ""
        if "MM" in self.settings.wishes.variants(draft.plan.family):
            free = mm_short(recipe) if mini else mm_question(recipe, rng)
        if IF_ANSWER in gold.files:
            exact = (mini_question if mini else if_question)(recipe, rng)
        return exact, free

    def inputs(self, draft: Draft) -> list[str]:
        return [f"{draft.plan.family} {', '.join(draft.plan.targets)}"]


def _dull(made: Candidate, mini: bool) -> str:
    """Why nobody learns from a draft: one feature gives the answers, or no model finds them."""
    names = made.recipe["related_features"]
    for target in made.recipe["target"]:
        test = made.test.assign(**{target: made.truth[target].to_numpy()})
        if told := given_away(made.train, test, target, names):
            return f"{next(iter(told))} alone gives the answers"
    return "" if mini else tabular_baseline(made)


# --- is an IF task worth asking? ---

_OTHER = {"LogisticRegression": "GaussianNB", "Ridge": "LinearRegression"}
_MUST = {  # a task in which these make no difference is refused
    "model": "the model or the choice of features does not matter",
    "features": "the model or the choice of features does not matter",
    "onehot": "the categorical features do not matter",  # the question cannot be put without it
}
_FILL = {"mean": "median", "median": "mean", "most_frequent": "mean"}
_SEEDS = {"DecisionTreeClassifier": 5, "DecisionTreeRegressor": 5, "LinearSVC": 3}  # others: 1


@dataclass(frozen=True)
class Proof:
    """An accepted IF task, the steps that its question states among its recipe, and its answer."""

    made: Candidate
    answer: str


def trials(made: Candidate) -> dict[str, list[dict[str, Any]]]:
    """Step → changes of the recipe that leave it out or get it wrong; first the two that must
    matter. A step matters if any of them changes the answer."""
    recipe, ranges = made.recipe, made.recipe["expected_ranges"]
    chosen, kinds = recipe["selected_features"], recipe["column_type_inference"]
    model = recipe["model_type"]
    family = "LogisticRegression" if made.family == "class" else "Ridge"
    found: dict[str, list[dict[str, Any]]] = {"model": [{"model_type": _OTHER.get(model, family)}]}
    found["features"] = [{"selected_features": recipe["not_filtered_related_features"]}]
    if len(chosen) == len(recipe["not_filtered_related_features"]):
        found["features"] = [{"selected_features": chosen[:-1]}]
    found |= {
        f"range:{name}": [{"expected_ranges": {n: r for n, r in ranges.items() if n != name}}]
        for name in ranges
    }
    if any(kinds[f] == "categorical" for f in chosen):
        found["onehot"] = [{"selected_features": [f for f in chosen if kinds[f] == "numerical"]}]
    first = recipe["random_state"] + 1
    found["seed"] = [{"random_state": first + i} for i in range(_SEEDS.get(model, 1))]
    found["scale"] = [{"scale": False}]
    found["order"] = [{"selected_features": chosen[::-1]}]
    if made.clean_v1()[chosen].isna().any().any() or made.test[chosen].isna().any().any():
        found["impute"] = [{"imputer_type": _FILL[recipe["imputer_type"]]}, {"imputer_type": None}]
    return found


def readers(made: Candidate, same: list[str]) -> list[dict[str, Any]]:
    """The changes of readers who do none of the steps that made no difference one by one."""
    ways: dict[str, list[dict[str, Any]]] = {
        "seed": trials(made)["seed"],
        "scale": [{"scale": False}],
        "impute": [{"imputer_type": None}],
        "order": [{}, {"selected_features": made.recipe["selected_features"][::-1]}],
    }
    left = [ways[name] for name in same if name in ways]
    most = max(map(len, left), default=0)
    return [{k: v for one in left for k, v in one[i % len(one)].items()} for i in range(most)]


def _shipped(made: Candidate) -> list[Frame]:
    """The tables (clean, with noise, to predict) read from files as they are shipped: types survive
    each form differently."""
    kind = str(made.recipe["save_file_type"])
    data = {
        "clean": table_bytes(made.clean_v1(), kind, "train_set"),
        "noisy": table_bytes(made.noisy, kind, "train_set", 2),
        "test": table_bytes(made.test_v1(), kind, "val_set"),
    }
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{name}.{kind}" for name in data}
        for name, path in paths.items():
            path.write_bytes(data[name])
        return [read(path) for path in paths.values()]


def _tried(train: Frame, test: Frame, recipe: dict[str, Any]) -> str | None:
    """The answer; None where it does not run, as a recipe with a broken step may not."""
    try:
        return solve(train, test, recipe)
    except Exception as error:  # whatever scikit-learn says
        if machine_failed(error):
            raise
        return None


def worth_asking(made: Candidate, rng: random.Random) -> tuple[Proof | None, str]:
    """(the proof, "ok"), or (None, why the task is refused)."""
    for _ in range(3):
        ranges = made.recipe["expected_ranges"]
        if not ranges:
            return None, "no range matters"
        clean, noisy, test = _shipped(made)
        why, answer, same = _examined(made, clean, noisy, test)
        if why:
            return None, why
        idle = [n.partition(":")[2] for n in same if n.startswith("range:")]
        if not idle:
            stated = [n for n in trials(made) if n not in same and not n.startswith("range:")]
            recipe = {**made.recipe, "stated": ["filter", *stated]}
            return Proof(replace(made, recipe=recipe), answer), "ok"
        made = with_noise(made, {n: r for n, r in ranges.items() if n not in idle}, rng)
    return None, "no set of ranges in which each matters"


def _examined(
    made: Candidate, clean: Frame, noisy: Frame, test: Frame
) -> tuple[str, str, list[str]]:
    """("" or why the draft is refused, the reference's answer, the steps that change nothing)."""
    recipe = made.recipe
    first, again = (_tried(clean, test, recipe) for _ in range(2))
    if first is None or first != again:
        return "the reference does not run, or not twice alike", "", []

    def agrees(changes: dict[str, Any]) -> bool:
        """Whether a reader of the file with noise comes to the reference's answer."""
        other = {**recipe, **changes}
        kept = in_range(noisy, other["expected_ranges"], recipe["column_type_inference"])
        answer = _tried(kept, test, other)
        return answer is not None and _score(made, first, answer) == 1.0

    if not agrees({}):
        return "filtering the noisy file does not give the reference's answer", "", []
    if name := _alike(made, first):
        return f"the reference gives every row one answer for {name}", "", []
    if name := _decides(made, first):
        return f"{name} alone decides every answer", "", []
    same: list[str] = []
    for name, ways in trials(made).items():
        if all(map(agrees, ways)):
            if name in _MUST:
                return _MUST[name], "", []
            same.append(name)
    if not all(map(agrees, readers(made, same))):
        return "what the question leaves open matters when taken together", "", []
    return "", first, same


def _score(made: Candidate, truth: str, answer: str) -> float:
    if answer == truth:
        return 1.0
    kind = f"{made.family}-IF"
    gold = TableGold(kind, truth, ("row_id",), tuple(made.recipe["target"]), {})
    return score_table(gold, answer.encode(), "strict", trusted=True).outcome or 0.0


def _alike(made: Candidate, answer: str) -> str:
    """A target of which all predictions are equal; "" where none is so."""
    said: Any = pd.read_csv(io.StringIO(answer))
    return next((t for t in made.recipe["target"] if len(said) > 1 and said[t].nunique() < 2), "")


def _decides(made: Candidate, answer: str) -> str:
    """A feature whose values, looked up in the training rows, give all labels of an answer: nobody
    would need the rest of the recipe. "" where there is none, and for quantities."""
    if made.family != "class":
        return ""
    said: Any = pd.read_csv(io.StringIO(answer), dtype=str, keep_default_na=False)
    for target in made.recipe["target"]:
        test = made.test_v1().assign(**{target: said[target].to_numpy()})
        names = [n for n in made.recipe["selected_features"] if n in test]
        if told := given_away(made.clean_v1(), test, target, names, 1.0):
            return next(iter(told))
    return ""
