"""Room for an answer, from gold in the tokens of the model that answers."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.task import Task
from rollouts.prompts import LEAST, MESSAGE, ChatTokenizer, for_gold, gold_text, room_for


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


def test_a_task_has_the_same_room_beside_any_others(tiny_folder: Path) -> None:
    tokenizer = ChatTokenizer(tiny_folder)
    rooms = {room_for(task("x" * n), tokenizer) for n in range(0, 2000, 7)}
    assert min(rooms) == LEAST and len(rooms) < 8
    assert room_for(task("x"), tokenizer, 4096) == 4096
    assert room_for(task("x" * 9000), tokenizer, 4096) > 9000


def test_no_text_has_the_room_of_a_message_and_no_task_takes_from_gold(tiny_folder: Path) -> None:
    tokenizer = ChatTokenizer(tiny_folder)
    assert room_for(task("x", tools=("run_python",)), tokenizer) == MESSAGE
    unknown = Task("t", "nobody-knows-it", "a", "heldout", [], {})
    assert room_for(unknown, tokenizer) == room_for(unknown) == MESSAGE
    assert room_for(task("x", meta={"answer_tokens": 700}), tokenizer) == 700
    long = room_for(task("x" * 900), tokenizer)
    assert room_for(task("x" * 900, meta={"answer_tokens": 7}), tokenizer) == long
