"""Episodes through a real vLLM server, in a process of its own environment.

`ASSAY_VLLM_PYTHON` names the Python of an environment with vLLM's CPU build (docs/clusters.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_model import CHAT_TEMPLATE
from tool_model import tasks, write_model

torch = pytest.importorskip("torch")
pytest.importorskip("aiohttp")

from rollouts.engines.server import Launch, servers  # noqa: E402
from rollouts.prompts import ChatTokenizer  # noqa: E402
from train.cli.answers import rollout  # noqa: E402
from train.model.packing import Segment, pack  # noqa: E402
from train.model.policy import load_policy  # noqa: E402

VLLM = os.environ.get("ASSAY_VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not VLLM, reason="no environment with vLLM: set ASSAY_VLLM_PYTHON to its Python"
    ),
]
SERVE = ("--dtype", "float32", "--enforce-eager", "--max-model-len", "2048")
ENVIRON = {"VLLM_CPU_KVCACHE_SPACE": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that calls the tool and then answers."""
    made = tmp_path_factory.mktemp("model")
    return write_model(made, CHAT_TEMPLATE, head_dim=32)  # vLLM's CPU kernels know no smaller


@pytest.fixture(scope="module")
def address(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    launch = Launch("vllm", str(folder), "tiny", VLLM, more=SERVE, environ=ENVIRON)
    with servers(launch, [""], tmp_path_factory.mktemp("logs")) as found:
        yield found[0]


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def retold(folder: Path, row: dict[str, Any]) -> list[float]:
    """The log-probabilities that our own trainer gives the tokens of a rollout."""
    first = row["loss_mask"].index(1)
    segment = Segment(row["ids"][:first], [row["ids"][first:]], [0], [row["loss_mask"][first:]])
    with torch.no_grad():
        return load_policy(folder, "float32").logp(pack([segment]))[0].tolist()


def test_a_hundred_tool_episodes_side_by_side_are_whole(
    address: str, folder: Path, tmp_path: Path
) -> None:
    data, out = tasks(25, tmp_path / "tasks.jsonl"), tmp_path / "out.jsonl"
    words = ["--tasks", str(data), "--out", str(out), "server.kind=vllm", "--model", address]
    words += ["server.model=tiny", f"server.tokenizer={folder}", "sampling.n=4"]
    assert (
        rollout([*words, "server.in_flight=100", "sampling.max_new_tokens=6", "tools.turns=3"]) == 0
    )
    rows = rows_of(out)
    names = {(row["task_id"], row["sample"]) for row in rows}
    assert len(rows) == len(names) == 100
    called = [row for row in rows if "42" in ChatTokenizer(folder).text(row["ids"])]
    assert len(called) >= 50  # the tool's output stands in the ids, and carries no loss
    for row in rows:
        assert row["outcome"] is not None and len(row["ids"]) == len(row["loss_mask"])
    for row in called[:5]:
        said = [x for x, m in zip(row["logprobs"], row["loss_mask"], strict=True) if m]
        assert said == pytest.approx(retold(folder, row), abs=1e-4)
