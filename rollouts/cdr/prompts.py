"""Request wrappers: the two chat messages of a task, by prompt mode (spec section 11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rewards.parse import render
from rewards.task import Message

MODES = ("direct", "few_shot", "plan_first", "state_aware")

SYSTEM = (
    "You are a careful text refinement engine. Follow the request exactly and in the order it "
    "gives. Return only the required tagged output, without reasoning or commentary."
)
SYSTEM_ANALYSIS = (
    "You are a careful text refinement engine. Follow the request exactly and in the order it "
    "gives. Return one short analysis block and then only the required tagged output."
)
CONTRACT = f"""\
Return tagged output only, in exactly one of these forms:
{render("KEEP", "...")}
{render("DROP", "...")}
Rules:
- <status> holds KEEP or DROP and nothing else.
- <clean_text> holds the text. With KEEP it is the final refined text; with DROP it is the text as \
it stood when it was rejected.
- Backslashes are ordinary characters; do not escape anything.
- No Markdown, no code fences, no explanations."""

PLAN = """\
Before the tagged output write one <analyze>...</analyze> block that restates the procedure as an \
ordered list of steps with their rules and thresholds, for example:
<analyze>
1. remove e-mail addresses
2. reject the text if it has fewer than 10 words
</analyze>"""

STATES = """\
Before the tagged output write one <analyze>...</analyze> block that names the states of the text \
that matter: S0 is the input, and every step that changes the text makes the next state; a filter \
makes none, it looks at one. Say which state each step works on, one line each. With DROP, stop at \
the last valid state. For example:
<analyze>
S0 -> S1: remove e-mail addresses
S1: reject the text if it has fewer than 10 words
</analyze>"""


class Example(NamedTuple):
    """A solved task as a prompt shows it."""

    requirement: str
    text: str
    status: str
    result: str


# What the release shows in every prompt; here only where there are no training tasks to draw from.
FIXED = (
    Example(
        "Remove web links and e-mail addresses, then squeeze runs of spaces into one.",
        "See  https://example.org  for   details.",
        "KEEP",
        "See for details.",
    ),
    Example(
        "Remove web links and e-mail addresses, "
        "then reject the text if it has fewer than 10 words.",
        "Short note: https://example.org",
        "DROP",
        "Short note: ",
    ),
)


def block(requirement: str, text: str) -> str:
    """Task and input, as they stand in the request and in its examples."""
    return f"Task:\n{requirement}\n\nRaw input text:\n<input>\n{text}\n</input>"


def messages(
    requirement: str,
    text: str,
    mode: str = "direct",
    output_format: str = "tagged_text",
    examples: Sequence[Example] = FIXED,
) -> list[Message]:
    """System and user message; `examples` are those of few_shot. Raises ValueError for a mode that
    does not exist."""
    if mode not in MODES:
        raise ValueError(f"mode={mode!r}: wanted one of {', '.join(MODES)}")
    if output_format == "json":
        user = (
            f"{block(requirement, text)}\n\nReturn only the required JSON, no code fences and "
            "no explanations."
        )
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
    parts = [block(requirement, text)]
    if mode == "few_shot":
        shown = [
            f"Example {i}\n{block(one.requirement, one.text)}\n\n"
            f"Correct output:\n{render(one.status, one.result)}"
            for i, one in enumerate(examples, 1)
        ]
        parts = [*shown, "Now the task itself.", *parts]
    elif mode == "plan_first":
        parts.append(PLAN)
    elif mode == "state_aware":
        parts.append(STATES)
    parts.append(CONTRACT)
    analysis = mode in ("plan_first", "state_aware")
    return [
        {"role": "system", "content": SYSTEM_ANALYSIS if analysis else SYSTEM},
        {"role": "user", "content": "\n\n".join(parts)},
    ]
