"""What the tracks are made of before it is worded: instances, and order pairs (spec section 8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from data_gen.cdr.records import Record
from rewards.cdr.release_files import prompt_key

GROUP_RULE = "all_slots_correct"
SWAP_RULE = "canonical_and_swapped_outputs_correct"


@dataclass(frozen=True, slots=True)
class Instance:
    """One task before it is worded. `track` is the construction-time name.

    `full_run` is the text with filter decisions ignored, kept for the order tracks alone.
    """

    track: str
    id: str
    record: Record
    sequence: tuple[str, ...]
    status: str
    text: str
    filter_params: dict[str, dict[str, float]] = field(default_factory=dict[str, Any])
    threshold_meta: dict[str, Any] | None = None
    recipe_id: str | None = None
    variant_id: str | None = None
    recipe_type: str | None = None
    family_id: str | None = None
    slot: str | None = None
    group: str | None = None
    full_run: str | None = None
    domain: str = ""
    composed: bool = False

    @property
    def prompt_key(self) -> str:
        return prompt_key(
            self.track, self.domain, self.recipe_type, self.slot, self.sequence, self.filter_params
        )


@dataclass(frozen=True, slots=True)
class SwapPair:
    """Two neighbouring mappers exchanged on one record, with both texts."""

    record: Record
    recipe_id: str
    family_id: str
    group: str
    swapped_id: str
    canonical: tuple[str, ...]
    swapped: tuple[str, ...]
    canonical_text: str
    swapped_text: str
    edit_distance: int
    domain: str
    composed: bool = False
