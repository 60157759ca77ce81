"""Shared fixtures. torch is imported inside them only, so tests of rewards and data stay light."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from family_fixtures import (  # noqa: F401  (pytest finds them here)
    families_stay_in_their_file,
    no_family_of_another_test,
)
from hypothesis import settings
from namespaces import (
    forget_refusals,
    is_root_without_namespaces,
    note_refusals,
    refusal,
    refused,
)
from small_lake import make_lake
from tiny_model import tiny_config, write_tiny_tokenizer

# What the tests import is kept: looking for garbage in it took 2.3 s of a worker's collection.
gc.disable()

# A loaded machine is slow, and no property is about time.
settings.register_profile("assay", deadline=None, max_examples=50)
settings.load_profile("assay")

# A shell's & makes interrupts ignored, in what the tests start, too; some send them.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# A thread of torch that waits for another one leaves its core to the other tests.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Stop where no jail can start, and say what to do, before a hundred tests fail for it."""
    if refusal():
        note_refusals()
    if not is_root_without_namespaces():
        return
    from rollouts.sandbox.model import closed_folder

    if folder := closed_folder(sys.executable):
        pytest.exit(
            f"model code runs as another user here, who may not enter {folder}, where this Python "
            f"is: chmod o+x {folder}, or use a Python elsewhere",
            returncode=pytest.ExitCode.USAGE_ERROR,
        )


def pytest_sessionfinish() -> None:
    warm = getattr(sys.modules.get("harness"), "warm_pool", None)
    if warm and warm.cache_info().currsize:
        sys.modules["rollouts.event_loop"].asyncio_run(warm().close())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    forget_refusals()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    """Where the sandbox refuses to run, a test that ends by its refusal is skipped by name."""
    report = yield
    if report.failed and (why := refusal()):
        told = "\n".join([str(report.longrepr), *(text for _, text in report.sections)])
        if refused(str(report.longrepr), why[:36] in told):  # messages may be cut
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: no jail: {why}")
    return report


@pytest.fixture(scope="session", autouse=True)
def _folders_that_a_jail_can_enter(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As root without namespaces, as in Docker, a jail runs as another user, who may not enter the
    private folders that pytest makes."""
    if not is_root_without_namespaces():
        return
    base = tmp_path_factory.getbasetemp()
    for folder in (base, *base.parents):
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o755)
    make = tmp_path_factory.mktemp

    def opened(*args: Any, **more: Any) -> Path:
        folder = make(*args, **more)
        folder.chmod(0o755)
        return folder

    tmp_path_factory.mktemp = opened  # what tmp_path comes from, too


@pytest.fixture(scope="session", autouse=True)
def _what_stays_is_looked_at_once() -> None:
    """Garbage is looked for in what tests make. Every record of a command says what the checkout
    is: git is asked once."""
    from assay import record

    gc.freeze()
    gc.enable()
    ask, kept = record._git, cache(record._git)
    record._git = lambda root, *words: (kept if root == record.ROOT else ask)(root, *words)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder with a random three-layer Llama (float32) and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("tiny")
    vocab = write_tiny_tokenizer(folder)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny_config(vocab)).float()
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def warm_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that run in this process find the sandbox warm that tests share."""
    from harness import WarmFactory

    from rollouts.environments import EnvironmentFactory

    monkeypatch.setattr(EnvironmentFactory, "pool", WarmFactory.pool)


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small lake that is only read: a sandbox that knows it need not be started again."""
    return make_lake(tmp_path_factory.mktemp("read") / "lake")


@pytest.fixture(scope="session")
def tiny_hf(tiny_folder: Path) -> Any:
    """The same model as a transformers module."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32).eval()
