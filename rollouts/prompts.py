"""Between chat messages and token ids: the model's own template, never our own spelling of it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from assay.family import family_of, gold_answer
from assay.task import Task
from assay.thoughts import MARKS, parted
from rollouts.chat_template import ASKED, SAID, ChatTemplate, PromptError, TokenCoder, whole
from rollouts.tool_calls import FORMATS, ToolCall, ToolSpec, call_format, spelled_calls

_THOUGHT = "qzTHOUGHTqz"  # stands for what was thought before an answer
_FINAL = "<|channel|>final<|message|>"
_CLOSES = {_FINAL: f"<|end|><|start|>assistant{_FINAL}"}  # how gpt-oss ends its analysis
_ANCHORS = ("\n", "x", ".", "0")  # what an answer's first letters are read after


# Ways to spell an answer, until one reads as it was written: with a space that the tokenizer
# swallows, in the letters as they are (not in a normal form), apart from the prompt.
_SPELLINGS = [
    (extra, exact, apart)
    for exact, apart in ((False, False), (True, False), (False, True))
    for extra in ("", " ")
]
TEMPLATE_FILE = "chat_template_kwargs.json"  # in a model's folder
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")  # that a template may write
_OURS = ("messages", "conversation", "tools", "add_generation_prompt", "tokenize", "return_dict")


def template_arguments(folder: Path, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a model's folder gives its chat template (`chat_template_kwargs.json`), then `more`.

    Raises `PromptError` for a file that holds something else.
    """
    file, found = folder / TEMPLATE_FILE, cast("Any", {})
    if file.is_file():
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            found = None
    if not isinstance(found, dict):
        raise PromptError(f'{file}: wanted one JSON object, such as {{"enable_thinking": false}}')
    return {**cast("dict[str, Any]", found), **(more or {})}


def keep_template(folder: Path, arguments: Mapping[str, Any]) -> None:
    """Write them into a model's folder, so that it is asked as it was trained."""
    if arguments:
        text = json.dumps(dict(arguments), ensure_ascii=False) + "\n"
        (folder / TEMPLATE_FILE).write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class _Place:
    """Where text goes on: what stands before it since the last control token, as text, as ids, and
    as those ids read."""

    before: str
    ids: list[int]
    shown: str


@dataclass(frozen=True)
class _Turn:
    """What a template writes around an answer.

    `before`: from the last control token on; `lead`: between the generation prompt and the answer;
    `opened`: a thought's tag that the generation prompt ends with, and the blanks after it;
    `closing`: what ends that thought when nothing was thought; `end`: to the end of the turn.
    """

    before: str = "x"
    lead: str = ""
    opened: str = ""
    closing: str = ""
    end: str = ""

    @property
    def tags(self) -> tuple[str, str]:
        """How the thought is marked that the prompt opens; empty where it opens none."""
        return next(((a, b) for a, b in MARKS if a == self.opened.rstrip()), ("", ""))

    def thought(self, text: str) -> list[tuple[int, int]]:
        """Where the marks of a thought at the beginning of an answer stand: (start, end)."""
        begin = len(text) - len(text.lstrip())
        for opening, closing in MARKS:
            inside = begin + len(opening) if text.startswith(opening, begin) else begin
            if inside > begin or opening == self.tags[0]:
                end = text.find(closing, inside)
                if end >= 0:
                    spans = [(begin, inside), (end, end + len(closing))]
                    return spans if inside > begin else spans[1:]
        return []


class ChatTokenizer:
    """A tokenizer with its chat template, and the ids that end an answer.

    `calls` names how this model spells tool calls (rollouts/tool_calls.py). `template`: arguments
    of the chat template such as `enable_thinking`, on top of those the folder itself names.

    The frame of a conversation is the template's own, with its control tokens. Texts of users,
    tools and gold never become control tokens (rollouts/chat_template.py).
    """

    def __init__(
        self, folder: Path, calls: str = "hermes", template: Mapping[str, Any] | None = None
    ) -> None:
        self.calls = call_format(calls)
        self._folder, self._named_calls = folder, calls
        self._others: dict[str, ChatTokenizer] = {}
        self._last: tuple[str, list[int]] = ("", [])  # the prompt that was asked for last
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
        if not getattr(self._tokenizer, "chat_template", None):
            raise PromptError(f"{folder} has no chat template; give an instruction-tuned model")
        self.template = template_arguments(folder, template)
        self._chat = ChatTemplate(self._tokenizer, self.template)
        for name in self.template:
            if name in _OURS or not re.search(rf"\b{re.escape(name)}\b", self._chat.sources):
                raise PromptError(
                    f"{folder}: chat_template_kwargs: {name} is "
                    f"{'set by Assay' if name in _OURS else 'no name in the chat template'}; "
                    "remove it"
                )
        self._code = TokenCoder(self._tokenizer)
        eos: Any = self._tokenizer.eos_token_id
        known = [int(i) for i in (eos, *_generation_stops(folder)) if i is not None]
        turn = self._turn = _read_turn(self._chat, self._code, frozenset(known))
        self._end: list[int] = self._go_on("x", turn.end) if turn.end else known[:1]
        if not self._end:
            raise PromptError(
                f"{folder}: nothing ends an answer: the chat template writes no end of turn, and "
                "tokenizer_config.json names no end-of-sequence token"
            )
        self.stop_ids: list[int] = list(dict.fromkeys([self._end[-1], *known]))
        self._start = self._place(turn.before)
        self._closing = self._go_on(turn.before, turn.closing)
        self._closed = self._place(turn.closing) if turn.closing else self._start

    def prompt(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = ()
    ) -> list[int]:
        """Ids of the conversation up to where the assistant's answer starts.

        Raises `PromptError` for a conversation that the template refuses.
        """
        key = json.dumps([list(messages), [tool.schema() for tool in tools]], default=str)
        if self._last[0] != key:  # all samples of a task ask for the same one
            acts = bool(tools) or _acts(messages)
            chat, schemas = self._with_tools([self._veiled(m) for m in messages], tools)
            text = self._chat.render(self._chat.shaped(chat, acts), True, acts, schemas)
            self._last = key, self._code.encode(text)
        return list(self._last[1])

    def follow(
        self, messages: Sequence[Mapping[str, Any]], ended: bool, tools: Sequence[ToolSpec] = ()
    ) -> list[int]:
        """Ids between an answer and the next one: what the template writes around `messages`.

        Only what is new is encoded, so ids that stand before are never touched, and thoughts that
        the template would leave out of earlier answers stay. `ended`: the answer's own stop token
        is there already; otherwise it is supplied here. `tools`: those of the prompt.
        """
        acts = bool(tools) or _acts(messages)
        frame = self._chat.after_answer([self._veiled(m) for m in messages], acts)
        begins = next(self._code.found(frame), (1, 1))[0] == 0  # with a control token
        ids = self._code.encode(frame) if begins else self._go_on("x", frame)
        for place, i in enumerate(ids[: len(self._end)] if ended else []):
            if i in self.stop_ids:
                return ids[place + 1 :]
        return ids

    def _with_tools(
        self, messages: list[Mapping[str, Any]], tools: Sequence[ToolSpec]
    ) -> tuple[list[Mapping[str, Any]], list[dict[str, Any]] | None]:
        """Tools go through the template; one that has no place for them gets a system message."""
        if not tools:
            return messages, None
        if "tools" in self._chat.source(True):
            return messages, [self._veil(tool.schema()) for tool in tools]
        text = self.calls.explain([ToolSpec(**self._veil(vars(tool))) for tool in tools])
        if messages and messages[0]["role"] == "system":
            text = f"{messages[0]['content']}\n\n{text}"
            messages = messages[1:]
        return [{"role": "system", "content": text}, *messages], None

    def _veil(self, value: Any) -> Any:
        """A value of JSON whose texts cannot become control tokens."""
        if isinstance(value, str):
            return self._code.veil(value)
        if isinstance(value, Mapping):
            rows = cast("Mapping[Any, Any]", value)
            return {self._veil(name): self._veil(inner) for name, inner in rows.items()}
        if isinstance(value, list | tuple):
            return [self._veil(inner) for inner in cast("Sequence[Any]", value)]
        return value

    def _veiled(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """A message whose texts cannot become control tokens, but for what a model says with
        them: its thought, and its calls."""
        text = message.get("content")
        if message.get("role") != "assistant" or not isinstance(text, str):
            return self._veil(message)
        return {**self._veil({**message, "content": ""}), "content": self._as_said(text)}

    def _as_said(self, text: str) -> str:
        """An assistant's text, with the tags of its thought and its calls left as they are."""
        places = self._turn.thought(text)
        after = places[-1][1] if places else 0
        parts: list[str] = []
        last = 0
        for start, stop in [*places, *spelled_calls(text, after)]:
            parts += [self._code.veil(text[last:start]), text[start:stop]]
            last = stop
        return "".join([*parts, self._code.veil(text[last:])])

    def _go_on(self, before: str, text: str, exact: bool = False) -> list[int]:
        """Ids of a text after another one. Where a token would reach over the border, another
        letter stands before it."""
        for context in (before, *_ANCHORS):
            head, ids = self._code.encode(context), self._code.encode(context + text, exact)
            if ids[: len(head)] == head:
                return ids[len(head) :]
        return self._code.encode(text, exact)

    def _place(self, before: str) -> _Place:
        """The place after a text, which is seen from its last control token on."""
        starts = [start for start, _ in self._code.found(before)]
        before = before[starts[-1] :] if starts else before
        ids = self._code.encode(before)
        return _Place(before, ids, self._code.decode(ids))

    def encode(self, text: str) -> list[int]:
        """Ids of a plain text, as the tokenizer itself begins and reads one."""
        return [int(i) for i in self._tokenizer.encode(whole(text))]

    def answer(self, text: str, plain: bool = False) -> list[int]:
        """Ids of an answer, with the end of turn a model is to end it with.

        They go on from `prompt`. The tags of a thought and of calls are the model's own tokens,
        all else is plain; with `plain` (gold) so are these. Where the prompt has opened a thought
        and the answer holds none, it is closed first.
        """
        text = whole(text)
        for spelling in _SPELLINGS:
            ids = self._spell(text, plain, *spelling)
            if self._heard(ids) == text:
                return [*ids, *self._end]
        return [*self._spell(text, plain, *_SPELLINGS[0]), *self._end]

    def _spell(self, text: str, plain: bool, extra: str, exact: bool, apart: bool) -> list[int]:
        said = self._code.veil(text) if plain else self._as_said(text)
        turn, thought = self._turn, [] if plain else self._turn.thought(text)
        before, lead = self._start.before, turn.lead
        if turn.opened and not thought:
            before = self._closed.before
        elif turn.opened and len(thought) > 1:  # its opening stands in the prompt
            opening = turn.tags[0]
            said = said.lstrip().removeprefix(opening)
            said = said.removeprefix(turn.opened.removeprefix(opening))
        elif thought and text[slice(*thought[-1])] == lead:
            lead = ""
        ids = self._go_on("x" if apart else before, extra + lead + said, exact)
        return [*self._closing, *ids] if turn.opened and not thought else ids

    def thought_end(self, ids: Sequence[int]) -> list[int]:
        """Ids that end the thought in which an answer's ids stop; none where they stop in none."""
        mark = parted(self.text(ids)).missing
        return self._go_on("x", _CLOSES.get(mark, f"\n{mark}\n\n")) if mark else []

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
        if "tool_calls" not in self._chat.source(True):
            return spelled
        functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
        listed = [  # Mistral's templates want ids of nine letters
            {"id": f"{i:09d}", "type": "function", "function": function}
            for i, function in enumerate(functions)
        ]
        said = SAID if content else ""
        try:
            before, _, after = self._answered({"content": SAID}, True).partition(SAID)
            text = self._answered({"content": said, "tool_calls": listed}, True)
        except PromptError:
            return spelled
        inner = text.removeprefix(before).removesuffix(after)
        framed = len(inner) == len(text) - len(before) - len(after)
        if not framed or (content and inner.count(SAID) != 1):
            return spelled
        made = [(call.name, call.arguments) for call in calls]
        for form in (self.calls, *FORMATS.values()):
            if [(call.name, call.arguments) for call in form.read(inner)] == made:
                return inner.replace(SAID, content) if content else inner
        return spelled

    def _with_thought(self, thought: str, text: str) -> str:
        if self._turn.opened:
            return f"{thought.strip()}{self._turn.closing}{text}"
        opening = self._chat.render([{"role": "user", "content": "x"}], True)
        for name in ("reasoning_content", "reasoning", "thinking"):
            if name not in self._chat.sources:
                continue
            whole = self._answered({"content": SAID, name: _THOUGHT})
            before, found, rest = whole.removeprefix(opening).partition(_THOUGHT)
            between, said, _ = rest.partition(SAID)
            if whole.startswith(opening) and found and said and whole.count(_THOUGHT) == 1:
                return f"{before}{thought.strip()}{between}{text}"
        raise PromptError(
            "the chat template, with its arguments here, has no place for what an assistant "
            "thought before it answered"
        )

    def _answered(self, said: Mapping[str, Any], tools: bool = False) -> str:
        """The template's text of one exchange."""
        asked = {"role": "user", "content": "x"}
        return self._chat.render([asked, {"role": "assistant", **said}], False, tools)

    def raw(self, ids: Sequence[int]) -> str:
        """Everything as text, control tokens included: what a scripted model reads."""
        return self._code.decode(ids)

    def text(self, ids: Sequence[int]) -> str:
        """The answer that sampled ids spell, without its end; spaces are left as they are, and
        control tokens in the middle of it are seen. Where the prompt opened a thought, the answer
        begins with its tag."""
        ids = list(ids)
        if ids[-len(self._end) :] == self._end:
            return self._heard(ids[: -len(self._end)])
        return self._heard(ids[:-1] if ids and ids[-1] in self.stop_ids else ids)

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """What each id of an answer writes: together the bytes of `text`, and of its end. A
        character may be spread over several."""
        found = self._code.pieces(ids)
        text = self.text(ids).rstrip("\ufffd").encode("utf-8", "replace")
        written = b"".join(found)
        if not written.startswith(text) and written[1:].startswith(text) and found[0][:1] == b" ":
            found[0] = found[0][1:]  # the mark of a word's beginning
        return found

    def _heard(self, ids: Sequence[int]) -> str:
        """The text of an answer's ids, without what the template says before it."""
        turn, size = self._turn, len(self._closing)
        if not ids:
            return ""
        if not turn.opened:
            return self._read(self._start, ids).removeprefix(turn.lead)
        if list(ids[:size]) == self._closing:
            return self._read(self._closed, ids[size:])
        text = self._read(self._start, ids)
        if text.startswith(turn.closing):
            return text[len(turn.closing) :]
        return turn.opened + text

    def _read(self, place: _Place, ids: Sequence[int]) -> str:
        text = self._code.decode([*place.ids, *ids])
        if text.startswith(place.shown):
            return text[len(place.shown) :]
        return self._code.decode(ids)

    @property
    def size(self) -> int:
        """How many token ids there are."""
        return len(self._tokenizer)

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits that say how a conversation becomes ids: vocabulary and rules, the chat
        template and its arguments, the special tokens it writes, and what ends an answer.

        Taken from the loaded tokenizer, so a folder written anew has the same. Which further ids
        end a sample (generation_config.json) and how calls are spelled are no part of it.
        """
        written = [name for name in _NAMED if name in self._chat.sources]
        named = {name: str(getattr(self._tokenizer, name, None)) for name in written}
        template = [self._tokenizer.chat_template, self.template, named, self._end]
        said = json.dumps([self._code.rules(), template], sort_keys=True, default=str)
        return hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:16]


def _read_turn(chat: ChatTemplate, code: TokenCoder, known: frozenset[int]) -> _Turn:
    """Read off one exchange, rendered with and without its answer. `known`: ids that end one."""
    asked = [{"role": "user", "content": ASKED}]
    prompt = said = ""
    for before in ([], [{"role": "system", "content": "x"}]):  # some want a system message
        try:
            prompt = chat.render([*before, *asked], True).rpartition(ASKED)[2]
            answered = [*before, *asked, {"role": "assistant", "content": SAID}]
            said = chat.render(answered, False)
            break
        except PromptError:
            continue
    else:  # it may want tools: a conversation will tell
        return _Turn()
    frame, there, after = said.rpartition(ASKED)[2].partition(SAID)
    starts = [start for start, _ in code.found(prompt)]
    begin = prompt[starts[-1] :] if starts else f"x{prompt}"
    lead = frame.removeprefix(prompt) if there and frame.startswith(prompt) else ""
    end = _end_of_turn(chat, code, after, known) if there else ""
    for opening, closing in MARKS:
        if prompt.rstrip().endswith(opening):
            opened = prompt[prompt.rindex(opening) :]
            closes = lead if closing in lead else f"\n{closing}\n\n"
            return _Turn(begin, "", opened, closes, end)
    # an empty thought is what a model may write or leave out
    thinks = any(opening in lead and closing in lead for opening, closing in MARKS)
    return _Turn(begin, "" if thinks else lead, end=end)


def _end_of_turn(chat: ChatTemplate, code: TokenCoder, after: str, known: frozenset[int]) -> str:
    """What is written after the last answer, to its first control token. Where nothing is, what
    begins the next turn counts if it is known to end answers."""
    start, stop = next(code.found(after), (0, 0))
    if stop and (not after[:start].strip() or code.control[after[start:stop]] in known):
        return after[:stop]
    try:
        later = chat.after_answer([{"role": "user", "content": ASKED}]).partition(ASKED)[0]
    except PromptError:
        return ""
    start, stop = next(code.found(later), (0, 0))
    ends = stop and not later[:start].strip() and code.control[later[start:stop]] in known
    return later[:stop] if ends else ""


def _generation_stops(folder: Path) -> list[int]:
    """The ids that generation_config.json ends an answer at: some chat models have several."""
    try:
        said: Any = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
        ids: Any = said.get("eos_token_id")
    except (OSError, ValueError, AttributeError):
        return []
    listed = cast("list[Any]", ids if isinstance(ids, list) else [ids])
    return [i for i in listed if isinstance(i, int)]


def _acts(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a conversation has calls of tools, or their answers."""
    return any(m.get("role") == "tool" or m.get("tool_calls") for m in messages)


# ---- room for an answer
# Room for an answer: how many tokens one message of a model may have, where nobody says it.


LEAST = 96  # tokens of any answer
MESSAGE = 4096  # of a message in an episode with tools, and where the gold answer is no text
ANSWER_TOKENS = "answer_tokens"  # in a task's meta: room that its answer needs at least


def gold_text(task: Task) -> str:
    """The gold answer as a model would write it; "" where it is no text or cannot be had."""
    try:
        gold = gold_answer(family_of(task), task)
    except Exception:  # of an own family; whoever needs the gold itself is told
        return ""
    return "" if gold is None or gold.files else gold.text


def for_gold(tokens: int) -> int:
    """Room for a gold answer of `tokens`, its end among them: half as long again, at least 96."""
    return max(LEAST, tokens * 3 // 2)


def room_for(task: Task, tokenizer: ChatTokenizer | None = None, least: int = 0) -> int:
    """Tokens that one message of the model may have in this task, `least` or more.

    In the tokens of the model's own tokenizer it is `for_gold`, as a power of two above 96: a run
    has few kinds of tasks then, and a task has the same room beside any others. Without a tokenizer
    (an endpoint) it is 4,096 or the bytes of gold, of which no token has less than one. The same
    4,096 holds for tasks with tools or without a gold text.
    """
    text = "" if task.tools else gold_text(task)
    said = task.meta.get(ANSWER_TOKENS)
    wanted = said if isinstance(said, int) and not task.tools else 0
    if tokenizer is None:
        return max(MESSAGE, least, wanted, len(text.encode("utf-8", "replace")) + 1)
    if not text:
        return max(least, wanted or MESSAGE)
    need = for_gold(len(tokenizer.answer(text, plain=True)))
    return max(least, wanted, need if need == LEAST else 1 << (need - 1).bit_length())
