"""A model's chat template: its text around a conversation, in a shape that the template takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, cast

from assay.task import TaskError

# stand for a question and an answer while the template's frame around them is read
ASKED, SAID = "qzQUESTIONqz", "qzANSWERqz"

Message = Mapping[str, Any]
Shape = Literal["system first", "system later", "same role twice", "tool"]
_PROBES: dict[Shape, list[dict[str, str]]] = {
    "system first": [{"role": "system", "content": ASKED}, {"role": "user", "content": "x"}],
    "system later": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "y"},
        {"role": "system", "content": ASKED},
        {"role": "user", "content": "z"},
    ],
    "same role twice": [{"role": "user", "content": ASKED}, {"role": "user", "content": "x"}],
    "tool": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "y"},
        {"role": "tool", "content": ASKED},
    ],
}


class PromptError(TaskError):
    """A tokenizer or prompt that cannot be used; the message says what to do."""


class ChatTemplate:
    """The template (or templates) of a loaded tokenizer of transformers, with its arguments."""

    def __init__(self, tokenizer: Any, arguments: Mapping[str, Any]) -> None:
        self._tokenizer, self.arguments = tokenizer, arguments
        self.sources = str(tokenizer.chat_template)
        self._takes: dict[tuple[Shape, bool], bool] = {}
        self._steady: dict[bool, bool] = {}

    def source(self, tools: bool) -> str:
        """The template for conversations with tools or without; of several the one that
        transformers would take."""
        said: Any = self._tokenizer.chat_template
        if not isinstance(said, dict):
            return self.sources
        listed = cast("dict[str, str]", said)
        for name in ("tool_use", "default") if tools else ("default",):
            if name in listed:
                return listed[name]
        names = ", ".join(listed)
        raise PromptError(f"the model has chat templates {names}, and none of them is the default")

    def render(
        self,
        messages: Sequence[Message],
        generate: bool,
        tools: bool = False,
        schemas: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """The template's text. Raises `PromptError` for what it refuses."""
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    list(messages),
                    chat_template=self.source(tools),
                    tools=schemas or None,
                    add_generation_prompt=generate,
                    tokenize=False,
                    **self.arguments,
                )
            )
        except PromptError:
            raise
        except Exception as error:  # a program of the model's maker: it may raise what it likes
            raise PromptError(f"the chat template refuses this conversation: {error}") from None

    def after_answer(self, messages: Sequence[Message], tools: bool = False) -> str:
        """What stands after an answer that `messages` follow, up to where the next one starts."""
        if tools not in self._steady:
            self._steady[tools] = True
            follows = [{"role": "user", "content": ASKED}]
            try:
                one, two = (self._after(n, follows, tools) for n in (1, 2))
            except PromptError:
                one = two = ""  # said where it matters
            self._steady[tools] = one == two
        if not self._steady[tools]:
            raise PromptError(
                "the chat template writes a third turn otherwise than a second one (it may count "
                "them); it cannot hold a conversation of several answers"
            )
        return self._after(1, messages, tools)

    def _after(self, answers: int, messages: Sequence[Message], tools: bool) -> str:
        earlier = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
        shell = [*(earlier * answers)[:-1], {"role": "assistant", "content": SAID}]
        text = self.render(self.shaped([*shell, *messages], tools), True, tools)
        if text.count(SAID) != 1:
            raise PromptError(
                "the chat template drops or repeats earlier answers; it cannot hold "
                "a conversation of several answers"
            )
        return text.partition(SAID)[2]

    def shaped(self, messages: Sequence[Message], tools: bool) -> Sequence[Message]:
        """The conversation in a form that the template takes: tool answers in a user's message,
        system messages in the next user's, messages of one role joined. Only where it must."""
        roles = [m.get("role") for m in messages]
        by_role = "tool" in self.source(tools) and self.takes("tool", tools)
        if "tool" in roles and not by_role:
            messages = _spoken(messages)
        keep = int("system" in roles[:1] and self.takes("system first", tools))
        if "system" in roles[:1] and not keep:
            messages = _without_system(messages)
        elif "system" in roles[1:] and not self.takes("system later", tools):
            messages = [*messages[:keep], *_without_system(messages[keep:])]
        roles = [m.get("role") for m in messages]
        twice = any(a == b != "tool" for a, b in pairwise(roles))
        return _joined(messages) if twice and not self.takes("same role twice", tools) else messages

    def takes(self, shape: Shape, tools: bool) -> bool:
        """Whether the template takes a conversation of this shape, and leaves nothing of it out."""
        if (shape, tools) not in self._takes:
            try:
                found = ASKED in self.render(_PROBES[shape], True, tools)
            except PromptError:
                found = False
            self._takes[shape, tools] = found
        return self._takes[shape, tools]


def _spoken(messages: Sequence[Message]) -> list[Message]:
    """Tool answers as one user message, for templates that know no tool role."""
    out: list[Message] = []
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            text = f"<tool_response>\n{message['content']}\n</tool_response>"
            message = {"role": "user", "content": text}
            if place and messages[place - 1]["role"] == "tool":
                message["content"] = f"{out.pop()['content']}\n{text}"
        out.append(message)
    return out


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """System messages as the beginning of the next user message, as is custom for Gemma."""
    out: list[Message] = []
    held: list[str] = []
    for message in (*messages, cast("Message", {})):
        if message.get("role") == "system":
            held.append(str(message.get("content")))
            continue
        if held and message.get("role") == "user" and isinstance(message.get("content"), str):
            message = {**message, "content": "\n\n".join([*held, message["content"]])}
        elif held:
            out.append({"role": "user", "content": "\n\n".join(held)})
        held = []
        out.append(message)
    return out[:-1]


def _joined(messages: Sequence[Message]) -> list[Message]:
    """Messages that one role says in a row, as one."""
    out: list[Message] = []
    for message in messages:
        last = out[-1] if out else {}
        texts = (last.get("content"), message.get("content"))
        if last.get("role") == message.get("role") and all(isinstance(t, str) for t in texts):
            out[-1] = {**last, "content": "\n\n".join(cast("tuple[str, str]", texts))}
        else:
            out.append(message)
    return out
