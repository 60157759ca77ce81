"""A refinement task's isomorphic twin: other words and numbers, and the recipe run again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from assay.seeds import derive_seed
from assay.task import Task
from rewards.cdr.states import written
from rewards.gold import GoldError, Step, bind_recipe, run_bound
from rewards.parse import normalise

_TOKEN = re.compile(r"(?<![\w@./:\\<-])(?:[a-z]{4,}|[A-Z][a-z]{3,}|\d{2,})(?![\w@/:\\>-])")
_VOWELS, _OTHERS = "aeiou", "bcdfghjklmnprstvwz"


def refinement_twin(task: Task, seed: int) -> Task | None:
    """The same recipe on the same text with other words and numbers, gold executed again.

    Words of four letters or more and numbers of two digits or more are exchanged one for one, by
    others of their length; addresses, paths, tags and what the recipe names stay. None where the
    gold has no recipe, the prompt does not show the input once, or gold stays the same.
    """
    gold = task.gold
    recipe = gold.get("recipe")
    source = gold.get("input_text")
    if not recipe or not isinstance(source, str):
        return None
    shown = [i for i, m in enumerate(task.prompt) if source in m["content"]]
    if len(shown) != 1 or task.prompt[shown[0]]["content"].count(source) != 1:
        return None
    text = _exchanged(source, Random(derive_seed(seed, "twin", task.id)), str(recipe))
    try:
        steps = [Step(str(r["operator"]), dict(r.get("params") or {})) for r in recipe]
        plain = run_bound(source, bind_recipe(steps))
        run = run_bound(text, bind_recipe(steps))
    except (GoldError, ValueError, KeyError, TypeError):
        return None
    if (plain.status, plain.text) != (gold.get("status"), gold.get("text")):
        return None  # gold of another profile or executor
    if normalise(run.text) == normalise(plain.text):
        return None
    prompt = [dict(m) for m in task.prompt]
    prompt[shown[0]]["content"] = prompt[shown[0]]["content"].replace(source, text)
    made: dict[str, Any] = {
        "input_text": text,
        "status": run.status,
        "text": run.text,
        "states": run.states,
        "full_run_text": run.full_run_text,
    }
    if "written" in gold:
        made["written"] = written(steps, bind_recipe(steps), run)
    known: Mapping[str, Any] = {name: value for name, value in made.items() if name in gold}
    return replace(
        task,
        id=f"{task.id}-twin",
        prompt=prompt,
        gold={**gold, **known},
        meta={**task.meta, "plain": task.id},
    )


def _exchanged(text: str, rng: Random, kept: str) -> str:
    """Every word and number by another of its length, the same for the same, case kept."""
    found: dict[str, str] = {}
    taken = {token.lower() for token in _TOKEN.findall(text)}

    def other(match: re.Match[str]) -> str:
        word = match.group().lower()
        if word in kept.lower():
            return match.group()
        if word not in found:
            found[word] = next(w for w in iter(lambda: _drawn(word, rng), "") if w not in taken)
            taken.add(found[word])
        made = found[word]
        return made.capitalize() if match.group()[0].isupper() else made

    return _TOKEN.sub(other, text)


def _drawn(word: str, rng: Random) -> str:
    if word.isdigit():
        return str(rng.randint(1, 9)) + "".join(str(rng.randint(0, 9)) for _ in word[1:])
    return "".join(rng.choice(_VOWELS if c in _VOWELS else _OTHERS) for c in word)
