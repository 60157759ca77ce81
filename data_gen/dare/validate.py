"""Is an IF task worth asking? Its reference twice, a faithful solver, and every step broken once.

One sandbox call a round. A step is *stated* only if breaking it changes the answer; a range whose
loss changes nothing is dropped and the noise made again; an answer that is one label throughout is
refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from data_gen.dare.layout import table_bytes
from data_gen.dare.reference import run_jobs
from data_gen.dare.tabular import Draft, with_noise
from rewards.table import TableGold, score_table
from rollouts.sandbox.pool import Pool

_OTHER = {"LogisticRegression": "GaussianNB", "Ridge": "LinearRegression"}
MUST = ("model", "features")  # a task in which these make no difference is refused
_FILL = {"mean": "median", "median": "mean", "most_frequent": "mean"}


@dataclass(frozen=True)
class Proof:
    """An accepted IF task: its answer, the steps that matter, and what was tried."""

    made: Draft
    answer: str
    stated: list[str]
    versions: dict[str, str]


def _without(ranges: dict[str, Any], name: str) -> dict[str, Any]:
    return {n: r for n, r in ranges.items() if n != name}


def trials(made: Draft) -> dict[str, dict[str, Any]]:
    """Step → the run that leaves it out or gets it wrong; first the two that must matter."""
    recipe, ranges = made.recipe, made.recipe["expected_ranges"]
    chosen, kinds = recipe["selected_features"], recipe["column_type_inference"]

    def run(changes: dict[str, Any], kept: Any = ranges) -> dict[str, Any]:
        return {"train": f"noisy.{recipe['save_file_type']}", "ranges": kept, "changes": changes}

    model = recipe["model_type"]
    family = "LogisticRegression" if made.family == "class" else "Ridge"
    found = {"model": run({"model_type": _OTHER.get(model, family)})}
    found["features"] = run({"selected_features": recipe["not_filtered_related_features"]})
    if len(chosen) == len(recipe["not_filtered_related_features"]):
        found["features"] = run({"selected_features": chosen[:-1]})
    found |= {f"range:{name}": run({}, _without(ranges, name)) for name in ranges}
    found["seed"] = run({"random_state": recipe["random_state"] + 1})
    found["scale"] = run({"scale": False})
    found["order"] = run({"selected_features": chosen[::-1]})
    if made.clean_v1()[chosen].isna().any().any() or made.test[chosen].isna().any().any():
        found["impute"] = run({"imputer_type": _FILL[recipe["imputer_type"]]})
    if any(kinds[f] == "categorical" for f in chosen):
        numbers = [f for f in chosen if kinds[f] == "numerical"]
        found["onehot"] = run({"selected_features": numbers})
    return found


async def prove(
    pool: Pool, made: Draft, rng: random.Random, tries: int = 3
) -> tuple[Proof | None, str]:
    """(the proof, "ok"), or (None, why the task is refused)."""
    for _ in range(tries):
        steps = trials(made)
        kind = str(made.recipe["save_file_type"])  # as shipped: types survive each form differently
        plain = {"train": f"clean.{kind}"}
        ranges = made.recipe["expected_ranges"]
        if not ranges:
            return None, "no range matters"
        job = {"recipe": made.recipe, "test": f"test.{kind}", "differ": len(MUST),
               "runs": [plain, plain, {"train": f"noisy.{kind}", "ranges": ranges},
                        *steps.values()]}  # fmt: skip
        files = {
            f"clean.{kind}": table_bytes(made.clean_v1(), kind, "train_set"),
            f"noisy.{kind}": table_bytes(made.noisy, kind, "train_set", 2),
            f"test.{kind}": table_bytes(made.test_v1(), kind, "val_set"),
        }
        answers, versions = await run_jobs(pool, files, job, 100.0)
        if len(answers) < 3:
            return None, "the reference does not run, or not twice alike"
        first, second, faithful = answers[:3]
        if not isinstance(first, str) or first != second:
            return None, "the reference does not run, or not twice alike"
        if _score(made, first, faithful) != 1.0:
            return None, "filtering the noisy file does not give the reference's answer"
        if (
            made.family == "class"
            and len({_row.partition(",")[2] for _row in first.splitlines()[1:]}) < 2
        ):
            return None, "the answer is one label throughout"
        tried = dict(zip(steps, answers[3:], strict=False))  # it stops where one of MUST is idle
        same = [n for n, a in tried.items() if _score(made, first, a) == 1.0]
        idle = [n.partition(":")[2] for n in same if n.startswith("range:")]
        if set(MUST) & set(same) or len(tried) < len(steps):
            return None, "the model or the choice of features does not matter"
        if not idle:
            stated = [n for n in steps if n not in same and not n.startswith("range:")]
            return Proof(made, first, ["filter", *stated], versions), "ok"
        kept = {n: r for n, r in ranges.items() if n not in idle}
        made = with_noise(made, kept, rng)
    return None, "no set of ranges in which each matters"


def _score(made: Draft, truth: str, answer: Any) -> float:
    if not isinstance(answer, str):
        return 0.0  # it does not even run
    kind = f"{made.family}-IF"
    gold = TableGold(kind, truth, ("row_id",), tuple(made.recipe["target"]), {})
    return score_table(gold, answer.encode(), "strict", trusted=True).outcome or 0.0


def finished(proof: Proof) -> Draft:
    """The draft with the steps its question states recorded in its recipe."""
    return replace(proof.made, recipe={**proof.made.recipe, "stated": proof.stated})
