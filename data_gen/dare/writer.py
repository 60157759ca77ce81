"""Questions of a build in an endpoint's words (`--writer`), each kept only where it is proved.

A question is cut at the sentences that say what to do: every step of an IF task, the resampling and
the names of bins of a forecast, further files, and how to save. These stay to the letter and in
their order, and so does the opening, which is drawn from many as it is; what is left, the
description of files and task, may be said otherwise. Names in backticks, numbers and quoted values
stay everywhere (`data_gen.rewording`).

Of an IF question the endpoint may say the steps otherwise too, as in the published tasks. Such a
wording is kept where (1) every name in backticks, every number and every quoted value of the
original is in it, and no other; (2) a list whose order counts keeps its order; (3) each step that
the original states is still named; and (4) the endpoint, reading it alone, gives back the recipe:
model, seed, features in order, ranges, and the steps that matter. Nothing that a model says decides
what is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from assay.console import Progress
from assay.seeds import derive_seed
from data_gen.dare.wording import OPENINGS
from data_gen.rewording import (
    Endpoint,
    Facts,
    Job,
    Proof,
    Rewording,
    job_of,
    lacks,
    malformed,
    report,
    reword_all,
)
from data_gen.tally import Refusal
from rewards.cdr.json_answers import parse_json

Recipe = Mapping[str, Any]

_STEPS = tuple(OPENINGS["steps"])
_FREE = (
    "Rewrite this task in other words, as one colleague would ask another. Keep every name in "
    "backticks exactly as it is, every number, every quoted value, the words that describe "
    "columns, every step and the order of lists; add nothing. Answer with the task alone, on one "
    "line.\n\n{question}"
)
_READ_BACK = (
    "Read the instruction and answer with one JSON object: model (class name), random_state "
    "(number, or null if none is stated), features (list of the names or words that stand for "
    "columns, in the order of training), "
    "ranges (object: name to [low, high] or to the list of allowed values), keep_missing (true "
    "or false: do rows with a missing value stay), imputer (mean, median, most_frequent or "
    "null), scale (true or false).\n\n"
)
_CUT = re.compile(rf"(?:^|(?<=\s))(?={'|'.join(map(re.escape, _STEPS))})")
_KIND = re.compile(r"\b(?:classification|regression)\b")
_NAME = re.compile(r"`([^`]+)`")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w])")
_MODELS = re.compile(
    r"\b(?:LogisticRegression|DecisionTreeClassifier|GaussianNB|LinearSVC|MLPClassifier|Linear"
    r"Regression|DecisionTreeRegressor|Ridge|Lasso|MLPRegressor|MultiOutputClassifier)\b"
)
# word of the original → what may say it in the rewrite
_SAID = {
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


def facts_of(question: str, recipe: Recipe | None) -> Facts:
    """What a rewording of a question must keep. `recipe`: of an IF task, else None."""
    steps = [part.strip() for part in _CUT.split(question)]
    fixed = [part for part in steps if part.startswith(_STEPS)]
    spoken = [said for said in _words(recipe).values() if said in question]
    literals = dict.fromkeys([*fixed, *_KIND.findall(question), *spoken])
    return Facts(tuple(literals), in_order=(tuple(dict.fromkeys(fixed)),) if fixed else ())


def opening_of(question: str) -> str:
    """The first sentences, which say how to go about any task."""
    said = (f"{each} " for name in ("exact", "free") for each in OPENINGS[name])
    return next((each for each in said if question.startswith(each)), "")


def reword_rows(
    rows: Sequence[dict[str, Any]], recipes: Mapping[str, Recipe], writer: Endpoint, seed: int
) -> dict[str, Any]:
    """Put proved rewordings in place of the questions of a question list; the report. Raises
    `TaskError` when the endpoint cannot be had; nothing is changed then."""
    asked = [(row, v) for row in rows for v in ("question_v1", "question_v2") if row[v]]
    openings = [opening_of(str(row[v])) for row, v in asked]
    jobs: list[Job] = []
    for (row, v), opening in zip(asked, openings, strict=True):
        name = str(row["file_path"])
        recipe = recipes.get(name) if v == "question_v1" else None
        question = str(row[v]).removeprefix(opening)
        jobs.append(_job(question, recipe, derive_seed(seed, name, v, "writer")))
    with Progress("wordings", "questions", len(jobs)) as bar:
        made = reword_all(jobs, writer, bar.add)
    found: dict[str, Rewording] = {}
    for (row, v), opening, one in zip(asked, openings, made, strict=True):
        found[f"{row['file_path']} {v.removeprefix('question_')}"] = one
        row[v] = opening + one.text
    return report(found)


def _job(question: str, recipe: Recipe | None, seed: int) -> Job:
    facts = facts_of(question, recipe)
    if recipe is None:
        return job_of(question, facts, seed)
    ordered = list(recipe["selected_features"]) if "order" in recipe["stated"] else []

    def lost(text: str) -> Refusal | None:
        return malformed(question, text) or lost_in(question, text, ordered, _words(recipe))

    def ask(text: str) -> str:
        return _READ_BACK + text if lacks(question, text, facts) else ""

    def against(text: str, reply: str) -> Refusal | None:
        strict, why = lacks(question, text, facts), misread(recipe, reply)
        return Refusal(strict.code, f"and not read back: {why}") if strict and why else None

    prompt = _FREE.format(question=question)
    return Job(question, prompt, seed, lost, (Proof(ask, against),))


def _words(recipe: Recipe | None) -> dict[str, str]:
    return cast("dict[str, str]", recipe.get("column_words", {})) if recipe else {}


def lost_in(
    original: str, rewrite: str, ordered: list[str], words: Mapping[str, str] | None = None
) -> Refusal | None:
    """What keeps a free rewrite from saying the same, None if nothing does. `ordered` are names
    whose order counts: somewhere they must stand one after the other with nothing else between.
    `words` (column → phrase) stand for names and must be there to the letter."""
    original, rewrite = (_as_names(text, words or {}) for text in (original, rewrite))
    mine, theirs = _kept(original), _kept(rewrite)
    for code, kept in mine.items():
        if odd := kept ^ theirs[code]:
            return Refusal(code, ", ".join(sorted(map(str, odd)))[:120])
    for word, pattern in _SAID.items():
        if word in original.lower() and not re.search(pattern, rewrite.lower()):
            return Refusal("step", word)
    names = _NAME.findall(rewrite)
    runs = (names[i : i + len(ordered)] for i in range(len(names) - len(ordered) + 1))
    return None if ordered in runs else Refusal("order of the features")


def _kept(text: str) -> dict[str, set[Any]]:
    """What a rewrite has as well; numbers are those outside of names and quoted categories."""
    bare = _NAME.sub(" ", text)
    numbers = re.sub(r"(?<=\d),(?=\d{3}\b)", "", re.sub(r"'[^']*'", " ", bare))
    return {
        "names": set(_NAME.findall(text)),
        "numbers": {float(n) for n in _NUMBER.findall(numbers)},
        "categories": set(re.findall(r"'([^']*)'", bare)),
        "model": set(_MODELS.findall(text)),
    }


def _as_names(text: str, words: Mapping[str, str]) -> str:
    """The text with the name in backticks wherever a column's phrase stands; longer phrases first,
    for one may hold another."""
    for name, phrase in sorted(words.items(), key=lambda pair: -len(pair[1])):
        text = re.sub(rf"[“\"]?{re.escape(phrase)}[”\"]?", f"`{name}`", text, flags=re.I)
    return text


def misread(recipe: Recipe, answer: str) -> str:
    """Which part of an IF recipe the endpoint's reading of it does not hold, "" if it holds all."""
    try:
        said = cast("dict[str, Any]", parse_json(answer))
        stated, words = recipe["stated"], _words(recipe)
        ranges = cast("dict[str, Any]", recipe["expected_ranges"])
        wanted = {
            "model": recipe["model_type"],
            "random_state": recipe["random_state"] if "seed" in stated else None,
            "features": [words.get(n, n) for n in recipe["selected_features"]],
            "ranges": {words.get(n, n): allowed for n, allowed in ranges.items()},
            "keep_missing": True,
        }
        if "impute" in stated:
            wanted["imputer"] = recipe["imputer_type"]
        if "scale" in stated:
            wanted["scale"] = True
        return ", ".join(sorted(k for k, v in wanted.items() if said.get(k) != v))
    except (ValueError, LookupError, TypeError, AttributeError):
        return "no JSON object"


def recipe_in(metadata: bytes) -> Recipe | None:
    """The recipe of a tabular database's `all_metadata.json`; None for a time series."""
    question: dict[str, Any] = json.loads(metadata)["question"]
    return question if "selected_features" in question else None
