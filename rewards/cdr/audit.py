"""What `assay audit` is told of CDR-Bench's two families: respellings of gold with the release's
word, twins whose recipe is run again, answer formats, floors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, cast

from assay.family import Audit, Floor
from assay.task import Task, derive_seed
from rewards.cdr.recipes import written
from rewards.cdr.release_files import TEXT
from rewards.cdr.release_scores import gold_response, parse_json, profile_of, score_structured
from rewards.cdr.score import gold_answer, score_refinement
from rewards.gold import GoldError, Step, bind_recipe, run_bound
from rewards.parse import normalise, render

_TOKEN = re.compile(r"(?<![\w@./:\\<-])(?:[a-z]{4,}|[A-Z][a-z]{3,}|\d{2,})(?![\w@/:\\>-])")
_VOWELS, _OTHERS = "aeiou", "bcdfghjklmnprstvwz"


def text_spellings(task: Task) -> Mapping[str, str]:
    """A tagged answer in other spaces, cases, orders and frames."""
    gold = task.gold
    status = str(gold.get("status", gold.get("reference_status"))).strip().upper()
    text = str(gold.get("text", gold.get("reference_text")))
    whole = gold_answer(gold)
    head, body = f"<status>{status}</status>", f"<clean_text>{text}</clean_text>"
    return {
        "a line each": f"{head}\n{body}",
        "spaces around": f"  {whole}\n",
        "spaces around the status": render(f" {status} ", text),
        "text, spaces around": render(status, f"\n {text} \n"),
        "text, CRLF": render(status, text.replace("\n", "\r\n")),
        "text, trailing blanks": render(status, text.replace("\n", " \t\n")),
        "text, two spaces for one": render(status, text.replace(" ", "  ")),
        "text, tabs for spaces": render(status, text.replace(" ", "\t")),
        "text, a space before marks": render(status, text.replace(",", " ,")),
        "text, more empty lines": render(status, text.replace("\n\n", "\n\n\n\n")),
        "status in lower case": render(status.lower(), text),
        "tags in upper case": f"<STATUS>{status}</STATUS><CLEAN_TEXT>{text}</CLEAN_TEXT>",
        "text before status": body + head,
        "chatter before": f"Here is the result:\n{whole}",
        "chatter after": f"{whole}\nI hope this helps.",
        "trailing period": f"{whole}.",
        "code fence": f"```\n{whole}\n```",
        "thinking before": f"<think>easy</think>{whole}",
        "byte order mark": f"\ufeff{whole}",
        "text in quotes": render(status, f'"{text}"'),
    }


def json_spellings(task: Task) -> Mapping[str, str]:
    """An object in other spaces, orders, cases and number forms."""
    gold = task.gold
    if profile_of(gold) == TEXT:
        return text_spellings(task)
    whole = gold_response(gold)
    value = parse_json(whole)
    return {
        "indented": json.dumps(value, indent=2),
        "no spaces": json.dumps(value, separators=(",", ":")),
        "spaces around": f"\n {whole} \n",
        "tabs": json.dumps(value, indent="\t"),
        "keys in other order": json.dumps(
            _mapped(value, dict, lambda d: dict(reversed(d.items())))
        ),
        "lists in other order": json.dumps(_mapped(value, list, lambda items: items[::-1])),
        "texts in upper case": json.dumps(_mapped(value, str, str.upper)),
        "texts with spaces": json.dumps(_mapped(value, str, " {} ".format)),
        "escapes": json.dumps(value, ensure_ascii=True),
        "whole numbers as 1.0": json.dumps(_mapped(value, int, float)),
        "a key twice, the same": _twice(value),
        "byte order mark": f"\ufeff{whole}",
        "numbers as text": json.dumps(_mapped(value, int, str)),
        "single quotes": str(value),
        "trailing comma": whole[:-1] + "," + whole[-1:],
        "code fence": f"```json\n{whole}\n```",
        "chatter before": f"Here it is: {whole}",
        "chatter after": f"{whole}\nI hope this helps.",
        "trailing period": f"{whole}.",
        "in a tag": f"<answer>{whole}</answer>",
    }


def _mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Every value of exactly this kind changed, the innermost first."""
    if isinstance(value, dict):
        value = {k: _mapped(v, kind, change) for k, v in cast("dict[str, Any]", value).items()}
    elif isinstance(value, list):
        value = [_mapped(v, kind, change) for v in cast("list[Any]", value)]
    return change(value) if type(value) is kind else value


def _twice(value: Any) -> str:
    """The first key a second time, with the same value."""
    whole = json.dumps(value)
    if not isinstance(value, dict) or not value:
        return whole
    name, first = next(iter(cast("dict[str, Any]", value).items()))
    return "{" + f"{json.dumps(name)}: {json.dumps(first)}, " + whole[1:]


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


def _every_field(task: Task, text: str) -> str:
    """The object that the prompt asks for, with the text as the value of every field."""
    if profile_of(task.gold) == TEXT:
        return render("KEEP", text)
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return json.dumps(dict.fromkeys(_asked(task.gold), value))


def _asked(gold: Mapping[str, Any]) -> list[str]:
    """Names of the fields that are asked for."""
    reference = gold.get("reference_json") or gold.get("reference_text")
    wanted = parse_json(reference) if isinstance(reference, str) else reference
    return [*cast("Mapping[str, Any]", wanted)] if isinstance(wanted, Mapping) else []


TEXT_AUDIT = Audit(
    # Without success an answer earns format, status and progress: 0.6 at most. A guessed status
    # with the input copied is right where the first step rejects, or nothing is to be changed.
    floors={"": Floor(outcome=0.5, reward=0.6, beyond=0.6)},
    forms={
        "keep": lambda task, text: render("KEEP", text),
        "drop": lambda task, text: render("DROP", text),
        "plain": lambda task, text: text,
    },
    twin=refinement_twin,
    spellings=text_spellings,
    benchmark=lambda task, answer: score_refinement(task.gold, answer.text, "release").outcome,
)
JSON_AUDIT = Audit(
    # A wrong object earns its form and its right fields: 0.4 at most. Labels of few values are
    # guessed rightly as often as they are common.
    floors={"": Floor(outcome=0.5, reward=0.6, beyond=0.4)},
    forms={"plain": lambda task, text: text, "every field": _every_field},
    spellings=json_spellings,
    benchmark=lambda task, answer: score_structured(task.gold, answer.text, "release").outcome,
)
