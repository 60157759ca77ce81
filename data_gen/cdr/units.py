"""Units: rows that belong together, made from one operator or recipe and one document.

A `Rule` is the threshold of a filter. A `RowPlan` says what a row is whatever its document; with a
document it is an `Instance`, whose texts are made when they are wanted (spec section 8). Behind
them stands what rows of every construction have: the release's fields, splits, examples.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np

from assay.console import Progress
from assay.files import atomic_write
from assay.rows import read_rows
from assay.task import Task, derive_seed, json_line
from configs.cdr import SplitConfig
from data_gen.cdr.documents import Record, Replays
from data_gen.overlap import Fingerprint, Print, copies_of, overlaps
from data_gen.splits import taken
from rewards.cdr.release_files import FIELDS, prompt_key, stable_id
from rewards.gold import RECIPE_PARAMS, Step
from rollouts.words.cdr import Shots, pool_of, shows_examples, with_examples

# --- thresholds from statistics: percentiles, rounded to numbers people say

ZeroPolicy = Literal["min-positive", "skip"]

# filter -> (the one bound that is calibrated, its direction). "min": texts below are dropped.
BOUNDS: dict[str, tuple[str, Literal["min", "max"]]] = {
    "alphanumeric_filter": ("min_ratio", "min"),
    "average_line_length_filter": ("max_len", "max"),
    "character_repetition_filter": ("max_ratio", "max"),
    "flagged_words_filter": ("max_ratio", "max"),
    "maximum_line_length_filter": ("max_len", "max"),
    "stopwords_filter": ("min_ratio", "min"),
    "text_length_filter": ("min_len", "min"),
    "word_repetition_filter": ("max_ratio", "max"),
    "words_num_filter": ("min_num", "min"),
}
LEAST_RATIO = 0.001


@dataclass(frozen=True)
class Rule:
    """A filter with its threshold, and how it was made; `params` is None where the policy drops
    it."""

    params: dict[str, float] | None
    meta: dict[str, Any]


def percentile(values: Sequence[float] | np.ndarray[Any, Any], q: float) -> float:
    """Percentile q in [0, 1] by linear interpolation; one value is its own percentile.

    In exactly this form, because published thresholds depend on the last bit (spec section 17).
    """
    position = (len(values) - 1) * q
    low = int(position)
    high = min(low + 1, len(values) - 1)
    ordered = np.partition(np.asarray(values), (low, high))
    if len(values) == 1:
        return float(ordered[0])
    weight = position - low
    return float(ordered[low]) * (1 - weight) + float(ordered[high]) * weight


def round_threshold(value: float, key: str) -> float | int:
    """A threshold as it is spoken (spec section 7.1): a count, or a ratio within [0, 1]."""
    if key.endswith("_ratio"):
        return _round_ratio(value)
    steps = ((50, 5), (100, 10), (1000, 50), (10000, 100))
    step = next((s for limit, s in steps if value <= limit), 1000)
    rounded = int(round(value / step) * step)
    return max(5, rounded) if value > 0 else rounded


def _round_ratio(value: float) -> float:
    step, digits = (0.0001, 4) if value < 0.001 else (0.001, 3) if value < 0.01 else (0.01, 2)
    rounded = round(value / step) * step
    if value > 0 and rounded == 0:
        rounded = step
    return round(min(1.0, max(0.0, rounded)), digits)


def initial_threshold(values: Sequence[float], filter_name: str) -> dict[str, float]:
    """The library's first guess: 20th percentile for a minimum, 80th for a maximum."""
    key, direction = BOUNDS[filter_name]
    return {key: round_threshold(percentile(values, 0.2 if direction == "min" else 0.8), key)}


def quantile_of(filter_name: str, drop_rate: float) -> float:
    """Which quantile of its statistics a filter's threshold is made from."""
    return drop_rate if BOUNDS[filter_name][1] == "min" else 1 - drop_rate


def calibrated(filter_name: str, raw: float, drop_rate: float, zero_policy: ZeroPolicy) -> Rule:
    """Round `raw` to a threshold of a filter. `raw` is the percentile `quantile_of` of the texts'
    statistics, so that the filter drops about the share `drop_rate` of them.

    Only the calibrated bound is set; the opposite one falls back to the operator's default
    (the hidden lower bounds of spec section 2).
    """
    key, direction = BOUNDS[filter_name]
    value = round_threshold(raw, key)
    zero = key.endswith("_ratio") and value == 0
    if zero and zero_policy == "min-positive":
        value = LEAST_RATIO
    meta: dict[str, Any] = {
        "threshold_source": "instance_balanced_quantile",
        "target_drop_rate": drop_rate,
        "threshold_quantile": quantile_of(filter_name, drop_rate),
        "threshold_direction": direction,
        "threshold_raw_value": round(raw, 6),
        "threshold_value": value,
        "threshold_param_key": key,
        "zero_ratio_threshold": zero,
        "zero_ratio_action": zero_policy if zero else None,
    }
    return Rule(None if zero and zero_policy == "skip" else {key: value}, meta)


# --- rows

MAPPER, FILTER, MAIN, SWAP, ORDER = range(5)  # kinds of units, in the order of the tracks
# of each kind: the release's name, and that in the construction
TRACKS = ("atomic_m", "atomic_f", "agnostic_m", "order_m", "order_f")
MADE_AS = ("atomic", "atomic", "main", "mapper_order_sensitivity", "order_sensitivity")
SLOT_BITS = {"front": 1, "middle": 2, "end": 4}  # of an order group: where its filter keeps
RANKS = {"short": 1, "medium": 2, "long": 3}  # of input lengths
CANONICAL = "original"  # slot of an order pair
RULES = {ORDER: "all_slots_correct", SWAP: "canonical_and_swapped_outputs_correct"}
RELEASED_SLOTS = {"front": "pre", "middle": "mid", "end": "post"}
Asked = tuple[str, tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]]
Plans = tuple["RowPlan", ...]


@dataclass(frozen=True)
class RowPlan:
    """A row of a unit, without its document; `rule`: the threshold of its filter."""

    kind: int
    sequence: tuple[str, ...]
    rule: Rule | None = None
    recipe_id: str | None = None
    variant_id: str | None = None
    recipe_type: str | None = None
    family_id: str | None = None
    slot: str | None = None
    composed: bool = False

    @property
    def track(self) -> str:
        """The release's name of what it is."""
        return TRACKS[self.kind]

    @property
    def filter_params(self) -> dict[str, Any]:
        return {} if self.rule is None else {str(self.filter): self.rule.params}

    @property
    def filter(self) -> str | None:
        """The filter of the recipe, which has one at most."""
        return next((name for name in self.sequence if name.endswith("_filter")), None)

    @property
    def steps(self) -> list[Step]:
        """The recipe, with the parameters gold was made with."""
        params = {**RECIPE_PARAMS, **self.filter_params}
        return [Step(name, dict(params.get(name, {}))) for name in self.sequence]

    @property
    def template(self) -> str:
        """The operators, whatever their order and thresholds: what recipe splits go by."""
        return " ".join(sorted(name.rpartition("_")[0] for name in self.sequence))


@dataclass(frozen=True)
class Instance:
    """A row of a unit before it is worded. `full_run`: the text with filter decisions ignored, of
    the order tracks alone."""

    plan: RowPlan
    record: Record
    status: str
    text: str = ""
    full_run: str | None = None

    @cached_property
    def id(self) -> str:
        """The release's names of the canonical row of an order pair are not public; ours are
        H(family, record, "canonical") and the slot `original`."""
        plan, document = self.plan, self.record.id
        if plan.kind == SWAP:
            name = "canonical" if plan.slot == CANONICAL else "swapped"
            return stable_id(plan.family_id, document, name)
        if plan.variant_id is None:
            return stable_id("atomic", plan.sequence[0], document)
        return stable_id(plan.variant_id, document)

    @property
    def group(self) -> str | None:
        family = self.plan.family_id
        return None if family is None else stable_id(family, self.record.id)

    @property
    def key(self) -> str:
        """`recipe_prompt_key`, by the construction-time names."""
        plan = self.plan
        return prompt_key(
            MADE_AS[plan.kind],
            self.record.domain,
            plan.recipe_type,
            plan.slot,
            plan.sequence,
            plan.filter_params,
        )

    @property
    def asked(self) -> Asked:
        """What its wordings depend on: key and recipe."""
        return self.key, tuple(map(frozen, self.plan.steps))


@dataclass
class Unit:
    """A unit that was worded: why it is refused (""); the operator that does another thing than its
    words say, and what; what its input and the text of each row are compared by; where its rows are
    packed; and the split that it goes to ("": none)."""

    number: int
    rows: list[Instance]
    refused: str
    unsaid: tuple[str, str]
    prints: list[Print]
    place: tuple[str, int, int]
    side: str = ""

    @property
    def record(self) -> Record:
        return self.rows[0].record

    @cached_property
    def compared(self) -> list[Fingerprint]:
        """Its rows as they are compared with those of other splits."""
        return [
            Fingerprint(row.id, row.record.id, self.prints[0], own, " ".join(row.plan.sequence))
            for row, own in zip(self.rows, self.prints[1:], strict=False)
        ]


def frozen(step: Step) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """A step that can be looked up."""
    return step.operator, tuple(sorted(step.params.items()))


def instances(plans: Sequence[RowPlan], record: Record, bits: int) -> list[Instance]:
    """The rows of a unit without texts. `bits`: where its filter keeps."""
    return [
        Instance(plan, record, "KEEP" if bits & SLOT_BITS.get(str(plan.slot), 1) else "DROP")
        for plan in plans
    ]


def executed(row: Instance, replays: Replays) -> Instance:
    """The row with the text at the end, or where the filter rejected it."""
    names = row.plan.sequence
    at = next((i for i, name in enumerate(names) if name.endswith("_filter")), len(names))
    states = replays.states(row.record.text, [name for i, name in enumerate(names) if i != at])
    stopped = states[-1] if row.status == "KEEP" else states[at]
    return replace(row, text=stopped, full_run=states[-1] if row.plan.family_id else None)


def bucket(length: int) -> str:
    """Input length: short up to 4,000 characters, medium up to 8,000, else long."""
    return "short" if length <= 4000 else "medium" if length <= 8000 else "long"


def difficulty(input_length: int, recipe_length: int) -> int:
    """1 easy, 2 medium, 3 hard: input and recipe each rank 1 to 3, sums ≤ 3, 4 to 5, 6."""
    recipe = 1 if recipe_length <= 2 else 2 if recipe_length <= 4 else 3
    total = RANKS[bucket(input_length)] + recipe
    return 1 if total <= 3 else 2 if total <= 5 else 3


def row_of(track: str, document: str, text: str, **known: Any) -> dict[str, Any]:
    """A row with all fields of the release in order, null where nothing is known."""
    shared = {
        "source_track": track,
        "base_sample_id": document,
        "source_record_id": document,
        "input_text": text,
        "input_length_chars": len(text),
        "input_length_bucket": bucket(len(text)),
    }
    return dict.fromkeys(FIELDS) | shared | known


# --- splits, balance for training, and what splits share


def splitter(units: Sequence[Unit], config: SplitConfig) -> Callable[[Unit], str]:
    """Unit -> `train`, `validation`, `heldout`, or "" (its recipe is held out but its document is
    not).

    Documents are split domain by domain, copies and near copies of one another together; recipe
    templates of two or more operators as a whole; both by the rank of a hash.
    """
    documents: defaultdict[str, set[str]] = defaultdict(set)
    for unit in units:
        documents[unit.record.domain].add(unit.record.id)
    plans = (unit.rows[0].plan for unit in units)
    templates = {plan.template for plan in plans if len(plan.sequence) > 1}
    first = copies_of({unit.record.id: unit.prints[0] for unit in units})

    def rank(name: str) -> int:
        return derive_seed(config.seed, "split", first[name])

    away: set[str] = set()  # firsts of copies
    aside: set[str] = set()
    for names in documents.values():
        held = taken(names, config.heldout_documents, rank)
        chosen = taken(names - {*held}, config.validation_documents, rank, of=len(names))
        away |= {first[n] for n in held}
        aside |= {first[n] for n in chosen}
    seed = config.seed
    unseen = {*taken(templates, config.heldout_recipes, lambda t: derive_seed(seed, "template", t))}

    def split(unit: Unit) -> str:
        document = first[unit.record.id]
        if document in away:  # before validation: copies may be of two domains
            return "heldout"
        if unit.rows[0].plan.template in unseen:
            return ""
        return "validation" if document in aside else "train"

    return split


def unbalanced(units: Iterable[Unit]) -> list[Unit]:
    """The units to leave out so that every filter of every track keeps about as often as it drops:
    the difference is less than the rows of a unit.

    Units are left out whole, those with most rows of the more frequent status first, then by the
    rank of a hash.
    """
    cells: defaultdict[tuple[str, str], list[tuple[int, str, Unit]]] = defaultdict(list)
    for unit in units:
        first = unit.rows[0]
        if name := first.plan.filter:
            drops = sum(row.status == "DROP" for row in unit.rows)
            rank = stable_id("balance_filtered", first.id)
            cells[first.plan.track, name].append((2 * drops - len(unit.rows), rank, unit))
    left_out: list[Unit] = []
    for cell in cells.values():
        excess = sum(more for more, _, _ in cell)
        sign = 1 if excess > 0 else -1
        excess *= sign
        for more, _, unit in sorted(cell, key=lambda one: (-sign * one[0], one[1])):
            if 0 < sign * more < 2 * excess:  # the rest is nearer to balance without it
                left_out.append(unit)
                excess -= sign * more
    return left_out


def compared(
    prints: Mapping[str, list[Fingerprint]],
) -> tuple[dict[str, dict[str, int]], dict[str, Any]]:
    """(what each two splits share: documents, inputs and references, exactly and nearly; pairs that
    are alike, and recipes, which are shared but for the templates that are held out)."""
    pairs = {f"{one} and {two}": (prints[one], prints[two]) for one, two in combinations(prints, 2)}
    found = {name: overlaps(one, other) for name, (one, other) in pairs.items()}
    shared = {
        name: {"documents": len({p.document for p in one} & {p.document for p in other})}
        | {
            f"{part} {how}": found[name][part][how]
            for part in ("inputs", "references")
            for how in ("exact", "near")
        }
        for name, (one, other) in pairs.items()
    }
    known = {p.template for side, own in prints.items() if side != "heldout" for p in own}
    own = {
        "heldout_only_recipe_templates": len({p.template for p in prints["heldout"]} - known),
        "recipes": {name: pair["recipes"] for name, pair in found.items()},
        "examples": {
            name: {part: pair[part]["examples"] for part in ("inputs", "references")}
            for name, pair in found.items()
        },
    }
    return shared, own


# --- examples of the mode few_shot: known only when the splits are, so a pass over their files


def show_examples(folder: Path, names: Sequence[str], shots: Shots) -> dict[str, Any]:
    """Ask the tasks of some files of `folder`, of which `train.jsonl` is one, behind examples;
    returns what the manifest says of it: the size of the pool by track, and tasks that show the
    fixed examples. One task is held at a time; of texts the pool alone."""
    pool = pool_of(_tasks(folder / "train.jsonl"), shots.longest)
    fixed: Counter[str] = Counter()
    with Progress("examples", "tasks") as progress:
        for name in names:
            with atomic_write(folder / name) as out:
                for task in _tasks(folder / name):
                    asked = with_examples(task, pool, shots)
                    fixed[task.track] += shows_examples(task) and "examples" not in asked.meta
                    out.write(json_line(asked.to_json()))
                    progress.add(1)
    return {
        "shots": shots.count,
        "shot_chars": shots.longest,
        "pool": {track: sum(map(len, mine.values())) for track, mine in sorted(pool.items())},
        "fixed": {track: count for track, count in sorted(fixed.items()) if count},
    }


def _tasks(path: Path) -> Iterator[Task]:
    return (Task.from_json(row, where) for where, row in read_rows(path))


def say_examples(manifest: Mapping[str, Any]) -> None:
    """Say which tasks have no examples of their track."""
    if fixed := manifest.get("few_shot", {}).get("fixed"):
        tracks = ", ".join(f"{count} of {track}" for track, count in fixed.items())
        print(
            f"few_shot: two fixed examples in {tracks}: training has no other document for them "
            f"whose input and answer have {manifest['few_shot']['shot_chars']} characters or less; "
            "raise the bound"
        )
