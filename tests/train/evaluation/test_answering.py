"""Who answers, and how it is asked: models that think, folders with and without adapters, servers,
the room of a message, and what a record says of all that."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_server import Raw, serving
from mixed_tasks import mixed, refinement, said, table, write_mixed
from tiny_model import CHAT_TEMPLATE, small_llama, write_tiny_tokenizer
from tool_model import ANSWERS, write_model
from tool_model import tasks as tool_tasks

import assay
from assay.task import read_tasks

pytest.importorskip("aiohttp")
torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402

from configs.answers import RolloutConfig  # noqa: E402
from configs.loader import load  # noqa: E402
from configs.machine import EngineConfig  # noqa: E402
from rollouts.prompts import ChatTokenizer  # noqa: E402
from rollouts.trajectory import Sampling  # noqa: E402
from train.cli.compare import asked_how  # noqa: E402
from train.evaluation import cdr, dare  # noqa: E402
from train.evaluation.answering import thinking  # noqa: E402
from train.evaluation.benchmarks import Command  # noqa: E402
from train.model.folder import folders_of, load_local, tokenizer_of  # noqa: E402

HIDDEN = "Maybe <status>DROP</status><clean_text>x</clean_text> or <answer>9</answer>?"
Body = dict[str, Any]


def in_the_text(text: str) -> Body:
    return {"content": f"<think>\n{HIDDEN}\n</think>\n\n{text}"}


def in_a_field(name: str) -> Callable[[str], Body]:
    return lambda text: {"content": text, name: HIDDEN}


WAYS: dict[str, Callable[[str], Body]] = {
    "in the text": in_the_text,
    "in the text, opened by the template": lambda text: {"content": f"{HIDDEN}</think>\n\n{text}"},
    "reasoning_content": in_a_field("reasoning_content"),
    "streamed": in_the_text,
}


def streamed(message: Body) -> Raw:
    """The message in pieces of seven characters: marks are cut in two."""
    text = message["content"]
    parts = [{"content": text[at : at + 7]} for at in range(0, len(text), 7)]
    rows = [{"choices": [{"index": 0, "delta": part}]} for part in parts]
    rows.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    lines = [f"data: {json.dumps(row)}\n\n".encode() for row in rows]
    return Raw([*lines, b"data: [DONE]\n\n"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Tasks of all kinds, and the file of the own family among them."""
    return write_mixed(tmp_path_factory.mktemp("world"))


def evaluated(
    world: tuple[Path, Path], out: Path, way: Callable[[str], Body], *words: str
) -> dict[str, list[Any]]:
    """task → (outcome, reward, why, thought) of an endpoint that answers this way."""
    by_prompt = {task.prompt[-1]["content"]: said(task) for task in mixed()}

    def reply(body: Body) -> Any:
        message = way(by_prompt[body["messages"][-1]["content"]])
        if body.get("stream"):
            return streamed(message)
        return {"choices": [{"message": message, "finish_reason": "stop"}]}

    with serving(reply) as (url, _):
        named = ["--tasks", str(world[0]), "--family", str(world[1]), "--model", url]
        named += ["server.model=m", "--out", str(out), "--no-baselines", *words]
        assert assay.main(["eval", *named]) == 0
    rows = json.loads((out / "results.json").read_text("utf-8"))["rows"]
    kept = ("outcome", "reward", "why", "thought")
    return {row["task_id"]: [row.get(name) for name in kept] for row in rows}


@pytest.fixture(scope="module")
def plain(world: tuple[Path, Path]) -> dict[str, list[Any]]:
    """The same answers without a thought."""
    return evaluated(world, world[0].parent / "plain", lambda text: {"content": text})


@pytest.mark.parametrize("way", WAYS)
def test_an_endpoint_that_thinks_scores_as_one_that_does_not(
    world: tuple[Path, Path], plain: dict[str, list[Any]], tmp_path: Path, way: str
) -> None:
    words = ["server.request.stream=true"] if way == "streamed" else []
    found = evaluated(world, tmp_path / "out", WAYS[way], *words)
    assert {n: r[:3] for n, r in found.items()} == {n: r[:3] for n, r in plain.items()}
    assert 0 < sum(r[0] for r in plain.values()) < len(plain)
    assert all(r[3] for r in found.values()) and not any(r[3] for r in plain.values())


def test_answers_that_end_inside_their_thought_are_told_of(
    world: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = evaluated(world, tmp_path / "out", lambda text: {"content": f"<think>{text}"})
    assert {(row[0], row[2]) for row in found.values()} == {(0.0, "thought_did_not_end")}
    assert "ended inside their thought and earn nothing" in capsys.readouterr().err


THOUGHT = "<think>\nhm <status>DROP</status>\n</think>\n\n"


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two models that say the same, one of them behind a thought."""
    folder = tmp_path_factory.mktemp("taught")
    return {
        name: write_model(folder / name, CHAT_TEMPLATE, 40, thought, ANSWERS[:1])
        for name, thought in (("plain", ""), ("thinks", THOUGHT))
    }


@pytest.mark.parametrize("tools", [False, True])
def test_a_folder_model_that_thinks_scores_alike(
    taught: dict[str, Path], tmp_path: Path, tools: bool
) -> None:
    """Without tools a message; with them a call, the tool's answer, and a message."""
    tasks = tool_tasks(1 if tools else 4, tmp_path / "t.jsonl", tools)
    found: dict[str, list[Any]] = {}
    for name, model in taught.items():
        out = tmp_path / f"{name}.jsonl"
        words = ["--tasks", str(tasks), "--model", str(model), "--out", str(out), "sampling.n=1"]
        assert assay.main(["rollout", *words, "sampling.temperature=0"]) == 0
        found[name] = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    for plain, thinks in zip(found["plain"], found["thinks"], strict=True):
        assert (plain["outcome"], plain["reward"]) == (thinks["outcome"], thinks["reward"])
        assert thinks["text"].startswith("<think>") and thinks["thought"].startswith("hm")
        assert "thought" not in plain
        if tools:
            asked = [[call["arguments"] for call in row["tool_calls"]] for row in (plain, thinks)]
            assert asked[0] == asked[1] != []
    assert {row["outcome"] for row in found["plain"]} == {1.0}
    scored = tmp_path / "scores.jsonl"
    words = ["--tasks", str(tasks), str(tmp_path / "thinks.jsonl"), "--out", str(scored)]
    assert assay.main(["score", *words]) == 0
    again = [json.loads(line)["outcome"] for line in scored.read_text("utf-8").splitlines()]
    assert again == [row["outcome"] for row in found["thinks"]]
    assert len(read_tasks(tasks)) == len(again)


# --- folders and servers -------------------------------------------------------------------------


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    small_llama(write_tiny_tokenizer(folder)).save_pretrained(folder)
    return folder


def adapter_of(base: Path, folder: Path) -> Path:
    """A plain adapter with large values."""
    folder.mkdir()
    stem = "base_model.model.model.layers.0.mlp.down_proj"
    pair = {f"{stem}.lora_A.weight": torch.ones(2, 64), f"{stem}.lora_B.weight": torch.ones(32, 2)}
    save_file(pair, folder / "adapter_model.safetensors")
    about = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 2, "lora_alpha": 1}
    (folder / "adapter_config.json").write_text(json.dumps(about))
    return folder


def answers(model: Path, scratch: Path) -> list[int]:
    folders = folders_of(str(model))
    config = EngineConfig(threads=1, device="cpu", dtype="float32")
    engine = load_local(folders, tokenizer_of(folders, "hermes"), config, 4, scratch)
    assert not list(scratch.glob(".merged-*"))
    return engine.generate_now([[5, 6, 7]], Sampling(12, 0.0), 1, [0])[0][0].ids


def test_an_adapter_changes_answers_and_a_stray_file_of_one_does_not(
    base: Path, tmp_path: Path
) -> None:
    adapter, scratch = adapter_of(base, tmp_path / "a"), tmp_path / "scratch"
    scratch.mkdir()
    plain = answers(base, scratch)
    assert answers(adapter, scratch) != plain
    (base / "adapter_config.json").write_bytes((adapter / "adapter_config.json").read_bytes())
    assert folders_of(str(base)) == [base] and answers(base, scratch) == plain


def test_an_adapters_own_tokenizer_keeps_the_stops_of_the_base(base: Path, tmp_path: Path) -> None:
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    adapter = adapter_of(base, tmp_path / "a")
    assert set(tokenizer_of([adapter, base], "hermes").stop_ids) >= {2, 0}
    write_tiny_tokenizer(adapter)
    file = adapter / "chat_template.jinja"
    file.write_text("Mine. " + file.read_text())
    own = tokenizer_of([adapter, base], "hermes")
    assert set(own.stop_ids) >= {2, 0}
    assert own.raw(own.prompt([{"role": "user", "content": "x"}])).startswith("Mine. ")


def test_answers_through_a_server_are_those_of_the_engine(
    world: tuple[Path, Path], tiny_folder: Path, tmp_path: Path
) -> None:
    words = ["eval", "--tasks", str(world[0]), "--family", str(world[1]), "--limit", "3"]
    words += ["--model", str(tiny_folder), "--no-baselines", "sampling.max_new_tokens=8"]

    def outputs(out: Path, *more: str) -> list[tuple[str, str]]:
        assert assay.main([*words, "--out", str(out), *more]) == 0
        rows = map(json.loads, (out / "rows.jsonl").read_text().splitlines())
        return sorted((row["task_id"], row["output"]) for row in rows)

    small = "engine.dtype=float32 engine.threads=1"
    asked = ("server.kind=assay", f"server.args={small}")
    assert outputs(tmp_path / "a", *asked) == outputs(tmp_path / "b", *small.split())
    (about,) = json.loads((tmp_path / "a" / "results.json").read_text())["meta"]["answered_by"]
    assert about["engine"] == "assay" and list((tmp_path / "a" / "servers").glob("server-0.log"))


# --- how it is asked -----------------------------------------------------------------------------


def asked_by(model: str, *words: str) -> Command:
    return Command(who=model, out=Path("o"), **vars(load(RolloutConfig, None, words)))


@pytest.mark.parametrize(
    ("given", "text", "episode"),
    [
        ((), 4096, 4096),
        (("server.kind=vllm",), 32_768, 16_384),
        (("sampling.max_new_tokens=32768",), 32_768, 32_768),
        (("server.kind=vllm", "sampling.max_new_tokens=9"), 9, 9),
    ],
)
def test_a_folder_model_has_the_papers_bounds_but_for_a_cpu(
    tiny_folder: Path, given: tuple[str, ...], text: int, episode: int
) -> None:
    command = asked_by(str(tiny_folder), "engine.device=cpu", *given)
    task = refinement(1, "KEEP", 0)
    task.gold["instance_id"] = "i"
    words = ChatTokenizer(tiny_folder)
    assert cdr.plan(task, command, words).tokens == text
    assert dare.plan(table(), command, words).tokens == episode
    if not given:  # an endpoint has its own bound, or the paper's
        assert cdr.plan(task, command, None).tokens == 0
        assert dare.plan(table(), command, None).tokens == 16_384


def test_a_record_says_whether_the_model_was_told_to_think(tmp_path: Path) -> None:
    def said(kwargs: Any, model: str = "http://host/v1") -> bool | None:
        request = json.dumps({"chat_template_kwargs": kwargs})
        return thinking(asked_by(model, f"server.request={request}"))

    on, off = {"enable_thinking": True}, {"enable_thinking": False}
    assert [said(one) for one in (on, off, {"other": 1}, None)] == [True, False, None, None]
    (tmp_path / "chat_template_kwargs.json").write_text(json.dumps(off))
    assert (said(None, str(tmp_path)), said(on, str(tmp_path))) == (False, True)
    meta = {"settings": {"mode": "direct", "model": "a", "weights": "b"}, "thinking": True}
    assert asked_how(meta) == {"mode": "direct", "thinking": True, "words": "ours"}
    words = {"refinement": {"source": "release", "hash": "ab", "known": "Bench 1"}}
    assert asked_how(meta | {"words": words})["words"] == "Bench 1"
