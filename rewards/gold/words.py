"""What each operator does, in words: `operators.yaml`."""

from __future__ import annotations

from typing import Any

from assay.listed import beside
from rewards.gold.core import Operator


def said(operator: Operator) -> dict[str, Any]:
    """Its `summary`, the `difference` of the profiles where there is one, and an `example`. Of an
    operator that is none of ours only its own summary."""
    return beside(__file__, "operators.yaml").get(operator.name, {"summary": operator.summary})
