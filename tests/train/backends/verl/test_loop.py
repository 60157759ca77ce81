"""Our agent loop against a stub of verl's server: ids, masks, clean-up, what verl gets to see."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="the extra `cluster` is not installed")

from ray.exceptions import ActorDiedError, RayTaskError

from assay.task import Task
from configs.loader import dump, load
from configs.schema import GrpoRunConfig
from rollouts.environment import EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.prompts import ChatTokenizer
from rollouts.tool_calls import FORMATS, ToolSpec
from train.backends.verl.loop import AssayLoop, _settings

CALL = FORMATS["hermes"].write
GOOD = "<status>KEEP</status><clean_text>ab</clean_text>"
GOLD = {"input_text": "axb", "status": "KEEP", "text": "ab"}
NESTED = {"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string"}}}}


@dataclass
class Echo:
    """Answers every call at length."""

    task: Task
    opened: int = 0
    closed: int = 0
    left: dict[str, bytes] = field(default_factory=dict)
    seen: list[ModelTurn] = field(default_factory=list)

    async def open(self) -> EpisodeStart:
        self.opened += 1
        return EpisodeStart(self.task.prompt, [ToolSpec("echo", "Say it.", NESTED)])

    async def reply(self, said: ModelTurn) -> Reply:
        self.seen.append(said)
        messages = [{"role": "tool", "content": c.error or "y" * 600} for c in said.calls]
        errors = {"bad_call": sum(bool(c.error) for c in said.calls)}
        return Reply(messages, False, [{"n": 1} for _ in said.calls], errors, 0.5)

    async def close(self) -> EpisodeEnd:
        self.closed += 1
        return EpisodeEnd(self.left)


class Server:
    """Says one script line after another, whatever it is asked; `odd`: what happens to requests
    instead, by number (abort, aborted, empty, died, raised)."""

    def __init__(self, chat: ChatTokenizer, lines: list[str], odd: dict[int, str]) -> None:
        self.chat, self.lines, self.asked, self.odd = chat, lines, list[Any](), odd

    async def generate(self, request_id: str, *, prompt_ids: Any, sampling_params: Any) -> Any:
        self.asked.append((request_id, list(prompt_ids), sampling_params))
        ids = self.chat.answer(self.lines[min(len(self.asked), len(self.lines)) - 1])
        extra = {"global_steps": 3, "min_global_steps": 3, "max_global_steps": 4}
        odd = self.odd.get(len(self.asked), "completed")
        if odd == "died":
            raise ActorDiedError()
        if odd == "raised":
            raise RayTaskError("generate", "a page\nof traceback\nOSError: CUDA", OSError("CUDA"))
        if odd == "empty":
            ids, odd = [], "length"
        return SimpleNamespace(
            token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason=odd, extra_fields=extra
        )


def run(
    folder: Path,
    lines: list[str],
    tools: bool = True,
    budget: int = 8000,
    table: str = "",
    left: dict[str, bytes] | None = None,
    odd: dict[int, str] | None = None,
) -> Any:
    """(output, environments made, server); `table`: the truth of a table task instead of text."""
    made: list[Echo] = []

    def maker(task: Task, sample: int, seed: int) -> Echo:
        made.append(Echo(task, left=left or {}))
        return made[-1]

    loop: Any = object.__new__(AssayLoop)  # without verl's own set-up, which wants a whole run
    config = load(GrpoRunConfig, None, [f"model.path={folder}"])
    loop.run_config = replace(
        config, rl=replace(config.rl, max_new_tokens=400, max_length=budget, turns=4)
    )
    loop.chat = ChatTokenizer(folder)
    loop.environment_factory = SimpleNamespace(maker=maker)
    loop.rollout_config = SimpleNamespace(name="sglang")
    loop.server_manager = Server(loop.chat, lines, odd or {})
    prompt, said = [{"role": "user", "content": "axb"}], ("echo",) if tools else ()
    task = Task("t", "refinement", "toy", "train", prompt, GOLD, tools=said)
    if table:
        gold = {"task_type": "class-MM", "truth_csv": table}
        gold |= {"key_columns": ["row_id"], "targets": ["y"]}
        task = replace(task, family="table", track="class-MM", gold=gold)
    row = {"session_id": 1, "global_steps": 2, "raw_prompt": task.prompt, "index": 0}
    row["reward_model"] = {"ground_truth": json.dumps(task.to_json())}
    drawn = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "logprobs": True}
    return asyncio.run(loop.run(drawn, **row)), made, loop.server_manager


def test_a_trajectory_with_tools_as_verl_gets_it(tiny_folder: Path) -> None:
    two = CALL("echo", {"names": ["a"]}) + CALL("echo", {"names": ["b"]})
    out, made, server = run(tiny_folder, [two, "<tool_call>\n{torn\n</tool_call>", GOOD])
    assert len(made) == 1 and made[0].opened == made[0].closed == 1  # one a trajectory, not a call
    assert [len(said.calls) for said in made[0].seen] == [2, 1, 0]  # both calls, and the torn one
    assert len({request for request, _, _ in server.asked}) == 1
    whole = out.prompt_ids + out.response_ids
    for _, prompt, _ in server.asked:  # ids are only appended to
        assert whole[: len(prompt)] == prompt
    chat = server.chat
    said = [i for i, m in zip(out.response_ids, out.response_mask, strict=True) if m]
    assert said == [i for line in server.lines for i in chat.answer(line)]
    assert len(out.response_logprobs) == len(out.response_ids)
    masked = zip(out.response_logprobs, out.response_mask, strict=True)
    assert all(lp == (-0.5 if m else 0.0) for lp, m in masked)
    text = chat.text(whole)
    assert "y" * 600 in text  # no answer of a tool is cut to 256 characters
    assert '"items"' in text and '"string"' in text  # nested schemas reach the prompt
    info = out.extra_fields["reward_extra_info"]
    assert out.reward_score == 1.0 and info["acc"] == 1.0 and info["part_rg"] == 1.0
    assert (info["tool_calls"], info["tool_errors"], info["turns"]) == (3.0, 1.0, 3.0)
    # without these verl's metrics end the step with a TypeError
    assert out.extra_fields["min_global_steps"] == 3 and out.extra_fields["max_global_steps"] == 4


def test_what_the_environment_left_is_scored_though_it_is_gone(tiny_folder: Path) -> None:
    pytest.importorskip("pandas", reason="tables are scored with the extra `sandbox`")
    truth = "row_id,y\n1,a\n2,b\n"
    files = {"prediction.csv": truth.encode()}
    out, made, _ = run(tiny_folder, ["done"], table=truth, left=files)
    assert made[0].closed == 1 and out.reward_score == 1.1
    info = out.extra_fields["reward_extra_info"]
    assert (info["acc"], info["part_usable"]) == (1.0, 1.0)
    assert run(tiny_folder, ["done"], table=truth)[0].reward_score == 0.0


def test_a_tool_answer_that_overflows_ends_the_trajectory_with_its_score(tiny_folder: Path) -> None:
    """verl drops the text; here what was said stands, and nothing goes past the last sampled id."""
    call = CALL("echo", {"names": []})
    whole, _, _ = run(tiny_folder, [call, GOOD])
    first = whole.response_mask.index(0)  # ids of the call
    budget = len(whole.prompt_ids) + first + 300
    out, made, server = run(tiny_folder, [call, GOOD], budget=budget)
    assert len(server.asked) == 1 and made[0].closed == 1
    assert set(out.response_mask) == {1} and out.response_ids == whole.response_ids[:first]
    assert len(out.prompt_ids) + len(out.response_ids) <= budget
    assert out.extra_fields["reward_extra_info"]["truncated"] == 1.0 and out.reward_score == 0.0


def test_the_runs_tool_settings_reach_its_episodes(tiny_folder: Path, tmp_path: Path) -> None:
    words = ["tools.calls=qwen_xml", "tools.run_s=7", "tools.output_kb=3", "tools.brief=true"]
    words.append("cluster.sandbox_workers=2")
    dump(load(GrpoRunConfig, None, [f"model.path={tiny_folder}", *words]), tmp_path / "c.yaml")
    _, chat, environment_factory = _settings(str(tmp_path / "c.yaml"))
    assert chat.calls is FORMATS["qwen_xml"]
    found = environment_factory.settings
    assert (found.run_s, found.output_kb, found.brief, found.workers) == (7, 3, True, 2)


@pytest.mark.parametrize("odd", ["abort", "aborted", "empty", "died", "raised"])
def test_what_befalls_the_server_is_never_an_answer(
    tiny_folder: Path, odd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """SGLang says abort, verl's other servers aborted; a dead actor is an error of Ray's."""
    lines = [CALL("echo", {"names": []}), GOOD]
    out, made, _ = run(tiny_folder, [lines[0], *lines], odd={2: odd})  # in the second message
    assert out.reward_score == 1.0 and [m.closed for m in made] == [1, 1]
    assert capsys.readouterr().out == ""
    out, made, _ = run(tiny_folder, [lines[0]], odd={2: odd, 4: odd})
    assert out == [] and [m.closed for m in made] == [1, 1]  # no truncated wrong answer
    said = capsys.readouterr().out
    assert said.startswith("rollout of t left out: ") and "the rollout server" in said
    assert said.count("\n") == 1 and "traceback" not in said
