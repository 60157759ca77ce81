"""The release's files: what a benchmark row holds, where tracks lie, ids of tasks, which wordings
of a task are asked, and what its styles and order slots are called.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from assay.task import TaskError, refuse_unfinished

Row = dict[str, Any]
CORE = ("atomic_m", "atomic_f", "agnostic_m", "order_m", "order_f")
SEMANTIC = tuple(
    f"semantic_{domain}_{split}"
    for domain in ("pii", "hallu", "rubric", "safety")
    for split in ("atomic", "compositional")
)
# The public fields of a row, in the release's order (spec section 14).
FIELDS = (
    *("instance_id", "benchmark_track", "benchmark_split", "track_family", "source_track"),
    *("base_sample_id", "domain", "source_record_id", "source_benchmark", "input_text"),
    *("input_length_chars", "input_length_bucket", "operator", "operator_kind"),
    *("operator_sequence", "semantic_operator", "recipe_id", "recipe_prompt_key", "recipe_type"),
    *("recipe_length", "order_family_id", "order_slot", "order_group_instance_id"),
    *("group_success_rule", "reference_status", "reference_text", "reference_json"),
    *("reference_text_full_run", "output_format", "scoring_profile", "reports_refinement_gain"),
    *("prompt_variants", "prompt_variant_count", "selected_prompt_variant_indices"),
    *("prompt_candidate_pool_count", "prompt_sampling_policy", "prompt_sampling_seed"),
    *("difficulty_score", "difficulty_label", "pii_meta", "hallu_meta", "rubric_meta"),
    "safety_meta",
)
REQUIRED = (
    *("instance_id", "benchmark_track", "benchmark_split", "track_family", "source_track"),
    *("scoring_profile", "output_format", "reports_refinement_gain", "input_text"),
    *("reference_status", "reference_text"),
)
# how a row's answers are scored
TEXT, JSON, MIXED = "text_refinement", "structured_json", "mixed_structured_text"
PROFILES = (TEXT, JSON, MIXED)
CHOICES: dict[str, tuple[str, ...]] = {
    "track_family": ("core_rule", "semantic_extension"),
    "output_format": ("tagged_text", "json", "json_and_tagged_text"),
    "scoring_profile": PROFILES,
}


def check_row(row: Mapping[str, Any], where: str) -> None:
    """Check that a benchmark row has the release's required fields with values that exist.

    Raises `TaskError` naming `where` and the field that cannot be used.
    """
    for name in REQUIRED:
        if row.get(name) is None:
            raise TaskError(f"{where}: field {name!r} is missing; benchmark rows need it")
    for name, known in CHOICES.items():
        if row[name] not in known:
            raise TaskError(f"{where}: {name} is {row[name]!r}; wanted one of {', '.join(known)}")
    if row["reports_refinement_gain"] and row["scoring_profile"] == JSON:
        raise TaskError(f"{where}: reports_refinement_gain is true, but a JSON row has no gain")


def find_tracks(folder: Path, names: Sequence[str] = ()) -> dict[str, Path]:
    """Find the track files of a benchmark folder (the release's, or what `assay tasks cdr` wrote):
    track name → path, in the benchmark's order.

    Raises `TaskError` when there is none, or one of `names` is missing.
    """
    refuse_unfinished(folder)
    places = (
        folder / "tracks",
        folder / "data" / "benchmark_v3" / "tracks",
        folder / "benchmark_v3" / "tracks",
        folder,
    )
    listed = {place: [*place.glob("*.parquet"), *place.glob("*.jsonl")] for place in places}
    home = next((place for place in places if listed[place]), None)
    if home is None:
        raise TaskError(f"{folder}: no tracks/*.jsonl in it; give a CDR-Bench folder")
    found = {p.stem: p for p in listed[home]}
    if home == folder:
        found = {name: p for name, p in found.items() if name in (*CORE, *SEMANTIC)}
    if not found:
        raise TaskError(f"{folder}: no file of it is a track; give a CDR-Bench folder")
    for name in names:
        if name not in found:
            raise TaskError(f"{home}: no track {name!r}; there is {', '.join(found) or 'none'}")
    order = [*CORE, *SEMANTIC]
    chosen = names or sorted(found, key=lambda n: (order.index(n) if n in order else 99, n))
    return {name: found[name] for name in chosen}


# ---- ids, and the prompt variants that a task is asked with


def _part(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def stable_id(*parts: object, digits: int = 16) -> str:
    """The first hexadecimal digits of SHA-1 over the parts joined by `||` (spec section 9).

    Strings stay as they are, other scalars go through `str()`, lists and objects become JSON with
    sorted keys and no spaces.
    """
    return _sha1(parts).hexdigest()[:digits]


def _sha1(parts: Iterable[object]) -> Any:
    text = "||".join([part if type(part) is str else _part(part) for part in parts])
    return hashlib.sha1(text.encode("utf-8", "surrogatepass"))


_KEPT = 4096  # keys: all rows of a recipe share one
_prompt_keys: dict[tuple[object, ...], str] = {}


def prompt_key(
    track: str,
    domain: str,
    recipe_type: str | None,
    order_slot: str | None,
    operators: Sequence[str],
    filter_params: dict[str, dict[str, Any]] | None,
) -> str:
    """Compute `recipe_prompt_key` (spec section 9): tasks with the same key are asked in the same
    words.

    `track` is the construction-time name: atomic, main, order_sensitivity or
    mapper_order_sensitivity. `filter_params`: parameters of each filter by its name.
    """
    # repr, because 1 and 1.0 are equal and written differently
    known = (track, domain, recipe_type, order_slot, tuple(operators), repr(filter_params))
    if known not in _prompt_keys:
        if len(_prompt_keys) >= _KEPT:
            _prompt_keys.clear()
        parts = (*known[:4], list(operators), filter_params or {})
        _prompt_keys[known] = stable_id(*parts)
    return _prompt_keys[known]


def sample_variants(pool: int, k: int, seed: int, key: str, instance_id: str) -> list[int]:
    """Draw the indices of the K prompt variants of an instance, ascending (spec section 10).

    `pool` is how many variants there are. K of 0 or less, or of `pool` or more, means all of them.
    The draw depends on `seed`, `key` and `instance_id` alone.
    """
    if k <= 0 or k >= pool:
        return list(range(pool))
    begun = _sha1(("prompt-variant-sample", seed, key, instance_id, ""))

    def rank(index: int) -> str:  # the stable id of all five
        whole = begun.copy()
        whole.update(str(index).encode())
        return whole.hexdigest()[:16]

    return sorted(sorted(range(pool), key=rank)[:k])


# ---- instruction styles that list the operations (Step-by-Step, Brief) and those about the result
# (Goal-First, Scenario Story): the paper's Fig. 12 (right), by the ids of the release.

RESULT_STYLES = ("goal_oriented", "recipe_narrative")
Kind = Literal["enumerating", "outcome"]
KINDS: tuple[Kind, Kind] = ("enumerating", "outcome")


def kind_of(style: str, wording: str | None = None) -> Kind:
    """Tell whether a wording lists the operations or says the result (paper, Fig. 12 right).
    `wording`: what a built row says of it, `steps` where a style about the result had to list
    the operations; of the release's rows nothing is known."""
    return "outcome" if style in RESULT_STYLES and wording != "steps" else "enumerating"


# ---- order slots

SLOT_NAMES = {"front": "pre", "middle": "mid", "end": "post"}
REPORTED_SLOTS = ("pre", "mid", "post")


def slot_name(slot: object) -> str | None:
    """Name an order slot as the paper reports it: front, middle and end are pre, mid and post;
    other names stay."""
    return None if slot is None else SLOT_NAMES.get(str(slot), str(slot))
