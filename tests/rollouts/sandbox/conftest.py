from __future__ import annotations

from collections.abc import Generator

import pytest
from harness import Runner, running

from rollouts.sandbox.model import Config
from rollouts.sandbox.pool import machine_report


@pytest.fixture(scope="session")
def reached() -> str:
    """The best level of this machine."""
    return machine_report(Config(workers=1, min_level="limits", stack=()))["level"]


@pytest.fixture(autouse=True)
def _needs_a_sandbox(reached: str) -> None:
    if reached == "none":
        pytest.skip("this machine has no seccomp filters, so it cannot run the sandbox")


@pytest.fixture(scope="module")
def run() -> Generator[Runner]:
    """`Pool.run` at this machine's best level, without the data stack."""
    with running(Config(workers=1, min_level="limits", stack=("numpy",))) as (call, _):
        yield call
