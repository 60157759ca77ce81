"""Episodes: ids are only appended to, masks mark the model's tokens, budgets and failures end;
what a row of them keeps."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("transformers")

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from assay.family import score_answer
from assay.task import Score, Task, TaskError, derive_seed
from rewards.score import rollout_answer
from rollouts.conversation import ChatReply
from rollouts.engines.scripted import ScriptedEngine, Turn
from rollouts.environment import (
    Budget,
    EnvironmentFailure,
    EpisodeEnd,
    EpisodeStart,
    ModelTurn,
    Reply,
)
from rollouts.episode import rollout
from rollouts.prompts import ChatTokenizer
from rollouts.sampler import Allowance, Asked, Each, Plan, chunks, sample
from rollouts.tool_calls import FORMATS, ToolSpec
from rollouts.trajectory import (
    KEPT_FILE,
    Completion,
    Sampling,
    Trajectory,
    completion_ids,
    file_texts,
)

CALL = FORMATS["hermes"].write
LONG = Sampling(max_new_tokens=400)
ECHO = ToolSpec("echo", "Say it again.", {"type": "object", "properties": {}})


class Echo:
    """Answers every call with `heard N`; breaks or is satisfied where the script asks for it."""

    def __init__(self, task: Task, sample: int, seed: int) -> None:
        self.task, self.heard, self.closed = task, 0, False

    async def open(self) -> EpisodeStart:
        return EpisodeStart(self.task.prompt, [ECHO])

    async def reply(self, said: ModelTurn) -> Reply:
        await asyncio.sleep(0)
        if "break" in said.text:
            raise EnvironmentFailure("the machine room is on fire")
        self.heard += len(said.calls)
        messages = [
            {"role": "tool", "content": c.error or f"heard {self.heard}"} for c in said.calls
        ]
        errors = {"bad_call": sum(bool(c.error) for c in said.calls)}
        return Reply(messages, "enough" in said.text, [{"n": self.heard}], errors, seconds=2.0)

    async def close(self) -> EpisodeEnd:
        return EpisodeEnd({"out.txt": str(self.heard).encode()})


def task_of(word: str, name: str = "t") -> Task:
    gold = {"input_text": "x", "status": "KEEP", "text": "x"}
    prompt = [{"role": "user", "content": word}]
    return Task(name, "refinement", "toy", "train", prompt, gold, tools=("echo",))


def script(turn: Turn) -> str:
    """Call twice, then stop; unless the first message asks for something else."""
    said = turn.conversation
    if "stall" in said:
        return CALL("echo", {})
    if "cut" in said and "heard" not in said and "not finished" not in said:
        return '<tool_call>\n{"name": "echo", "arguments": {"x": "' + "y" * 2000
    if "fire" in said:
        return "break"
    if "plain" in said:
        return "no call at all"
    if "satisfy" in said:
        return f"enough {CALL('echo', {})}"
    if said.count("heard ") >= 2:
        return "good bye"
    return f"so {CALL('echo', {'seed': turn.seed})}"


def run(
    folder: Path,
    words: list[str],
    n: int = 1,
    budget: Budget | None = None,
    maker: Any = Echo,
    names: list[str] | None = None,
) -> list[list[Any]]:
    tokenizer = ChatTokenizer(folder)
    ids = names or [f"t{i}" for i in range(len(words))]
    tasks = [task_of(w, name) for w, name in zip(words, ids, strict=True)]
    engine = ScriptedEngine(script, tokenizer)
    return asyncio.run(rollout(tasks, engine, tokenizer, LONG, n, 7, maker=maker, budget=budget))


def test_ids_masks_and_words_agree(tiny_folder: Path) -> None:
    tokenizer = ChatTokenizer(tiny_folder)
    (group,) = run(tiny_folder, ["go"], n=2)
    for t in group:
        assert (t.stop, t.turns, t.text, t.files["out.txt"]) == ("eos", 3, "good bye", b"2")
        assert len(t.ids) == len(t.loss_mask) == len(t.logprobs) == len(t.sampling_logprobs)
        written = tokenizer.raw([i for i, m in zip(t.ids, t.loss_mask, strict=True) if m])
        said = [m["content"] + "<|im_end|>" for m in t.messages if m["role"] == "assistant"]
        assert written == "".join(said)
        # as a fresh encoding of the conversation with this byte-level vocabulary gives it
        told = "<tool_response>\n{}\n</tool_response>".format
        shown = [
            {"role": "user", "content": told(m["content"])} if m["role"] == "tool" else m
            for m in t.messages
        ]
        assert t.ids == tokenizer.prompt(shown, [ECHO])[: len(t.ids)]
        prompt, rest, mask = completion_ids(t)
        assert prompt + rest == t.ids[: len(prompt) + len(rest)] and mask[0] == mask[-1] == 1
    assert group[0].ids != group[1].ids  # the scripts saw different seeds


@pytest.mark.parametrize("tools", [("echo",), ()])
def test_a_task_that_stands_there_twice_gets_further_answers(
    tiny_folder: Path, tools: tuple[str, ...]
) -> None:
    tokenizer = ChatTokenizer(tiny_folder)
    task, other = (replace(task_of("go", name), tools=tools) for name in ("t0", "t1"))

    def answers(*asked: Task) -> list[list[list[int]]]:
        engine = ScriptedEngine(script, tokenizer)
        groups = asyncio.run(rollout(asked, engine, tokenizer, LONG, 3, 7, maker=Echo))
        return [[t.ids for t in group] for group in groups]

    alone = answers(task, other)
    first, beside, again, third = answers(task, other, task, task)
    assert [first, beside] == alone  # who stands there once, and first, draws as before
    assert len({tuple(ids) for group in (first, again, third) for ids in group}) == 9


@pytest.mark.parametrize(
    ("word", "budget", "stop", "turns"),
    [
        ("plain", Budget(), "eos", 1),
        ("satisfy", Budget(), "done", 1),
        ("stall", Budget(turns=3), "turns", 3),
        ("stall", Budget(turns=9, seconds=3.9), "time", 2),
        ("stall", Budget(turns=9, tokens=700), "length", None),
        ("go", Budget(tokens=20), "length", 0),
    ],
)
def test_budgets_end_an_episode(
    tiny_folder: Path, word: str, budget: Budget, stop: str, turns: int | None
) -> None:
    t = run(tiny_folder, [word], budget=budget)[0][0]
    assert t.stop == stop and turns in (None, t.turns)
    heard = len(t.tool_calls) if word in ("stall", "satisfy") else 0
    assert t.files["out.txt"] == str(heard).encode()
    if budget.tokens:
        assert t.prompt_length + len(completion_ids(t)[1]) <= max(budget.tokens, t.prompt_length)


def test_a_call_that_was_cut_off_is_answered_and_counted(tiny_folder: Path) -> None:
    t = run(tiny_folder, ["cut"])[0][0]
    assert t.errors["bad_call"] == 1 and t.turns == 4 and t.stop == "eos"
    answers = [m["content"] for m in t.messages if m["role"] == "tool"]
    assert "not finished" in answers[0] and answers[1:] == ["heard 2", "heard 3"]
    # the stop token that the model did not write stands there, without loss
    first = t.loss_mask.index(0, t.prompt_length)
    assert first == t.prompt_length + LONG.max_new_tokens
    assert t.ids[first] == ChatTokenizer(tiny_folder).stop_ids[0]


class Fragile(Echo):
    """Cannot stand some words. Counts how often it was closed."""

    closed_by: ClassVar[Counter[str]] = Counter()

    async def open(self) -> EpisodeStart:
        if "shut" in self.task.prompt[0]["content"]:
            raise KeyError("opened")
        if "bad" in self.task.id:
            raise TaskError("file x is not there; build the tasks again")
        return await super().open()

    async def reply(self, said: ModelTurn) -> Reply:
        if "odd" in self.task.prompt[0]["content"]:
            raise RecursionError("maximum recursion depth exceeded")
        return await super().reply(said)

    async def close(self) -> EpisodeEnd:
        Fragile.closed_by[self.task.id] += 1
        if "stuck" in self.task.prompt[0]["content"]:
            raise ZeroDivisionError("closed")
        return await super().close()


WORDS = {"fire": "the machine room is on fire", "shut": "bug: KeyError: 'opened'"}
WORDS |= {"odd": "bug: RecursionError: maximum", "stuck": "bug: ZeroDivisionError"}


def test_what_breaks_ends_its_own_episode_and_is_no_outcome(tiny_folder: Path) -> None:
    """Each is tried twice, and closed as often."""
    Fragile.closed_by.clear()
    words = [*WORDS, "go"]
    found = {t.task_id: t for (t,) in run(tiny_folder, words, maker=Fragile, names=words)}
    assert (found["go"].failure, found["go"].turns, found["go"].stop) == (None, 3, "eos")
    for word, said in WORDS.items():
        bad = found[word]
        assert bad.stop == "error" and said in (bad.failure or "") and bad.notes["retried"]
        assert ("Traceback" in bad.notes.get("bug", "")) == (word != "fire")
        score = score_answer(task_of("x"), bad.answer())
        assert score.outcome is None and score.reward is None and said in score.why
    assert Fragile.closed_by == dict.fromkeys(WORDS, 2) | {"go": 1}


def test_bad_input_still_ends_the_run_and_closes_what_was_opened(tiny_folder: Path) -> None:
    Fragile.closed_by.clear()
    with pytest.raises(TaskError, match="build the tasks again"):
        run(tiny_folder, ["go", "go"], maker=Fragile, names=["bad", "good"])
    assert Fragile.closed_by == {"bad": 1, "good": 1}
    with pytest.raises(TaskError, match="task t0 needs echo"):
        run(tiny_folder, ["x"], maker=None)


class Draws:
    """An engine whose words show what they are drawn from; notes what it was asked."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.tokenizer, self.asked = tokenizer, []

    async def generate(self, prompts: Any, sampling: Any, n: int, seeds: Any) -> Any:
        self.asked.append((len(prompts), n))
        words = [[f"{derive_seed(seed, j)} {CALL('echo', {})}" for j in range(n)] for seed in seeds]
        ids = [[self.tokenizer.answer(word) for word in group] for group in words]
        return [[Completion(i, [0.0] * len(i), [0.0] * len(i), "eos") for i in g] for g in ids]


class Once(Echo):
    """Breaks in the first attempt of sample 2."""

    broken: ClassVar[list[int]] = []

    def __init__(self, task: Task, sample: int, seed: int) -> None:
        super().__init__(task, sample, seed)
        self.sample = sample

    async def reply(self, said: ModelTurn) -> Reply:
        if self.sample == 2 and not Once.broken:
            Once.broken.append(2)
            raise EnvironmentFailure("once")
        return await super().reply(said)


def test_a_sample_draws_the_same_beside_others_alone_and_tried_again(tiny_folder: Path) -> None:
    tokenizer, task = ChatTokenizer(tiny_folder), task_of("go")

    def drawn(n: int, maker: Any) -> tuple[list[list[str]], list[tuple[int, int]]]:
        engine = Draws(tokenizer)
        step = rollout([task], engine, tokenizer, LONG, n, 7, maker=maker, budget=Budget(turns=2))
        (group,) = asyncio.run(step)
        said = [[m["content"] for m in t.messages if m["role"] == "assistant"] for t in group]
        return said, engine.asked

    four, asked = drawn(4, Echo)
    assert asked == [(1, 4), (4, 1)]  # one prefill, then each alone
    assert len({tuple(t) for t in four}) == 4 and drawn(1, Echo)[0] == four[:1]
    beside = run(tiny_folder, ["go", "stall", "plain", "go"], n=2)[0]
    assert [t.ids for t in run(tiny_folder, ["go"], n=2)[0]] == [t.ids for t in beside]
    Once.broken.clear()
    assert drawn(4, Once)[0] == four and Once.broken  # sample 2 was tried again


def test_a_rollouts_short_files_are_scored_again() -> None:
    """A row says what files of text held; of a longer or a binary one it says the size."""
    task = Task(
        "t", "table", "class_if", "train", [], {"kind": "if", "targets": ["y"]}, tools=("python",)
    )
    for data, kept in ((b"y\n1\n", True), (b"\xff\xfe", False)):
        files = {"prediction.csv": data}
        run = Trajectory("t", 0, [], [], [], [], "eos", "done", 0, files=files)
        row = json.loads(json.dumps(run.to_json(Score(0.0, 0.0, {}, "x"), task)))
        assert row["files"] == {"prediction.csv": len(data)}
        answer = rollout_answer(row)
        assert (answer.failure is None) is kept and answer.files == (files if kept else {})
    most = b"x" * (KEPT_FILE - 2) + "é".encode()
    found = file_texts({"a": most, "b": b"x" * (KEPT_FILE + 1), "c": b""})
    assert found == {"a": most.decode(), "c": ""}


# --- The sampler: what is asked together, what is left out, and when nothing more is asked


def some_tasks(count: int) -> list[Task]:
    prompt = [{"role": "user", "content": "x" * 40}]
    return [Task(f"t{i}", "refinement", "a", "heldout", prompt, {}) for i in range(count)]


def wanted(count: int, **more: Any) -> Asked:
    plan = Plan(100)
    return Asked(some_tasks(count), lambda task: plan, Sampling(0), **more)


class Counts:
    """Answers with a usage; remembers how many requests were side by side."""

    def __init__(self, costs: Sequence[int] = (5,)) -> None:
        self.costs, self.count, self.now, self.most = costs, 0, 0, 0

    async def chat(self, *_: Any) -> ChatReply:
        cost = self.costs[self.count % len(self.costs)]
        self.count, self.now = self.count + 1, self.now + 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return ChatReply("a", [], "eos", {"prompt_tokens": 10, "completion_tokens": cost})


def answers(what: Asked, model: Any, allowance: Allowance | None = None) -> list[Trajectory]:
    runs: list[Trajectory] = []
    sample(what, model, lambda task, run: runs.append(run), allowance)
    return runs


def test_only_what_is_missing_is_asked() -> None:
    chat = Counts()
    done = frozenset([("t0", 1), ("t2", 0)])
    runs = answers(wanted(3, n=2, done=done), Each(chat, None, 2))
    found = sorted((r.task_id, r.sample) for r in runs)
    assert found == [("t0", 0), ("t1", 0), ("t1", 1), ("t2", 1)]
    assert chat.count == 4 and chat.most == 2


def test_who_is_decoded_together_depends_on_no_answer_that_is_there() -> None:
    whole = chunks(wanted(10, n=2), 8)
    assert [[t.id for t in part] for part in whole] == [
        [f"t{i}" for i in range(at, min(at + 4, 10))] for at in (0, 4, 8)
    ]
    assert chunks(wanted(10, n=2, done=frozenset([("t0", 0), ("t0", 1)])), 8) == whole
    assert chunks(wanted(6, n=2), 8)[0] == whole[0]  # more tasks come later


COSTS = st.lists(st.integers(1, 100), min_size=1, max_size=12)


@settings(deadline=None, max_examples=40)
@given(costs=COSTS, limit=st.integers(1, 900), side=st.integers(1, 8))
def test_a_limit_is_passed_only_by_an_answer_dearer_than_all_before(
    costs: list[int], limit: int, side: int
) -> None:
    runs = answers(wanted(20), Each(Counts(costs), None, 1), Allowance(tokens=limit))
    *before, _ = [10 + run.usage["completion_tokens"] for run in runs]
    assert not before or sum(before) + max(before) <= limit
    # answers that cost alike never pass it; the first is always asked for
    cost, allowance = costs[0], Allowance(tokens=limit)
    runs = answers(wanted(20), Each(Counts([cost]), None, side), allowance)
    assert len(runs) == max(1, min(20, limit // (10 + cost)))
    assert allowance.read + allowance.written == (10 + cost) * len(runs)
    assert allowance.reached == (len(runs) < 20)
    # what is asked is set aside by its tokens and the price of each kind
    first = asyncio.run(Allowance(price=(1.0, 3.0)).begin(limit, cost))
    assert first == (limit + cost, pytest.approx((limit + 3 * cost) / 1e6))
