# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""The numbers behind the paper's figures and tables, from scored answers.

Answers are read as the release reads them, so that these numbers go with `paper_metrics.json`:
RS@K by recipe length (Fig. 3), of atomic and compositional tasks by domain (Fig. 4); RS@1 to RS@K
and RS by style (Fig. 12); failure rates (Fig. 13a); stopping at a rejecting filter (Fig. 6); errors
on swapped orders (Table 3); the subtasks of the semantic extension (Tables 9 to 12). By input
length, filter place and difficulty, and the rates of statuses, are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewards.cdr.errors import order_confusion, stop_behaviour
from rewards.cdr.family import length_slice
from rewards.cdr.leaderboard import subtask_of
from rewards.cdr.release_files import CORE, REPORTED_SLOTS, ScoredFile, kind_of, mean, slot_name
from train.evaluation.stats import mean_interval
from train.evaluation.tables import Draw, ends, grouped, in_order, known, rs_curve

Row = dict[str, Any]
TURNS = (*REPORTED_SLOTS, "easy", "medium", "hard")
# the paper's two families of core tasks, for Fig. 4 and Fig. 12
FAMILIES = {
    "atomic": ("atomic_m", "atomic_f"),
    "compositional": ("agnostic_m", "order_m", "order_f"),
}
DOMAINS = ("pii", "hallu", "rubric", "safety")
# a subtask of hallucination processing → its key in the report that asks for everything
KEYS = {
    "detect": "has_hallucination",
    "spans": "spans",
    "types": "types",
    "correct": "corrected_text",
}


@dataclass(frozen=True)
class TrackAnswers:
    """One track's prediction rows, and their scores in the same order."""

    rows: Sequence[Row]
    scored: ScoredFile


def figures(tracks: Mapping[str, TrackAnswers], draw: Draw) -> Row:
    """All numbers as JSON: `by` (slice → track → value → cell), `domains` (domain → family → cell),
    `style`, `curve` and `family_curve`, `failures` (track → answers and share wrong), `rates` and
    `stops` (by track), `orders`, and `subtasks` (by domain). Cells are those of `cell`."""
    core = {name: found for name, found in tracks.items() if name in CORE}
    return {
        "by": {
            name: {track: _by(found, value_of, draw) for track, found in core.items()}
            for name, value_of in SLICES.items()
        },
        "domains": _domains(core, draw),
        "style": {track: _styles(found, draw) for track, found in tracks.items()},
        "style_kind": {track: _kinds(found, draw) for track, found in core.items()},
        "curve": {track: _curve(found.scored.variants) for track, found in tracks.items()},
        "family_curve": {
            name: _curve([v for found in mine for v in found.scored.variants])
            for name, mine in _families(core).items()
        },
        "failures": {track: _failures(found) for track, found in tracks.items()},
        "rates": {track: _rates(found) for track, found in core.items()},
        "stops": stop_behaviour(core["order_f"].rows) if "order_f" in core else {},
        "orders": order_confusion(core["order_m"].rows) if "order_m" in core else {"n": 0},
        "subtasks": {
            domain: found for domain in DOMAINS if (found := _subtasks(domain, tracks, draw))
        },
    }


def _slot(row: Mapping[str, Any]) -> str | None:
    slot = slot_name(row.get("order_slot"))
    return slot if slot in REPORTED_SLOTS else None


def _steps(row: Mapping[str, Any]) -> str | None:
    steps = len(row.get("operator_sequence") or []) or row.get("recipe_length")
    return str(steps) if steps else None


SLICES: dict[str, Callable[[Row], str | None]] = {
    "input characters": lambda row: length_slice(len(str(row["input_text"]))),
    "domain": lambda row: row.get("domain"),
    "recipe length": _steps,
    "filter place": _slot,
    "difficulty": lambda row: row.get("difficulty_label"),
}


def _by(found: TrackAnswers, value_of: Callable[[Row], str | None], draw: Draw) -> dict[str, Row]:
    parts: dict[str, list[tuple[Row, Row]]] = {}
    for row, instance in zip(found.rows, found.scored.instances, strict=True):
        if value := value_of(row):
            parts.setdefault(value, []).append((row, instance))
    return {value: cell(parts[value], draw) for value in sorted(parts, key=in_turn)}


def _families(core: Mapping[str, TrackAnswers]) -> dict[str, list[TrackAnswers]]:
    return {
        name: mine
        for name, tracks in FAMILIES.items()
        if (mine := [core[track] for track in tracks if track in core])
    }


def _domains(core: Mapping[str, TrackAnswers], draw: Draw) -> dict[str, dict[str, Row]]:
    """Domain → family → cell, over the instances of all tracks of a family."""
    made: dict[str, dict[str, Row]] = {}
    for name, mine in _families(core).items():
        by: dict[str, list[tuple[Row, Row]]] = {}
        for found in mine:
            for row, instance in zip(found.rows, found.scored.instances, strict=True):
                by.setdefault(str(row.get("domain") or ""), []).append((row, instance))
        by.pop("", None)
        for domain, pairs in by.items():
            made.setdefault(domain, {})[name] = cell(pairs, draw)
    return {domain: made[domain] for domain in sorted(made)}


def _failures(found: TrackAnswers) -> Row:
    """Answers to single wordings, and the share of them that is wrong."""
    usable = [variant for variant in found.scored.variants if variant["scorable"]]
    return {"n": len(usable), "wrong": mean(not v["recipe_success"] for v in usable)}


def in_turn(value: str) -> tuple[int, tuple[list[int], bool, str]]:
    """What values are sorted by: places of a filter and difficulties as they follow one another,
    others by their numbers."""
    return TURNS.index(value) if value in TURNS else -1, in_order(value)


def cell(pairs: Sequence[tuple[Row, Row]], draw: Draw) -> Row:
    """RS@K of some instances with its 95 % interval, clustered by document; mean RS and RG. `n`
    counts the instances that have an RS@K."""
    there = [(row, one) for row, one in pairs if one["rs_at_k"] is not None]
    found = mean_interval(
        [float(one["rs_at_k"]) for _, one in there],
        [source_of(row) for row, _ in there],
        draw.resamples,
        draw.seed,
    )
    return {
        "n": len(there),
        "rs@k": known(found.value),
        "interval": ends(found),
        "rs": mean(one["rs"] for _, one in pairs),
        "rg": mean(one["mean_rg"] for _, one in pairs),
    }


def source_of(row: Mapping[str, Any]) -> str:
    """The document of a row."""
    return str(row.get("source_record_id") or row.get("base_sample_id") or row["instance_id"])


def _styles(found: TrackAnswers, draw: Draw) -> dict[str, Row]:
    """RS of the answers to each style of wording."""
    return _answers_by(found, lambda variant: str(variant.get("prompt_style_id") or ""), draw)


def _kinds(found: TrackAnswers, draw: Draw) -> dict[str, Row]:
    """RS of the answers to styles that list operations, and to those about the result."""
    told = {
        (str(row["instance_id"]), place): variant.get("wording")
        for row in found.rows
        for place, variant in enumerate(row.get("prompt_variants") or [])
    }

    def kind(variant: Mapping[str, Any]) -> str:
        style = str(variant.get("prompt_style_id") or "")
        name = (str(variant["instance_id"]), int(variant.get("prompt_variant_index") or 0))
        return kind_of(style, told.get(name)) if style else ""

    return _answers_by(found, kind, draw)


def _answers_by(
    found: TrackAnswers, part_of: Callable[[Mapping[str, Any]], str], draw: Draw
) -> dict[str, Row]:
    documents = {str(row["instance_id"]): source_of(row) for row in found.rows}
    usable = [variant for variant in found.scored.variants if variant["scorable"]]
    parts = grouped(usable, part_of)
    made: dict[str, Row] = {}
    for part in sorted(filter(None, parts)):
        outcomes = [float(variant["recipe_success"]) for variant in parts[part]]
        sources = [documents[str(variant["instance_id"])] for variant in parts[part]]
        rs = mean_interval(outcomes, sources, draw.resamples, draw.seed)
        made[part] = {"n": len(outcomes), "rs": known(rs.value), "interval": ends(rs)}
    return made


def _curve(variants: Sequence[Row]) -> Row:
    """RS@1 … RS@K, unbiased, over the instances that have all K wordings scored."""
    asked = grouped(variants, lambda variant: str(variant["instance_id"]))
    k = max(map(len, asked.values()), default=0)
    whole = [m for m in asked.values() if len(m) == k and all(v["scorable"] for v in m)]
    right = [sum(bool(v["recipe_success"]) for v in mine) for mine in whole]
    return {"n": len(whole), **rs_curve(right, k)}


def _rates(found: TrackAnswers) -> dict[str, Row]:
    """Rates over all answers of a track, and by filter place where it has some: how often gold
    drops, how often the answer does, KEEP texts that are dropped and DROP texts that are kept."""
    of = {str(row["instance_id"]): row for row in found.rows}
    usable = [(of[str(v["instance_id"])], v) for v in found.scored.variants if v["scorable"]]
    made = {"all": _statuses(usable)}
    for slot in REPORTED_SLOTS:
        if mine := [(row, variant) for row, variant in usable if _slot(row) == slot]:
            made[slot] = _statuses(mine)
    return made


def _statuses(answers: Iterable[tuple[Row, Row]]) -> Row:
    pairs = [
        (str(row["reference_status"]).strip().upper(), _status(variant)) for row, variant in answers
    ]
    kept = [said for gold, said in pairs if gold == "KEEP"]
    dropped = [said for gold, said in pairs if gold == "DROP"]
    return {
        "n": len(pairs),
        "gold_drop": mean(gold == "DROP" for gold, _ in pairs),
        "said_drop": mean(said == "DROP" for _, said in pairs),
        "false_drop": mean(said == "DROP" for said in kept),
        "false_keep": mean(said == "KEEP" for said in dropped),
    }


def _status(variant: Mapping[str, Any]) -> str:
    return str(variant.get("predicted_status") or "").strip().upper()


def _subtasks(domain: str, tracks: Mapping[str, TrackAnswers], draw: Draw) -> Row:
    """A domain's atomic subtasks, their macro mean, the compositional score and the gap. `within`:
    the share of compositional answers in which the subtask's field is right."""
    alone = tracks.get(f"semantic_{domain}_atomic")
    whole = tracks.get(f"semantic_{domain}_compositional")
    made: Row = {}
    if alone is not None:
        made["atomic"] = _by(alone, subtask_of, draw)
        made["macro"] = mean(one["rs@k"] for one in made["atomic"].values())
        for name, one in made["atomic"].items():
            one["within"] = _within(whole, KEYS.get(name, name))
    if whole is not None:
        pairs = list(zip(whole.rows, whole.scored.instances, strict=True))
        made["compositional"] = cell(pairs, draw)
        made["steps"] = _by(whole, SLICES["recipe length"], draw) if domain == "pii" else {}
    if alone is not None and whole is not None:
        one, other = made["macro"], made["compositional"]["rs@k"]
        made["gap"] = None if one is None or other is None else one - other
    return made


def _within(whole: TrackAnswers | None, key: str) -> float | None:
    variants = whole.scored.variants if whole else []
    usable = [v for v in variants if v["scorable"] and "field_matches" in v]
    return mean(bool((v["field_matches"] or {}).get(key)) for v in usable)
