"""The install commands that the documents give, as far as they can be judged without a network."""

from __future__ import annotations

import re

import pytest
from places import ROOT

PAGES = ("README.md", "docs/clusters.md")
COMMAND = re.compile(r"^.*\bpip install .*$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_the_checkout_is_installed_with_what_builds_it(page: str) -> None:
    """Without build isolation a fresh environment lacks hatchling and editables, which the checkout
    itself is built with."""
    for command in COMMAND.findall((ROOT / page).read_text(encoding="utf-8")):
        ours = re.search(r"-e\s+[\"']?\.", command)
        assert not (ours and "--no-build-isolation" in command), command
