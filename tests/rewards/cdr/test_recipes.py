"""Which change to a recipe explains a wrong answer."""

from __future__ import annotations

from typing import Any

import pytest

from rewards.cdr.recipes import attribute
from rewards.gold import Step, execute

TEXT = "Write to ana@acme.io or see https://example.org now. Then <b>stop</b> here."
RECIPE = (
    Step("clean_email_mapper"),
    Step("clean_html_mapper"),
    Step("text_length_filter", {"min_len": 20}),
    Step("clean_links_mapper"),
)


def gold(steps: tuple[Step, ...] = RECIPE, text: str = TEXT) -> dict[str, Any]:
    run = execute(text, steps)
    recipe = [{"operator": s.operator, "params": s.params} for s in steps]
    return {"input_text": text, "status": run.status, "text": run.text, "recipe": recipe}


DROPPING = (RECIPE[0], Step("text_length_filter", {"min_len": 500}), RECIPE[1])


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ((RECIPE[0], *RECIPE[2:]), "omitted"),
        ((RECIPE[2],), "no_op"),
    ],
)
def test_a_wrong_answer_is_explained_by_the_recipe_that_gives_it(
    steps: tuple[Step, ...], kind: str
) -> None:
    run = execute(TEXT, steps)
    assert attribute(gold(), run.status, run.text).kind == kind


def test_ignoring_the_filter_and_another_order_are_told_apart() -> None:
    task = gold(DROPPING)
    run = execute(TEXT, DROPPING)
    assert attribute(task, "KEEP", run.full_run_text).kind == "ignored_filter"
    early = execute(TEXT, (DROPPING[1], DROPPING[0], DROPPING[2]))
    assert attribute(task, early.status, early.text).kind in ("no_op", "omitted", "permuted")
    assert attribute(task, "DROP", "something else").kind == "none"
