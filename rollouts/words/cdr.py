"""The messages of a refinement task, by prompt mode (spec section 11), in words from a file, which
may be read out of the release's runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from assay.task import Message, Task
from rewards.cdr.score import ANALYSIS_MODES
from rewards.parse import render
from rollouts.words.release import called, mark, refused, template
from rollouts.words.templates import Kind, Read, Slot, Words, ours

RUNNER = Path("src/cdrbench_v3/run_inference.py")
MODES = ("direct", "few_shot", "plan_first", "state_aware")
# output_format of a row → the field of its request; rows of other formats are asked by mode
FORMATS = {"json": "json", "json_and_tagged_text": "json_and_text"}
_ASKED = ("requirement", "input")
SLOTS = {
    "system": Slot(),
    "system_analysis": Slot(),
    "contract": Slot(),
    "direct": Slot(("contract",), _ASKED),
    "few_shot": Slot(("contract", "examples"), _ASKED),
    "example": Slot(("number",), (*_ASKED, "output")),
    "examples": Slot(),
    "plan_first": Slot(("contract",), _ASKED),
    "state_aware": Slot(("contract",), _ASKED),
    "json": Slot((), _ASKED),
    "json_and_text": Slot((), _ASKED),
}

MARK = "words"  # in a task's meta: the hash of the words that it is asked in, where not ours


class Example(NamedTuple):
    """A solved task as a prompt shows it."""

    requirement: str
    text: str
    status: str
    result: str


def messages(
    requirement: str,
    text: str,
    mode: str = "direct",
    output_format: str = "tagged_text",
    examples: Sequence[Example] = (),
    words: Words | None = None,
) -> list[Message]:
    """System and user message; `examples` are those of few_shot, () for the fixed ones of the
    words. Raises ValueError for a mode that does not exist."""
    if mode not in MODES:
        raise ValueError(f"mode={mode!r}: wanted one of {', '.join(MODES)}")
    words = words or ours(KIND)
    form = FORMATS.get(output_format, "")
    shown: list[str] = []
    for one in examples:
        asked = {"number": len(shown) + 1, "requirement": one.requirement, "input": one.text}
        shown.append(words.fill("example", **asked, output=render(one.status, one.result)))
    around = {"contract": words["contract"], "examples": "\n\n".join(shown) or words["examples"]}
    user = words.fill(form or mode, requirement=requirement, input=text, **around)
    system = words["system_analysis" if mode in ANALYSIS_MODES and not form else "system"]
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def _asks(task: Task) -> bool:
    own = isinstance(task.meta.get("requirement"), str) and "input_text" in task.gold
    return own and (task.family == "structured" or "mode" in task.gold)


def _ask(task: Task, words: Words) -> Task:
    """The task in these words; in few_shot behind their fixed examples. One that is asked in them
    already stays as it is."""
    if not _asks(task) or task.meta.get(MARK, ours(KIND).hash) == words.hash:
        return task
    form = task.gold.get("output_format")
    if form is None:
        form = "json" if task.family == "structured" else "tagged_text"
    mode = str(task.gold.get("mode") or "direct")
    said = (str(task.meta["requirement"]), str(task.gold["input_text"]))
    meta = {k: v for k, v in task.meta.items() if k != "examples"}
    if words.source != "ours":
        meta[MARK] = words.hash
    return replace(task, prompt=messages(*said, mode, str(form), words=words), meta=meta)


def read_release(folder: Path) -> Read | None:
    """The words of a release's checkout: what its runner sends in each mode for a row. Its few-shot
    request holds its own examples."""
    if not (folder / RUNNER).is_file():
        return None
    asked = {mode: (mode, "tagged_text") for mode in MODES}
    asked |= {name: ("direct", form) for form, name in FORMATS.items()}
    sent, _ = called(folder, [_request(mode, form) for mode, form in asked.values()])
    found: dict[str, str] = {}
    systems: dict[str, str] = {}
    for name, messages in zip(asked, sent, strict=True):
        if [message["role"] for message in messages] != ["system", "user"]:
            raise refused(folder, f"{RUNNER}: messages of other roles")
        systems[name], found[name] = (template(message["content"]) for message in messages)
    analysis, plain = systems["state_aware"], systems["direct"]
    for name, system in systems.items():
        if system != (analysis if name in ANALYSIS_MODES else plain):
            raise refused(folder, f"{RUNNER}: a system message for {name}")
    texts = dict.fromkeys(SLOTS, "") | found | {"system": plain, "system_analysis": analysis}
    return Read(texts | {"example": "{requirement}{input}{output}"})


def _request(mode: str, form: str) -> dict[str, Any]:
    """The call that makes the messages of a row."""
    variant = {"style_id": "", "style_label": "", "user_requirement": mark("requirement")}
    row: dict[str, Any] = {
        "prompt_variants": [variant],
        "input_text": mark("input"),
        "output_format": form,
    }
    named = {"row": row, "index": 0, "prompt_mode": mode, "candidate_rows": list[Any]()}
    return {"file": str(RUNNER), "call": "_infer_one", "until": "messages", "named": named}


# releases by the hash of their words
KNOWN = {
    "b1532dbcbbc77c1388966fb36a7d204d6c61caf2b0c68ae51c452ce7d9b2eaa5": "CDR-Bench 6df0ac8",
}
OURS = Path(__file__).with_suffix(".yaml")
KIND = Kind("refinement", SLOTS, OURS, _asks, _ask, read_release, KNOWN)
