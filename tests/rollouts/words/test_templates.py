"""Template files: what they may hold, how they are filled, what is refused; the examples of
few_shot."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from places import tables
from releases import FILES, Asked, imported, write_release
from small_lake import make_lake

from assay.task import Task
from configs.loader import ConfigError
from configs.machine import ToolsConfig
from rollouts.environment import Budget
from rollouts.environments import WORDS, ToolSettings, read_prompts, tool_settings
from rollouts.krama.dsguru import DsGuru
from rollouts.python_tool import first_messages, tool_spec
from rollouts.words.cdr import (
    KIND,
    MODES,
    Shots,
    messages,
    pool_of,
    with_examples,
)
from rollouts.words.krama import question_of, tables_of
from rollouts.words.templates import Words, escaped, filled, kind_of, ours, unfilled

CASES = tables("rollouts")["templates that are refused"]
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


def test_what_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path, texts = tmp_path / "own.yaml", ours(KINDS["refinement"]).texts
    rows: list[tuple[Any, str]] = [({"refinement": texts | more}, said) for more, said in CASES]
    rows += [({"refinement": {"direct": texts["direct"]}}, "field system is missing")]
    rows += [({"cdr": {}}, "unknown section cdr; known are refinement"), ({}, "no section in it")]
    for row, said in rows:
        path.write_text(yaml.safe_dump(row), encoding="utf-8")
        with pytest.raises(ConfigError) as found:
            read_prompts(str(path))
        assert str(path) in str(found.value) and said in str(found.value)
    path.unlink()
    for place, said in ((path, "no such file or folder"), (tmp_path, r"no \*\.yaml in it")):
        with pytest.raises(ConfigError, match=said):
            read_prompts(str(place))
    for name in WORDS:
        (tmp_path / f"{name}.yaml").write_bytes(KINDS[name].ours.read_bytes())
    assert set(read_prompts(str(tmp_path)).words) == set(WORDS)
    (tmp_path / "again.yaml").write_bytes(KINDS["ds_guru"].ours.read_bytes())
    with pytest.raises(ConfigError, match=r"section ds_guru is also in .*again\.yaml"):
        read_prompts(str(tmp_path))


# --- examples of few_shot ------------------------------------------------------------------------


SOUNDS = ["tea", "moss", "lamp", "rope", "fern", "gate", "salt", "drum", "kite", "oak", "plum"]
WORDING = "Remove e-mail addresses."


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


def shown(asked: Task, tasks: list[Task], most: int = 1000, count: int = 2) -> Task:
    return with_examples(asked, pool_of(tasks, most), Shots(count=count))


def test_examples_stand_before_the_task_with_their_answers() -> None:
    asked = shown(task(99, split="heldout"), both())
    one, two = (int(name[1:]) for name in asked.meta["examples"])
    before, _, own = asked.prompt[-1]["content"].partition("Now the task itself.")
    assert before.count("Example ") == 2 and shot_text(99) in own and shot_text(99) not in before
    assert shot_text(one) in before and shot_text(two) in before
    assert (one - two) % 2  # KEEP and DROP take turns
    assert f"<status>{'KEEP' if two % 2 else 'DROP'}</status>" in before
    assert ours(KIND)["examples"] not in before  # the fixed ones


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


def test_only_short_training_tasks_of_the_track_and_no_copies_are_shown() -> None:
    tasks = [task(1), task(2, split="heldout"), task(3, split="validation")]
    tasks += [task(4, track="order_f"), task(5, text=shot_text(5, 300))]
    assert shown(task(9, split="test"), tasks, 400, 5).meta["examples"] == ["t1"]
    alone = task(9, split="test", track="order_m")
    assert shown(alone, tasks, 400) is alone  # the two fixed ones stay
    assert ours(KIND)["examples"] in alone.prompt[-1]["content"]
    copy = shot_text(7)
    for near in (copy, copy.upper() + "!!", copy + " and more", "before " * 50 + copy):
        asked = shown(task(50, split="test", text=near), [task(7), task(8)])
        assert asked.meta["examples"] == ["t8"]
    same_document = shown(task(50, split="test", document="d8"), [task(7), task(8)])
    assert same_document.meta["examples"] == ["t7"]


# --- Words of a release: read out of a stand-in, and byte for byte what its own code sends

FORMATS = ("tagged_text", "json", "json_and_tagged_text")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkouts of all three."""
    folder = tmp_path_factory.mktemp("releases")
    for name in FILES:
        write_release(folder / name, name)
    return folder


@functools.cache
def words_of(place: Path, name: str) -> Words:
    return read_prompts(f"release:{place}").of(name)


@pytest.mark.parametrize(("ask", "text"), [("Tidy {it}.", "a <:b:>"), ("{", "}}\n{x}")])
def test_refinement_requests_are_what_the_release_sends(place: Path, ask: str, text: str) -> None:
    words = words_of(place, "refinement")
    runner: Any = imported(place / "refinement/src/cdrbench_v3/run_inference.py")
    for form in FORMATS:
        row = {"prompt_variants": [{}, {"user_requirement": ask}], "input_text": text}
        for mode in MODES:
            end = Asked()
            runner._infer_one(
                end, row | {"output_format": form}, 1, prompt_mode=mode, candidate_rows=[]
            )
            assert messages(ask, text, mode, form, words=words) == end.messages


def test_the_tool_and_first_messages_are_what_the_release_sends(place: Path) -> None:
    prompts = read_prompts(f"release:{place}")
    words = prompts.of("python_executor")
    files = place / "python_executor/scripts"
    tool: Any = imported(files / "tools/python_executor/python_executor.py")
    bounds = {"timeout": 100, "max_file_size_mb": 3}
    config = SimpleNamespace(
        tool=SimpleNamespace(python_executor=bounds), get=lambda name, other: 15
    )
    theirs = tool.python_executor().get_tool_description("Qwen3-4B", config)
    tools = tool_settings(ToolsConfig(run_s=100.0, file_mb=3), Budget(turns=15), prompts)
    assert json.dumps(tool_spec(tools).schema()) == json.dumps(theirs)
    manager: Any = imported(files / "agentic_reason/prompt_manager.py")
    sent = manager.prepare_active_sequence({"question": ["How {much}?"]}, "", None, None)
    prompt = [{"role": "user", "content": "How {much}?"}]
    assert first_messages(Task("a", "table", "t", "test", prompt, {}), words) == sent
    brief = tool_settings(ToolsConfig(brief=True), prompts=prompts)
    with pytest.raises(ConfigError, match="no short description"):
        tool_spec(brief)


def test_an_agent_is_asked_and_corrected_as_the_release_does_it(
    place: Path, tmp_path: Path
) -> None:
    lake, words = make_lake(tmp_path / "lake"), words_of(place, "ds_guru")
    (lake / "b.csv").write_text("Year,Rain\n2001,1.5\n2002,{x}\n2003,2\n2004,5\n")
    question = 'How "much" {rain}?'
    prompt = [{"role": "user", "content": question}]
    settings = ToolSettings(snippet_rows=3, snippet_tokens=0, words={"ds_guru": words})
    pool: Any = SimpleNamespace(share=lambda name, path: None)
    shop: Any = SimpleNamespace(root=Path("/"), pool=lambda: pool, settings=settings)

    def guru(variant: str) -> DsGuru:
        row: Any = {"files": {"lake": str(lake)}, "tools": (f"ds_guru_{variant}",)}
        return DsGuru(Task("a", "answer", "t", "test", prompt, {}, **row), 0, shop)

    names = sorted(n for n in os.listdir(lake) if n.endswith(".csv"))
    read = functools.partial(pd.read_csv, engine="python", on_bad_lines="skip")
    frames = {n: read(lake / n) for n in names}
    data = "".join(f"\nFile {n}: {f.dtypes}\n{f.head(3).to_csv()}\n====" for n, f in frames.items())
    example = json.dumps({"id": "main-task", "query": question, "subtasks": []}, indent=2)
    paths = [f"data/{n}" for n in names]
    bare = f"Of {question}: {names} at {paths}, as {example}"
    whole = f'Of {question}: {names} at {paths} hold\n{data}\nas {example} and {{"main-task": 1}}\n'
    for variant, text in (("no_context", bare), ("one_shot", whole), ("few_shot", whole)):
        system, asked = asyncio.run(guru(variant).open()).messages
        assert system == {"role": "system", "content": "You know data."}
        assert asked == {"role": "user", "content": text}
    said = guru("few_shot")._after("c{", "o" * 9000, "e}", 0.0).messages[0]["content"]  # pyright: ignore[reportPrivateUsage]
    # the loop hands output and error over in the other order, and nothing is cut
    assert said == (
        f"\n        Mend c{{\n        which says {'o' * 9000}\n        and prints e}}\n        "
    )
    assert words.settings == {"rows": 3, "tries": 4}


def test_a_sub_task_is_asked_as_the_release_asks_it(place: Path, tmp_path: Path) -> None:
    ours, words = read_prompts("").of("ds_guru"), words_of(place, "ds_guru")
    said = ours.fill("part", question="How much?\n\nReally?", part="Which year?")
    alone = Task("a", "answer", "t", "test", [{"role": "user", "content": said}], {})
    part = replace(alone, meta={"parent": "b"})
    assert question_of(part, words) == "For How much?\n\nReally?, say:\n Which year? \n"
    assert question_of(part, ours) == question_of(alone, words) == said
    rows = "\n".join(f"{n},{n * n}" for n in range(500))
    (tmp_path / "a.csv").write_text(f"x,y\n{rows}\n")
    (tmp_path / "empty.csv").write_text("")  # the release ends on it
    assert "499,499,249001" in tables_of(tmp_path, words, 500, 0)
    for tokens, most in ((200, 700), (1, 3)):  # tables are bounded where tokens are
        assert len(tables_of(tmp_path, words, 500, tokens)) <= most


@pytest.mark.parametrize(("name", "old", "new", "said"), tables("rollouts")["changed releases"])
def test_a_form_that_is_not_known_is_refused(
    name: str, old: str, new: str, said: str, tmp_path: Path
) -> None:
    assert old in "".join(FILES[name].values())
    write_release(tmp_path, name)
    for path in FILES[name]:
        text = (tmp_path / path).read_text("utf-8")
        (tmp_path / path).write_text(text.replace(old, new), "utf-8")
    with pytest.raises(ConfigError) as found:
        read_prompts(f"release:{tmp_path}")
    assert said in str(found.value) and str(tmp_path) in str(found.value)


def test_a_release_acts_in_the_sandbox_alone(tmp_path: Path) -> None:
    write_release(tmp_path, "refinement")
    path = tmp_path / "src/cdrbench_v3/run_inference.py"
    touched = tmp_path / "touched"
    act = f"os.system('touch {touched}')"
    text = path.read_text("utf-8").replace("    shown = None\n", f"    shown = None\n    {act}\n")
    path.write_text(f"import nowhere_to_be_found\nx = {act}\n{text}", "utf-8")
    assert read_prompts(f"release:{tmp_path}").of("refinement").source == "release"
    assert not touched.exists()
