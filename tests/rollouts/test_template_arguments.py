"""Arguments of the chat template: Qwen3 thinks unless `enable_thinking` is false."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from configs.loader import load
from configs.schema import GrpoRunConfig
from rollouts.prompts import TEMPLATE_FILE, ChatTokenizer, PromptError, keep_template

# In the manner of Qwen3: an empty thought in front of the answer when thinking is switched off,
# and thoughts of earlier answers left out.
THINKS = """\
{%- for message in messages %}
{%- set text = message.content %}
{%- if message.role == 'assistant' %}
{%- set text = text.split('</think>')[-1] %}
{%- endif %}
{{- '<|im_start|>' + message.role + '\\n' + text + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}
"""
EMPTY = "<think>\n\n</think>\n\n"
ASK = [{"role": "user", "content": "hello"}]


@pytest.fixture
def thinker(tiny_folder: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text()) | {"chat_template": THINKS}
    file.write_text(json.dumps(config))
    return folder


def test_thinking_is_switched_off_in_every_prompt(thinker: Path) -> None:
    on, off = ChatTokenizer(thinker), ChatTokenizer(thinker, template={"enable_thinking": False})
    assert on.raw(on.prompt(ASK)).endswith("assistant\n")
    assert off.raw(off.prompt(ASK)).endswith("assistant\n" + EMPTY)
    told = [{"role": "user", "content": "and now?"}]  # the next message of an episode too
    assert off.raw(off.follow(told, True)).endswith("assistant\n" + EMPTY)
    assert EMPTY not in on.raw(on.follow(told, True))


def test_a_folder_names_its_own(thinker: Path) -> None:
    """A run leaves them in its model's folder, so that it is evaluated as it was trained."""
    keep_template(thinker, {})
    assert not (thinker / TEMPLATE_FILE).exists()
    keep_template(thinker, {"enable_thinking": False})
    kept = ChatTokenizer(thinker)
    assert kept.template == {"enable_thinking": False}
    assert kept.raw(kept.prompt(ASK)).endswith(EMPTY)
    assert ChatTokenizer(thinker, template={"enable_thinking": True}).template == {
        "enable_thinking": True
    }
    for text in ("[1]", "{"):
        (thinker / TEMPLATE_FILE).write_text(text)
        with pytest.raises(PromptError, match="wanted one JSON object"):
            ChatTokenizer(thinker)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("enable_thinkin", "enable_thinkin is no name in the chat template; remove it"),
        ("tokenize", "tokenize is set by Assay; remove it"),
    ],
)
def test_a_name_that_would_do_nothing_is_refused(thinker: Path, name: str, said: str) -> None:
    with pytest.raises(PromptError, match=said):
        ChatTokenizer(thinker, template={name: False})


def test_it_is_a_setting_of_a_run() -> None:
    config = load(GrpoRunConfig, None, ["model.chat_template_kwargs.enable_thinking=false"])
    assert config.model.chat_template_kwargs == {"enable_thinking": False}
