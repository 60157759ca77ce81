"""Words of a release: read out of a stand-in, and byte for byte what its own code sends."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from releases import FILES, Asked, imported, write_release
from small_lake import make_lake

from assay.task import Task
from configs.loader import ConfigError
from configs.machine import ToolsConfig
from rollouts.environment import Budget
from rollouts.environments import WORDS, ToolSettings, read_prompts, tool_settings
from rollouts.krama.dsguru import DsGuru
from rollouts.python_tool import first_messages, tool_spec
from rollouts.words.cdr import MODES, messages
from rollouts.words.krama import question_of, tables_of
from rollouts.words.templates import Words, lines

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


def guru(place: Path, lake: Path, variant: str, **more: Any) -> DsGuru:
    words = words_of(place, "ds_guru")
    rows = words.settings["rows"]
    settings = ToolSettings(snippet_rows=rows, snippet_tokens=0, words={"ds_guru": words})
    prompt = [{"role": "user", "content": 'How "much" {rain}?'}]
    row = {"files": {"lake": str(lake)}, "tools": (f"ds_guru_{variant}",), **more}
    task = Task("a", "answer", "t", "test", prompt, {}, **row)
    pool: Any = SimpleNamespace(share=lambda name, path: None)
    shop: Any = SimpleNamespace(root=Path("/"), pool=lambda: pool, settings=settings)
    return DsGuru(task, 0, shop)


def test_an_agent_is_asked_and_corrected_as_the_release_does_it(
    place: Path, tmp_path: Path
) -> None:
    make_lake(tmp_path / "lake")
    (tmp_path / "lake" / "b.csv").write_text("Year,Rain\n2001,1.5\n2002,{x}\n2003,2\n2004,5\n")
    names = sorted(n for n in os.listdir(tmp_path / "lake") if n.endswith(".csv"))
    frames = {
        n: pd.read_csv(tmp_path / "lake" / n, engine="python", on_bad_lines="skip") for n in names
    }
    data = "".join(f"\nFile {n}: {f.dtypes}\n{f.head(3).to_csv()}\n====" for n, f in frames.items())
    question = 'How "much" {rain}?'
    example = json.dumps({"id": "main-task", "query": question, "subtasks": []}, indent=2)
    paths = [f"data/{n}" for n in names]
    bare = f"Of {question}: {names} at {paths}, as {example}"
    whole = f'Of {question}: {names} at {paths} hold\n{data}\nas {example} and {{"main-task": 1}}\n'
    system = {"role": "system", "content": "You know data."}
    asked = {"no_context": bare, "one_shot": whole, "few_shot": whole}
    for variant, text in asked.items():
        agent = guru(place, tmp_path / "lake", variant)
        opened = asyncio.run(agent.open())
        assert list(opened.messages) == [system, {"role": "user", "content": text}]
    agent = guru(place, tmp_path / "lake", "few_shot")
    said = agent._after("c{", "o" * 9000, "e}", 0.0).messages[0]["content"]  # pyright: ignore[reportPrivateUsage]
    # the loop hands output and error over in the other order, and nothing is cut
    assert said == (
        f"\n        Mend c{{\n        which says {'o' * 9000}\n        and prints e}}\n        "
    )
    words = words_of(place, "ds_guru")
    assert words.settings == {"rows": 3, "tries": 4}


def test_a_sub_task_is_asked_as_the_release_asks_it(place: Path, tmp_path: Path) -> None:
    ours = read_prompts("").of("ds_guru")
    said = ours.fill("part", question="How much?\n\nReally?", part="Which year?")
    prompt = [{"role": "user", "content": said}]
    part = Task("a", "answer", "t", "test", prompt, {}, meta={"parent": "b"})
    words = words_of(place, "ds_guru")
    assert question_of(part, words) == "For How much?\n\nReally?, say:\n Which year? \n"
    assert question_of(part, ours) == said
    alone = Task("a", "answer", "t", "test", prompt, {})
    assert question_of(alone, words) == said


def test_tables_are_bounded_where_tokens_are(place: Path, tmp_path: Path) -> None:
    rows = "\n".join(f"{n},{n * n}" for n in range(500))
    (tmp_path / "a.csv").write_text(f"x,y\n{rows}\n")
    (tmp_path / "empty.csv").write_text("")  # the release ends on it
    words = words_of(place, "ds_guru")
    whole = tables_of(tmp_path, words, 500, 0)
    assert "499,499,249001" in whole and "empty.csv" not in whole
    short = tables_of(tmp_path, words, 500, 200)
    assert len(short) <= 700 and "\n0,0,0\n" in short
    assert len(tables_of(tmp_path, words, 500, 1)) <= 3


CHANGED = [
    ("refinement", "def _infer_one", "def _infer", "no function _infer_one"),
    ("refinement", '"Plan. " + ', 'plan("x") + ', "run_inference.py:48: NameError"),
    ("refinement", '"system", "content"', '"developer", "content"', "messages of other roles"),
    (
        "python_executor",
        '"What to run."}',
        '"What to run."}, "x": {"type": "string"}',
        "parameters",
    ),
    ("ds_guru", "QUESTION_PROMPT = ", "QUESTION = ", "QUESTION_PROMPT"),
    ("ds_guru", "(code_fp, output_fp, error_fp)", "(*given)", "no call of generate_error"),
    ("ds_guru", "row_limit=3", "limit=3", "row_limit"),
    ("ds_guru", "in range(4)", "in tries", "no loop over tries"),
    ("ds_guru", "for number in", "while number:", "not Python"),
]


@pytest.mark.parametrize(("name", "old", "new", "said"), CHANGED)
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


def test_a_release_that_is_not_known_is_used_and_said(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = read_prompts(f"release:{place}")
    said = capsys.readouterr().err
    assert said.count("is no release that Assay knows") == len(WORDS)
    tasks = [Task("a", "table", "t", "test", [], {}, tools=("python_executor",))]
    record = prompts.record(tasks)
    (words,) = record.values()
    assert (words["source"], words["known"]) == ("release", "")
    assert "one that Assay does not know" in next(iter(lines(record)))
    with pytest.raises(ConfigError, match="no release whose words are known lies there"):
        read_prompts(f"release:{place / 'refinement/src'}")
    write_release(place.parent / "two" / "a", "ds_guru")
    write_release(place.parent / "two" / "b", "ds_guru")
    with pytest.raises(ConfigError, match="both releases with words of ds_guru"):
        read_prompts(f"release:{place.parent / 'two'}")


def test_line_ends_of_a_checkout_change_nothing(tmp_path: Path) -> None:
    one = words_of(write_release(tmp_path / "a", "ds_guru"), "ds_guru")
    other = write_release(tmp_path / "b", "ds_guru")
    for path in FILES["ds_guru"]:
        (other / path).write_bytes((other / path).read_bytes().replace(b"\n", b"\r\n"))
    assert words_of(other, "ds_guru").hash == one.hash


@pytest.mark.skipif(
    "ASSAY_RELEASES" not in os.environ,
    reason="ASSAY_RELEASES names no folder with checkouts of the releases",
)
def test_the_real_releases_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    prompts = read_prompts(f"release:{os.environ['ASSAY_RELEASES']}")
    assert set(prompts.words) == set(WORDS) and all(w.known for w in prompts.words.values())
    assert capsys.readouterr().err == ""
