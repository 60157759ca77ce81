"""Where the checkout is, and the reference data that some tests compare with."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Specifications, conformance vectors and published tasks; tests that need them skip without them.
SHARED = Path(os.environ.get("ASSAY_VECTORS") or ROOT.parent / "shared").resolve()
