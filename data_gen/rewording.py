"""Questions reworded by any OpenAI-compatible endpoint, each kept only where a check passes.

The endpoint proposes (`data_gen.asking`); `data_gen.rewording_facts` decides, without a model. A
refused rewording leaves the question as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_gen.asking import FILE, Endpoint, Reply, answers
from data_gen.asking import said as text_of
from data_gen.rewording_facts import Facts, lacks, named
from data_gen.tally import Refusal

__all__ = ["FILE", "Endpoint", "Facts", "Job", "Rewording", "report", "reword_all"]

CUT_OFF, SAME = "cut off", "not changed"  # codes of what says nothing new
_SHOWN = 300  # characters of a refused rewording in a report
_PROMPT = (
    "Reword this question as one colleague would ask another. Keep these to the letter:\n{kept}\n"
    "Leave nothing out, add nothing, do not answer it. Reply with the question alone, on one line."
    "\n\n{question}"
)

Job = tuple[str, Facts, int]  # (question, facts, seed)


@dataclass(frozen=True)
class Rewording:
    """The words to use. `refused` says why they are still those of the question, None where they
    are new; `said` is what the endpoint said."""

    text: str
    refused: Refusal | None = None
    said: str = ""


def reword_all(
    jobs: Sequence[Job],
    endpoint: Endpoint,
    advance: Callable[[int], Any] = lambda _: None,
    prompts: Sequence[str] = (),
) -> list[Rewording]:
    """`reworded` for many questions, several requests side by side, in the order of the jobs.
    `prompts` are what is asked in place of the usual words, "" where these are.

    Raises `TaskError` when the endpoint cannot be had; what it said until then is in the journal.
    """
    own = prompts or [""] * len(jobs)
    requests = [
        (prompt or _prompt(question, facts), seed)
        for (question, facts, seed), prompt in zip(jobs, own, strict=True)
    ]
    return [
        _decided(question, facts, reply)
        for (question, facts, _), reply in zip(
            jobs, answers(endpoint, requests, advance), strict=True
        )
    ]


def report(found: Mapping[str, Rewording]) -> dict[str, Any]:
    """Counts for a certificate, and every refused rewording by the name of its task."""
    refused = {name: (why, one.said) for name, one in found.items() if (why := one.refused)}
    counts = Counter(why.code for why, _ in refused.values())
    return {
        "asked": len(found),
        "reworded": len(found) - len(refused),
        "refused": dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))),
        "refusals": {
            name: {"why": why.coded(), "said": said[:_SHOWN]}
            for name, (why, said) in refused.items()
        },
    }


def _prompt(question: str, facts: Facts) -> str:
    kept = "\n".join(f"- {part}" for part in named(question, facts))
    return _PROMPT.format(kept=kept or "- (nothing)", question=question)


def _decided(question: str, facts: Facts, row: Reply) -> Rewording:
    said = text_of(row)
    if row["stop"] != "eos":
        return Rewording(question, Refusal(CUT_OFF, row["stop"]), said)
    if said == question:
        return Rewording(question, Refusal(SAME), said)
    why = lacks(question, said, facts)
    return Rewording(question, why, said) if why else Rewording(said, None, said)
