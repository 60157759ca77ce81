"""Certificates and run records name the versions that gold depends on."""

from __future__ import annotations

import platform
from importlib import metadata

from assay.versions import GOLD, TABLES, installed
from data_gen.splits import certificate
from train.run.record import PACKAGES


def test_what_is_installed_is_named_and_what_is_not_is_left_out() -> None:
    found = installed(["regex", "no-such-package"])
    assert found == {"python": platform.python_version(), "regex": metadata.version("regex")}


def test_run_records_and_certificates_hold_what_gold_depends_on() -> None:
    assert {"regex", "beautifulsoup4", "selectolax"} <= set(GOLD)
    assert set(GOLD) <= set(PACKAGES) and set(GOLD) <= set(TABLES)
    said = certificate({"train": [], "heldout": []})["versions"]
    assert {"regex", "beautifulsoup4"} <= set(said)
