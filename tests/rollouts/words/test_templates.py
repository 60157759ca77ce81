"""Template files: what they may hold, how they are filled, what is refused; the examples of
few_shot."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.task import Task
from configs.loader import ConfigError
from rollouts.environments import WORDS, read_prompts
from rollouts.words.cdr import (
    KIND,
    POOL,
    SAME_RECIPE,
    Example,
    Shots,
    draw,
    messages,
    pool_of,
    with_examples,
)
from rollouts.words.templates import escaped, filled, hash_of, kind_of, ours, unfilled

KINDS = {name: kind_of(WORDS, name) for name in WORDS}


@given(st.text(), st.text())
def test_braces_and_values_come_out_as_they_went_in(text: str, value: str) -> None:
    assert filled(escaped(text), {}) == text
    assert filled(escaped(text) + "{x}" + escaped(text), {"x": value}) == text + value + text


@given(st.text(max_size=30), st.text(max_size=30))
def test_what_a_template_was_filled_with_is_found_again(one: str, other: str) -> None:
    template = "The whole: {whole}\n\nOnly this: {part}"
    found = unfilled(template, filled(template, {"whole": one, "part": other}))
    assert found is not None
    assert filled(template, found) == filled(template, {"whole": one, "part": other})
    assert unfilled(template, one) is None or "\n\nOnly this: " in one


@pytest.mark.parametrize("name", WORDS)
def test_our_own_files_are_valid_and_can_be_copied(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    copy = tmp_path / "own.yaml"
    copy.write_bytes(kind.ours.read_bytes())
    words = read_prompts(str(copy)).of(name)
    assert words.texts == ours(kind).texts and words.source == "own"
    assert words.hash == ours(kind).hash == hash_of(words.texts)[:16]
    assert set(words.texts) == set(kind.slots)


BROKEN = [
    ("direct", "Do {requirement}.", "refinement: direct: the text lacks {input}"),
    ("direct", "{requirement} {input} {gold}", "unknown place {gold}; known are {requirement}"),
    ("direct", "{requirement!r} {input}", "{requirement} is no place"),
    ("direct", "{requirement.x} {input}", "{requirement.x} is no place"),
    ("direct", "{requirement} {input} {", "Single '{' encountered"),
    ("direct", 3, "direct: wanted a text"),
    ("direct", None, "direct: wanted a text"),
    ("hello", "x", "refinement: unknown field hello; known are system, "),
]


@pytest.mark.parametrize(("field", "text", "said"), BROKEN)
def test_what_cannot_be_used_is_refused_in_a_sentence(
    field: str, text: object, said: str, tmp_path: Path
) -> None:
    texts = {**ours(KINDS["refinement"]).texts, field: text}
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({"refinement": texts}), encoding="utf-8")
    with pytest.raises(ConfigError) as found:
        read_prompts(str(path))
    assert str(path) in str(found.value) and said in str(found.value)


def test_sections_fields_and_files_that_are_missing_are_named(tmp_path: Path) -> None:
    texts = dict(ours(KINDS["ds_guru"]).texts)
    del texts["repair"]
    path = tmp_path / "a.yaml"
    for rows, said in (
        ({"ds_guru": texts}, "field repair is missing"),
        ({"cdr": {}}, "unknown section cdr; known are refinement"),
        ({}, "no section in it"),
    ):
        path.write_text(yaml.safe_dump(rows) if rows else "", encoding="utf-8")
        with pytest.raises(ConfigError, match=said):
            read_prompts(str(path))
    (tmp_path / "empty").mkdir()
    for place, said in (("b.yaml", "no such file or folder"), ("empty", r"no \*\.yaml in it")):
        with pytest.raises(ConfigError, match=said):
            read_prompts(str(tmp_path / place))


def test_a_folder_of_files_is_read_and_no_section_twice(tmp_path: Path) -> None:
    for name in WORDS:
        (tmp_path / f"{name}.yaml").write_bytes(KINDS[name].ours.read_bytes())
    assert set(read_prompts(str(tmp_path)).words) == set(WORDS)
    (tmp_path / "again.yaml").write_bytes(KINDS["ds_guru"].ours.read_bytes())
    with pytest.raises(ConfigError, match=r"section ds_guru is also in .*again\.yaml"):
        read_prompts(str(tmp_path))


# --- examples of few_shot ------------------------------------------------------------------------


SOUNDS = ["tea", "moss", "lamp", "rope", "fern", "gate", "salt", "drum", "kite", "oak", "plum"]
WORDING = "Remove e-mail addresses."


def fixed() -> str:
    """The fixed examples."""
    return ours(KIND)["examples"]


def shot_text(number: int, words: int = 12) -> str:
    """A text of so many words; texts of different numbers share no word."""
    return " ".join(f"{SOUNDS[(number + i) % len(SOUNDS)]}{number}" for i in range(words))


def task(
    number: int,
    status: str = "KEEP",
    track: str = "atomic_f",
    split: str = "train",
    text: str = "",
    **meta: Any,
) -> Task:
    said = text or shot_text(number)
    recipe = [{"operator": f"op_{number // 3}", "params": {}}]
    gold = {"input_text": said, "status": status, "text": said, "mode": "few_shot"}
    return Task(
        f"t{number}",
        "refinement",
        track,
        split,
        messages(WORDING, said, "few_shot"),
        gold | {"recipe": recipe},
        meta={"document": f"d{number}", "requirement": WORDING, **meta},
    )


def both(count: int = 20) -> list[Task]:
    return [task(n, "KEEP" if n % 2 else "DROP") for n in range(count)]


def said(asked: Task) -> str:
    return asked.prompt[-1]["content"]


def test_examples_stand_before_the_task_with_their_answers() -> None:
    pool = pool_of(both(), 1000)
    asked = with_examples(task(99, split="heldout"), pool, Shots())
    one, two = asked.meta["examples"]
    shown, _, own = said(asked).partition("Now the task itself.")
    assert shown.count("Example ") == 2 and shot_text(99) in own and shot_text(99) not in shown
    for name in (one, two):
        assert shot_text(int(name[1:])) in shown
    statuses = {name: "KEEP" if int(name[1:]) % 2 else "DROP" for name in (one, two)}
    assert set(statuses.values()) == {"KEEP", "DROP"}  # they take turns
    assert f"<status>{statuses[two]}</status>" in shown
    assert fixed() not in shown


def test_tasks_draw_examples_of_their_own_and_the_same_again() -> None:
    pool = pool_of(both(), 1000)
    asked = [task(100 + n, split="test") for n in range(40)]

    def drawn(seed: int) -> list[list[str]]:
        return [with_examples(one, pool, Shots(seed=seed)).meta["examples"] for one in asked]

    assert drawn(3) == drawn(3) != drawn(4)
    used = Counter(name for names in drawn(3) for name in names)
    assert len(used) == 20 and max(used.values()) < 14  # none is in every prompt
    wordings = [task(n, split="test", instance="i", document="x", text="y") for n in (1, 2)]
    one, two = (with_examples(w, pool, Shots()).meta["examples"] for w in wordings)
    assert one == two


def test_only_training_tasks_of_the_track_that_are_short_are_shown() -> None:
    tasks = [
        task(1),
        task(2, split="heldout"),
        task(3, split="validation"),
        task(4, track="order_f"),
        task(5, text=shot_text(5, 300)),
    ]
    pool = pool_of(tasks, 400)
    shots = Shots(count=5)
    assert with_examples(task(9, split="test"), pool, shots).meta["examples"] == ["t1"]
    alone = task(9, split="test", track="order_m")
    assert with_examples(alone, pool, shots) is alone  # the two fixed ones stay
    assert fixed() in said(alone)


def test_the_pool_has_the_shortest_of_many_recipes_and_documents() -> None:
    tasks = [task(n, text=shot_text(n, 8 + n % 40)) for n in range(400)]
    tasks += [task(1000 + n, text=shot_text(n, 8), document=f"d{n}") for n in range(400)]
    kept = pool_of(tasks, 1000)["atomic_f"]["KEEP"]
    assert len(kept) == POOL and len({shot.document for shot in kept}) == POOL
    recipes = Counter(shot.recipe for shot in kept)
    assert max(recipes.values()) <= SAME_RECIPE
    assert [s.rank for s in kept] == sorted(s.rank for s in kept)


@pytest.mark.parametrize(
    "near",
    [
        shot_text(7),
        shot_text(7).upper() + "!!",
        shot_text(7) + " and more",
        "before " * 50 + shot_text(7),
    ],
)
def test_no_example_is_a_copy_of_the_tasks_text(near: str) -> None:
    pool = pool_of([task(7), task(8)], 1000)
    asked = task(50, split="test", text=near)
    assert with_examples(asked, pool, Shots()).meta["examples"] == ["t8"]
    same_document = task(50, split="test", document="d8")
    assert with_examples(same_document, pool, Shots()).meta["examples"] == ["t7"]


@settings(max_examples=40)
@given(st.integers(0, 500), st.integers(1, 6), st.integers(0, 5))
def test_whatever_is_drawn_is_of_other_documents_and_once(n: int, count: int, seed: int) -> None:
    pool = pool_of(both(12), 1000)
    texts = Example(WORDING, shot_text(n), "KEEP", shot_text(n))
    drawn = draw(pool, "atomic_f", str(n), f"d{n}", texts, Shots(count, 1000, seed))
    names = [shot.document for shot in drawn]
    assert len(names) == len(set(names)) == min(count, 12 - (n < 12))
    assert f"d{n}" not in names
