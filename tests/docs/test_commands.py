"""Every `assay` command that README and docs show is understood today, and is run by a test.

The first test hands each command's words to the command's own parser, and settings to their
dataclasses. The second wants a test file for every option of a shown command: one that runs this
command and gives this option. Commands of tutorials are run whole by `test_tutorials.py`.
"""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

import assay
from configs.schema import DemoConfig
from data_gen.cli import BUILDERS
from data_gen.demo.settings import DemoTaskSettings
from train.cluster.settings import asked
from train.run.settings import load_run

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# what is said of a command that is shown in part, in a sentence
PART = re.compile(r"(is|are) required|expected (one|at least one) argument")
OPTION = re.compile(r"--[a-z][\w-]*(=|$)")
# options that are shown and that no test gives, and why
NOT_RUN = {
    "eval --server-python": "the Python of vLLM's own environment, which tests do not install",
    "rollout --in-flight": "open requests at a vLLM or SGLang server, which tests do not start",
    "rollout --server-python": "the Python of vLLM's own environment, which tests do not install",
    "tasks dare --exclude": "folders of the published benchmark, which are not in the repository",
    "tasks harbor --split": "a name that is written into each task as it stands",
    "tasks lake --carried": "several hundred tables: minutes",
}
FENCE = re.compile(r"^```([\w-]*)\n(.*?)^```\s*?$", re.DOTALL | re.MULTILINE)


def lines_of(page: Path) -> list[str]:
    """What a page shows to type: lines of its blocks, and code within a sentence, which may leave
    out what a command needs."""
    text = page.read_text("utf-8")
    blocks = [body for kind, body in FENCE.findall(text) if kind in ("", "bash", "text")]
    lines = [line for body in blocks for line in re.sub(r"\\\n\s*", " ", body).splitlines()]
    inside = re.findall(r"(?<!`)`([^`]+)`(?!`)", FENCE.sub("", text))
    cut = [re.split(r"\s{2,}#|\s{4,}\(| \| ", line.strip())[0] for line in lines]
    return [*cut, *(" ".join(words.split()).split(" | ")[0] for words in inside)]


def typed(line: str) -> list[str]:
    """The words of a line that a reader could type: placeholders for numbers are numbers."""
    line = line.removeprefix("$ ").removeprefix("OPENAI_API_KEY=… ")
    line = line.replace("$T", "--calls hermes_brief --brief --turns 2")
    line = re.sub(r"\[key=value …\]|…", "", line).replace(" own_", " examples/own_")
    line = re.sub(r"(?<!\S)\[([^\]]*)\]", r"\1", line)  # what may be left out
    words = [re.sub(r"^([\w=]*\w)\|.*", r"\1", word) for word in shlex.split(line)]
    return ["1" if word in ("N", "S", "GB") else re.sub(r"=[NS]$", "=1", word) for word in words]


SHOWN = [
    (page.relative_to(ROOT).as_posix(), line)
    for page in PAGES
    if page.name not in ("commands.md", "settings.md")
    for line in lines_of(page)
    if re.match(r"(\$ |OPENAI_API_KEY=… )?assay [a-z]", line)
]
# (command, words after it), for each command that is shown with more than its name
WHOLE = [
    (page, words[1:])
    for page, line in SHOWN
    if len(words := typed(line)) > 2 and "NAME" not in words[:3]
]


class Understood(BaseException):
    """Ends a command as soon as its words are read."""


def understood(words: list[str], patch: pytest.MonkeyPatch) -> bool:
    """Whether `assay WORDS` reads its words. What is wrong with them stands on standard error."""
    for name in ("parse_args", "parse_intermixed_args"):
        own = getattr(argparse.ArgumentParser, name)

        def stop(self: Any, *args: Any, own: Any = own, **more: Any) -> None:
            own(self, *args, **more)
            raise Understood

        patch.setattr(argparse.ArgumentParser, name, stop)
    try:
        return assay.main(words) == 0
    except Understood:
        return True
    except SystemExit as ended:
        return ended.code == 0


@pytest.mark.parametrize(("page", "words"), WHOLE, ids=lambda x: x if isinstance(x, str) else None)
def test_a_shown_command_is_understood(
    page: str, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word for word in words[1:] if re.match(r"[\w.]+=", word)]
    monkeypatch.chdir(ROOT)
    good, said = understood(words, monkeypatch), capsys.readouterr().err
    assert good or PART.search(said), f"{page}: {words}\n{said}"
    monkeypatch.undo()
    if words[0] in ("sft", "grpo"):
        asked(words[0], [word for word in words[1:] if word != "--dry-run"])
    elif words[0] == "demo":
        load_run(DemoConfig, None, given)
    elif words[:2] == ["tasks", "demo"]:
        known = {field.name for field in fields(DemoTaskSettings)}
        assert {word.partition("=")[0] for word in given} <= known


@cache
def text_of_tests(command: tuple[str, ...]) -> str:
    """The text of all test files that run a command: by its words, by its `main`, or, for a
    builder of tasks, because they are the tests of its room."""
    builder = command[0] == "tasks" and len(command) > 1
    places = BUILDERS[command[1]] if builder else assay.COMMANDS[command[0]]
    package, _, module = places[0].partition(":")[0].rpartition(".")
    words = r"""["']\s*,\s*["']""".join(map(re.escape, command))
    ways = (
        rf"""["']{words}["']""",
        rf"""(\b|"){" ".join(command)} """,
        rf"from {re.escape(package)}\.{module} import",
        rf"from {re.escape(package)} import [\w, ]*\b{module}\b",
    )
    run = re.compile("|".join(ways))
    own = (ROOT / "tests" / package.replace(".", "/")).as_posix() if builder else "?"
    files = [p for p in (ROOT / "tests").rglob("*.py") if p.name != Path(__file__).name]
    texts = {path.as_posix(): path.read_text("utf-8") for path in files}
    return "\n".join(text for at, text in texts.items() if at.startswith(own) or run.search(text))


def options_shown() -> list[str]:
    """Every option that is shown, behind its command."""
    found: set[str] = set()
    for _, words in WHOLE:
        built = words[0] == "tasks" and words[1] in BUILDERS
        command = " ".join(words[: 2 if built else 1])
        found |= {f"{command} {word.partition('=')[0]}" for word in words if OPTION.match(word)}
    return sorted(found - NOT_RUN.keys())


@pytest.mark.parametrize("shown", options_shown())
def test_an_option_that_is_shown_is_given_in_a_test(shown: str) -> None:
    command, option = shown.rsplit(" ", 1)
    text = text_of_tests(tuple(command.split()))
    assert re.search(rf"""["' ]{option}["' =]""", text), f"no test gives `assay {shown}`"


def test_what_no_test_gives_is_still_shown() -> None:
    shown = " ".join(line for _, line in SHOWN)
    assert all(said.rsplit(" ", 1)[1] in shown for said in NOT_RUN)


def test_the_results_of_the_readme_are_those_of_the_page_of_results() -> None:
    """README repeats one table; the page of results is where its numbers come from."""
    page = (ROOT / "docs" / "results.md").read_text("utf-8")
    table = (ROOT / "README.md").read_text("utf-8").partition("## Results")[2].partition("## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) == 6
    for seed, untouched, sft, rl, gain in rows[1:]:
        shown = rf"^\| {seed} \| {untouched} \| {sft} \| [^|]+ \| {rl} \| {re.escape(gain)} \|"
        assert re.search(shown, page, re.MULTILINE)
