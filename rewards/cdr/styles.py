"""Two kinds of instruction styles: those that list the operations, and those about the result.

The paper's Fig. 12 (right) sets operation-enumerating styles (Step-by-Step, Brief) against
outcome-oriented ones (Goal-First, Scenario Story). By the ids of the release the latter are the
goal-oriented description and the recipe narrative.
"""

from __future__ import annotations

from typing import Literal

RESULT_STYLES = ("goal_oriented", "recipe_narrative")
Kind = Literal["enumerating", "outcome"]
KINDS: tuple[Kind, Kind] = ("enumerating", "outcome")


def kind_of(style: str, wording: str | None = None) -> Kind:
    """The kind of a wording. `wording`: what a built row says of it, `steps` where a style about
    the result had to list the operations; of the release's rows nothing is known."""
    return "outcome" if style in RESULT_STYLES and wording != "steps" else "enumerating"
