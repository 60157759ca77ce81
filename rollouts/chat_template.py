"""A model's chat template: its text around a conversation, in a shape that the template takes."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby, pairwise
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


# ---- a model's control tokens
# Text to ids and back, where only a chat template can write control tokens.
#
# A tokenizer cuts its added tokens (`</s>`, `<|im_end|>`, `<tool_call>`) out of any text, whoever
# wrote it. So what people, tools and gold say is veiled first: each control token in it gives way
# to a word that nothing else spells. The chat template writes its frame around veiled texts; then
# the frame's control tokens become their ids, and what was veiled becomes the ids of plain letters.


_SURROGATE = re.compile("[\ud800-\udfff]")  # no tokenizer takes a lone one; JSON may hold it
_TAG = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]|<[|\uff5c].*[|\uff5c]>", re.DOTALL)
# Gemma has these as tokens of ordinary text, as it has runs of spaces and newlines
_HTML = re.compile(
    r"</?(?:table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|strong|em|b|i|u|s|sub|sup"
    r"|code|pre|p|ul|ol|li)>"
)
_FORMS = ("NFC", "NFD", "NFKC", "NFKD")


_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [b for b in range(256) if b not in set(_PRINTABLE)]
# GPT-2's printable stand-ins for bytes
_STANDS_FOR = {chr(b): b for b in _PRINTABLE} | {chr(256 + n): b for n, b in enumerate(_OTHERS)}


def token_bytes(token: str, by_bytes: bool) -> bytes:
    """What a word of a vocabulary writes. `by_bytes`: its letters stand for bytes, as GPT-2's do;
    otherwise it is a piece of SentencePiece's, or `<0x0A>`, one byte."""
    if by_bytes and all(letter in _STANDS_FOR for letter in token):
        return bytes(_STANDS_FOR[letter] for letter in token)
    if not by_bytes and (found := _BYTE.fullmatch(token)):
        return bytes([int(found[1], 16)])
    return (token if by_bytes else token.replace("\u2581", " ")).encode("utf-8", "replace")


def whole(text: str) -> str:
    """The text with U+FFFD for lone surrogates."""
    return _SURROGATE.sub("\ufffd", text)


class TokenCoder:
    """The ids of one loaded tokenizer of transformers."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._core: Any = getattr(tokenizer, "backend_tokenizer", None)
        if self._core is not None:
            self._core.no_truncation()  # tokenizer.json may hold one, left by a training run
            self._core.no_padding()
            self._core.encode_special_tokens = False
        added = {int(i): token for i, token in tokenizer.added_tokens_decoder.items()}
        self._added: dict[int, str] = {i: str(token.content) for i, token in added.items()}
        self.control: dict[str, int] = {
            name: i
            for i, name in self._added.items()
            if name and (added[i].special or _is_tag(name))
        }
        self._control_ids = frozenset(self.control.values())
        sizes: dict[str, set[int]] = {}
        for name in self.control:
            sizes.setdefault(name[0], set()).add(len(name))
        self._sizes = {first: sorted(of, reverse=True) for first, of in sizes.items()}
        self._first = re.compile("[" + re.escape("".join(sizes)) + "]") if sizes else None
        self._names = list(self.control)
        self._numbers = {name: i for i, name in enumerate(self._names)}
        self._twins: dict[bool, tuple[Any, dict[int, int]]] = {}  # by `exact`
        # drawn anew in every process, so that no text can know it; ids never show it
        self._key = secrets.token_hex(8)
        self._veils = re.compile(f"qz{self._key}v([0-9]+)z")

    def found(self, text: str) -> Iterator[tuple[int, int]]:
        """Where control tokens stand in a text, the longest at each place: (start, end)."""
        at = 0
        while self._first and (match := self._first.search(text, at)):
            at = match.start()
            sizes = self._sizes[text[at]]
            size = next((n for n in sizes if text[at : at + n] in self.control), 0)
            if size:
                yield at, at + size
            at += size or 1

    def veil(self, text: str) -> str:
        """The text with its control tokens veiled, and U+FFFD for lone surrogates."""
        return self._renamed(whole(text), "v")

    def _renamed(self, text: str, letter: str) -> str:
        """The text with words of our own in the place of its control tokens."""
        parts: list[str] = []
        last = 0
        for start, end in self.found(text):
            parts += [text[last:start], self._word(text[start:end], letter)]
            last = end
        return "".join([*parts, text[last:]]) if parts else text

    def _word(self, name: str, letter: str) -> str:
        return f"qz{self._key}{letter}{self._numbers[name]}z"

    def unveil(self, text: str) -> str:
        """The text as it was before `veil`."""
        return self._veils.sub(lambda m: self._names[int(m.group(1))], text)

    def encode(self, text: str, exact: bool = False) -> list[int]:
        """Ids of a text, without those that the tokenizer itself puts around one. What is veiled
        is plain. `exact`: letters as they are, where the tokenizer would write them in a normal
        form of Unicode. Raises `PromptError` for a text that has no plain ids here."""
        text, exact = whole(text), exact and self._core is not None
        if not exact and not self._veils.search(text):
            ids = self._whole(text)
            seen = sum(i in self._control_ids for i in ids)
            # more than the letters say: a normal form has made some; what is read then is plain
            if not seen or self._core is None or seen <= sum(1 for _ in self.found(text)):
                return ids
        if self._core is None:
            raise PromptError(
                "a text holds a control token, and this tokenizer has no fast form that could read "
                "it as plain text; save one with tokenizer.json, or leave the text out"
            )
        if exact not in self._twins:
            self._twins[exact] = self._twin(exact)
        core, ids_of = self._twins[exact]
        spelled = self.unveil(self._renamed(text, "a"))
        ids = cast("list[int]", core.encode(spelled, add_special_tokens=False).ids)
        return [ids_of.get(i, i) for i in ids]

    def rules(self) -> str:
        """What makes ids of a text, as text: the same for tokenizers that do the same."""
        if self._core is not None:
            return str(self._core.to_str())
        vocabulary = self._tokenizer.get_vocab()
        return json.dumps([type(self._tokenizer).__name__, vocabulary], sort_keys=True)

    def _whole(self, text: str) -> list[int]:
        """Ids of a text, every added token in it as one."""
        if self._core is None:
            return [int(i) for i in self._tokenizer.encode(text, add_special_tokens=False)]
        return cast("list[int]", self._core.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Everything as text, control tokens included."""
        if self._core is None:
            return str(self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))
        apart, mark = self._marked
        if not apart:
            return str(self._core.decode(list(ids), skip_special_tokens=False))
        parts: list[str] = []
        for control, run in groupby(ids, self._control_ids.__contains__):
            part = str(self._core.decode(list(run), skip_special_tokens=False))
            parts.append(part.removeprefix(mark) if not control and parts else part)
        return "".join(parts)

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """What each id writes. A character may be spread over several."""
        if self._core is None:
            return [self.decode([i]).encode("utf-8", "replace") for i in ids]
        found: list[bytes] = []
        for i in ids:
            added, token = self._added.get(i), self._core.id_to_token(i)
            named = added.encode("utf-8", "replace") if added is not None else b""
            found.append(named or token_bytes(token or "", self._by_bytes))
        return found

    @cached_property
    def _by_bytes(self) -> bool:
        return "ByteLevel" in f"{self._core.decoder!r} {self._core.pre_tokenizer!r}"

    @cached_property
    def _marked(self) -> tuple[bool, str]:
        """Whether a word after a control token is marked as the beginning of a text (by a space
        that nobody wrote), and what of that is left when it is read by itself."""
        for name, i in self.control.items():
            ids = self._whole(f"{name}a")
            if ids[:1] == [i] and len(ids) > 1:
                if self._core.decode(ids, skip_special_tokens=False) == f"{name}a":
                    return False, ""
                alone = str(self._core.decode(ids[1:], skip_special_tokens=False))
                return True, alone.removesuffix("a")
        return False, ""

    def _twin(self, exact: bool) -> tuple[Any, dict[int, int]]:
        """The tokenizer with other names for its control tokens, and which of its ids are to be
        replaced. In all else it cuts as the first does."""
        import tokenizers

        library: Any = tokenizers  # its own annotations are partial
        rules: dict[str, Any] = json.loads(self._core.to_str())
        added: list[dict[str, Any]] = rules["added_tokens"]
        real = {token["content"]: int(token["id"]) for token in added}
        names = {name: self._word(name, "a") for name in real if name in self.control}
        for token in added:
            if alias := names.get(token["content"]):
                token |= {"content": alias, "normalized": False, "single_word": False}
        _forget(rules["model"], names)
        if exact:
            rules["normalizer"] = _without_forms(rules["normalizer"])
        twin: Any = library.Tokenizer.from_str(json.dumps(rules | {"post_processor": None}))
        found: dict[str, int] = {name: twin.token_to_id(names.get(name, name)) for name in real}
        return twin, {int(found[name]): i for name, i in real.items() if found[name] != i}


def _is_tag(text: str) -> bool:
    """Whether an added token is markup and no ordinary text (words, spaces, newlines, HTML)."""
    return _TAG.fullmatch(text) is not None and _HTML.fullmatch(text) is None


def _forget(model: dict[str, Any], names: dict[str, str]) -> None:
    """Keep a model from spelling control tokens as words of its own."""
    words: Any = model["vocab"]
    if isinstance(words, list):  # Unigram: an id is a place
        for word in cast("list[list[Any]]", words):
            word[0] = names.get(word[0], word[0])
    elif "merges" in model:
        model["merges"] = [
            pair
            for pair in cast("list[Any]", model["merges"])
            if "".join(pair.split(" ", 1) if isinstance(pair, str) else pair) not in names
        ]
    else:
        model["vocab"] = {names.get(word, word): i for word, i in words.items()}


def _without_forms(normalizer: dict[str, Any] | None) -> dict[str, Any] | None:
    """A normalizer without Unicode's normal forms."""
    if normalizer is None or normalizer["type"] in _FORMS:
        return None
    if normalizer["type"] != "Sequence":
        return normalizer
    kept = [n for n in map(_without_forms, normalizer["normalizers"]) if n is not None]
    return normalizer | {"normalizers": kept}
