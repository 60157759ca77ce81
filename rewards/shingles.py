"""What two texts are compared by where one may be a copy of the other with changes: their shingles.

A shingle is five words where a script has spaces, three characters where it has none (Chinese,
Japanese, Thai, Lao, Khmer, Burmese, Tibetan), each at its place in a mixed text. Case, forms of
characters (NFKC) and characters that do not show do not count.
"""

from __future__ import annotations

import re
import unicodedata

WORDS, ALONE = 5, 3  # of a shingle: words; characters without spaces, which say half as much
_WORD = re.compile(r"\w+")
# letters and vowel signs of scripts that set no spaces between words
_SPACELESS = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf"
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\ua980-\ua9ff\uaa60-\uaa7f\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_ALONE = re.compile(f"[{_SPACELESS}]")
_TOKEN = re.compile(f"[{_SPACELESS}]|[^\\W{_SPACELESS}]+")


def tokens(text: str) -> tuple[list[str], list[int]]:
    """The words of a text, characters without spaces by themselves; and how many tokens make a
    shingle from each on (no widths where all are words)."""
    if text.isascii():
        return _WORD.findall(text.lower()), []
    folded = unicodedata.normalize("NFKC", text).casefold()
    shown = "".join(c for c in folded if c.isascii() or unicodedata.category(c) != "Cf")
    if _ALONE.search(shown) is None:
        return _WORD.findall(shown), []
    found = _TOKEN.findall(shown)
    return found, [ALONE if _ALONE.match(token) else WORDS for token in found]


def shingles(found: list[str], widths: list[int]) -> set[str]:
    """The shingles of what `tokens` gives."""
    starts = enumerate(widths or [WORDS] * len(found))
    return {" ".join(found[at : at + n]) for at, n in starts if at + n <= len(found)}
