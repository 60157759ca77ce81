"""What `assay audit` is told of lake answers: respellings of gold with the published harness' word,
the kinds of answers, how a text is handed in, floors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from assay.family import Answer, Audit, Floor
from assay.task import Task
from rewards.audit import shown
from rewards.krama.answer import score_response
from rewards.krama.episode import ANSWER as FILE
from rewards.krama.episode import printed, read_text


def spellings(task: Task) -> Mapping[str, Answer]:
    """Write gold in other words of the same value: as a script prints it, and as a message says
    it."""
    gold = task.gold["answer"]
    made = _any(gold)
    if isinstance(gold, bool) or gold is None:
        return made
    if isinstance(gold, int | float):
        return made | _numbers(gold)
    if isinstance(gold, list):
        lists = _lists(cast("list[Any]", gold))
        if task.gold.get("ordered") is True:
            del lists["list, other order"]
        return made | lists
    return made | _texts(str(gold))


def benchmark(task: Task, answer: Answer) -> float | None:
    """Score the same response by the published harness; the outcome, None where it has none."""
    left: Any = json.loads(answer.files[FILE]) if FILE in answer.files else None
    response: Any = left["published"] if left else read_text(answer.text)
    kind = str(task.gold["answer_type"])
    return score_response(kind, task.gold["answer"], response, "release").outcome


def _tagged(text: str) -> Answer:
    return Answer(f"<answer>{text}</answer>")


def _shown(gold: Any) -> str:
    return gold if isinstance(gold, str) else json.dumps(gold, ensure_ascii=False)


def _any(gold: Any) -> dict[str, Answer]:
    text = _shown(gold)
    whole = json.dumps({"answer": gold}, ensure_ascii=False)
    return {
        "printed as text": printed(text),
        "in a tag": _tagged(text),
        "in a tag, spaces around": _tagged(f"  {text}\n"),
        "after chatter": Answer(f"The answer follows. <answer>{text}</answer> Done."),
        "JSON": Answer(whole),
        "JSON, indented": Answer(json.dumps({"answer": gold}, indent=2)),
        "JSON, more keys": Answer(json.dumps({"why": "x", "answer": gold})),
        "JSON in a code fence": Answer(f"```json\n{whole}\n```"),
        "in a tag, trailing period": _tagged(f"{text}."),
    }


def _numbers(gold: float) -> dict[str, Answer]:
    exact = repr(gold)
    values = {
        "number, as float": printed(float(gold)),
        "number, trailing zeros": printed(exact + ("00" if "." in exact else ".00")),
        "number, plus sign": printed(f"+{exact}" if gold >= 0 else exact),
        "number, exponent": printed(f"{float(gold):.17e}"),
        "number, capital exponent": printed(f"{float(gold):.17E}"),
        "number, leading zero": printed(f"0{exact}" if gold >= 0 else exact),
        "number, thousands by commas": printed(f"{gold:,}" if abs(gold) >= 1000 else "1,000"),
        "number, thousands by _": printed(f"{gold:_}"),
        "number, percent of 100": printed(f"{gold * 100!r}%"),
        "number, quoted": printed(f'"{exact}"'),
        "number, currency": printed(f"${exact}"),
        "number, unit": printed(f"{exact} km"),
    }
    if abs(gold) < 1000:  # nothing to write commas in
        del values["number, thousands by commas"]
    return values


def _lists(gold: list[Any]) -> dict[str, Answer]:
    return {
        "list, other order": printed(gold[::-1]),
        "list, Python spelling": printed(str(gold)),
        "list, a tuple's spelling": printed("(" + ", ".join(map(repr, gold)) + ",)"),
        "list, no spaces": printed(json.dumps(gold, separators=(",", ":"))),
        "list, lines": printed(json.dumps(gold, indent=1)),
        "list, elements as text": printed([str(v) for v in gold]),
        "list, elements with spaces": printed(
            [f" {v} " if isinstance(v, str) else v for v in gold]
        ),
        "list, other case": printed([v.upper() if isinstance(v, str) else v for v in gold]),
        "list, elements as floats": printed(
            [float(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in gold]
        ),
        "list, no brackets": printed(", ".join(map(str, gold))),
        "list, bullets": printed("\n".join(f"- {v}" for v in gold)),
    }


def _texts(gold: str) -> dict[str, Answer]:
    return {
        "text, upper case": printed(gold.upper()),
        "text, lower case": printed(gold.lower()),
        "text, spaces around": printed(f"  {gold} "),
        "text, newline": printed(f"{gold}\n"),
        "text, in quotes": printed(f'"{gold}"'),
        "text, in single quotes": printed(f"'{gold}'"),
        "text, trailing period": printed(f"{gold}."),
        "text, an article": printed(f"the {gold}"),
        "text, two spaces": printed(gold.replace(" ", "  ")),
        "text, a sentence": printed(f"It is {gold}."),
        "text, bold": printed(f"**{gold}**"),
    }


ANSWER_AUDIT = Audit(
    kind=lambda task: str(task.gold.get("answer_type") or ""),
    forms={
        "tagged": lambda task, text: _tagged(text),
        # what an episode leaves whose script printed the text, and every number of the prompt
        "printed": lambda task, text: printed(text, values=[*shown(task).numbers]),
    },
    # `beyond`: sub-task credit pays up to 0.2 of what the outcome leaves. Table 3 pays every
    # constant about 0.5 on approximate numbers and part of the F1 of a list; the reward does not.
    floors={
        "numeric_exact": Floor(0.1, 0.1, 0.2),
        "numeric_approximate": Floor(0.6, 0.2, 0.2),
        "string_exact": Floor(0.3, 0.3, 0.2),
        "string_approximate": Floor(0.3, 0.3, 0.2),
        "list_exact": Floor(0.5, 0.2, 0.2),
        "list_approximate": Floor(0.5, 0.2, 0.2),
    },
    spellings=spellings,
    benchmark=benchmark,
)
