"""What a free rewording of an IF question must hold: the steps themselves said in other words.

A rewrite is kept when (1) every name in backticks, every number and every quoted value of the
original is in it, and no other; (2) a list whose order counts keeps its order; (3) each step that
the original states is still named; and (4), for IF tasks, the endpoint, reading the rewrite alone,
gives back the recipe: model, seed, features in order, ranges, and the steps that matter. Else the
templated wording stays: what a model says never decides what is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from data_gen.tally import Refusal
from rewards.cdr.json_answers import parse_json

_NAME = re.compile(r"`([^`]+)`")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w])")
# word of the original → what may say it in the rewrite
_STEPS = {
    "join": r"\bjoin|\bmerge|\bcombin",
    "filter": r"\bfilter|\bkeep|\bdrop|\bremov|\bexclud|\bdiscard|\bonly rows|\bretain",
    "missing": r"\bmissing|\bnulls?\b|\bnan\b|\bblank",
    "in this order": r"\border\b|\bsequence\b|\bordered\b",
    "numeric": r"\bnumeric|\bnumerical|\bnumbers\b",
    "categorical": r"\bcategor",
    "mean": r"\bmean\b|\baverage\b",
    "median": r"\bmedian\b",
    "most frequent": r"\bmost[ -_]?(frequent|common)|\bmode\b",
    "standardscaler": r"standardscaler|\bstandardi[sz]",
    "one-hot": r"one[ -]?hot",
    "unknown categories": r"\bunknown|\bunseen|handle_unknown",
    "dense": r"\bdense\b|sparse_output",
    "library defaults": r"\bdefault",
    "resample": r"\bresampl|\baggregat",
    "classification": r"\bclassif",
    "regression": r"\bregress",
}
_MODELS = re.compile(
    r"\b(?:LogisticRegression|DecisionTreeClassifier|GaussianNB|LinearSVC|MLPClassifier|Linear"
    r"Regression|DecisionTreeRegressor|Ridge|Lasso|MLPRegressor|MultiOutputClassifier)\b"
)


def _numbers(text: str) -> set[float]:
    """Numbers outside of names in backticks and of quoted categories."""
    bare = re.sub(r"'[^']*'", " ", _NAME.sub(" ", text))
    return {float(n) for n in _NUMBER.findall(re.sub(r"(?<=\d),(?=\d{3}\b)", "", bare))}


def _as_names(text: str, words: Mapping[str, str]) -> str:
    """The text with the name in backticks wherever a column's phrase stands; longer phrases first,
    for one may hold another."""
    for name, phrase in sorted(words.items(), key=lambda pair: -len(pair[1])):
        text = re.sub(rf"[“\"]?{re.escape(phrase)}[”\"]?", f"`{name}`", text, flags=re.I)
    return text


def _quoted(text: str) -> set[str]:
    return set(re.findall(r"'([^']*)'", _NAME.sub(" ", text)))


def lacks(
    original: str, rewrite: str, ordered: list[str], words: Mapping[str, str] | None = None
) -> Refusal | None:
    """What keeps a rewrite from saying the same, None if nothing does. `ordered` are names whose
    order counts: somewhere they must stand one after the other with nothing else between. `words`
    (column → phrase) stand for names and must be there to the letter."""
    original, rewrite = (_as_names(text, words or {}) for text in (original, rewrite))
    mine, theirs = set(_NAME.findall(original)), set(_NAME.findall(rewrite))
    if mine != theirs:
        return Refusal("names", ", ".join(sorted(mine ^ theirs))[:120])
    if _numbers(original) != _numbers(rewrite):
        odd = sorted(_numbers(original) ^ _numbers(rewrite))
        return Refusal("numbers", ", ".join(f"{n:g}" for n in odd)[:120])
    if _quoted(original) != _quoted(rewrite):
        return Refusal("categories")
    if set(_MODELS.findall(original)) != set(_MODELS.findall(rewrite)):
        return Refusal("model")
    for word, pattern in _STEPS.items():
        if word in original.lower() and not re.search(pattern, rewrite.lower()):
            return Refusal("step", word)
    names = _NAME.findall(rewrite)
    if ordered and not any(
        names[i : i + len(ordered)] == ordered for i in range(len(names) - len(ordered) + 1)
    ):
        return Refusal("order of the features")
    return None


def read_back(rewrite: str) -> str:
    """What an endpoint is asked to prove that a rewrite of an IF question says its recipe."""
    return (
        "Read the instruction and answer with one JSON object: model (class name), random_state "
        "(number, or null if none is stated), features (list of the names or words that stand for "
        "columns, in the order of training), "
        "ranges (object: name to [low, high] or to the list of allowed values), keep_missing (true "
        "or false: do rows with a missing value stay), imputer (mean, median, most_frequent or "
        f"null), scale (true or false).\n\n{rewrite}"
    )


def misread(recipe: Mapping[str, Any], answer: str) -> str:
    """Which part of an IF recipe the answer to `read_back` does not hold, "" if it holds all."""
    try:
        said = cast("dict[str, Any]", parse_json(answer))
        stated, words = recipe["stated"], cast("dict[str, str]", recipe.get("column_words", {}))
        seed = recipe["random_state"] if "seed" in stated else None
        ranges = cast("dict[str, Any]", recipe["expected_ranges"])
        wanted = {
            "model": recipe["model_type"],
            "random_state": seed,
            "features": [words.get(n, n) for n in recipe["selected_features"]],
            "ranges": {words.get(n, n): allowed for n, allowed in ranges.items()},
            "keep_missing": True,
        }
        if "impute" in stated:
            wanted["imputer"] = recipe["imputer_type"]
        if "scale" in stated:
            wanted["scale"] = True
        return ", ".join(sorted(k for k, v in wanted.items() if _plain(said.get(k)) != _plain(v)))
    except (ValueError, LookupError, TypeError, AttributeError):
        return "no JSON object"


def _plain(value: Any) -> Any:
    """Numbers as floats, ranges and names as they are: 1 and 1.0 say the same."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, list):
        return [_plain(v) for v in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in cast("dict[Any, Any]", value).items()}
    return value


def recipe_in(metadata: bytes) -> Mapping[str, Any] | None:
    """The recipe of a tabular database's `all_metadata.json`; None for a time series."""
    question: dict[str, Any] = json.loads(metadata)["question"]
    return question if "selected_features" in question else None
