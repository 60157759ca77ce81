"""Where the checkout is, and the reference data that some tests compare with."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
# Specifications, conformance vectors and published tasks; tests that need them skip without them.
SHARED = Path(os.environ.get("ASSAY_VECTORS") or ROOT.parent / "shared").resolve()


def tables(name: str) -> dict[str, Any]:
    """Inputs and expected results, by the test that they are for, in tests/data/NAME.json or .yaml.
    In JSON bytes stand as {"bytes": TEXT} in Latin-1, a text that repeats as
    {"repeat": [TEXT, TIMES]}."""
    path = ROOT / "tests" / "data" / name
    if path.with_suffix(".yaml").exists():
        return yaml.safe_load(path.with_suffix(".yaml").read_text("utf-8"))
    return json.loads(path.with_suffix(".json").read_text("utf-8"), object_hook=_spelled)


def _spelled(found: dict[str, Any]) -> Any:
    if found.keys() == {"bytes"}:
        return found["bytes"].encode("latin-1")
    return found["repeat"][0] * found["repeat"][1] if found.keys() == {"repeat"} else found
