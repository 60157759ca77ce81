"""Questions of a build in an endpoint's words (`--writer`), each kept only where it is proved.

Of an IF question the endpoint may say everything otherwise, as in the published tasks; such a
wording is kept where nothing that counts is lost (`refine.lacks`) and the endpoint reads the recipe
back out of it. Every other question, and an IF question of which that cannot be proved, has to keep
more: a question is cut at the sentences that say what to do: every step of an IF task, the
resampling and the names of bins of a forecast, further files, and how to save. These stay to the
letter and in their order, and so does the opening, which is drawn from many as it is; what is left,
the description of files and task, may be said otherwise. Names in backticks, numbers and quoted
values stay everywhere (`data_gen.rewording_facts`); the words for columns, the model, its seed and
the order of features are checked again (`refine.lacks`). Nothing that a model says decides what is
asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from assay.console import Progress
from assay.seeds import derive_seed
from data_gen.asking import FILE, GREEDY, Endpoint, answers
from data_gen.asking import said as text_of
from data_gen.dare.refine import lacks, misread, read_back
from data_gen.dare.wording import OPENINGS
from data_gen.rewording import CUT_OFF, SAME, Job, Rewording, report, reword_all
from data_gen.rewording_facts import Facts, malformed
from data_gen.tally import Refusal

_STEPS = tuple(OPENINGS["steps"])
_FREE = (
    "Rewrite this task in other words, as one colleague would ask another. Keep every name in "
    "backticks exactly as it is, every number, every quoted value, the words that describe "
    "columns, every step and the order of lists; add nothing. Answer with the task alone, on one "
    "line.\n\n{question}"
)
_CUT = re.compile(rf"(?:^|(?<=\s))(?={'|'.join(map(re.escape, _STEPS))})")
_KIND = re.compile(r"\b(?:classification|regression)\b")


def facts_of(question: str, recipe: Mapping[str, Any] | None) -> Facts:
    """What a rewording of a question must keep. `recipe`: of an IF task, else None."""
    steps = [part.strip() for part in _CUT.split(question)]
    fixed = [part for part in steps if part.startswith(_STEPS)]
    words = cast("dict[str, str]", recipe.get("column_words", {})) if recipe else {}
    spoken = [said for said in words.values() if said in question]
    literals = dict.fromkeys([*fixed, *_KIND.findall(question), *spoken])
    return Facts(tuple(literals), in_order=(tuple(dict.fromkeys(fixed)),) if fixed else ())


def opening_of(question: str) -> str:
    """The first sentences, which say how to go about any task."""
    said = (f"{each} " for name in ("exact", "free") for each in OPENINGS[name])
    return next((each for each in said if question.startswith(each)), "")


def reword_rows(
    rows: Sequence[dict[str, Any]],
    recipes: Mapping[str, Mapping[str, Any]],
    out: Path,
    endpoint: tuple[str, str],
    seed: int,
) -> dict[str, Any]:
    """Put proved rewordings in place of the questions of a question list; the report. `endpoint`:
    URL and model. Raises `TaskError` when the endpoint cannot be had; nothing is changed then."""
    asked = [(row, v) for row in rows for v in ("question_v1", "question_v2") if row[v]]
    openings = [opening_of(str(row[v])) for row, v in asked]
    jobs = [
        (said := str(row[v]).removeprefix(opening), facts_of(said, recipe), _seed(seed, row, v))
        for (row, v), opening in zip(asked, openings, strict=True)
        for recipe in (_recipe(row, v, recipes),)
    ]
    recipes_of = [_recipe(row, v, recipes) for row, v in asked]
    writer = Endpoint(*endpoint, out / FILE)
    prompts = [
        _FREE.format(question=q) if r else "" for (q, _, _), r in zip(jobs, recipes_of, strict=True)
    ]
    with Progress("wordings", "questions", len(jobs)) as bar:
        made = reword_all(jobs, writer, bar.add, prompts)
    made = _freely(jobs, made, recipes_of, writer)
    found: dict[str, Rewording] = {}
    for (row, v), opening, (question, _, _), one in zip(asked, openings, jobs, made, strict=True):
        recipe = _recipe(row, v, recipes)
        if one.refused is None and (why := _lost(question, one.text, recipe)):
            one = replace(one, text=question, refused=why)
        found[f"{row['file_path']} {v.removeprefix('question_')}"] = one
        row[v] = opening + one.text
    return report(found)


def _freely(
    jobs: Sequence[Job],
    made: Sequence[Rewording],
    recipes: Sequence[Mapping[str, Any] | None],
    writer: Endpoint,
) -> list[Rewording]:
    """The rewordings, and with them those of IF questions that say the steps otherwise, where the
    endpoint reads the recipe back. Raises `TaskError` when it cannot be had."""
    free = [
        place
        for place, (job, one, recipe) in enumerate(zip(jobs, made, recipes, strict=True))
        if recipe is not None and one.refused and _may_be_free(job[0], one, recipe)
    ]
    asked = [(read_back(made[place].said), jobs[place][2]) for place in free]
    found = list(made)
    for place, reply in zip(free, answers(writer, asked, sampling=GREEDY), strict=True):
        one, recipe = made[place], recipes[place] or {}
        if one.refused and (why := misread(recipe, text_of(reply))):
            refused = Refusal(one.refused.code, f"and not read back: {why}")
            found[place] = replace(one, refused=refused)
        else:
            found[place] = replace(one, text=one.said, refused=None)
    return found


def _may_be_free(question: str, one: Rewording, recipe: Mapping[str, Any]) -> bool:
    """Whether all that counts stands in what was said."""
    same = one.refused is not None and one.refused.code in (CUT_OFF, SAME)
    return not (same or malformed(question, one.said) or _lost(question, one.said, recipe))


def _seed(seed: int, row: Mapping[str, Any], variant: str) -> int:
    return derive_seed(seed, str(row["file_path"]), variant, "writer")


def _recipe(
    row: Mapping[str, Any], variant: str, recipes: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    return recipes.get(str(row["file_path"])) if variant == "question_v1" else None


def _lost(question: str, text: str, recipe: Mapping[str, Any] | None) -> Refusal | None:
    ordered = list(recipe["selected_features"]) if recipe and "order" in recipe["stated"] else []
    words = cast("dict[str, str]", recipe.get("column_words", {})) if recipe else {}
    return lacks(question, text, ordered, words)
