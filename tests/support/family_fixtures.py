"""Fixtures that keep the families of one test from the next. tests/conftest.py has them for all
tests; `make test-interop`, which does without it, loads them with `-p family_fixtures`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def families_stay_in_their_file() -> Iterator[None]:
    """What the tests of a file add to the families is forgotten after the file."""
    from assay import family as families

    added, told = dict(families._added), os.environ.get(families.VARIABLE)
    yield
    families._added = added
    os.environ.pop(families.VARIABLE, None)
    if told is not None:
        os.environ[families.VARIABLE] = told


@pytest.fixture
def no_family_of_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process and those it starts know the families of Assay alone; what the test adds is
    forgotten after it. Files that add families ask for it with `pytestmark`."""
    from assay import family as families

    monkeypatch.setattr(families, "_added", {})
    monkeypatch.setenv(families.VARIABLE, "")
