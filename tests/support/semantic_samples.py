"""Small hand-made samples of the semantic extension, in its sources' formats."""

from __future__ import annotations

import json
from typing import Any

from data_gen.cdr.semantic import sources
from data_gen.cdr.semantic.rows import Unusable

LETTER = "Ana Diaz (ana@acme.io) lives in Oslo; write to ana@acme.io before 3 May."


def mask(*parts: tuple[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for value, label in parts:
        start = LETTER.index(value)
        found.append(
            {
                "value": value,
                "label": label,
                "start": start,
                "end": start + len(value),
                "label_index": 1,
            }
        )
    second = LETTER.rindex("ana@acme.io")
    found.append({"value": "ana@acme.io", "label": "EMAIL", "start": second, "end": second + 11})
    return found


ENTITIES = mask(
    ("Ana", "GIVENNAME"), ("Diaz", "SURNAME"), ("ana@acme.io", "EMAIL"), ("Oslo", "CITY")
)
PII = [
    {
        "uid": 1,
        "source_text": LETTER,
        "masked_text": "",
        "language": "en",
        "locale": "US",
        "split": "train",
        "privacy_mask": ENTITIES,
    },
    {
        "uid": 2,
        "source_text": LETTER + " ",
        "language": "English",
        "privacy_mask": json.dumps(ENTITIES),
    },
    {"uid": 3, "source_text": LETTER + "  ", "language": "en", "privacy_mask": str(ENTITIES)},
    {"uid": 4, "source_text": "Hola", "language": "es", "privacy_mask": []},
    {"uid": 5, "source_text": "x" + LETTER, "language": "en", "privacy_mask": ENTITIES},
    {"uid": 6, "source_text": LETTER, "language": "en", "privacy_mask": "{["},
    {"uid": 7, "source_text": LETTER, "language": "en", "privacy_mask": ENTITIES[:1]},
]
EDIT = "<entity><mark>Norway</mark><delete>Sweden</delete></entity>"
FAVA = [
    {
        "annotated": f"Oslo is in {EDIT}. <invented>It has two suns.</invented> It is a city.",
        "output": "Oslo is in Sweden. It has two suns. It is a city.",
        "model": "m",
        "prompt": "?",
    },
    {"annotated": "Oslo is a city.", "output": "Oslo is a city.", "model": "m", "prompt": "?"},
    {
        "prompt": "Read the following references:\nR\nPlease identify all the errors in the "
        "following passage using the references provided and suggest edits:\n"
        "Text: Bern lies in Sweden.",
        "completion": f"Bern lies in {EDIT}.",
    },
    {"annotated": "Bern lies in <entity><mark>Norway</mark>.", "output": "x"},
    {"annotated": f"Bern lies in {EDIT}.", "output": "Bern is in Norway."},
]
RUBRIC = [
    {
        "prompt": "Hi",
        "response": "Hello",
        "helpfulness": 3,
        "correctness": 4,
        "coherence": 4,
        "complexity": 0,
        "verbosity": 1,
    },
    {
        "prompt": "Hi",
        "response": "Hello!",
        "helpfulness": 3.0,
        "correctness": 4,
        "coherence": 4,
        "complexity": 0,
        "verbosity": 5,
    },
]
PAIR = {
    "prompt_label_source": "human",
    "response_label_source": "llm_jury",
    "reconstruction_id_if_redacted": None,
}
SAFETY = [
    {
        "id": "s1",
        "prompt": "a",
        "response": "b",
        "prompt_label": "unsafe",
        "response_label": "safe",
        "violated_categories": "Violence, Fraud/Deception",
    }
    | PAIR,
    {
        "id": "s2",
        "prompt": "c",
        "response": "d",
        "prompt_label": "safe",
        "response_label": "safe",
        "violated_categories": "",
    }
    | PAIR,
    {
        "id": "s3",
        "prompt": "REDACTED",
        "response": "d",
        "prompt_label": "unsafe",
        "response_label": "safe",
        "violated_categories": "",
    }
    | PAIR
    | {"reconstruction_id_if_redacted": 7.0},
    {
        "id": "s4",
        "prompt": "c",
        "response": None,
        "prompt_label": "safe",
        "response_label": None,
        "violated_categories": "",
    }
    | PAIR,
]


def usable(module_read: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in rows:
        try:
            found.append(module_read(row))
        except Unusable:
            continue
    return found


def all_rows() -> list[dict[str, Any]]:
    parts = (
        (sources.pii_sample, sources.choose_pii, sources.pii_rows, PII),
        (sources.hallu_sample, sources.choose_hallu, sources.hallu_rows, FAVA),
        (sources.rubric_sample, sources.choose_rubric, sources.rubric_rows, RUBRIC),
        (sources.safety_sample, sources.choose_safety, sources.safety_rows, SAFETY),
    )
    return [
        row
        for read, choose, rows, given in parts
        for sample in choose(usable(read, given))
        for row in rows(sample)
    ]
