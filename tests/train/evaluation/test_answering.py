"""Who answers, and how it is asked: folders with and without adapters, the room of a message, and
whether the model was told to think."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mixed_tasks import refinement, table
from tiny_model import small_llama, write_tiny_tokenizer

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402

from configs.answers import RolloutConfig  # noqa: E402
from configs.loader import load  # noqa: E402
from configs.machine import EngineConfig  # noqa: E402
from rollouts.prompts import ChatTokenizer  # noqa: E402
from rollouts.trajectory import Sampling  # noqa: E402
from train.evaluation import cdr, dare  # noqa: E402
from train.evaluation.answering import thinking  # noqa: E402
from train.evaluation.benchmarks import Command  # noqa: E402
from train.model.folder import folders_of, load_local, tokenizer_of  # noqa: E402

# --- folders -------------------------------------------------------------------------------------


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
    assert answers(base, scratch) == plain


def test_an_adapters_own_tokenizer_keeps_the_stops_of_the_base(base: Path, tmp_path: Path) -> None:
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    adapter = adapter_of(base, tmp_path / "a")
    for _ in range(2):
        assert set(tokenizer_of([adapter, base], "hermes").stop_ids) >= {2, 0}
        write_tiny_tokenizer(adapter)  # its own


# --- how it is asked -----------------------------------------------------------------------------


def asked_by(model: str, *words: str) -> Command:
    return Command(who=model, out=Path("o"), **vars(load(RolloutConfig, None, words)))


@pytest.mark.parametrize(
    ("given", "text", "episode"),
    [
        ((), 4096, 4096),
        (("server.kind=vllm",), 32_768, 16_384),
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


def test_a_record_says_whether_the_model_was_told_to_think(tmp_path: Path) -> None:
    def said(kwargs: Any, model: str = "http://host/v1") -> bool | None:
        request = json.dumps({"chat_template_kwargs": kwargs})
        return thinking(asked_by(model, f"server.request={request}"))

    on, off = {"enable_thinking": True}, {"enable_thinking": False}
    assert [said(one) for one in (on, off, {"other": 1}, None)] == [True, False, None, None]
    (tmp_path / "chat_template_kwargs.json").write_text(json.dumps(off))
    assert (said(None, str(tmp_path)), said(on, str(tmp_path))) == (False, True)
