"""Between chat messages and token ids: the model's own template, never our own spelling of it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from rewards.task import TaskError
from rollouts.tools import FORMATS, CallFormat, ToolCall, ToolSpec, call_format

_SAID = "qzASSISTANTqz"  # stands for an answer while the template's frame around it is read
_HELD = "qzCONTENT{}qz"
_THOUGHT = "qzTHOUGHTqz"
_SURROGATE = re.compile("[\ud800-\udfff]")  # no tokenizer takes a lone one; JSON may hold it


TEMPLATE_FILE = "chat_template_kwargs.json"  # in a model's folder
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")  # that a template may write
_OURS = ("messages", "conversation", "tools", "add_generation_prompt", "tokenize", "return_dict")


class PromptError(TaskError):
    """A tokenizer or prompt that cannot be used; the message says what to do."""


def template_arguments(folder: Path, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a model's folder gives its chat template (`chat_template_kwargs.json`), then `more`.

    Raises `PromptError` for a file that holds something else.
    """
    found: dict[str, Any] = {}
    file = folder / TEMPLATE_FILE
    if file.is_file():
        try:
            held: Any = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            held = None
        if not isinstance(held, dict):
            raise PromptError(
                f'{file}: wanted one JSON object, such as {{"enable_thinking": false}}'
            )
        found = cast("dict[str, Any]", held)
    return {**found, **(more or {})}


def keep_template(folder: Path, arguments: Mapping[str, Any]) -> None:
    """Write them into a model's folder, so that it is asked as it was trained."""
    if arguments:
        text = json.dumps(dict(arguments), ensure_ascii=False) + "\n"
        (folder / TEMPLATE_FILE).write_text(text, encoding="utf-8")


class ChatTokenizer:
    """A tokenizer with its chat template, and the ids that end an answer.

    `calls` names how this model spells tool calls (rollouts/tools.py). `template` holds arguments
    of the chat template such as `enable_thinking`, on top of those the folder itself names.
    """

    def __init__(
        self, folder: Path, calls: str = "hermes", template: Mapping[str, Any] | None = None
    ) -> None:
        self.calls: CallFormat = call_format(calls)
        self._folder, self._named_calls = folder, calls
        self._others: dict[str, ChatTokenizer] = {}
        import transformers

        library: Any = transformers  # its own annotations are partial
        try:
            self._tokenizer: Any = library.AutoTokenizer.from_pretrained(folder)
        # its own message is a page long; a file that is no JSON object makes it raise these, too
        except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise PromptError(
                f"{folder} holds no tokenizer that transformers can load; give a Hugging Face "
                "model folder with tokenizer.json"
            ) from None
        if (core := getattr(self._tokenizer, "backend_tokenizer", None)) is not None:
            core.no_truncation()  # tokenizer.json may hold one, left by a training run
            core.no_padding()
        if not getattr(self._tokenizer, "chat_template", None):
            raise PromptError(f"{folder} has no chat template; give an instruction-tuned model")
        if self._tokenizer.eos_token_id is None:
            raise PromptError(f"{folder} names no end-of-sequence token in tokenizer_config.json")
        eos = int(self._tokenizer.eos_token_id)
        self.stop_ids: list[int] = list(dict.fromkeys([eos, *_generation_stops(folder)]))
        self.template = template_arguments(folder, template)
        for name in self.template:
            if name in _OURS or not re.search(rf"\b{re.escape(name)}\b", self._template_text()):
                raise PromptError(
                    f"{folder}: chat_template_kwargs: {name} is "
                    f"{'set by Assay' if name in _OURS else 'no name in the chat template'}; "
                    "remove it"
                )

    def prompt(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = ()
    ) -> list[int]:
        """Ids of the conversation up to where the assistant's answer starts."""
        whole = [_whole(m) for m in messages]
        if any(m["role"] == "tool" for m in whole) and not self._template_has("tool"):
            whole = _spoken(whole)
        chat, schemas = self._with_tools(whole, tools)
        ids = self._tokenizer.apply_chat_template(
            chat,
            tools=schemas,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            **self.template,
        )
        return [int(i) for i in ids]

    def follow(self, messages: Sequence[Mapping[str, Any]], ended: bool) -> list[int]:
        """Ids between an answer and the next one: what the template writes around `messages`.

        Only what is new is encoded, so ids that stand before are never touched. `ended`: the
        answer's own stop token is there already; otherwise it is supplied here. Contents are
        encoded without special tokens: tool output cannot end its own turn.
        """
        shown = _spoken(messages) if not self._template_has("tool") else list(messages)
        held = [{**m, "content": _HELD.format(i)} for i, m in enumerate(shown)]
        frame = self._after_answer(held)
        for i, message in enumerate(shown):
            if frame.count(_HELD.format(i)) != 1 or _adapts(self._after_answer, held, i, message):
                return self._encode_changed(shown, ended)
        ids: list[int] = []
        for i, message in enumerate(shown):
            before, _, frame = frame.partition(_HELD.format(i))
            ids += self._encode(before) + self._encode(str(message["content"]), plain=True)
        ids += self._encode(frame)
        return ids[1:] if ended and ids[:1] and ids[0] in self.stop_ids else ids

    def _encode_changed(self, messages: Sequence[Mapping[str, Any]], ended: bool) -> list[int]:
        """For templates that rewrite contents: render as is, with special tokens broken up."""
        broken: list[dict[str, Any]] = []
        for message in messages:
            text = str(message["content"])
            for token in self._tokenizer.all_special_tokens:
                text = text.replace(token, f"{token[0]} {token[1:]}")
            broken.append({**message, "content": text})
        ids = self._encode(self._after_answer(broken))
        return ids[1:] if ended and ids[:1] and ids[0] in self.stop_ids else ids

    def _after_answer(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """What the template writes after an answer, up to where the next one starts."""
        shell = [{"role": "user", "content": "x"}, {"role": "assistant", "content": _SAID}]
        text = str(self._render([*shell, *messages], True))
        if text.count(_SAID) != 1:
            raise PromptError(
                "the chat template drops or repeats earlier answers; it cannot hold "
                "a conversation with tools"
            )
        return text.partition(_SAID)[2]

    def _render(self, messages: Sequence[Mapping[str, Any]], generate: bool) -> Any:
        import jinja2

        try:
            return self._tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=generate, tokenize=False, **self.template
            )
        except jinja2.TemplateError as error:
            raise PromptError(f"the chat template refuses this conversation: {error}") from None

    def _template_has(self, word: str) -> bool:
        return word in self._template_text()

    def _template_text(self) -> str:
        return str(self._tokenizer.chat_template)

    def _with_tools(
        self, messages: list[Mapping[str, Any]], tools: Sequence[ToolSpec]
    ) -> tuple[list[Mapping[str, Any]], list[dict[str, Any]] | None]:
        """Tools go through the template; one that has no place for them gets a system message."""
        if not tools:
            return messages, None
        if self._template_has("tools"):
            return messages, [tool.schema() for tool in tools]
        text = self.calls.explain(tools)
        if messages and messages[0]["role"] == "system":
            text = f"{messages[0]['content']}\n\n{text}"
            messages = messages[1:]
        return [{"role": "system", "content": text}, *messages], None

    def _encode(self, text: str, plain: bool = False) -> list[int]:
        text = _SURROGATE.sub("\ufffd", text)
        more = {"split_special_tokens": True} if plain else {}
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False, **more)
        return [int(i) for i in ids]

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits that say how a conversation becomes ids: vocabulary and rules, the chat
        template and its arguments, the special tokens it writes, and what ends an answer.

        Taken from the loaded tokenizer, so a folder written anew has the same. Which further ids
        end a sample (generation_config.json) and how calls are spelled are no part of it.
        """
        core = getattr(self._tokenizer, "backend_tokenizer", None)
        if core is None:  # no tokenizer of the `tokenizers` library: its vocabulary as it is
            rules = json.dumps(
                [type(self._tokenizer).__name__, self._tokenizer.get_vocab()], sort_keys=True
            )
        else:
            rules = str(core.to_str())
        names = sorted(name for name in _NAMED if self._template_has(name))
        named = {name: str(getattr(self._tokenizer, name, None)) for name in names}
        template = [self._tokenizer.chat_template, self.template, named, self.stop_ids[0]]
        said = json.dumps(template, sort_keys=True, default=str)
        return hashlib.sha256(f"{rules}\0{said}".encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def size(self) -> int:
        """How many token ids there are."""
        return len(self._tokenizer)

    def encode(self, text: str) -> list[int]:
        """Ids of a plain text, as the tokenizer itself begins and reads one."""
        return [int(i) for i in self._tokenizer.encode(_SURROGATE.sub("\ufffd", text))]

    def answer(self, text: str) -> list[int]:
        """Ids of an answer, with the stop token a model is to end it with."""
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return [*map(int, ids), self.stop_ids[0]]

    def turn(self, content: str, calls: Sequence[ToolCall] = (), thought: str = "") -> list[int]:
        """Ids of a whole turn of the assistant's, with the token that ends it: what was thought
        where the chat template puts that, then `content`, then the calls.

        Raises `PromptError` where the template has no place for thoughts.
        """
        text = self._with_calls(content, calls) if calls else content
        return self.answer(self._with_thought(thought, text) if thought.strip() else text)

    def under(self, template: Mapping[str, Any]) -> ChatTokenizer:
        """The same tokenizer with further arguments of the chat template."""
        wanted = {**self.template, **template}
        if wanted == self.template:
            return self
        key = json.dumps(wanted, sort_keys=True, default=str)
        if key not in self._others:
            self._others[key] = ChatTokenizer(self._folder, self._named_calls, wanted)
        return self._others[key]

    def _with_calls(self, content: str, calls: Sequence[ToolCall]) -> str:
        """Calls as the chat template spells them, where one of the call formats reads that; else as
        the tokenizer's own format does."""
        own = [self.calls.write(call.name, call.arguments) for call in calls]
        spelled = "\n".join([content, *own] if content else own)
        if not self._template_has("tool_calls"):
            return spelled
        listed = [
            {
                "id": f"{i:09d}",  # Mistral's templates want nine letters
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for i, call in enumerate(calls)
        ]
        user, said = {"role": "user", "content": "x"}, _SAID if content else ""
        try:
            before, _, after = str(self._answered(user, {"content": _SAID})).partition(_SAID)
            text = str(self._answered(user, {"content": said, "tool_calls": listed}))
        except PromptError:
            return spelled
        inner = text.removeprefix(before).removesuffix(after)
        framed = len(inner) == len(text) - len(before) - len(after)
        if not framed or (content and inner.count(_SAID) != 1):
            return spelled
        made = [(call.name, call.arguments) for call in calls]
        for form in (self.calls, *FORMATS.values()):
            if [(call.name, call.arguments) for call in form.read(inner)] == made:
                return inner.replace(_SAID, content) if content else inner
        return spelled

    def _with_thought(self, thought: str, text: str) -> str:
        user = {"role": "user", "content": "x"}
        opening = str(self._render([user], True))
        for name in ("reasoning_content", "reasoning", "thinking"):
            if not self._template_has(name):
                continue
            whole = str(self._answered(user, {"content": _SAID, name: _THOUGHT}))
            before, found, rest = whole.removeprefix(opening).partition(_THOUGHT)
            between, said, _ = rest.partition(_SAID)
            if whole.startswith(opening) and found and said and whole.count(_THOUGHT) == 1:
                return f"{before}{thought.strip()}{between}{text}"
        raise PromptError(
            "the chat template, with its arguments here, has no place for what an assistant "
            "thought before it answered"
        )

    def _answered(self, user: Mapping[str, Any], said: Mapping[str, Any]) -> Any:
        """The template's text of one exchange."""
        return self._render([user, {"role": "assistant", **said}], False)

    def raw(self, ids: Sequence[int]) -> str:
        """Everything as text, special tokens included: what a scripted model reads."""
        return str(self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    def text(self, ids: Sequence[int]) -> str:
        """Answer text of sampled ids, without special tokens; spaces are left as they are."""
        text = self._tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)


def _generation_stops(folder: Path) -> list[int]:
    """The ids that generation_config.json ends an answer at: some chat models have several."""
    try:
        said: Any = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
        ids: Any = said.get("eos_token_id")
    except (OSError, ValueError, AttributeError):
        return []
    listed = cast("list[Any]", ids if isinstance(ids, list) else [ids])
    return [i for i in listed if isinstance(i, int)]


def _whole(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message with U+FFFD for lone surrogates in its text."""
    text = message.get("content")
    if not isinstance(text, str) or not _SURROGATE.search(text):
        return message
    return {**message, "content": _SURROGATE.sub("\ufffd", text)}


def _adapts(
    render: Callable[[Sequence[Mapping[str, Any]]], str],
    held: Sequence[Mapping[str, Any]],
    index: int,
    message: Mapping[str, Any],
) -> bool:
    """Whether the template changes this content (trims it, escapes it) rather than copying it."""
    probe = [dict(m) for m in held]
    probe[index]["content"] = str(message["content"])
    plain = render(held).replace(_HELD.format(index), str(message["content"]))
    return render(probe) != plain


def _spoken(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Tool answers as one user message, for templates that know no tool role."""
    out: list[Mapping[str, Any]] = []
    answers: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            answers.append(f"<tool_response>\n{message['content']}\n</tool_response>")
            continue
        if answers:
            out.append({"role": "user", "content": "\n".join(answers)})
            answers = []
        out.append(message)
    return [*out, {"role": "user", "content": "\n".join(answers)}] if answers else out
