"""Between chat messages and token ids: the model's own template, never our own spelling of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rewards.task import Message


class PromptError(ValueError):
    """A tokenizer or prompt that cannot be used; the message says what to do."""


class ChatTokenizer:
    """A tokenizer with its chat template, and the ids that end an answer."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        except (OSError, ValueError):  # its own message is a page long
            raise PromptError(
                f"{folder} holds no tokenizer that transformers can load; give a Hugging Face "
                "model folder with tokenizer.json"
            ) from None
        if not getattr(self._tokenizer, "chat_template", None):
            raise PromptError(f"{folder} has no chat template; give an instruction-tuned model")
        if self._tokenizer.eos_token_id is None:
            raise PromptError(f"{folder} names no end-of-sequence token in tokenizer_config.json")
        self.stop_ids: list[int] = [int(self._tokenizer.eos_token_id)]

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the conversation up to where the assistant's answer starts."""
        ids = self._tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return [int(i) for i in ids]

    def answer(self, text: str) -> list[int]:
        """Ids of an answer, with the stop token a model is to end it with."""
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return [*map(int, ids), self.stop_ids[0]]

    def text(self, ids: Sequence[int]) -> str:
        """Answer text of sampled ids, without special tokens; spaces are left as they are."""
        text = self._tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)
