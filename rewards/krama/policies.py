"""What `assay audit` knows of lake answers: their kinds, how a text is handed in, the floors."""

from __future__ import annotations

from collections.abc import Mapping

from assay.family import Answer, Floor, Form
from assay.task import Task
from rewards.audit.blind_policies import shown
from rewards.krama.episode import printed


def answer_type(task: Task) -> str:
    """One of the six answer types; constants are searched within it."""
    return str(task.gold.get("answer_type") or "")


def _tagged(task: Task, text: str) -> str:
    return f"<answer>{text}</answer>"


def _printed(task: Task, text: str) -> Answer:
    """What an episode leaves whose script printed the text, and every number of the prompt."""
    return printed(text, values=[*shown(task).numbers])


FORMS: Mapping[str, Form] = {"tagged": _tagged, "printed": _printed}

# `beyond`: sub-task credit pays up to 0.2 of what the outcome leaves. Table 3 pays every constant
# about 0.5 on approximate numbers and part of the F1 of a list; the reward does not.
FLOORS: Mapping[str, Floor] = {
    "numeric_exact": Floor(0.1, 0.1, 0.2),
    "numeric_approximate": Floor(0.6, 0.2, 0.2),
    "string_exact": Floor(0.3, 0.3, 0.2),
    "string_approximate": Floor(0.3, 0.3, 0.2),
    "list_exact": Floor(0.5, 0.2, 0.2),
    "list_approximate": Floor(0.5, 0.2, 0.2),
}
