# pandas ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Is an IF task worth asking? Its reference twice, a faithful solver, and every step broken once.

One sandbox call a round. A step is *stated* only if breaking it changes the answer; a range whose
loss changes nothing is dropped and the noise made again; an answer that is one label throughout is
refused. A step that one wrong way leaves alone may still matter another way (five seeds, an imputer
left out rather than exchanged), and steps that do not matter one by one may matter together: so a
reader who does only what is stated, with other seeds, must come to the same answer.
"""

from __future__ import annotations

import csv
import io
import random
from dataclasses import dataclass, replace
from typing import Any

from data_gen.dare.layout import table_bytes
from data_gen.dare.reference_run import run_jobs
from data_gen.dare.tabular import Candidate, with_noise
from data_gen.leaks import given_away
from rewards.dare.score import TableGold, score_table
from rollouts.sandbox.pool import Pool

_OTHER = {"LogisticRegression": "GaussianNB", "Ridge": "LinearRegression"}
MUST = ("model", "features")  # a task in which these make no difference is refused
_FILL = {"mean": "median", "median": "mean", "most_frequent": "mean"}
# what the scorer's reader may take for no value, or for a truth value
_MISSING = ("", "na", "n/a", "nan", "-nan", "null", "none", "<na>", "#n/a", "#n/a n/a", "#na")
_WORDS = frozenset([*_MISSING, "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan", "true", "false"])
_SEEDS = {"DecisionTreeClassifier": 5, "DecisionTreeRegressor": 5, "LinearSVC": 3}  # others: 1


@dataclass(frozen=True)
class Proof:
    """An accepted IF task: its answer, the steps that matter, and what was tried."""

    made: Candidate
    answer: str
    stated: list[str]
    versions: dict[str, str]
    fitted: dict[str, Any]  # what the reference learnt before its model


def _without(ranges: dict[str, Any], name: str) -> dict[str, Any]:
    return {n: r for n, r in ranges.items() if n != name}


def trials(made: Candidate) -> dict[str, list[dict[str, Any]]]:
    """Step → the runs that leave it out or get it wrong; first the two that must matter. A step
    matters if any of its runs changes the answer."""
    recipe, ranges = made.recipe, made.recipe["expected_ranges"]
    chosen, kinds = recipe["selected_features"], recipe["column_type_inference"]

    def run(changes: dict[str, Any], kept: Any = ranges) -> dict[str, Any]:
        return {"train": f"noisy.{recipe['save_file_type']}", "ranges": kept, "changes": changes}

    model = recipe["model_type"]
    family = "LogisticRegression" if made.family == "class" else "Ridge"
    found = {"model": [run({"model_type": _OTHER.get(model, family)})]}
    found["features"] = [run({"selected_features": recipe["not_filtered_related_features"]})]
    if len(chosen) == len(recipe["not_filtered_related_features"]):
        found["features"] = [run({"selected_features": chosen[:-1]})]
    found |= {f"range:{name}": [run({}, _without(ranges, name))] for name in ranges}
    if any(kinds[f] == "categorical" for f in chosen):
        numbers = [f for f in chosen if kinds[f] == "numerical"]
        found["onehot"] = [run({"selected_features": numbers})]
    first = recipe["random_state"] + 1
    found["seed"] = [run({"random_state": first + i}) for i in range(_SEEDS.get(model, 1))]
    found["scale"] = [run({"scale": False})]
    found["order"] = [run({"selected_features": chosen[::-1]})]
    if made.clean_v1()[chosen].isna().any().any() or made.test[chosen].isna().any().any():
        found["impute"] = [
            run({"imputer_type": _FILL[recipe["imputer_type"]]}),
            run({"imputer_type": None}),
        ]
    return found


def _open(
    made: Candidate, steps: dict[str, list[dict[str, Any]]], before: int
) -> list[dict[str, Any]]:
    """For each step that a question may leave out: where its runs stand in the job, and what its
    readers do instead."""
    own = made.recipe["selected_features"]
    ways: dict[str, list[dict[str, Any]]] = {
        "scale": [{"scale": False}],
        "impute": [{"imputer_type": None}],
        "order": [{}, {"selected_features": own[::-1]}],
    }
    found: list[dict[str, Any]] = []
    for name, runs in steps.items():
        if name in ("seed", *ways):
            changes = ways.get(name) or [run["changes"] for run in runs]
            found.append({"runs": [before, before + len(runs)], "changes": changes})
        before += len(runs)
    return found


async def prove(
    pool: Pool, made: Candidate, rng: random.Random, tries: int = 3
) -> tuple[Proof | None, str]:
    """(the proof, "ok"), or (None, why the task is refused)."""
    for _ in range(tries):
        steps = trials(made)
        kind = str(made.recipe["save_file_type"])  # as shipped: types survive each form differently
        plain = {"train": f"clean.{kind}"}
        ranges = made.recipe["expected_ranges"]
        if not ranges:
            return None, "no range matters"
        head = [plain, plain, {"train": f"noisy.{kind}", "ranges": ranges}]
        broken = [run for runs in steps.values() for run in runs]
        job: dict[str, Any] = {
            "recipe": made.recipe,
            "test": f"test.{kind}",
            "differ": len(MUST),
            "runs": [*head, *broken],
            "open": _open(made, steps, len(head)),
        }
        files = {
            f"clean.{kind}": table_bytes(made.clean_v1(), kind, "train_set"),
            f"noisy.{kind}": table_bytes(made.noisy, kind, "train_set", 2),
            f"test.{kind}": table_bytes(made.test_v1(), kind, "val_set"),
        }
        ran = await run_jobs(pool, files, job, 100.0)
        answers = ran.answers
        if len(answers) < 3:
            return None, "the reference does not run, or not twice alike"
        if why := _unsound(made, *answers[:3]):
            return None, why
        first = str(answers[0])
        if len(answers) < len(job["runs"]):  # it stops where one of MUST is idle
            return None, "the model or the choice of features does not matter"
        own = iter(answers[len(head) :])
        same = [
            name
            for name, runs in steps.items()
            if all([_score(made, first, next(own)) == 1.0 for _ in runs])
        ]
        if set(MUST) & set(same):
            return None, "the model or the choice of features does not matter"
        if "onehot" in same:  # the question cannot be put without it
            return None, "the categorical features do not matter"
        if any(_score(made, first, answer) != 1.0 for answer in own):
            return None, "what the question leaves open matters when taken together"
        idle = [n.partition(":")[2] for n in same if n.startswith("range:")]
        if not idle:
            stated = [n for n in steps if n not in same and not n.startswith("range:")]
            return Proof(made, first, ["filter", *stated], ran.versions, ran.fitted), "ok"
        kept = {n: r for n, r in ranges.items() if n not in idle}
        made = with_noise(made, kept, rng)
    return None, "no set of ranges in which each matters"


def _unsound(made: Candidate, first: Any, second: Any, faithful: Any) -> str:
    """What is wrong with the reference's own answers, "" for nothing."""
    if not isinstance(first, str) or first != second:
        return "the reference does not run, or not twice alike"
    if _score(made, first, faithful) != 1.0:
        return "filtering the noisy file does not give the reference's answer"
    labels = {row.partition(",")[2] for row in first.splitlines()[1:]}
    if made.family == "class" and len(labels) < 2:
        return "the answer is one label throughout"
    name = _decides(made, first)
    return f"{name} alone decides every answer" if name else ""


def _score(made: Candidate, truth: str, answer: Any) -> float:
    if not isinstance(answer, str):
        return 0.0  # it does not even run
    if answer == truth:
        return 1.0
    if plainly_other(truth, answer):
        return 0.0
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


def plainly_other(truth: str, answer: str) -> bool:
    """Whether two answers of ours for the same rows differ beyond doubt: another label somewhere,
    or a number further off than the scorer's tolerance allows by far. That spares the scorer, which
    decides all else."""
    one, other = (list(csv.reader(io.StringIO(text))) for text in (truth, answer))
    if [row[:1] for row in one] != [row[:1] for row in other] or one[0] != other[0]:
        return False
    return any(
        a != b and _far(a, b)
        for mine, theirs in zip(one[1:], other[1:], strict=True)
        for a, b in zip(mine[1:], theirs[1:], strict=False)
    )


def _far(one: str, other: str) -> bool:
    if one.lower() in _WORDS or other.lower() in _WORDS:
        return False
    try:
        a, b = float(one), float(other)
    except ValueError:
        return True
    return abs(a - b) > 1e-7 + 1e-4 * max(abs(a), abs(b))


def finished(proof: Proof) -> Candidate:
    """The candidate with the steps its question states recorded in its recipe."""
    return replace(proof.made, recipe={**proof.made.recipe, "stated": proof.stated})
