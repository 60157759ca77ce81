"""What a source says of its columns: descriptions, and the phrases that questions use for them.

A phrase stands in a question where the published ones have words instead of a column's name; the
same phrase opens the column's line in `metadata.txt`, so that it can be mapped back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

LONGEST = 90  # letters of a phrase; longer descriptions are cut at a clause, or not used
_SECTIONS = re.compile(r"^#{2,4}\s*(.+?)\s*$", re.M)
_UNWANTED = ("usage", "examples", "see also", "references", "author", "authors")
_ITEM = (
    r"^\s*(?:[-*]\s+)?[`*_]{{0,3}}{name}[`*_]{{0,3}}\s*(?:[:=]|\n)[`*:\s]*(.+(?:\n(?!\s*\n).*)*)"
)
_KIND = re.compile(
    r"^(an? )?((ordered |un-?ordered |categorical )?factor|(numeric(al)?|integer|character|"
    r"logical)( (vector|variable))?|dummy( variable)?|binary( variable)?|double|string)"
    r"((\s+vector|\s+variable)?\s*(for|of|giving|indicating( whether)?|coding|specifying|with the|"
    r"denoting|containing|describing|representing|which gives)\b|[.,:;]|\s*$)\s*",
    re.I,
)
_INDICATOR = re.compile(
    r"^(dummy( variable)?s?:?,?\s*)?(an? numeric (vector )?that equals 1|=\s*1|1|one|\(?1\)?)\s+"
    r"(if|for|when)\b",
    re.I,
)
_COMMON = re.compile(
    r"(A|An|The|Number|Age|Years?|Time|Total|Average|Mean|Median|Whether|Is|Did|Does|Was|Has|Percent"
    r"(age)?|Proportion|Share|Household|Height|Weight|Length|Width|Depth|Price|Distance|Measured|Type|"
    r"Month(ly)?|Annual|Daily|Week(ly|s)?|Name|Rate|Size|Level|Amount|Count|Cost|Duration|Gender|Sex|"
    r"Highest|Lowest|Opening|Closing|Log(arithm)?|Real|Employment|Education(al)?|Marital|Income|"
    r"Current|Initial|Final|Maximum|Minimum|Estimated|Reported|Mother's|Father's|Student's|Country|"
    r"Date|Value|Score|Index|Status|Volume|Area|Day|Hours?|Blood|Body|Sepal|Petal|Number\b)\b"
)
_EMPTY = re.compile(
    r"^(an? )?(numeric|integer|factor|character|logical|ordered|vector|variable|with|levels?|"
    r"column|values?|unknown|see|details|description|number|code[ds]?|data|n/?a|yes|no|[\W\d_]+)*$",
    re.I,
)


def plain_about(about: str) -> str:
    """A documentation page without its code: usage and examples say nothing of the data."""
    parts = _SECTIONS.split(about)
    kept = [parts[0]]
    for title, body in zip(parts[1::2], parts[2::2], strict=False):
        if title.strip().lower() not in _UNWANTED:
            kept.append(f"{title}\n{body}")
    text = "\n".join(kept)
    text = re.sub(r"^.*R Documentation.*\n[-|\s]*\n", "", text)
    return re.sub(r"\n\s*\n\s*\n+", "\n\n", text).strip()


def described(about: str, names: Sequence[str]) -> dict[str, str]:
    """The columns that a text describes as `name: words` items, a name on a line of its own with
    words below included. Whole paragraphs, on one line each."""
    found: dict[str, str] = {}
    text = plain_about(about)
    listed = re.search(r"^(Format|Value|Arguments|Details)\s*$", text, re.M)
    text = text[listed.end() :] if listed else text
    marks = r"[`*_]{0,3}"
    other = "|".join(re.escape(name) for name in names)
    following = re.compile(rf"\n\s*[-*]\s|\s-{{3,}}|\n\s*{marks}(?:{other}){marks}\s*[:=]")
    for name in names:
        hit = re.search(_ITEM.format(name=re.escape(name)), text, re.M)
        if hit is None or re.match(rf"(?:{other}){marks}\s*[:=]", hit[1]):
            continue  # nothing is said of it: the next item follows
        said = following.split(hit[1])[0]
        found[name] = tidy(said)[:400]
    return {name: said for name, said in found.items() if re.search(r"[^\W\d_]{2}", said)}


def tidy(text: str) -> str:
    """One line without marks of a page's layout."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"[`*|]+|(?<!\w)_+|_+(?!\w)", "", " ".join(text.split()))
    return re.sub(r"\s+([,.;:])", r"\1", text).strip(" -–:")


def phrase(text: str) -> str:
    """The words that name a column in a question: a description's first clause, without the words
    for its type; "" where it says too little or too much."""
    text = tidy(text)
    if _INDICATOR.match(text):
        text = _INDICATOR.sub(r"indicator that is 1 \5", text)
    text = re.sub(r"\s*\([^()]*(::|same as|see )[^()]*\)", "", text, flags=re.I)
    for _ in range(2):
        text = _KIND.sub("", text)
    text = re.sub(
        r"\b(an? )?(ordered )?(factor )?with (\d+ )?(the )?levels?\b.*", "", text, flags=re.I
    )
    whole = re.split(
        r"(?<=[^\W\d_]{3})\.\s+(?![a-z])|[.;!]\s+(?=[A-Z])|[;?]\s|(?<=\D)\s[-–]{1,2}\s", text
    )[0]
    head = whole.partition(": ")[0]
    whole = head if len(head.split()) > 2 else whole
    for cut in (whole, re.split(r"\s*\(|, (?=[a-z0-9])", whole)[0]):
        said = _closed(cut).strip(" .;:,?!-–'\"“”")
        if len(said) <= LONGEST:
            break
    else:
        return ""
    if _EMPTY.match(said) or not re.search(r"[^\W\d_]{3}", said) or len(said) < 4:
        return ""
    if re.search(r"[\"“”{}\\<>$]|https?:|\.\.\.|\b(see|below|above)$", said):
        return ""
    if re.search(r"\b(factors?|vector|levels? [A-Z]|note that|missing|data frame)\b", said):
        return ""
    if re.search(r"[=^+*]", said) or re.match(
        r"(a|an|of|for|in|with|and|the|or|to|at|by|on)$|of |for |as |in ", said
    ):
        return ""
    return said[0].lower() + said[1:] if _COMMON.match(said) else said


def _closed(text: str) -> str:
    """A text cut before a bracket that does not close."""
    while text.count("(") > text.count(")"):
        text = text[: text.rindex("(")]
    return text


def phrases(columns: Sequence[str], texts: Mapping[str, str]) -> dict[str, str]:
    """Column → its phrase, for the columns whose phrase is their own: no other column's phrase, nor
    its name."""
    made = {name: phrase(texts[name]) for name in columns if name in texts}
    count = Counter(said.lower() for said in made.values())
    names = {name.lower() for name in columns}
    return {
        name: said
        for name, said in made.items()
        if said
        and count[said.lower()] == 1
        and said.lower() not in names - {name.lower()}
        and said.lower() != name.lower()
    }
