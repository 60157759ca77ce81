"""Every fast form gives what the plain definition gives, on texts built to sit on its edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gold_oracle import PAIRS
from gold_texts import TEXTS
from hypothesis import given, settings


@pytest.mark.parametrize(("fast", "plain"), [p[1:] for p in PAIRS], ids=[p[0] for p in PAIRS])
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_fast_form(fast: Callable[[str], Any], plain: Callable[[str], Any], text: str) -> None:
    assert fast(text) == plain(text)
