"""What a docstring says about a function and about each of its arguments."""

from __future__ import annotations

import re

_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Examples?|Notes?)\s*:?\s*$"
)
_TAKES = ("Args", "Arguments", "Parameters", "Params")
_GOOGLE = re.compile(r"^(\s*)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY = re.compile(r"^(\w+)\s*(?::\s*\S.*)?$")
_SPHINX = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)$")
_FIELD = re.compile(r"^:\w+[^:]*:")


def described(docstring: str) -> tuple[str, dict[str, str]]:
    """(description, help by argument) of a docstring whose indentation is cleaned.

    Reads `Args:` sections (Google), underlined `Parameters` (NumPy) and `:param x:` (Sphinx);
    other sections are left out.
    """
    lines = docstring.splitlines()
    about: list[str] = []
    helps: dict[str, str] = {}
    at = 0
    while at < len(lines):
        line = lines[at].rstrip()
        section = _SECTION.match(line)
        if section and (line.endswith(":") or _underlined(lines, at)):
            at = _section(lines, at + 1, helps, section.group(1) in _TAKES)
        elif found := _SPHINX.match(line):
            at, said = _continued(lines, at + 1, found.group(2))
            helps[found.group(1)] = said
        elif _FIELD.match(line):  # :returns:, :raises …:
            at, _ = _continued(lines, at + 1, "")
        else:
            about.append(line)
            at += 1
    return "\n".join(about).strip(), helps


def _underlined(lines: list[str], at: int) -> bool:
    return at + 1 < len(lines) and len(lines[at + 1]) > 2 and set(lines[at + 1].strip()) == {"-"}


def _section(lines: list[str], at: int, helps: dict[str, str], wanted: bool) -> int:
    """Read the section whose body starts at `at`; returns the line after it."""
    numpy = at < len(lines) and set(lines[at].strip()) == {"-"}
    at += numpy
    name, margin = "", 0
    while at < len(lines):
        line = lines[at]
        if _SECTION.match(line.rstrip()) and (
            line.rstrip().endswith(":") or _underlined(lines, at)
        ):
            break
        if not numpy and line.strip() and not line[0].isspace():
            break
        indent = len(line) - len(line.lstrip())
        head = (_NUMPY if numpy else _GOOGLE).match(line)
        if head and (indent == 0 if numpy else not name or indent <= margin):
            margin, name = indent, head.group(1 if numpy else 2)
            said = "" if numpy else head.group(3)
            if wanted:
                helps[name] = said
        elif wanted and name and line.strip():
            helps[name] = f"{helps[name]} {line.strip()}".strip()
        at += 1
    return at


def _continued(lines: list[str], at: int, said: str) -> tuple[int, str]:
    """(the line after, the text with the indented lines that follow it)."""
    while at < len(lines) and lines[at][:1].isspace() and lines[at].strip():
        said = f"{said} {lines[at].strip()}".strip()
        at += 1
    return at, said
