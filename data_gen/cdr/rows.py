"""The last map: units are executed and worded, proved, and become rows of the release and tasks.

Nothing is written that was not run again from its own words. After the release's fields (spec
section 14) stand `filter_params_by_name`, `recipe_variant_id`, `doc_id`, `threshold_meta` and
`composed`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from assay.task import Task, json_line
from configs.cdr import InstructConfig
from data_gen.cdr.documents import Replays, label, names_of, record_of
from data_gen.cdr.instruct import Manners, Pool, PromptVariant, Worded, drawn, in_manners, pool_of
from data_gen.cdr.outcome import Outcome, claims, described, describing, in_words, settled
from data_gen.cdr.plan import WORDED, Chosen
from data_gen.cdr.said import decided_in, holds, manner_of, says
from data_gen.cdr.units import (
    FILTER,
    MADE_AS,
    MAPPER,
    RELEASED_SLOTS,
    RULES,
    SWAP,
    Asked,
    Instance,
    bucket,
    difficulty,
    executed,
    frozen,
    instances,
    row_of,
)
from data_gen.cdr.work import Work, packed, said, write_packed, write_part
from data_gen.certificate import Refused, drawn_from
from data_gen.overlap import print_of
from rewards.cdr.release_files import RESULT_STYLES
from rewards.cdr.score import gold_answer, score_refinement
from rewards.gold import OPERATORS, RECIPE_PARAMS, BoundStep, Step, bind, run_bound
from rewards.parse import edit_distance
from rollouts.words.cdr import messages

Row = dict[str, Any]
LABELS = {1: "easy", 2: "medium", 3: "hard"}


def word_part(path: Path, job: tuple[Work, list[Chosen]]) -> int:
    """Write the rows and tasks of some units."""
    work, chosen = job
    plan = work.load("plan")
    found: list[tuple[Any, ...]] = []
    worded: list[list[Worded]] = []
    for (_, file, start, size, name, active), own in groupby(chosen, lambda unit: unit[:6]):
        row = packed(file, start, size) | {"id": said(name)}
        record = record_of(row, [*names_of(active)], work.config.domains)
        replays, proof = Replays(), Proof()
        for *_, unit, number, bits, place in own:
            rows = [executed(row, replays) for row in instances(plan.plans[number], record, bits)]
            pipeline = b"".join(map(json_line, pipeline_rows(rows)))
            made, refused = list[Worded](), ""
            if place >= 0:
                made, refused = word(rows, work.config.instruct, plan.wordings, proof, plan.pools)
            unsaid = next((one.unsaid for one in made if any(one.unsaid)), ("", ""))
            texts = [record.text, *(one.row["reference_text"] for one in made)]
            digests, signs = zip(*map(print_of, texts), strict=True)
            worded.append(made)
            found.append((unit, pipeline, refused, *unsaid, digests, signs))
    places = write_packed(path, worded)
    return write_part(path, WORDED, [(*row, *at) for row, at in zip(found, places, strict=True)])


# --- lines of pipeline.jsonl


def pipeline_rows(rows: Sequence[Instance]) -> Iterator[Row]:
    """What pipeline.jsonl says of a unit with its texts."""
    if rows[0].plan.kind == SWAP:
        yield _swap_row(*rows)
    else:
        yield from map(_instance_row, rows)


def sha256(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _instance_row(row: Instance) -> Row:
    plan = row.plan
    return {
        "kind": "pipeline_instance",
        "track": MADE_AS[plan.kind],
        "instance_id": row.id,
        "doc_id": row.record.id,
        "domain": label(row.record.domain),
        "recipe_id": plan.recipe_id,
        "recipe_variant_id": plan.variant_id,
        "recipe_type": plan.recipe_type,
        "order_family_id": plan.family_id,
        "order_slot": plan.slot,
        "order_group_instance_id": row.group,
        "operator_sequence": list(plan.sequence),
        "filter_params_by_name": plan.filter_params,
        "threshold_raw_value": plan.rule and plan.rule.meta["threshold_raw_value"],
        "status": row.status,
        "text_len": len(row.text),
        "text_sha256": sha256(row.text),
        "full_run_sha256": sha256(row.full_run),
        "recipe_prompt_key": row.key,
        "input_length_bucket": bucket(len(row.record.text)),
    }


def _swap_row(one: Instance, other: Instance) -> Row:
    return {
        "kind": "pipeline_order_m",
        "domain": label(one.record.domain),
        "recipe_id": one.plan.recipe_id,
        "doc_id": one.record.id,
        "order_family_id": one.plan.family_id,
        "order_group_instance_id": one.group,
        "swapped_instance_id": other.id,
        "canonical_operator_sequence": list(one.plan.sequence),
        "swapped_operator_sequence": list(other.plan.sequence),
        "canonical_sha256": sha256(one.text),
        "swapped_sha256": sha256(other.text),
        "edit_distance": edit_distance(one.text, other.text),
    }


# --- rows of the release, and tasks


def release_row(
    made: Instance, pool: Sequence[PromptVariant], picked: list[int], config: InstructConfig
) -> Row:
    """A row of `tracks/*.jsonl` but for its prompt variants, those of the pool that are picked."""
    row, record = made.plan, made.record
    score = difficulty(len(record.text), len(row.sequence))
    kind = {MAPPER: "mapper", FILTER: "filter"}.get(row.kind)
    return row_of(
        row.track,
        record.id,
        record.text,
        operator=kind and row.sequence[0],
        operator_kind=kind,
        instance_id=made.id,
        benchmark_track=row.track,
        benchmark_split="single",
        track_family="core_rule",
        domain=record.domain,
        source_benchmark="cdrbench_rule_based",
        operator_sequence=list(row.sequence),
        recipe_id=row.recipe_id,
        recipe_prompt_key=made.key,
        recipe_type=row.recipe_type,
        recipe_length=len(row.sequence),
        order_family_id=row.family_id,
        order_slot=RELEASED_SLOTS.get(str(row.slot), row.slot),
        order_group_instance_id=made.group,
        group_success_rule=RULES.get(row.kind),
        reference_status=made.status,
        reference_text=made.text,
        reference_text_full_run=made.full_run,
        output_format="tagged_text",
        scoring_profile="text_refinement",
        reports_refinement_gain=True,
        prompt_variant_count=len(picked),
        selected_prompt_variant_indices=picked,
        prompt_candidate_pool_count=len(pool),
        prompt_sampling_policy="hash_rank_without_replacement" if config.variants > 0 else "all",
        prompt_sampling_seed=config.seed,
        difficulty_score=score,
        difficulty_label=LABELS[score],
        filter_params_by_name=row.filter_params,
        recipe_variant_id=row.variant_id,
        doc_id=record.id,
        threshold_meta=row.rule and row.rule.meta,
        composed=row.composed,
    )


def task_of(made: Instance, row: Row, variant: PromptVariant, mode: str, number: int = 0) -> Task:
    """A release row as a task, asked in one of its wordings: the `number`th of those it is written
    in."""
    plan, record, name = made.plan, made.record, row["instance_id"]
    return Task(
        id=name if number == 0 else f"{name}-{number}",
        family="refinement",
        track=row["source_track"],
        split="train",
        prompt=messages(variant.user_requirement, row["input_text"], mode),
        gold={
            "status": row["reference_status"],
            "text": row["reference_text"],
            "recipe": [{"operator": s.operator, "params": dict(s.params)} for s in plan.steps],
            "input_text": row["input_text"],
            "full_run_text": row["reference_text_full_run"],
            "mode": mode,
        },
        group=row["order_group_instance_id"],
        meta={
            "instance": name,
            **drawn_from(record.source, [record.licence], row["domain"], row["doc_id"]),
            "difficulty": row["difficulty_label"],
            "length_bucket": row["input_length_bucket"],
            "recipe_length": row["recipe_length"],
            "has_filter": plan.filter is not None,
            "order_slot": row["order_slot"],
            "template": plan.template,
            "requirement": variant.user_requirement,
            "style": variant.style_id,
            "composed": row["composed"],
            **({"wording": variant.wording} if variant.wording else {}),
        },
    )


# --- words and their proof


class _Unsaid(Exception):
    """An operator does to a text what its words do not say: the two, in a few words."""


def word(
    unit: Sequence[Instance],
    config: InstructConfig,
    wordings: Mapping[tuple[str, str], str],
    proof: Proof | None = None,
    known: Mapping[Asked, Pool] | None = None,
) -> tuple[list[Worded], str]:
    """(the rows of a unit with their prompt variants, each proved, ""); or (none, why not).

    `wordings`: paraphrases that stand in for the grammar's own words, by key and style. `proof`: of
    the unit's document. `known`: the pools made before.
    """
    proof = proof or Proof()
    try:
        return [_worded(one, config, wordings, proof, known or {}) for one in unit], ""
    except Refused as refused:
        return [], refused.why.code


def _worded(
    instance: Instance,
    config: InstructConfig,
    wordings: Mapping[tuple[str, str], str],
    proof: Proof,
    known: Mapping[Asked, Pool],
) -> Worded:
    asked, steps, name = instance.asked, instance.plan.steps, instance.id
    found = known.get(asked) or pool_of(asked, config)
    if found.refused:
        raise Refused(found.refused)
    pool = [
        replace(one, user_requirement=said, source="paraphrase") if said else one
        for one in found.variants
        for said in (wordings.get((asked[0], one.style_id)),)
    ]
    picked, trained = drawn(len(pool), asked[0], name, config)
    row = release_row(instance, pool, picked, config)
    shown = range(len(pool)) if config.all_prompts else {*picked, *trained}
    results = [i for i in shown if pool[i].style_id in RESULT_STYLES and not pool[i].source]
    outcome = proof.outcome(row, steps) if results else ""
    if why := proof.refusal(row, steps):
        raise Refused(why)
    for i in results:
        pool[i] = _for_result(asked, pool[i], outcome, config)
    row["prompt_variants"] = [pool[i].to_json() for i in picked]
    unsaid, asked_in = ("", ""), [pool[i] for i in trained]
    if config.as_said:
        try:
            asked_in = _as_said(asked, asked_in, outcome, row["input_text"], steps, proof, config)
        except _Unsaid as error:
            unsaid = error.args
    tasks = [task_of(instance, row, v, config.mode, i) for i, v in enumerate(asked_in)]
    if len(tasks) > 1:
        tasks = [task if task.group else replace(task, group=name) for task in tasks]
    told = "outcome" if isinstance(outcome, Outcome) else outcome
    return Worded(row, pool if config.all_prompts else [], tasks, told, unsaid)


def _for_result(
    asked: Asked, variant: PromptVariant, outcome: Outcome | str, config: InstructConfig
) -> PromptVariant:
    """The variant as a description of the outcome, where it has one."""
    if isinstance(outcome, str):
        return replace(variant, wording="steps")
    return describing(asked, variant.style_id, variant.style_label, outcome, config)


def _as_said(
    asked: Asked,
    variants: Sequence[PromptVariant],
    outcome: Outcome | str,
    text: str,
    steps: Sequence[Step],
    proof: Proof,
    config: InstructConfig,
) -> list[PromptVariant]:
    """The variants with the words of every step in the manner that says what it does to the text;
    one tells the steps where the result is not what those words say of it. Raises `_Unsaid`."""
    manners = proof.manners(text, steps)
    meant: Outcome | None = None
    if isinstance(outcome, Outcome) and any(v.wording for v in variants):
        meant = in_words(outcome, steps, manners)
        meant = meant if proof.is_true(meant, text, steps) else None
    found: list[PromptVariant] = []
    for variant in variants:
        if variant.wording == "outcome" and meant is not None:
            variant = _for_result(asked, variant, meant, config)
        elif any(manners) or variant.wording == "outcome":
            plain = in_manners(asked, variant.style_id, manners, config)
            variant = replace(plain, wording="steps" if variant.wording else "")
        found.append(variant)
    return found


class Proof:
    """Runs recipes on the texts of one document again, apart from what made its gold.

    What an operator does to a text is computed once here, and remembered for the other tasks and
    readings that ask for the same.
    """

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}
        self._manner = cache(manner_of)

    def refusal(self, row: Row, steps: Sequence[Step]) -> str:
        """Why a row must not be written, or "": its recipe is run on the input, once with the
        operators as they are and once to the letter of the words (no bound that no word states);
        both must give gold, and gold must score 1."""
        gold = (row["reference_status"], row["reference_text"])
        if self._run(row["input_text"], steps) != gold:
            return "its recipe does not lead to its gold"
        literal = [*map(_literal, steps)]
        if literal != list(steps) and self._run(row["input_text"], literal) != gold:
            return "an unspoken bound of a filter decides it"
        score = score_refinement(row, gold_answer(row))
        return "" if (score.outcome, score.reward) == (1.0, 1.0) else "its gold does not score 1"

    def _run(self, text: str, steps: Sequence[Step]) -> tuple[str, str]:
        made = run_bound(text, [self._step(step) for step in steps])
        return made.status, made.text

    def manners(self, text: str, steps: Sequence[Step]) -> Manners:
        """The manner of words for every step that says what it does to its text: the first of the
        operator's that does. Raises `_Unsaid` where none does. Steps behind a rejecting filter are
        not judged."""
        found = [0] * len(steps)
        for place, step in enumerate(steps):
            bound, after, keep = self._step(step), text, True
            if bound.operator.kind == "filter":
                keep, _ = bound.judge(text)
                manner = decided_in(step, text, keep)
            else:
                after = bound.call(text, **bound.params)
                manner = self._manner(step.operator, text, after)
            if isinstance(manner, str):
                raise _Unsaid(step.operator, manner)
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
            after, manner = self._apply(mapper, before), said_in[mapper]
            if self._manner(mapper, before, after) == manner:
                return after
            if not says(mapper, manner, before, after):
                raise _Unsaid
            return after

        try:
            settled(outcome, text, apply, self._keeps)
        except _Unsaid:
            return False
        made = claims(outcome, text, steps, self._apply)
        return all(holds(name, said_in[name], one) for name, one in made)

    def _apply(self, mapper: str, text: str) -> str:
        step = self._step(Step(mapper, dict(RECIPE_PARAMS.get(mapper, {}))))
        return step.call(text, **step.params)

    def _keeps(self, step: Step, text: str) -> bool:
        return self._step(step).judge(text)[0]

    def _step(self, step: Step) -> BoundStep:
        """The step, whose results are remembered; steps that differ in a filter's bounds alone
        share them."""
        made = _bind(*frozen(step))
        name = step.operator, repr(made.params)

        def call(text: str, **params: Any) -> Any:
            if (*name, text) not in self._known:
                self._known[*name, text] = made.call(text, **params)
            return self._known[*name, text]

        return replace(made, call=call)


@lru_cache(maxsize=20_000)
def _bind(name: str, params: tuple[tuple[str, Any], ...]) -> BoundStep:
    return bind(Step(name, dict(params)))


def _literal(step: Step) -> Step:
    operator = OPERATORS[step.operator]
    if operator.kind != "filter":
        return step
    return Step(step.operator, dict.fromkeys(operator.bounds) | step.params)
