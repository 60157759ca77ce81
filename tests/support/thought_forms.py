"""Forms in which models think before they answer, as the families spell them. `§` is the answer."""

from __future__ import annotations

from places import tables

HERE = "§"
_FORMS = tables("thoughts")
FORMS: dict[str, str] = {**_FORMS["forms"], "a long thought": f"<think>{'hm ' * 5000}</think>§"}
UNENDED: dict[str, str] = _FORMS["unended"]


def filled(form: str, answer: str) -> str:
    return form.replace(HERE, answer)
