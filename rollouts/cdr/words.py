"""Which words a refinement task is asked in, and how they are read out of the release's runner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollouts.words.interpret import Program, mark, template
from rollouts.words.templates import Read, Release, Slot

RUNNER = Path("src/cdrbench_v3/run_inference.py")
MODES = ("direct", "few_shot", "plan_first", "state_aware")
ANALYSIS = ("plan_first", "state_aware")  # modes that ask for an analysis before the answer
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


def read_release(folder: Path) -> Read | None:
    """The words of a release's checkout: what its runner sends in each mode for a row. Its few-shot
    request holds its own examples."""
    if not (folder / RUNNER).is_file():
        return None
    found: dict[str, str] = {}
    systems: dict[str, str] = {}
    for mode in MODES:
        systems[mode], found[mode] = _sent(folder / RUNNER, mode, "tagged_text")
    for form, name in FORMATS.items():
        systems[name], found[name] = _sent(folder / RUNNER, "direct", form)
    analysis, plain = systems["state_aware"], systems["direct"]
    for name, system in systems.items():
        if system != (analysis if name in ANALYSIS else plain):
            program = Program(folder / RUNNER)
            raise program.refused(program.function("_infer_one"), f"a system message for {name}")
    texts = dict.fromkeys(SLOTS, "") | found | {"system": plain, "system_analysis": analysis}
    return Read(texts | {"example": "{requirement}{input}{output}"})


def _sent(path: Path, mode: str, form: str) -> tuple[str, str]:
    """System and user message as templates."""
    variant = {"style_id": "", "style_label": "", "user_requirement": mark("requirement")}
    row: dict[str, Any] = {
        "prompt_variants": [variant],
        "input_text": mark("input"),
        "output_format": form,
    }
    program = Program(path)
    said: Any = program.until(
        "_infer_one",
        "messages",
        row=row,
        index=0,
        prompt_mode=mode,
        backend=None,
        candidate_rows=[],
    )
    roles = [message["role"] for message in said]
    if roles != ["system", "user"]:
        raise program.refused(program.function("_infer_one"), f"messages of {', '.join(roles)}")
    return template(said[0]["content"]), template(said[1]["content"])


# releases by the hash of their words
KNOWN = {
    "b1532dbcbbc77c1388966fb36a7d204d6c61caf2b0c68ae51c452ce7d9b2eaa5": "CDR-Bench 6df0ac8",
}
RELEASE = Release(read_release, KNOWN)
