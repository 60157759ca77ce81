"""Commands through the front door, where errors become exit statuses, and what they leave."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import assay


def command(*words: str) -> Callable[[Sequence[str]], int]:
    """`assay WORDS …` as a function of the words that follow."""
    return lambda argv: assay.main([*words, *argv])


def results(out: Path) -> dict[str, Any]:
    """What an evaluation found."""
    return json.loads((out / "results.json").read_text(encoding="utf-8"))
