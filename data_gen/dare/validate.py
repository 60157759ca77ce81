# pandas ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Is an IF task worth asking? Its reference twice, a faithful solver, and every step broken once.

A step is *stated* only if breaking it changes the answer; a range whose loss changes nothing is
dropped and the noise made again; an answer that is one label throughout is refused. A step that one
wrong way leaves alone may still matter another way (five seeds, an imputer left out rather than
exchanged), and steps that do not matter one by one may matter together: so a reader who does only
what is stated, with other seeds, must come to the same answer.
"""

from __future__ import annotations

import io
import random
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.files import machine_failed
from data_gen.dare.layout import Frame, table_bytes
from data_gen.dare.reference_solution import fit, in_range, learnt, read, solve
from data_gen.dare.tabular import Candidate, with_noise
from data_gen.leaks import given_away
from rewards.dare.score import TableGold, score_table

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
    fitted: dict[str, Any]  # what the reference learnt before its model


def _without(ranges: dict[str, Any], name: str) -> dict[str, Any]:
    return {n: r for n, r in ranges.items() if n != name}


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
    found |= {f"range:{name}": [{"expected_ranges": _without(ranges, name)}] for name in ranges}
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


def prove(made: Candidate, rng: random.Random, tries: int = 3) -> tuple[Proof | None, str]:
    """(the proof, "ok"), or (None, why the task is refused)."""
    for _ in range(tries):
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
            rows = len(clean.dropna(subset=made.recipe["target"]))
            fitted = learnt(fit(clean, made.recipe), made.recipe, rows)
            recipe = {**made.recipe, "stated": ["filter", *stated]}
            return Proof(replace(made, recipe=recipe), answer, fitted), "ok"
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
    if (
        made.family == "class"
        and len({row.partition(",")[2] for row in first.splitlines()[1:]}) < 2
    ):
        return "the answer is one label throughout", "", []
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


def _decides(made: Candidate, answer: str) -> str:
    """A feature whose values, looked up in the training rows, give all labels of an answer: nobody
    would need the rest of the recipe. "" where there is none, and for quantities."""
    if made.family != "class":
        return ""
    import pandas as pd

    said: Any = pd.read_csv(io.StringIO(answer), dtype=str, keep_default_na=False)
    for target in made.recipe["target"]:
        test = made.test_v1().assign(**{target: said[target].to_numpy()})
        names = [n for n in made.recipe["selected_features"] if n in test]
        if told := given_away(made.clean_v1(), test, target, names, 1.0):
            return next(iter(told))
    return ""
