"""Conversations as ids: what the template says, and nothing that a text says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollouts.prompts import ChatTokenizer


@pytest.fixture
def copied(tiny_folder: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    return folder


def _settings(folder: Path, **more: Any) -> None:
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | more))


def _template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    _settings(folder, chat_template="{% for m in messages %}{{ m.content }}{% endfor %}x")


def _token(folder: Path) -> None:
    file = folder / "tokenizer.json"
    made = json.loads(file.read_text())
    made["added_tokens"].append({**made["added_tokens"][-1], "id": 259, "content": "<new>"})
    file.write_text(json.dumps(made))


@pytest.mark.parametrize(
    "change", [_template, _token, lambda f: _settings(f, eos_token="<|endoftext|>")]
)
def test_a_fingerprint_tells_another_tokenizer(
    copied: Path, tiny_folder: Path, change: Callable[[Path], None]
) -> None:
    before = ChatTokenizer(tiny_folder).fingerprint
    assert len(before) == 16 and ChatTokenizer(copied).fingerprint == before
    change(copied)
    assert ChatTokenizer(copied).fingerprint != before


def test_a_fingerprint_is_of_what_is_encoded_not_of_files(copied: Path, tmp_path: Path) -> None:
    before = ChatTokenizer(copied).fingerprint
    file = copied / "tokenizer.json"
    cut = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"truncation": cut}))
    (copied / "generation_config.json").write_text('{"eos_token_id": [2, 0]}')
    assert ChatTokenizer(copied).fingerprint == before
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(copied).save_pretrained(tmp_path / "again")
    assert ChatTokenizer(tmp_path / "again").fingerprint == before


def test_a_template_argument_is_part_of_a_fingerprint(copied: Path) -> None:
    (copied / "chat_template.jinja").unlink(missing_ok=True)
    _settings(copied, chat_template="{{ messages[0].content }}{% if enable_thinking %}x{% endif %}")
    on, off = (ChatTokenizer(copied, template={"enable_thinking": b}) for b in (True, False))
    assert on.fingerprint != off.fingerprint
