"""Hallucination processing from FAVA (fava-uw/fava-data).

`annotations.json` has `annotated` (and `output`, the passage); `training.json` has `completion` and
a `prompt` that ends with the passage. In both, a wrong entity or relation is
`<entity><mark>right</mark><delete>wrong</delete></entity>`, in either order; whole spans that are
contradictory, invented, subjective or unverifiable stand in a tag of that name. Rows whose markup
is not well nested, or does not give back their passage, are left out: gold must be certain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from assay.files import yaml_beside
from data_gen.cdr.semantic.rows import Row, Unusable, distinct, in_turns, make_row, name_of

EDITS = ("entity", "relation")
MEANINGS: Mapping[str, str] = yaml_beside(__file__, "words.yaml")["hallucinations"]
KINDS = tuple(MEANINGS)
EACH = 150  # published: so many with and without hallucinations
_TAG = re.compile(rf"<(/?)({'|'.join(KINDS)}|mark|delete|sentence)\s*>", re.IGNORECASE)
_ANY = re.compile(r"</?(?:mark|delete|" + "|".join(KINDS) + ")", re.IGNORECASE)
_TEXT = "\nText: "
_TYPES = f"The types are {'; '.join(f'{name}: {meant}' for name, meant in MEANINGS.items())}."
_FIX = (
    "put right what is wrong in spans of the types entity and relation, leave out the spans of the "
    "other types, and change nothing else."
)


def read_fava(annotated: str) -> tuple[str, str, list[Row]]:
    """(passage with its errors, corrected passage, spans) of inline annotation.

    A span of an edit is its wrong text. The correction takes the right text of edits and leaves
    whole spans out, with one of the two spaces around them. Raises `Unusable`.
    """
    reader = _Reader()
    at = 0
    for match in _TAG.finditer(annotated):
        reader.text(annotated[at : match.start()])
        reader.tag(match.group(2).lower(), bool(match.group(1)))
        at = match.end()
    reader.text(annotated[at:])
    if reader.open or _ANY.search(reader.passage):
        raise Unusable("markup that is not well nested")
    return reader.passage, reader.corrected.strip(), reader.spans


class _Reader:
    """Follows the tags; `open` holds (tag, where its text begins in the passage)."""

    def __init__(self) -> None:
        self.passage = self.corrected = ""
        self.spans: list[Row] = []
        self.open: list[tuple[str, int]] = []
        self._seam = False  # something was left out of the correction just here

    def text(self, piece: str) -> None:
        if not piece:
            return
        names = [name for name, _ in self.open]
        right = names[-1:] == ["mark"]
        if not right:
            self.passage += piece
        kept = all(name in EDITS for name in names[:-1]) if right else not names
        if kept:
            if self._seam and piece[0] == " " and self.corrected[-1:] in ("", " "):
                piece = piece[1:]
            self.corrected += piece
        self._seam = not kept and not right

    def tag(self, name: str, closes: bool) -> None:
        if name == "sentence":  # a mark of older annotation that changes nothing
            return
        inside = self.open[-1][0] if self.open else ""
        if not closes:
            if inside in ("mark", "delete") or (name in ("mark", "delete") and inside not in KINDS):
                raise Unusable("markup that is not well nested")
            self.open.append((name, len(self.passage)))
            return
        if inside != name:
            raise Unusable("markup that is not well nested")
        _, start = self.open.pop()
        wrong = self.passage[start:]
        if name in KINDS and wrong.strip():
            self.spans.append({"text": wrong.strip(), "type": name})


def sample_of(row: Mapping[str, Any]) -> Row:
    """One passage with spans and correction. Raises `Unusable`."""
    marked = row.get("annotated", row.get("completion"))
    if not isinstance(marked, str):
        return _plain_sample(row)
    passage, corrected, spans = read_fava(marked)
    given = row.get("output")
    prompt = row.get("prompt")
    if given is None and "completion" in row and isinstance(prompt, str) and _TEXT in prompt:
        given = prompt.rpartition(_TEXT)[2]
    if isinstance(given, str) and given.split() != passage.split():
        raise Unusable("its markup does not give back its passage")
    return _sample(row, passage, corrected, spans)


def _plain_sample(row: Mapping[str, Any]) -> Row:
    """Rows with `text`, `spans` and `corrected_text` of one's own."""
    text, listed = row.get("text"), cast("list[Any]", row.get("spans") or [])
    if not isinstance(text, str):
        raise Unusable("neither annotated nor completion nor text")
    spans: list[Row] = []
    for span in listed:
        found = cast("Row", span) if isinstance(span, dict) else {}
        if found.get("type") not in KINDS or str(found.get("text")) not in text:
            raise Unusable("a span that is not in the text, or of an unknown type")
        spans.append({"text": str(found["text"]), "type": str(found["type"])})
    return _sample(row, text, str(row.get("corrected_text") or text), spans)


def _sample(row: Mapping[str, Any], passage: str, corrected: str, spans: list[Row]) -> Row:
    if not passage.strip() or not corrected.strip():
        raise Unusable("nothing is left of the passage")
    return {
        "id": name_of(row, passage),
        "text": passage.strip(),
        "corrected": corrected,
        "spans": spans,
    }


def choose(samples: Iterable[Row], each: int = EACH, seed: int = 42) -> list[Row]:
    """`each` with hallucinations and `each` without (0: all)."""
    kept = distinct(samples)
    return [
        sample
        for wanted in (True, False)
        for sample in in_turns({0: [s for s in kept if bool(s["spans"]) == wanted]}, each, seed)
    ]


def rows_of(sample: Row) -> list[Row]:
    """Detection, span extraction, type classification and correction, and all of it in one."""
    meta = {"has_hallucination": bool(sample["spans"])}
    rows = [
        make_row("hallu", "atomic", sample, ask, name, value=value, meta=meta)
        for name, ask, value in _questions(sample)
    ]
    fix = f"Correct the hallucinated parts of the passage. {_TYPES} {_FIX[0].upper()}{_FIX[1:]}"
    fixed = sample["corrected"]
    rows.append(make_row("hallu", "atomic", sample, fix, "correct", text=fixed, meta=meta))
    ask, whole = _report(sample)
    rows.append(
        make_row(
            "hallu", "compositional", sample, ask, "report", text=fixed, value=whole, meta=meta
        )
    )
    return rows


def _types(sample: Row) -> list[str]:
    return sorted({str(span["type"]) for span in sample["spans"]})


def _questions(sample: Row) -> list[tuple[str, str, Row]]:
    """(name, instruction, gold JSON) of the tasks about one thing each."""
    return [
        (
            "detect",
            f"Say whether the passage holds a hallucination. {_TYPES} Answer in JSON with the key "
            '"has_hallucination" (true or false).',
            {"has_hallucination": bool(sample["spans"])},
        ),
        (
            "spans",
            f"List the hallucinated spans in the passage's own words. {_TYPES} Answer in JSON "
            'with the key "spans", a list of {"text", "type"}.',
            {"spans": sample["spans"]},
        ),
        (
            "types",
            f"Name the types of hallucination that the passage holds. {_TYPES} Answer in JSON "
            'with the key "types", a list without repeats.',
            {"types": _types(sample)},
        ),
    ]


def _report(sample: Row) -> tuple[str, Row]:
    """(instruction, gold JSON) of the task that asks for everything at once."""
    ask = (
        f"Report on the hallucinations of the passage. {_TYPES} Answer with one JSON object with "
        "the keys has_hallucination (true or false), hallucination_count (how many spans there "
        "are), spans (a list of text, in the passage's own words, and type), types (a list without "
        f"repeats) and corrected_text. For corrected_text, {_FIX}"
    )
    return ask, {
        "has_hallucination": bool(sample["spans"]),
        "hallucination_count": len(sample["spans"]),
        "spans": sample["spans"],
        "types": _types(sample),
        "corrected_text": sample["corrected"],
    }
