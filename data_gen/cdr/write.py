"""Wording, proving and writing the tracks: nothing is written that has not been re-executed from
its own words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from configs.cdr import InstructConfig
from data_gen.cdr.instruct import (
    InstructionError,
    PromptVariant,
    chosen,
    pool,
    read_instruction,
    wordings_of,
)
from data_gen.cdr.paraphrase_pool import Wordings
from data_gen.cdr.rows import PlannedRow, Row, key_of, release_row
from data_gen.chunks import in_order
from rewards.cdr.refinement import gold_answer, score_refinement
from rewards.gold import OPERATORS, BoundStep, Step, bind, run_bound
from rewards.progress import Progress

_CHUNK = 64


@dataclass(frozen=True)
class Written:
    """Rows of one unit, or why none of it is written. `asked`: the variants that each row's
    training tasks are asked in."""

    rows: list[Row] = field(default_factory=list[Row])
    pools: list[list[PromptVariant]] = field(default_factory=list[list[PromptVariant]])
    asked: list[list[PromptVariant]] = field(default_factory=list[list[PromptVariant]])
    refused: str = ""


@lru_cache(maxsize=10_000)
def _pool(key: str, steps: tuple[tuple[str, tuple[Any, ...]], ...], seed: int, forms: int) -> Any:
    return pool([Step(name, dict(params)) for name, params in steps], key, seed, forms)


@lru_cache(maxsize=20_000)
def _read(text: str) -> tuple[Step, ...]:
    return tuple(read_instruction(text)[0])


def word(unit: Sequence[PlannedRow], config: InstructConfig, wordings: Wordings) -> Written:
    """The rows of a unit with their prompt variants, each proved; all or none are kept.

    `wordings` are paraphrases that stand in for the grammar's own words, with the recipes that
    were recovered from them.
    """
    rows: list[Row] = []
    pools: list[list[PromptVariant]] = []
    asked: list[list[PromptVariant]] = []
    for planned in unit:
        frozen = tuple((s.operator, tuple(sorted(s.params.items()))) for s in planned.steps)
        key = key_of(planned)
        try:
            variants: list[PromptVariant] = _pool(key, frozen, config.seed, config.forms)
        except InstructionError as error:
            return Written(refused=f"unspoken: {str(error)[:60]}")
        variants = [paraphrased(v, key, wordings) for v in variants]
        picked = chosen(len(variants), config.variants, config.seed, key, planned.instance.id)
        row = release_row(planned, variants, picked, config.variants, config.seed)
        trained = wordings_of(
            len(variants),
            picked,
            config.variants_per_task,
            config.seed,
            key,
            planned.instance.id,
        )
        said = [_said(variants[i], key, wordings) for i in dict.fromkeys([*picked, *trained])]
        if why := refusal(row, planned.steps, said):
            return Written(refused=why)
        rows.append(row)
        pools.append(variants)
        asked.append([variants[i] for i in trained])
    return Written(rows, pools, asked)


def paraphrased(variant: PromptVariant, key: str, wordings: Wordings) -> PromptVariant:
    """The paraphrase of a variant if there is one, else the variant."""
    found = wordings.get((key, variant.style_id))
    if found is None:
        return variant
    return PromptVariant(variant.style_id, variant.style_label, found.text, "paraphrase")


def _said(variant: PromptVariant, key: str, wordings: Wordings) -> tuple[Step, ...]:
    """What the words of a variant say: as the grammar reads them, or as it was recovered."""
    if variant.source == "paraphrase":
        return wordings[key, variant.style_id].steps
    return _read(variant.user_requirement)


def refusal(row: Row, steps: Sequence[Step], read: Sequence[Sequence[Step]]) -> str:
    """Why a row must not be written, or "". `read` is what each of its variants says.

    What the first one says is run on the input, once with the operators as they are and once to
    the letter of the words (no bound that no word states); both must give gold, the others must
    say the same, and gold must score 1.
    """
    text, gold = row["input_text"], (row["reference_status"], row["reference_text"])
    if not read or any(list(said) != list(steps) for said in read):
        return "its words do not say its recipe"
    said = read[0]
    run = run_bound(text, [_bound(step) for step in said])
    if (run.status, run.text) != gold:
        return "its recipe does not lead to its gold"
    if any(s.operator in OPERATORS and OPERATORS[s.operator].kind == "filter" for s in said):
        literal = run_bound(text, [_bound(_literal(step)) for step in said])
        if (literal.status, literal.text) != gold:
            return "an unspoken bound of a filter decides it"
    score = score_refinement(row, gold_answer(row))
    return "" if (score.outcome, score.reward) == (1.0, 1.0) else "its gold does not score 1"


def _bound(step: Step) -> BoundStep:
    return _bind(step.operator, tuple(sorted(step.params.items())))


@lru_cache(maxsize=20_000)
def _bind(name: str, params: tuple[tuple[str, Any], ...]) -> BoundStep:
    return bind(Step(name, dict(params)))


def _literal(step: Step) -> Step:
    operator = OPERATORS[step.operator]
    if operator.kind != "filter":
        return step
    return Step(step.operator, dict.fromkeys(operator.bounds) | step.params)


def word_all(
    units: Sequence[Sequence[PlannedRow]],
    config: InstructConfig,
    workers: int,
    wordings: Wordings | None = None,
) -> tuple[list[Written], Counter[str]]:
    """Every unit worded, in order, by `workers` processes; and the refusals by reason."""
    jobs = [
        _job(list(units[i : i + _CHUNK]), config, wordings or {})
        for i in range(0, len(units), _CHUNK)
    ]
    bar = Progress("wording", "units", len(units))
    found = in_order(_word_chunk, jobs, workers, bar)
    return found, Counter(w.refused for w in found if w.refused)


_Job = tuple[list[Sequence[PlannedRow]], InstructConfig, Wordings]


def _job(units: list[Sequence[PlannedRow]], config: InstructConfig, wordings: Wordings) -> _Job:
    """A chunk of units with the wordings it needs."""
    keys = {key_of(planned) for unit in units for planned in unit} if wordings else set[str]()
    return units, config, {name: words for name, words in wordings.items() if name[0] in keys}


def _word_chunk(job: _Job) -> list[Written]:
    units, config, wordings = job
    return [word(unit, config, wordings) for unit in units]
