"""Every `assay` command that README, docs and the script of the examples show can be parsed: its
words by the command's own parser, its settings by their dataclasses. Commands of tutorials are run
whole by `test_tutorials.py`. The reference pages list what there is."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

import assay
from configs.schema import DemoConfig, load_run
from data_gen.demo.settings import DemoTaskSettings
from train.cluster.preflight import asked

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES.append(ROOT / "examples" / "own_documents.sh")
# what is said of a command that is shown in part, in a sentence
PART = re.compile(r"(is|are) required|expected (one|at least one) argument")
FENCE = re.compile(r"^```([\w-]*)\n(.*?)^```\s*?$", re.DOTALL | re.MULTILINE)


def lines_of(page: Path) -> list[str]:
    """What a page shows to type: lines of its blocks, and code within a sentence, which may leave
    out what a command needs."""
    text = page.read_text("utf-8")
    if page.suffix == ".sh":
        text = "```bash\n" + re.sub(r"\$\{\w+:-(.*?)\}", r"\1", text) + "```\n"
    blocks = [body for kind, body in FENCE.findall(text) if kind in ("", "bash", "text")]
    lines = [line for body in blocks for line in re.sub(r"\\\n\s*", " ", body).splitlines()]
    inside = re.findall(r"(?<!`)`([^`]+)`(?!`)", FENCE.sub("", text))
    cut = [re.split(r"\s{2,}#|\s{4,}\(| \| ", line.strip())[0] for line in lines]
    return [*cut, *(" ".join(words.split()).split(" | ")[0] for words in inside)]


def typed(line: str) -> list[str]:
    """The words of a line that a reader could type: placeholders for numbers are numbers."""
    line = line.removeprefix("$ ").removeprefix("OPENAI_API_KEY=… ")
    line = line.replace("$T", "tools.calls=hermes_brief tools.brief=true tools.turns=2")
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


def test_the_results_of_the_readme_are_those_of_the_page_of_results() -> None:
    """README repeats one table; the page of results is where its numbers come from."""
    page = (ROOT / "docs" / "results.md").read_text("utf-8")
    table = (ROOT / "README.md").read_text("utf-8").partition("## Results")[2].partition("## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) == 6
    for seed, untouched, sft, rl, gain in rows[1:]:
        shown = rf"^\| {seed} \| {untouched} \| {sft} \| [^|]+ \| {rl} \| {re.escape(gain)} \|"
        assert re.search(shown, page, re.MULTILINE)


def test_the_reference_pages_hold_what_there_is(tmp_path: Path) -> None:
    """They list commands, settings and operators, and each benchmark script has a section."""
    program = "import pathlib, sys, generate; generate.write_pages(pathlib.Path(sys.argv[1]))"
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'docs'}"}
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, env=env, check=True)
    for page, word in (
        ("reference/commands.md", "\n### assay tasks dare\n"),
        ("reference/settings.md", "| `rl.rollouts_per_prompt` | `8` |"),
        ("operators.md", "text_length_filter"),
    ):
        assert word in (tmp_path / page).read_text("utf-8")
    page, files = (
        (tmp_path / "benchmarks.md").read_text("utf-8"),
        (ROOT / "benchmarks").glob("*.py"),
    )
    run = [p.stem for p in files if '__name__ == "__main__"' in p.read_text("utf-8")]
    assert len(run) > 5
    for name in run:
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert f"benchmarks.{name}" in section or f"benchmarks/{name}.py" in section, name
