"""Make the reference pages of the site from the code: commands and settings from the parsers and
the dataclasses, benchmarks from the docstrings of their files, operators from what each does,
and the first page from README.

`make docs` calls it. `python docs/generate.py` writes the pages alone, to be read without the site.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def write_pages(folder: Path) -> None:
    """Write the pages into a folder; a page that is there and the same is not touched."""
    for name, make in PAGES.items():
        path, text = folder / name, make()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


# --- commands ------------------------------------------------------------------------------------


class _Found(Exception):
    """Carries the parser whose help was asked for."""


def parser_of(words: list[str]) -> argparse.ArgumentParser | None:
    """The parser that `assay WORDS --help` would print; None for a command that prints itself."""
    import assay

    found: list[argparse.ArgumentParser] = []

    def record(self: argparse.ArgumentParser, file: Any = None) -> None:
        found.append(self)
        raise SystemExit(0)

    said = io.StringIO()
    with (
        patch.object(argparse.ArgumentParser, "print_help", record),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        contextlib.suppress(SystemExit),
    ):
        assay.main([*words, "--help"])
    return found[-1] if found else None


def commands_page() -> str:
    """Every command with its options."""
    import assay

    parts = ["# Commands\n"]
    parts.append(
        "Every command prints this with `--help`. Options are nouns (`--tasks`, `--model`, "
        "`--out`); settings are words of the form `key=value`, listed in [Settings](settings.md)."
        "\n\nExit status of every command: 0 done, 1 failed, 2 the request cannot be used, 3 done "
        "but some rows have no outcome, 75 stopped and saved, 130 interrupted, 143 ended by TERM.\n"
    )
    rows = [
        f"| [`assay {name}`](#assay-{name}) | {what} |"
        for name, (_, what) in assay.COMMANDS.items()
    ]
    parts.append("| command | does |\n|---|---|\n" + "\n".join(rows) + "\n")
    for name in assay.COMMANDS:
        parts += command([name], 2)
        for word in below(name):
            parts += command([name, word], 3)
    return "\n".join(parts)


def below(name: str) -> Iterator[str]:
    """The words that a command has under it."""
    if name == "tasks":
        from data_gen.cli import BUILDERS

        yield from BUILDERS
    made = parser_of([name])
    for action in made._actions if made else ():
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices


def command(words: list[str], level: int) -> Iterator[str]:
    """The section of one command; nothing for one without a parser of its own."""
    import assay

    made = parser_of(words)
    yield f"{'#' * level} assay {' '.join(words)}\n"
    if made is None:
        yield f"{assay.COMMANDS[words[0]][1].capitalize()}.\n"
        return
    description = " ".join((made.description or "").split("\n\n")[0].split())
    yield f"{cell(description)}\n" if description else ""
    rows = [row for action in made._actions if (row := option(action))]
    if rows:
        yield "| option | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def option(action: argparse.Action) -> str:
    """A line of the table; "" for what is no option of its own."""
    hidden = action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction)
    if hidden or isinstance(action, argparse._SubParsersAction):
        return ""
    value = action.metavar or (action.dest if action.nargs != 0 else "")
    value = " ".join(value) if isinstance(value, tuple) else str(value)
    if action.choices:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        name = value
    else:
        name = ", ".join(action.option_strings)
        name += f" {value.upper() if value == action.dest else value}" if action.nargs != 0 else ""
    return f"| `{name.replace('|', '¦')}` | {default(action)} | {cell(action.help or '')} |"


def default(action: argparse.Action) -> str:
    value = action.default
    if action.required and action.option_strings:
        return "required"
    if value is None or value is False or value in ("", argparse.SUPPRESS) or value == []:
        return ""
    if str(value) == sys.executable:
        return "the interpreter that runs"
    return f"`{value}`"


def cell(text: str) -> str:
    """Text that can stand in a table and holds no markup."""
    text = text.replace("of the list below", "of [Settings](settings.md)")
    text = " ".join(text.split()).replace("%%", "%").replace("|", "¦")
    return text.replace("<", "&lt;").replace("*", "\\*")


# --- settings ------------------------------------------------------------------------------------


def settings_page() -> str:
    """Every setting of runs and builders, from the text under its field."""
    from assay.family import all_families
    from configs.answers import EvaluationConfig, RolloutConfig, ServeConfig
    from configs.cdr import CdrConfig
    from configs.schema import DemoConfig, GrpoRunConfig, SftRunConfig
    from data_gen.demo.settings import DemoTaskSettings

    parts = ["# Settings\n"]
    parts.append(
        "Write a setting as `key=value` behind a command, or in a YAML file for `--config`. An "
        "unknown key is refused, and the nearest known one is named. *locked*: a resumed run must "
        "keep the value.\n"
    )
    runs = {"demo": DemoConfig, "sft": SftRunConfig, "grpo": GrpoRunConfig}
    runs |= {"rollout": RolloutConfig, "eval": EvaluationConfig, "serve": ServeConfig}
    for (head, prefix, cls), users in sections(runs).items():
        used = ", ".join(f"`assay {name}`" for name in users)
        parts += table(f"## {head}", f"Of {used}.", cls, prefix)
    parts.append(
        "## Rewards\n\n`reward.FAMILY.KEY=VALUE`, in `assay demo`, `grpo`, `eval`, `score`.\n"
    )
    for name, family in sorted(all_families().items()):
        if fields(family.weights):
            parts += table(f"### reward.{name}", "", family.weights, f"reward.{name}.")
    parts.append("## Builders of tasks\n")
    parts += table("### assay tasks demo", "", DemoTaskSettings, "")
    parts += nested("### assay tasks cdr", CdrConfig, "")
    return "\n".join(parts)


def sections(runs: dict[str, type]) -> dict[tuple[str, str, type], list[str]]:
    """(heading, prefix, dataclass) → which commands have it; the commands' own keys come first."""
    from configs.loader import section_of

    found: dict[tuple[str, str, type], list[str]] = {}
    for name, cls in runs.items():
        found[f"Keys of {name} itself", "", cls] = [name]
    for name, cls in runs.items():
        for field in fields(cls):
            inner = section_of(cls, field.name)
            if inner is not None and is_dataclass(inner):
                found.setdefault((f"{field.name}.*", f"{field.name}.", inner), []).append(name)
    return found


def table(head: str, lead: str, cls: type, prefix: str) -> Iterator[str]:
    """The own fields of a dataclass, without its sections."""
    from configs.loader import dotted_docs

    own = dict[str, tuple[str, str]]()
    locked: dict[str, bool] = {}
    for name, value in dotted_docs(cls).items():
        if "." not in name:
            own[name] = value
    for field in fields(cls):
        locked[field.name] = bool(field.metadata.get("locked"))
    rows = [
        f"| `{prefix}{name}` | {f'`{value}`' if value else ''} | {cell(doc)}"
        f"{' *locked*' if locked.get(name) else ''} |"
        for name, (value, doc) in own.items()
    ]
    if rows:
        yield f"{head}\n"
        yield f"{lead}\n" if lead else ""
        yield "| setting | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def nested(head: str, cls: type, prefix: str) -> Iterator[str]:
    """A dataclass and all its sections, one table."""
    from configs.loader import dotted_docs

    rows = [
        f"| `{prefix}{name}` | {f'`{value}`' if value else ''} | {cell(doc)} |"
        for name, (value, doc) in dotted_docs(cls).items()
    ]
    yield f"{head}\n"
    yield "| setting | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"


# --- benchmarks ----------------------------------------------------------------------------------

RUN = re.compile(r"python (?:-m benchmarks\.|benchmarks/)(\w+)")


def benchmarks_page() -> str:
    """Every file of benchmarks/ that is run by itself: its docstring, and where its numbers are."""
    parts = ["# Benchmarks\n"]
    parts.append(
        "Each file of `benchmarks/` measures one thing. Its section says what is measured and what "
        "it is compared with.\n\nSeconds of different machines cannot be compared. Where two "
        "programs are compared, both therefore run in the same run, on the same rows, and the "
        "result is a ratio.\n\nThe last column names the pages that hold the numbers.\n"
    )
    said = benchmarks()
    rows = [f"| [{n}](#{n}) | {first_sentence(t)} | {numbers_of(n)} |" for n, t in said.items()]
    parts.append("| file | question | numbers |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    for name, text in said.items():
        path = f"benchmarks/{name}.py"
        path = path if (ROOT / path).is_file() else f"benchmarks/{name}/__main__.py"
        parts.append(f"## {name}\n\n{fenced(text)}\n\nSource: [{path}](../{path})\n")
    return "\n".join(parts)


def benchmarks() -> dict[str, str]:
    """Name → docstring, of the files whose docstring says how they are run."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        name = path.parent.name if path.stem == "__main__" else path.stem
        if name in RUN.findall(text):
            found[name] = text
    return dict(sorted(found.items()))


def first_sentence(text: str) -> str:
    found = re.match(r".*?[.?](?=\s|$)", text, re.DOTALL)
    return " ".join((found[0] if found else text).split())


def numbers_of(name: str) -> str:
    """Links to the pages that name the file."""
    named = re.compile(rf"benchmarks[./]{name}\b")
    pages = [
        path.relative_to(DOCS).as_posix()
        for path in sorted(DOCS.rglob("*.md"))
        if path.name != "benchmarks.md" and named.search(path.read_text(encoding="utf-8"))
    ]
    return ", ".join(f"[{page.removesuffix('.md')}]({page})" for page in pages) or "–"


def fenced(text: str) -> str:
    """Indented lines as a block of commands."""
    return re.sub(
        r"(?:^    .*\n?)+",
        lambda block: f"```bash\n{textwrap.dedent(block[0]).rstrip()}\n```\n",
        text,
        flags=re.MULTILINE,
    )


def start_page() -> str:
    """README as the first page of the site: its links begin at the repository, ours at docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\((?!https?:|#)(docs/)?", lambda m: "](" if m[1] else "](../", text)


def operators_page() -> str:
    """The operators of gold."""
    from operator_page import render  # beside this file

    return render()


PAGES: dict[str, Callable[[], str]] = {
    "index.md": start_page,
    "reference/commands.md": commands_page,
    "reference/settings.md": settings_page,
    "benchmarks.md": benchmarks_page,
    "operators.md": operators_page,
}

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    write_pages(DOCS)
