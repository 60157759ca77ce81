"""The four public data sets: their published formats as samples, and rows of samples.

**PII redaction**, AI4Privacy's data (pii-masking-400k and its relatives). Read are `source_text`,
`privacy_mask` (a list of {label, start, end, value}, or the same as JSON or Python text),
`language` and `uid`.

**Hallucinations**, FAVA (fava-uw/fava-data). `annotations.json` has `annotated` (and `output`, the
passage); `training.json` has `completion` and a `prompt` that ends with the passage. In both, a
wrong entity or relation is `<entity><mark>right</mark><delete>wrong</delete></entity>`, in either
order; whole spans that are contradictory, invented, subjective or unverifiable stand in a tag of
that name. Rows whose markup is not well nested, lacks the right or the wrong text of an edit, or
does not give back their passage, are left out: gold must be certain.

**Rubric scoring**, HelpSteer2. Rows have `prompt`, `response` and five integers from 0 to 4.

**Safety tagging**, Aegis 2.0. Rows have `prompt` (REDACTED where `reconstruction_id_if_redacted` is
set), `response` (null or empty in rows about the prompt alone), `prompt_label`, `response_label`,
and `violated_categories` with commas between.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePath
from typing import Any, cast

from assay.files import yaml_beside
from assay.syntax import python_literal
from assay.task import derive_seed
from data_gen.cdr.units import row_of
from rewards.cdr.release_files import stable_id

Row = dict[str, Any]
_WORDS = yaml_beside(__file__, "semantic.yaml")
_ASKS: Mapping[str, str] = _WORDS["asks"]
SOURCES: Mapping[str, Mapping[str, str]] = _WORDS["sources"]


class Unusable(ValueError):
    """A source row that cannot become a sample; the message says why, in words to be counted."""


def published(domain: str, row: Mapping[str, Any], file: PurePath, root: PurePath) -> bool:
    """Whether a source row is of the part that the benchmark's own samples are from: by its own
    word for it, else by the names of its file and folders from `root` on."""
    part = SOURCES[domain]["part"]
    if not part:
        return isinstance(row.get("annotated"), str)
    own = row.get("split")
    if isinstance(own, str) and own:
        return own.lower() == part
    return part in re.split(r"[^a-z]+", f"{root.name}/{file.relative_to(root)}".lower())


def name_of(row: Mapping[str, Any], text: str) -> str:
    """The row's own id, else a hash of its text."""
    found = next((row[k] for k in ("id", "uid", "instance_id") if row.get(k) not in (None, "")), "")
    return str(found) or stable_id(text)


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
    """Make a release row with all 43 fields in order. With `text` alone it is a text task, with
    `value` alone a JSON task, with both a task of the mixed profile. `steps`: what is done one
    after the other, where there is an order."""
    track, mixed = SOURCES[domain]["track"], text is not None and value is not None
    profile, form = "structured_json", "json"
    if text is not None:
        profile = "mixed_structured_text" if mixed else "text_refinement"
        form = "json" if mixed else "tagged_text"
    variants = [
        {"style_id": s, "style_label": label, "user_requirement": said.format(ask=ask)}
        for s, label, said in _WORDS["styles"]
    ]
    more = {f"{domain}_meta": {"operator": operator} | (meta or {})}
    return row_of(
        f"semantic_{domain}_{split}",
        sample["id"],
        sample["text"],
        **more,
        instance_id=stable_id(track, split, operator, sample["id"]),
        benchmark_track=track,
        benchmark_split=split,
        track_family="semantic_extension",
        domain=domain,
        source_benchmark=SOURCES[domain]["source"],
        operator_sequence=list(steps) or None,
        semantic_operator=operator,
        recipe_length=len(steps) or None,
        recipe_prompt_key=stable_id(track, split, operator),
        reference_status="KEEP",
        reference_text=text if text is not None else json.dumps(value, ensure_ascii=False),
        reference_json=json.dumps(value, ensure_ascii=False, sort_keys=True) if mixed else None,
        output_format=form,
        scoring_profile=profile,
        reports_refinement_gain=text is not None,
        prompt_variants=variants,
        prompt_variant_count=len(variants),
        selected_prompt_variant_indices=list(range(len(variants))),
        prompt_candidate_pool_count=len(variants),
        prompt_sampling_policy="all",
    )


# --- PII

GROUPS: Mapping[str, list[str]] = {g: said.split() for g, said in _WORDS["pii_groups"].items()}
LEAST_GROUPS = 2


def group_of(label: str) -> str | None:
    """The group of a label, whose running number (GIVENNAME1) does not matter."""
    name = re.sub(r"[^A-Z]", "", label.upper())
    return next((g for g, names in GROUPS.items() if name in names), None)


def pii_sample(row: Mapping[str, Any]) -> Row:
    """One English text with its entities. Raises `Unusable`."""
    if not str(row.get("language") or "en").lower().startswith("en"):
        raise Unusable("not English")
    text = row.get("source_text", row.get("unmasked_text"))
    if not isinstance(text, str) or not text.strip():
        raise Unusable("no source_text")
    mask = _mask(row.get("privacy_mask"))
    found = [e | {"group": g} for e in mask if (g := group_of(str(e.get("label"))))]
    for entity in found:
        start, end = entity.get("start"), entity.get("end")
        if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < end:
            raise Unusable("a privacy_mask entry without start and end")
        if "value" in entity and text[start:end] != entity["value"]:
            raise Unusable("privacy_mask does not fit source_text")
    if len({e["group"] for e in found}) < LEAST_GROUPS:
        raise Unusable(f"fewer than {LEAST_GROUPS} groups of entities")
    if _stands_unmasked(text, found, mask):
        raise Unusable("a value that is masked at one place and not at another")
    return {"id": name_of(row, text), "text": text, "entities": found}


def _stands_unmasked(text: str, found: Sequence[Row], mask: Sequence[Row]) -> bool:
    """Whether the value of an entity stands elsewhere too, in no entry of the mask: the request to
    replace every piece would reach it, and gold does not."""
    ends = [(e.get("start"), e.get("end")) for e in mask]
    spans = [(a, b) for a, b in ends if isinstance(a, int) and isinstance(b, int)]
    values = {text[e["start"] : e["end"]] for e in found}
    places = [m.span() for v in values for m in re.finditer(rf"(?<!\w){re.escape(v)}(?!\w)", text)]
    return any(all(end <= a or b <= start for a, b in spans) for start, end in places)


def _mask(value: Any) -> list[Row]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            try:
                value = python_literal(value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                raise Unusable("privacy_mask cannot be read") from None
    if not isinstance(value, list) or not all(
        isinstance(e, dict) for e in cast("list[Any]", value)
    ):
        raise Unusable("no privacy_mask")
    return cast("list[Row]", value)


def redact(text: str, entities: Sequence[Mapping[str, Any]], groups: Sequence[str]) -> str:
    """The text after one step a group, in their order. A step replaces each entity of its group
    that is still whole by `[LABEL_N]`, N counting the label's distinct values in order of
    appearance; what an earlier step has replaced is gone for the later ones.

    Of overlapping entities of one group the one that begins first is taken, the longer one of two
    that begin together.
    """
    taken: list[tuple[int, int, str]] = []
    for group in groups:
        own = [e for e in entities if e["group"] == group]
        for entity in sorted(own, key=lambda e: (int(e["start"]), -int(e["end"]))):
            start, end = int(entity["start"]), int(entity["end"])
            if all(end <= first or last <= start for first, last, _ in taken):
                taken.append((start, end, str(entity["label"]).upper()))
    numbers: dict[tuple[str, str], int] = {}
    counts: defaultdict[str, int] = defaultdict(int)
    out, at = "", 0
    for start, end, label in sorted(taken):  # a label is of one group: steps share no count
        key = (label, text[start:end])
        if key not in numbers:
            counts[label] += 1
            numbers[key] = counts[label]
        out += text[at:start] + f"[{label}_{numbers[key]}]"
        at = end
    return out + text[at:]


def pii_rows(sample: Row) -> list[Row]:
    """One atomic row a group present, and one compositional row: a step a group, in the order of
    `GROUPS`. The published order is not public; this one is ours."""
    present = {e["group"] for e in sample["entities"]}
    groups = [group for group in GROUPS if group in present]
    found = [_pii_row(sample, [group], f"redact_{group}") for group in groups]
    return [*found, _pii_row(sample, groups, "redact_all")]


def _pii_row(sample: Row, groups: Sequence[str], operator: str) -> Row:
    mine = [e for e in sample["entities"] if e["group"] in groups]
    named = [f"{group} information ({_labels(mine, group)})" for group in groups]
    steps = " ".join(f"{n}. Redact every piece of {what}." for n, what in enumerate(named, 1))
    atomic = operator != "redact_all"
    ask = _ASKS["redact" if atomic else operator]
    ask = ask.format(named=named[0], steps=steps, numbers=_ASKS["numbers"])
    return make_row(
        "pii",
        "atomic" if atomic else "compositional",
        sample,
        ask,
        operator,
        text=redact(sample["text"], sample["entities"], groups),
        meta={"groups": list(groups), "entities": len(mine)},
        steps=[f"redact_{group}" for group in groups],
    )


def _labels(entities: Sequence[Mapping[str, Any]], group: str) -> str:
    return ", ".join(sorted({str(e["label"]).upper() for e in entities if e["group"] == group}))


# --- hallucinations

EDITS = ("entity", "relation")
MEANINGS: Mapping[str, str] = _WORDS["hallucinations"]
KINDS = tuple(MEANINGS)
_TAG = re.compile(rf"<(/?)({'|'.join(KINDS)}|mark|delete|sentence)\s*>", re.IGNORECASE)
_ANY = re.compile(r"</?(?:mark|delete|" + "|".join(KINDS) + ")", re.IGNORECASE)
_TEXT = "\nText: "
_TYPES = f"The types are {'; '.join(f'{name}: {meant}' for name, meant in MEANINGS.items())}."


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
    """Follows the tags; `open` holds (tag, where its text begins in the passage, and where in the
    correction)."""

    def __init__(self) -> None:
        self.passage = self.corrected = ""
        self.spans: list[Row] = []
        self.open: list[tuple[str, int, int]] = []
        self._seam = False  # something was left out of the correction just here

    def text(self, piece: str) -> None:
        if not piece:
            return
        names = [name for name, *_ in self.open]
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
            self.open.append((name, len(self.passage), len(self.corrected)))
            return
        if inside != name:
            raise Unusable("markup that is not well nested")
        _, start, begun = self.open.pop()
        wrong, right = self.passage[start:], self.corrected[begun:]
        kept = all(outer in EDITS for outer, *_ in self.open)  # else it goes with a whole span
        if name in EDITS and kept and not (wrong.strip() and right.strip()):
            raise Unusable("an edit without its right or its wrong text")
        if name in KINDS and wrong.strip():
            self.spans.append({"text": wrong.strip(), "type": name})


def hallu_sample(row: Mapping[str, Any]) -> Row:
    """One passage with spans and correction. Raises `Unusable`."""
    marked = row.get("annotated", row.get("completion"))
    if not isinstance(marked, str):
        raise Unusable("neither annotated nor completion")
    passage, corrected, spans = read_fava(marked)
    given = row.get("output")
    prompt = row.get("prompt")
    if given is None and "completion" in row and isinstance(prompt, str) and _TEXT in prompt:
        given = prompt.rpartition(_TEXT)[2]
    if isinstance(given, str) and given.split() != passage.split():
        raise Unusable("its markup does not give back its passage")
    if not passage.strip() or not corrected.strip():
        raise Unusable("nothing is left of the passage")
    return {
        "id": name_of(row, passage),
        "text": passage.strip(),
        "corrected": corrected,
        "spans": spans,
    }


def hallu_rows(sample: Row) -> list[Row]:
    """Detection, span extraction, type classification and correction, and all of it in one."""
    fixed, spans, found = sample["corrected"], sample["spans"], bool(sample["spans"])
    kinds = sorted({str(span["type"]) for span in spans})
    whole = {
        "has_hallucination": found,
        "hallucination_count": len(spans),
        "spans": spans,
        "types": kinds,
        "corrected_text": fixed,
    }
    asks = {
        name: _ASKS[name].format(types=_TYPES)
        for name in ("detect", "spans", "types", "correct", "report")
    }
    meta = {"has_hallucination": found}
    values = {"detect": meta, "spans": {"spans": spans}, "types": {"types": kinds}}
    rows = [
        make_row("hallu", "atomic", sample, asks[name], name, value=value, meta=meta)
        for name, value in values.items()
    ]
    for split, name, value in (("atomic", "correct", None), ("compositional", "report", whole)):
        rows.append(make_row("hallu", split, sample, asks[name], name, fixed, value, meta))
    return rows


# --- rubrics and safety

RUBRICS: Mapping[str, str] = _WORDS["rubrics"]
LABELS = ("safe", "unsafe")


def _pair(row: Mapping[str, Any]) -> str:
    prompt, response = row.get("prompt"), row.get("response")
    if not isinstance(prompt, str) or not prompt.strip():
        raise Unusable("no prompt")
    if not isinstance(response, str) or not response.strip():
        raise Unusable("no response")
    return f"Prompt:\n{prompt}\n\nResponse:\n{response}"


def rubric_sample(row: Mapping[str, Any]) -> Row:
    """One pair with its five marks. Raises `Unusable`."""
    text = _pair(row)
    values: Row = {}
    for name in RUBRICS:
        mark = row.get(name)
        if isinstance(mark, bool) or not isinstance(mark, int | float) or mark not in range(5):
            raise Unusable(f"no {name} from 0 to 4")
        values[name] = int(mark)
    return {"id": name_of(row, text), "text": text, "values": values}


def rubric_rows(sample: Row) -> list[Row]:
    """A row a dimension, and one for all five."""
    found: list[Row] = []
    for keys in (*((k,) for k in RUBRICS), tuple(RUBRICS)):
        split, ask, operator = "atomic", "rate", keys[0]
        if len(keys) > 1:
            split, ask, operator = "compositional", "rate_all", "all"
        meant = ". ".join(f"{key[0].upper()}{key[1:]}: {RUBRICS[key]}" for key in keys)
        said = _ASKS[ask].format(name=", ".join(keys), meant=meant)
        value = {k: sample["values"][k] for k in keys}
        found.append(make_row("rubric", split, sample, said, operator, value=value))
    return found


def safety_sample(row: Mapping[str, Any]) -> Row:
    """One pair with its two labels and the categories it violates. Raises `Unusable`."""
    elsewhere = row.get("reconstruction_id_if_redacted")
    redacted = elsewhere is not None and elsewhere == elsewhere  # tables say NaN for none
    if redacted or str(row.get("prompt")).strip() == "REDACTED":
        raise Unusable("redacted prompt")
    text = _pair(row)
    value: Row = {}
    for key in ("prompt_label", "response_label"):
        value[key] = str(row.get(key) or "").strip().lower()
        if value[key] not in LABELS:
            raise Unusable(f"no {key}")
    raw: Any = row.get("violated_categories") or []
    names = raw.split(",") if isinstance(raw, str) else [str(c) for c in cast("list[Any]", raw)]
    value["violated_categories"] = list(dict.fromkeys(c.strip() for c in names if c.strip()))
    if ("unsafe" in value.values()) != bool(value["violated_categories"]):
        raise Unusable("labels and categories that contradict each other")
    return {"id": name_of(row, text), "text": text, "values": value}


def safety_rows(sample: Row) -> list[Row]:
    """Prompt label, response label and violated categories, alone and together."""
    listed, values = ", ".join(sample["categories"]) or "none is known", sample["values"]
    asked = [("atomic", key, key, {key: value}) for key, value in values.items()]
    return [
        make_row("safety", split, sample, _ASKS[ask].format(listed=listed), name, value=value)
        for split, ask, name, value in (*asked, ("compositional", "safety", "all", values))
    ]


@dataclass(frozen=True)
class Domain:
    """How one source becomes rows: read a row, choose among samples stratum by stratum, make rows
    of one. `size`: the published one, of each stratum where it is `each`."""

    read: Callable[[Mapping[str, Any]], Row]
    stratum: Callable[[Row], int]
    rows: Callable[[Row], list[Row]]
    size: int
    counts: str
    each: bool = False

    def choose(self, samples: Iterable[Row], most: int, seed: int) -> list[Row]:
        """In turns over the strata (or one after the other), each by the rank of a hash; `most`: 0
        is all. Every sample gets the categories that occur in the source: an answer must match them
        exactly, so the request has to name them."""
        strata: defaultdict[int, list[Row]] = defaultdict(list)
        known: set[str] = set()
        for sample in distinct(samples):
            strata[self.stratum(sample)].append(sample)
            known |= {*sample.get("values", {}).get("violated_categories", ())}
        queues = [
            sorted(strata[key], key=lambda r: derive_seed(seed, "stratum", str(r["id"])))
            for key in sorted(strata)
        ]
        if self.each:
            chosen = [one for queue in queues for one in queue[: most or None]]
        else:
            turns = zip_longest(*queues)
            chosen = [one for turn in turns for one in turn if one is not None][: most or None]
        categories = sorted(known, key=str.lower)
        return [sample | {"categories": categories} for sample in chosen]


def _groups_in(sample: Row) -> int:
    return len({entity["group"] for entity in sample["entities"]})


def _clean(sample: Row) -> int:
    return not sample["spans"]


def _unsafe(sample: Row) -> int:
    prompt, response = (sample["values"][k] == "unsafe" for k in ("prompt_label", "response_label"))
    return 2 * prompt + response


DOMAINS = {
    "pii": Domain(pii_sample, _groups_in, pii_rows, 500, "texts"),
    "hallu": Domain(hallu_sample, _clean, hallu_rows, 150, "passages each with and without", True),
    "rubric": Domain(rubric_sample, lambda _: 0, rubric_rows, 300, "pairs"),
    "safety": Domain(safety_sample, _unsafe, safety_rows, 300, "pairs"),
}
