"""What the four domains share: samples in turns over strata, benchmark rows, and their check."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from assay.seeds import derive_seed
from data_gen.cdr.rows import bucket
from rewards.cdr.release_files import FIELDS, stable_id

Row = dict[str, Any]
TRACK_NAMES = {
    "pii": "semantic_pii",
    "hallu": "semantic_hallucination",
    "rubric": "semantic_rubric",
    "safety": "semantic_safety",
}
SOURCES = {
    "pii": "ai4privacy/pii-masking-400k",
    "hallu": "fava-uw/fava-data",
    "rubric": "nvidia/HelpSteer2",
    "safety": "nvidia/Aegis-AI-Content-Safety-Dataset-2.0",
}
LICENCES = {
    "pii": "Ai4Privacy: academic and non-commercial use",
    "hallu": "CC-BY-4.0",
    "rubric": "CC-BY-4.0",
    "safety": "CC-BY-4.0",
}
# The part of each source that the benchmark draws its samples from, as files and folders name it.
# FAVA's is told by the form of its rows. Which texts of AI4Privacy it drew is not public.
OWN_PART = {"pii": "validation", "rubric": "validation", "safety": "test"}
STYLES = (
    ("application_context", "Application-Context Task", "This goes to a review next. {ask}"),
    ("direct", "Direct", "{ask}"),
    ("imperative_checklist", "Imperative Checklist", "Do exactly this: {ask} Nothing else."),
)
FORMATS = {
    "text_refinement": "tagged_text",
    "structured_json": "json",
    "mixed_structured_text": "json",
}


class Unusable(ValueError):
    """A source row that cannot become a sample; the message says why, in words to be counted."""


def published(domain: str, row: Mapping[str, Any], file: PurePath, root: Path) -> bool:
    """Whether a source row is of the part that the benchmark's own samples are from: by its own
    word for it, else by the names of its file and folders from `root` on."""
    if domain == "hallu":
        return isinstance(row.get("annotated"), str)
    own = row.get("split")
    if isinstance(own, str) and own:
        return own.lower() == OWN_PART[domain]
    place = f"{root.name}/{file.relative_to(root)}" if root.is_dir() else file.name
    return OWN_PART[domain] in re.split(r"[^a-z]+", place.lower())


def name_of(row: Mapping[str, Any], text: str) -> str:
    """The row's own id, else a hash of its text."""
    found = next((row[k] for k in ("id", "uid", "instance_id") if row.get(k) not in (None, "")), "")
    return str(found) or stable_id(text)


def in_turns(strata: Mapping[int, list[Row]], most: int, seed: int) -> list[Row]:
    """In turns over the strata, each by the rank of a hash; at most `most` (0: all)."""
    queues = [
        sorted(strata[key], key=lambda r: derive_seed(seed, "stratum", str(r["id"])))
        for key in sorted(strata)
    ]
    turns = [q[i] for i in range(max(map(len, queues), default=0)) for q in queues if i < len(q)]
    return turns[:most] if most else turns


def distinct(samples: Iterable[Row]) -> list[Row]:
    """Samples with ids that occur once; the first of a name, and of a text, stays."""
    names: set[str] = set()
    texts: set[str] = set()
    kept: list[Row] = []
    for sample in samples:
        if sample["id"] not in names and sample["text"] not in texts:
            names.add(sample["id"])
            texts.add(sample["text"])
            kept.append(sample)
    return kept


def make_row(
    domain: str,
    split: str,
    sample: Row,
    ask: str,
    operator: str,
    text: str | None = None,
    value: Any = None,
    meta: Row | None = None,
    steps: Sequence[str] = (),
) -> Row:
    """A release row, all 43 fields in order: `text` alone is a text task, `value` alone JSON, both
    the mixed profile. `steps`: what is done one after the other, where there is an order."""
    profile = (
        "mixed_structured_text"
        if text is not None and value is not None
        else "text_refinement"
        if text is not None
        else "structured_json"
    )
    variants = [
        {"style_id": s, "style_label": label, "user_requirement": form.format(ask=ask)}
        for s, label, form in STYLES
    ]
    known: Row = {
        "instance_id": stable_id(TRACK_NAMES[domain], split, operator, sample["id"]),
        "benchmark_track": TRACK_NAMES[domain],
        "benchmark_split": split,
        "track_family": "semantic_extension",
        "source_track": f"semantic_{domain}_{split}",
        "base_sample_id": sample["id"],
        "domain": domain,
        "source_record_id": sample["id"],
        "source_benchmark": SOURCES[domain],
        "input_text": sample["text"],
        "input_length_chars": len(sample["text"]),
        "input_length_bucket": bucket(len(sample["text"])),
        "operator_sequence": list(steps) or None,
        "semantic_operator": operator,
        "recipe_length": len(steps) or None,
        "recipe_prompt_key": stable_id(TRACK_NAMES[domain], split, operator),
        "reference_status": "KEEP",
        "reference_text": text if text is not None else json.dumps(value, ensure_ascii=False),
        "reference_json": json.dumps(value, ensure_ascii=False, sort_keys=True)
        if profile == "mixed_structured_text"
        else None,
        "output_format": FORMATS[profile],
        "scoring_profile": profile,
        "reports_refinement_gain": profile != "structured_json",
        "prompt_variants": variants,
        "prompt_variant_count": len(variants),
        "selected_prompt_variant_indices": list(range(len(variants))),
        "prompt_candidate_pool_count": len(variants),
        "prompt_sampling_policy": "all",
        f"{domain}_meta": {"operator": operator} | (meta or {}),
    }
    return {name: known.get(name) for name in FIELDS}
