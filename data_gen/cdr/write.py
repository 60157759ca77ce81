"""Wording, proving and writing the tracks: nothing is written that has not been re-executed from
its own words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeGuard, cast

from configs.cdr import InstructConfig
from data_gen.cdr.instruct import (
    Manners,
    Pool,
    PromptVariant,
    chosen,
    describing,
    in_manners,
    pool_of,
    wordings_of,
)
from data_gen.cdr.paraphrase import Wordings
from data_gen.cdr.rows import Row, release_row
from data_gen.cdr.said.check import decided_in, holds, manner_of, says
from data_gen.cdr.settle import Outcome, claims, described, in_words, settled
from data_gen.cdr.units import Asked, Instance, frozen
from rewards.cdr.release_files import RESULT_STYLES
from rewards.cdr.score import gold_answer, score_refinement
from rewards.gold import OPERATORS, RECIPE_PARAMS, BoundStep, Execution, Step, bind, run_bound


@dataclass(frozen=True)
class Written:
    """Rows of one unit, or why none of it is written. `asked`: the variants that each row's
    training tasks are asked in, longer ones where the pool's words do not say what happens to the
    row's text; `unsaid`: the operator that does another thing to one of the texts than any of its
    words say, and what, in two parts. `told`: of each row that is drawn in a style that describes
    the result "outcome", or why that style tells the steps there; "" of others."""

    rows: list[Row] = field(default_factory=list[Row])
    pools: list[list[PromptVariant]] = field(default_factory=list[list[PromptVariant]])
    asked: list[list[PromptVariant]] = field(default_factory=list[list[PromptVariant]])
    refused: str = ""
    unsaid: tuple[str, str] = ("", "")
    told: list[str] = field(default_factory=list[str])


class _Unsaid(Exception):
    """A mapper does to a text what the words do not say."""


class Proof:
    """Runs recipes on the texts of one document again, apart from what made its gold.

    What an operator does to a text is computed once here, and remembered for the other tasks and
    readings that ask for the same.
    """

    def __init__(self) -> None:
        self._steps: dict[Any, BoundStep] = {}
        self._mappers: dict[str, BoundStep] = {}
        self._known: dict[tuple[str, str], dict[str, Any]] = {}
        self._manner: dict[tuple[str, str], int | str] = {}

    def run(self, text: str, steps: Iterable[Step]) -> Execution:
        """What `run_bound` gives."""
        return run_bound(text, [self._step(step) for step in steps])

    def manners(self, text: str, steps: Sequence[Step]) -> Manners | tuple[str, str]:
        """The manner of words for every step that says what it does to its text: the first of the
        operator's that does. Where an operator does what none of its words say, it and what it
        does. Steps behind a rejecting filter are not judged."""
        found = [0] * len(steps)
        for place, step in enumerate(steps):
            bound = self._step(step)
            if bound.operator.kind == "filter":
                keep, _ = bound.judge(text)
                manner = decided_in(step, text, keep)
                after = text
            else:
                after = bound.call(text, **bound.params)
                manner = self._manner_of(step.operator, text, after)
                keep = True
            if isinstance(manner, str):
                return step.operator, manner
            found[place], text = manner, after
            if not keep:
                break
        return tuple(found)

    def outcome(self, row: Row, steps: Sequence[Step]) -> Outcome | str:
        """The row's recipe as a description of its result, which leads to its gold in every order
        that it allows; else why it cannot be told so."""
        text = row["input_text"]
        try:
            found = described(text, steps, self._apply)
            if isinstance(found, str):
                return found
            made = settled(found, text, self._apply, self._keeps)
        except (ValueError, RecursionError):  # an operator that fails in another order
            return "fails_in_another_order"
        gold = (row["reference_status"], row["reference_text"])
        return found if made == gold else "not_settled"

    def is_true(self, outcome: Outcome, text: str, steps: Sequence[Step]) -> bool:
        """Whether the words alone say what every mapper does in every order that they allow, and
        whether the result, and a rejected text, are then what is said of them."""
        said_in = dict(outcome.states)

        def apply(mapper: str, before: str) -> str:
            after = self._apply(mapper, before)
            manner = said_in[mapper]
            if self._manner_of(mapper, before, after) == manner or says(
                mapper, manner, before, after
            ):
                return after
            raise _Unsaid

        try:
            settled(outcome, text, apply, self._keeps)
        except _Unsaid:
            return False
        return all(
            holds(name, said_in[name], made)
            for name, made in claims(outcome, text, steps, self._apply)
        )

    def _manner_of(self, mapper: str, before: str, after: str) -> int | str:
        """`manner_of`, remembered."""
        if (found := self._manner.get((mapper, before))) is None:
            found = self._manner[mapper, before] = manner_of(mapper, before, after)
        return found

    def _apply(self, mapper: str, text: str) -> str:
        if (step := self._mappers.get(mapper)) is None:
            step = self._step(Step(mapper, dict(RECIPE_PARAMS.get(mapper, {}))))
            self._mappers[mapper] = step
        return step.call(text, **step.params)

    def _keeps(self, step: Step, text: str) -> bool:
        return self._step(step).judge(text)[0]

    def _step(self, step: Step) -> BoundStep:
        name = frozen(step)
        if name not in self._steps:
            self._steps[name] = self._remembering(_bind(*name))
        return self._steps[name]

    def _remembering(self, step: BoundStep) -> BoundStep:
        # readings that differ in a filter's bounds alone share its statistic
        known = self._known.setdefault((step.operator.name, repr(step.params)), {})

        def call(text: str, **params: Any) -> Any:
            if text not in known:
                known[text] = step.call(text, **params)
            return known[text]

        return replace(step, call=call)


def word(
    unit: Sequence[Instance],
    config: InstructConfig,
    wordings: Wordings,
    proof: Proof | None = None,
    known: Mapping[Asked, Pool] | None = None,
) -> Written:
    """The rows of a unit with their prompt variants, each proved; all or none are kept.

    `wordings` are paraphrases that stand in for the grammar's own words, with the recipes that
    were recovered from them. `proof`: of the unit's document. `known`: the pools made before.
    """
    proof = proof or Proof()
    rows: list[Row] = []
    pools: list[list[PromptVariant]] = []
    asked: list[list[PromptVariant]] = []
    told: list[str] = []
    unsaid = ("", "")
    for instance in unit:
        steps, wanted = instance.plan.steps, instance.asked
        found = (known or {}).get(wanted) or pool_of(wanted, config)
        if found.refused:
            return Written(refused=found.refused)
        key = wanted[0]
        variants = [paraphrased(v, key, wordings) for v in found.variants]
        picked = chosen(len(variants), config.variants, config.seed, key, instance.id)
        trained = wordings_of(
            len(variants),
            picked,
            config.variants_per_task,
            config.seed,
            key,
            instance.id,
        )
        row = release_row(instance, variants, picked, config.variants, config.seed)
        drawn = range(len(variants)) if config.all_prompts else {*picked, *trained}
        results = [i for i in drawn if _is_for_result(variants[i])]
        outcome: Outcome | str = proof.outcome(row, steps) if results else ""
        said = [
            # the grammar's words were read back to the recipe when their pool was made
            wordings[key, v.style_id].steps if v.source == "paraphrase" else steps
            for v in (variants[i] for i in dict.fromkeys([*picked, *trained]))
        ]
        if why := refusal(row, steps, said, proof):
            return Written(refused=why)
        for i in results:
            variants[i] = _for_result(wanted, variants[i], outcome, config)
        row["prompt_variants"] = [variants[i].to_json() for i in picked]
        asked_in = [variants[i] for i in trained]
        if config.as_said and not unsaid[0]:
            manners = proof.manners(row["input_text"], steps)
            if _names_an_operator(manners):
                unsaid = manners
            else:
                said_in = cast("Manners", manners)
                meant: Outcome | str = ""
                if isinstance(outcome, Outcome) and any(v.wording for v in asked_in):
                    meant = in_words(outcome, steps, said_in)
                    meant = meant if proof.is_true(meant, row["input_text"], steps) else ""
                asked_in = [_asked_in(wanted, v, said_in, meant, config) for v in asked_in]
        rows.append(row)
        pools.append(variants)
        asked.append(asked_in)
        told.append("outcome" if isinstance(outcome, Outcome) else outcome)
    return Written(rows, pools, asked, unsaid=unsaid, told=told)


def _is_for_result(variant: PromptVariant) -> bool:
    """Whether a variant is of a style that describes the result, and in our grammar."""
    return variant.style_id in RESULT_STYLES and variant.source == "grammar"


def _for_result(
    asked: Asked, variant: PromptVariant, outcome: Outcome | str, config: InstructConfig
) -> PromptVariant:
    """The variant as a description of the outcome, where it has one."""
    if isinstance(outcome, str):
        return replace(variant, wording="steps")
    return describing(asked, variant.style_id, variant.style_label, outcome, config)


def _asked_in(
    asked: Asked,
    variant: PromptVariant,
    manners: Manners,
    outcome: Outcome | str,
    config: InstructConfig,
) -> PromptVariant:
    """The variant with the words of every step in its manner; it tells the steps where the result
    is not what those words say of it."""
    if variant.wording == "outcome" and isinstance(outcome, Outcome):
        return _for_result(asked, variant, outcome, config)
    if not any(manners) and variant.wording != "outcome":
        return variant
    plain = in_manners(asked, variant.style_id, manners, config)
    return replace(plain, wording="steps" if variant.wording else "")


def _names_an_operator(found: Manners | tuple[str, str]) -> TypeGuard[tuple[str, str]]:
    return bool(found) and isinstance(found[0], str)


def paraphrased(variant: PromptVariant, key: str, wordings: Wordings) -> PromptVariant:
    """The paraphrase of a variant if there is one, else the variant."""
    found = wordings.get((key, variant.style_id))
    if found is None:
        return variant
    return PromptVariant(variant.style_id, variant.style_label, found.text, "paraphrase")


def refusal(row: Row, steps: Sequence[Step], read: Sequence[Sequence[Step]], proof: Proof) -> str:
    """Why a row must not be written, or "". `read` is what each of its variants says.

    What the first one says is run on the input, once with the operators as they are and once to
    the letter of the words (no bound that no word states); both must give gold, the others must
    say the same, and gold must score 1.
    """
    text, gold = row["input_text"], (row["reference_status"], row["reference_text"])
    if not read or any(list(said) != list(steps) for said in read):
        return "its words do not say its recipe"
    said = read[0]
    run = proof.run(text, said)
    if (run.status, run.text) != gold:
        return "its recipe does not lead to its gold"
    if any(s.operator in OPERATORS and OPERATORS[s.operator].kind == "filter" for s in said):
        literal = proof.run(text, map(_literal, said))
        if (literal.status, literal.text) != gold:
            return "an unspoken bound of a filter decides it"
    score = score_refinement(row, gold_answer(row))
    return "" if (score.outcome, score.reward) == (1.0, 1.0) else "its gold does not score 1"


@lru_cache(maxsize=20_000)
def _bind(name: str, params: tuple[tuple[str, Any], ...]) -> BoundStep:
    return bind(Step(name, dict(params)))


def _literal(step: Step) -> Step:
    operator = OPERATORS[step.operator]
    if operator.kind != "filter":
        return step
    return Step(step.operator, dict.fromkeys(operator.bounds) | step.params)
