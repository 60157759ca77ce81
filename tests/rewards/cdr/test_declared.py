"""What an analysis declares: a text without end is no plan."""

from __future__ import annotations

from typing import Any

from rewards.cdr.declared import MOST_CHARS, declared_credit, split_analysis
from rewards.gold import Step, execute

RECIPE = (Step("clean_email_mapper"), Step("clean_links_mapper"))
TEXT = "Write to ana@acme.io or see https://example.org now."
PLAN = "1. remove all e-mail addresses\n2. erase all web links and e-mail addresses\n"


def gold(text: str = TEXT) -> dict[str, Any]:
    run = execute(text, RECIPE)
    recipe = [{"operator": s.operator, "params": s.params} for s in RECIPE]
    return {"input_text": text, "status": run.status, "text": run.text, "recipe": recipe}


def test_a_plan_earns_by_its_steps() -> None:
    analysis, rest = split_analysis(f"<analyze>{PLAN}</analyze>answer")
    assert rest == "answer"
    assert declared_credit(gold(), analysis) == 1.0
    assert declared_credit(gold(), "1. erase all web links and e-mail addresses\n") == 0.0


def test_an_analysis_without_end_is_not_read() -> None:
    """Each of its words costs a look at hundreds of phrases: 200,000 characters took 10 s."""
    assert declared_credit(gold(), PLAN + "the " * MOST_CHARS) == 0.0
    assert declared_credit(gold(), PLAN + "." * (MOST_CHARS - len(PLAN))) == 1.0
    assert declared_credit(gold(TEXT * 200), PLAN + "." * (2 * MOST_CHARS)) == 1.0
