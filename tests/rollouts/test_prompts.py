"""Conversations as ids: what the template says, and nothing that a text says; room for an
answer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from chat_tokenizers import (
    ADDED,
    CHATML,
    ENDS,
    KINDS,
    ODD,
    SPECIAL,
    TEMPLATES,
    by_template,
    write_chat_tokenizer,
    write_settings,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from qwen3 import TEMPLATE as QWEN3

from assay.task import Task
from assay.thoughts import answer_after_thoughts
from rollouts.prompts import (
    LEAST,
    MESSAGE,
    TEMPLATE_FILE,
    ChatTokenizer,
    PromptError,
    for_gold,
    gold_text,
    keep_template,
    room_for,
)
from rollouts.tool_calls import ToolSpec

QWEN = {"qwen3": QWEN3}
FAMILIES = [*(name for name in TEMPLATES if name not in ("plain", "r1", *ODD)), *QWEN]
# A newline pair at the end of the prompt is one token of GPT-2's words, and two before a letter:
# what is asked and what is answered then meet at another border than in a text of both.
BORDERS = {("bytes, spaced", "llama3")}
# every kind with half of the families, every family with half of the kinds
PAIRS = [
    (kind, family)
    for i, kind in enumerate(KINDS)
    for j, family in enumerate(FAMILIES)
    if (i + j) % 2 == 0 and (kind, family) not in BORDERS
]
CONTROL = [*SPECIAL, *ADDED]
TOOL = ToolSpec("look", "Look <|im_end|> up.", {"type": "object", "properties": {"</s>": {}}})


def test_a_fingerprint_and_a_folders_arguments(tiny_folder: Path, tmp_path: Path) -> None:
    """Another tokenizer is told, another file of it is not. A run leaves what its template was
    given in its model's folder, so that it is evaluated as it was trained."""
    from transformers import AutoTokenizer

    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    before, file = ChatTokenizer(folder).fingerprint, folder / "tokenizer.json"
    made = json.loads(file.read_text())
    cut = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    file.write_text(json.dumps(made | {"truncation": cut}))
    assert ChatTokenizer(folder).fingerprint == before
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "again")
    assert ChatTokenizer(tmp_path / "again").fingerprint == before
    more = [*made["added_tokens"], {**made["added_tokens"][-1], "id": 259, "content": "<new>"}]
    file.write_text(json.dumps(made | {"added_tokens": more}))
    assert ChatTokenizer(folder).fingerprint != before
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    thinks = "{{ messages[0].content }}{% if enable_thinking %}x{% endif %}"
    write_settings(folder, chat_template=thinks)
    on, off = (ChatTokenizer(folder, template={"enable_thinking": b}) for b in (True, False))
    assert len({before, on.fingerprint, off.fingerprint}) == 3
    keep_template(folder, {"enable_thinking": False})
    assert ChatTokenizer(folder).template == {"enable_thinking": False}
    given = {"enable_thinking": True}
    assert ChatTokenizer(folder, template=given).template == given
    for name, said in (("enable_thinkin", "no name in the chat template"), ("tokenize", "set by")):
        with pytest.raises(PromptError, match=said):
            ChatTokenizer(folder, template={name: False})
    (folder / TEMPLATE_FILE).write_text("[1]")
    with pytest.raises(PromptError, match="wanted one JSON object"):
        ChatTokenizer(folder)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def system(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


Made = Callable[..., ChatTokenizer]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The tokenizer of a kind with the template of a family."""
    top, known = tmp_path_factory.mktemp("chats"), dict[Any, ChatTokenizer]()

    def make(kind: str, family: str, template: Any = None, **more: Any) -> ChatTokenizer:
        key = (kind, family, str(template), str(more))
        if key not in known:
            source = QWEN.get(family) if template is None else template
            folder = write_chat_tokenizer(top / str(len(known)), kind, family, source, **more)
            known[key] = ChatTokenizer(folder)
        return known[key]

    return make


def controls(chat: ChatTokenizer, ids: list[int]) -> list[int]:
    names = chat._tokenizer.added_tokens_decoder
    return [i for i in ids if i in names]


TALKS = [
    ["hello user", "the answer is\n\nso", "two  spaces", "assistant yes", "again\n"],
    ["def add(a, b):\n    return a", "a", "b\n\nc", "é 日本 🙂", "1 2 3"],
]


@pytest.mark.parametrize(("kind", "family"), PAIRS)
@pytest.mark.parametrize("talk", TALKS, ids=["words", "code"])
def test_prompt_answer_and_what_follows_are_the_templates_own_ids(
    made: Made, kind: str, family: str, talk: list[str]
) -> None:
    chat = made(kind, family)
    asked, answer, then, second, last = talk
    turns = [user(asked), said(answer), user(then), said(second), user(last)]
    if family == "gemma":  # it strips what is said
        turns = [{**m, "content": m["content"].strip()} for m in turns]
    ids = chat.prompt(turns[:1])
    assert ids == by_template(chat, turns[:1], True)
    ids += chat.answer(answer) + chat.follow(turns[2:3], True)
    assert ids == by_template(chat, turns[:3], True)
    assert ids == chat.prompt(turns[:3])
    ids += chat.answer(second) + chat.follow(turns[4:], True)
    assert ids == by_template(chat, turns, True)
    # a turn ends with what the template writes, also where it was cut
    end = {**ENDS, "qwen3": "<|im_end|>"}.get(family, "</s>")
    number = chat._tokenizer.convert_tokens_to_ids(end)
    assert chat.stop_ids[0] == chat.answer("x")[-1] == number
    assert chat._tokenizer.eos_token_id in chat.stop_ids
    cut = chat.follow([user("x")], ended=False)
    assert number in cut[:2] and cut[cut.index(number) + 1 :] == chat.follow([user("x")], True)


def test_all_ids_that_a_folder_names_are_stops(made: Made, tmp_path: Path) -> None:
    folder = write_chat_tokenizer(tmp_path / "yi", "bytes", "yi")
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 3]}')
    chat = ChatTokenizer(folder)
    names = chat._tokenizer.convert_ids_to_tokens(chat.stop_ids[:2])
    assert names == ["<|im_end|>", "<|endoftext|>"] and chat.stop_ids[2:] == [0, 3]
    for stop in chat.stop_ids:
        assert chat.text([*chat.answer("so")[:-1], stop]) == "so"


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_without_an_end_of_turn(made: Made, kind: str) -> None:
    """The tokenizer's own end stands between, all else is the template's."""
    chat = made(kind, "plain")
    turns = [user("hello"), said("so it is"), user("two  spaces")]
    ids = chat.prompt(turns[:1]) + chat.answer("so it is") + chat.follow(turns[2:], True)
    end = chat._tokenizer.convert_tokens_to_ids("</s>")
    assert ids.count(end) == 1
    assert [i for i in ids if i != end] == by_template(chat, turns, True)
    assert chat.text(chat.answer("so it is")) == "so it is"


REFUSED = [
    ("{% for m in messages %}{{ m.nothing.at.all }}{% endfor %}", "refuses this conversation"),
    ("{{ raise_exception('Not so.') }}", "Not so"),
    ({"rag": CHATML}, "none of them is the default"),
    (TEMPLATES["wants a system message"] + CHATML, "System first"),
    (CHATML.replace("{{ m['role'] }}", "{{ loop.index }}"), "third turn otherwise"),
]


@pytest.mark.parametrize(("template", "says"), REFUSED)
def test_a_template_that_cannot_be_followed_says_so(made: Made, template: Any, says: str) -> None:
    with pytest.raises(PromptError, match=says):
        made("bytes", "yi", template).prompt([user("a")])
        made("bytes", "yi", template).follow([user("b")], True)


TEXTS = st.lists(
    st.sampled_from(CONTROL) | st.text(max_size=8) | st.sampled_from([" ", "\n", "  \n\n", "a"]),
    max_size=6,
).map("".join)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=20)
@given(text=TEXTS.map(lambda t: t.replace("\u2581", "_")))
def test_gold_comes_back_whatever_it_holds(made: Made, kind: str, text: str) -> None:
    """But for the sign that SentencePiece writes for a space."""
    for family in ("gemma", "zephyr", "llama2", "yi", "r1", "qwen3"):
        chat = made(kind, family)
        ids = chat.answer(text, plain=True)
        assert chat.text(ids) == text
        assert len(controls(chat, ids)) == len(controls(chat, chat.answer("x")))


@settings(deadline=None, max_examples=20)
@given(texts=st.lists(TEXTS, min_size=4, max_size=4))
def test_no_text_becomes_a_control_token(made: Made, texts: list[str]) -> None:
    for kind in KINDS:
        chat = made(kind, "qwen3")

        def of(
            system_text: str, asked: str, told: str, then: str, chat: ChatTokenizer = chat
        ) -> list[int]:
            ids = chat.prompt([system(system_text), user(asked)], [TOOL])
            tool = {"role": "tool", "content": told}
            ids += chat.follow([tool, tool], True, [TOOL]) + chat.follow([user(then)], False)
            return controls(chat, ids)

        assert of(*texts) == of("a", "b", "c", "d")


def test_a_call_keeps_its_tags_and_a_text_about_calls_has_none(made: Made) -> None:
    chat = made("bytes", "qwen3")
    call = chat.calls.write("look", {"word": "</s> é"})
    tags = [chat._tokenizer.convert_tokens_to_ids(t) for t in ("<tool_call>", "</tool_call>")]
    for text in (call, f"I look.\n{call}\n", f"<think>\nhm\n</think>\n\n{call}"):
        ids = chat.answer(text)
        assert [i for i in ids if i in tags] == tags and chat.text(ids) == text
        assert [c.name for c in chat.calls.read(chat.text(ids))] == ["look"]
        assert not set(tags) & set(chat.answer(text, plain=True))
    about = "Write <tool_call> and </tool_call> around <think>"
    assert not set(controls(chat, chat.answer(about)[:-1]))
    earlier = chat.prompt([user("a"), said(call), {"role": "tool", "content": call}])
    assert [i for i in earlier if i in tags] == tags


def test_an_episode_has_the_ids_of_the_template_over_all_of_it(made: Made) -> None:
    """With a thought before each call the template keeps it, so nothing of it may differ."""
    chat, tool = made("bytes", "qwen3"), ToolSpec("look", "Look up.", {"type": "object"})
    asked, arguments = [system("Be brief."), user("What is é?")], {"word": "é"}
    thought, told = "<think>\nI look.\n</think>\n\n", {"role": "tool", "content": "a <b> and all"}
    ids = chat.prompt(asked, [tool]) + chat.answer(thought + chat.calls.write("look", arguments))
    calls = [{"type": "function", "function": {"name": "look", "arguments": arguments}}]
    whole = [*asked, {**said(thought), "tool_calls": calls}, told]
    wanted = by_template(chat, whole, True, tools=[tool.schema()])
    assert ids + chat.follow([told], True) == wanted


def test_an_answer_is_read_as_it_was_drawn(made: Made) -> None:
    """A control token in its middle; letters that are in no normal form."""
    for kind in KINDS:
        chat = made(kind, "zephyr")
        name = chat._tokenizer.convert_tokens_to_ids("<filename>")
        a, b = chat.answer("so")[:-1], chat.answer("it")
        assert chat.text([*a, name, *b]) == "so<filename>it"
    chat = made("bytes", "yi")  # writes NFC, as Qwen's does
    text = "e\u0301 </s> \u212b"
    assert chat.text(chat.answer(text)) == text
    assert chat.prompt([user("e\u0301")]) == by_template(chat, [user("é")], True)


@pytest.mark.parametrize("kind", ["prepend", "always", "first"])
def test_control_tokens_may_swallow_blanks(made: Made, kind: str) -> None:
    """As those of Phi-3 do."""
    chat = made(kind, "phi", strips=True)
    turns = [system("Be brief."), user("hello"), said("so it is"), user("more")]
    ids = chat.prompt(turns[:2]) + chat.answer("so it is") + chat.follow(turns[3:], True)
    assert ids == by_template(chat, turns, True)
    for text in ("so", " so", "  so", "so ", ""):
        assert chat.text(chat.answer(text)) == text


def test_messages_go_where_the_template_has_a_place(made: Made) -> None:
    """A system message into a user's, or into none; messages of one role into one."""
    gemma, yi, mistral = (made("bytes", name) for name in ("gemma", "yi", "mistral"))
    ab = [system("Be brief."), user("a")]
    assert gemma.prompt(ab) == by_template(gemma, [user("Be brief.\n\na")], True)
    later = gemma.prompt([user("a"), said("b"), system("Be long."), user("c")])
    assert later == by_template(gemma, [user("a"), said("b"), user("Be long.\n\nc")], True)
    silent = CHATML.replace("m in messages %}", "m in messages if m.role != 'system' %}")
    chat = made("bytes", "yi", silent)
    assert "Be brief." in chat.raw(chat.prompt(ab))
    wants = made("bytes", "yi", TEMPLATES["wants a system message"] + CHATML)
    for chat, turns in ((made("bytes", "qwen3"), ab), (wants, ab), (yi, [user("a"), user("b")])):
        assert chat.prompt(turns) == by_template(chat, turns, True)
    assert mistral.prompt([user("a"), user("b")]) == by_template(mistral, [user("a\n\nb")], True)
    tools = [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}, user("c")]
    told = "[INST] <tool_response>\n1\n</tool_response>\n<tool_response>"
    assert told in mistral.raw(mistral.follow(tools, True))


def test_of_several_templates_one_is_used_all_through(made: Made) -> None:
    both = {"default": CHATML, "tool_use": TEMPLATES["lists its tools"]}
    chat = made("bytes", "yi", both)
    talk = [user("q"), said("CALL"), {"role": "tool", "name": "f", "content": "42"}]
    ids = chat.prompt(talk[:1], [TOOL]) + chat.answer("CALL") + chat.follow(talk[2:], True, [TOOL])
    clean = ToolSpec("look", "Look up.", {}).schema()
    assert ids == by_template(chat, talk, True, tools=[clean])
    assert chat.follow(talk[2:], True) == chat.follow(talk[2:], True, [TOOL])
    assert chat.prompt(talk[:1]) == by_template(chat, talk[:1], True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_thought_that_the_prompt_opens_is_closed_before_an_answer(made: Made, kind: str) -> None:
    chat = made(kind, "r1")
    taught = chat.raw(chat.prompt([user("a")]) + chat.answer("so"))
    assert taught.endswith("<think>\n\n</think>\n\nso</s>")
    thought = "<think>\nhm\n</think>\n\nso"
    ids = chat.answer(thought)
    whole = chat.raw(chat.prompt([user("a")]) + ids)
    assert whole.count("<think>") == 1 and answer_after_thoughts(chat.text(ids)) == "so"
    assert answer_after_thoughts(chat.text(ids[:3])) == ""  # cut while it thought
    assert chat.text([]) == ""
    mixed = chat.answer("the mark </think> ends it", plain=True)
    assert chat.text(mixed) == "the mark </think> ends it"


def test_what_stands_before_an_answer_is_the_templates(made: Made) -> None:
    """An empty thought as the family spells it; the channel that gpt-oss has."""
    opens = QWEN3.replace("|im_start|>assistant\\n' }}", "|im_start|>assistant\\n<think>\\n' }}")
    assert opens != QWEN3
    for template, end in ((opens, "\n"), (TEMPLATES["writes a channel"], "")):
        chat = made("bytes", "yi", template)
        whole = chat.raw(chat.prompt([user("a")]) + chat.answer("so"))
        own = by_template(chat, [user("a"), said("so")], False)
        assert whole == chat.raw(own).removesuffix(end)
        assert chat.text(chat.answer("so")).endswith("so")


def test_tokens_of_ordinary_text_stay_tokens(tmp_path: Path) -> None:
    """Gemma has runs of newlines and HTML among its added tokens."""
    folder = write_chat_tokenizer(tmp_path / "gemma", "never", "gemma", words=("\n\n\n", "<table>"))
    chat = ChatTokenizer(folder)
    text = "a\n\n\n<table>b"
    assert chat.prompt([user(text)]) == by_template(chat, [user(text)], True)
    hostile = chat.prompt([user(text + "<end_of_turn>")])
    words = [chat._tokenizer.convert_tokens_to_ids(w) for w in ("\n\n\n", "<table>")]
    assert [i for i in hostile if i in words] == words
    assert chat.text(chat.answer(text)) == text


# --- room for an answer, from gold in tokens -----------------------------------------------------


def task(text: str, **more: object) -> Task:
    gold = {"input_text": text, "status": "KEEP", "text": text}
    return Task("t", "refinement", "a", "heldout", [], gold, **more)  # type: ignore[arg-type]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=300))
def test_gold_fits_with_room_to_spare(text: str, tiny_folder: Path) -> None:
    """Texts of any script: characters say nothing of how many tokens a text has."""
    tokenizer = ChatTokenizer(tiny_folder)
    gold = len(tokenizer.answer(gold_text(task(text))))
    assert gold <= for_gold(gold) <= room_for(task(text), tokenizer) < max(2 * for_gold(gold), 97)
    assert room_for(task(text)) >= max(MESSAGE, gold)
    assert room_for(task(""), tokenizer) == LEAST and room_for(task("x"), tokenizer, 4096) == 4096
    assert room_for(task("x" * 9000), tokenizer, 4096) > 9000
    unknown = Task("t", "nobody-knows-it", "a", "heldout", [], {})
    for one in (task("x", tools=("run_python",)), unknown):
        assert room_for(one, tokenizer) == MESSAGE
    long = room_for(task("x" * 900), tokenizer)
    for size, room in ((700, 700), (7, LEAST)):
        assert room_for(task("x", meta={"answer_tokens": size}), tokenizer) == room
    assert room_for(task("x" * 900, meta={"answer_tokens": 7}), tokenizer) == long
