"""verl's trainer with a real vLLM server as its rollout, in a process of its own environment.

`ASSAY_VLLM_PYTHON` names the Python of an environment with vLLM's CPU build (docs/clusters.md).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("verl", reason="the extra `cluster` is not installed")

from tiny_model import CHAT_TEMPLATE  # noqa: E402
from tool_model import tasks, write_model  # noqa: E402
from verl_run import greedy, grpo, logged  # noqa: E402

VLLM = os.environ.get("ASSAY_VLLM_PYTHON", "")
NO_VLLM = "no environment with vLLM: set ASSAY_VLLM_PYTHON to its Python"


def row(reason: str, told: int) -> dict[str, Any]:
    logprobs = {"token_logprobs": [-0.5] * told}
    return {"choices": [{"token_ids": [5, 6], "logprobs": logprobs, "finish_reason": reason}]}


def test_an_answer_that_was_broken_off_is_one_to_go_on_with() -> None:
    from train.backends.verl.smoke.vllm import output_of

    cut = output_of(row("abort", 2), 3)
    assert (cut.token_ids, cut.log_probs, cut.stop_reason) == ([5, 6], [-0.5, -0.5], "aborted")
    assert cut.extra_fields == {"global_steps": 3}
    assert output_of(row("stop", 2), 3).stop_reason == "completed"
    with pytest.raises(ValueError, match="1 log-probabilities of 2 tokens"):
        output_of(row("stop", 1), 3)


def test_every_weight_is_sent_and_no_other() -> None:
    from train.backends.verl.smoke.vllm import checked

    one = torch.zeros(1)
    assert checked({"a": one, "lm_head.weight": one}, {"a"}).keys() == {"a"}
    with pytest.raises(KeyError, match=r"b missing, c unknown"):
        checked({"a": one, "c": one}, {"a", "b"})
    embed = {"model.embed_tokens.weight": one}
    assert checked(embed, {*embed, "lm_head.weight"}).keys() == {*embed, "lm_head.weight"}
    assert checked(embed, {*embed}).keys() == {*embed}


@pytest.mark.slow
@pytest.mark.skipif(not VLLM, reason=NO_VLLM)
@pytest.mark.parametrize("lora", [0, 4])
def test_two_steps_with_tools_from_a_vllm_server(tmp_path: Path, lora: int) -> None:
    """The server has the trainer's weights before and after the first update: what it says of its
    tokens is what the trainer says. With adapters the last validation's answers are those of the
    exported model."""
    (tmp_path / "m").mkdir()
    write_model(tmp_path / "m", CHAT_TEMPLATE, head_dim=32)  # vLLM's CPU kernels know no smaller
    tasks(4, tmp_path / "train.jsonl")
    tasks(3, tmp_path / "held.jsonl", tools=False)
    said = grpo(
        tmp_path,
        "rl.steps=2",
        "rl.lr=2e-2",
        "cluster.rollout=vllm",
        f"cluster.server_python={VLLM}",
        f"model.lora_rank={lora}",
    )
    rows = logged(tmp_path)
    assert [one["training/global_step"] for one in rows] == [1, 2], said[-2000:]
    for one in rows:
        assert one["training/rollout_probs_diff_max"] < 1e-4
        assert one["rollout/left_out"] == 0.0
    assert rows[0]["rollout/tool_calls/mean"] >= 0.5
    # the second step's tokens came from other weights than the first's
    assert rows[0]["actor/grad_norm"] > 0
    log = (tmp_path / "run" / "verl" / "servers" / "server-0.log").read_text()
    assert log.count('"POST /collective_rpc HTTP/1.1" 200') >= 3  # at the start, after each step
    assert not (tmp_path / "run" / "verl" / "weights").exists()
    if not lora:
        return  # verl's merger rounds the exported model to bfloat16
    lines = (tmp_path / "run" / "validation" / "2.jsonl").read_text().splitlines()
    answers = [json.loads(line)["output"] for line in lines]
    assert sorted(answers) == sorted(greedy(tmp_path / "run" / "model", tmp_path / "held.jsonl"))
