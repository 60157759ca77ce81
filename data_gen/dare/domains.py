"""The domain of a table, by the paper's appendix M as far as rules can: a keyword of its source
that names a domain decides, else the words of its title. The paper asks a language model, which
reads the description too; its shares (Table 3) compare with these only roughly."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from data_gen.dare.layout import Entry

DOMAINS = {
    "finance": r"price|wage|income|salar|bank|loan|credit|stock|econom|insur|expend|cost",
    "health": r"patient|disease|cancer|blood|drug|birth|hospital|medic|health|mortal|weight",
    "education": r"school|student|teacher|score|college|university|exam|grade",
    "environment": r"temperature|species|forest|weather|rain|ozone|pollut|river|soil|plant|bird",
    "business": r"customer|sales|firm|market|retail|employ|product",
    "technology": r"comput|software|internet|phone",
    "automotive": r"\bcar\b|vehicle|traffic|driver|automobile",
}
OTHER = "other"
_NAMED = {"healthcare": "health", "automobiles and vehicles": "automotive"}  # other keywords


def domain_of_text(text: str, keywords: Iterable[str] = ()) -> str:
    """One of the domains, `other` when nothing tells."""
    named = (_NAMED.get(word, word) for word in (k.strip().lower() for k in keywords))
    if domain := next((word for word in named if word in DOMAINS), ""):
        return domain
    counts = {d: len(re.findall(p, text.lower())) for d, p in DOMAINS.items()}
    best = max(counts, key=lambda d: counts[d])
    return best if counts[best] else OTHER


def domain_of_page(entry: Entry) -> str:
    """The domain of an official database, by its source's page (`verify/all_metadata.json`)."""
    about = json.loads((entry.folder / "verify" / "all_metadata.json").read_text("utf-8"))
    page = _object(about.get("meta_data"))
    return domain_of_text(str(page.get("title") or ""), _listed(page.get("keywords")))


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _listed(value: Any) -> list[str]:
    """Keywords as a list, or as the text of one."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            value = value.split(",")
    return [str(word) for word in cast("list[Any]", value)] if isinstance(value, list) else []
