"""What the user says of tables: `--describe FILE` (title, licence, text, words for columns), and
which licences are wanted, which have many names.

YAML holds `title`, `licence`, `about` and `columns` (column → words) of every table that is given;
or these for each table by its name, its path, or a pattern of paths such as `sales/*.csv`, at the
top or below `tables`. Any other file is read as text: lines `Title: …`, `Licence: …` and `column:
words`; lines without a colon are the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, cast

from assay.console import Parser, near_miss
from assay.task import TaskError

_FIELDS = ("title", "licence", "about", "columns")


@dataclass(frozen=True)
class About:
    """What is said of one table."""

    title: str = ""
    licence: str = ""
    about: str = ""
    columns: Mapping[str, str] = field(default_factory=dict[str, str])


NOTHING = About()
Described = Mapping[str, About]  # by name, path or pattern; "" means every table


def read_describe(path: Path | None) -> dict[str, About]:
    """What a file says. Raises `TaskError` in one sentence."""
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"--describe {path}: {error}; give a UTF-8 file") from None
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        return {"": _from_lines(text)}
    import yaml

    try:
        whole = _mapping(yaml.safe_load(text), str(path))
    except yaml.YAMLError as error:
        raise TaskError(f"--describe {path}: no YAML: {' '.join(str(error).split())}") from None
    shared = {k: v for k, v in whole.items() if k in _FIELDS}
    if "tables" in whole:
        tables = _mapping(whole["tables"], f"{path}, tables")
    elif shared or not all(isinstance(v, dict) for v in whole.values()) or _misspelt(whole):
        return {"": _about(whole, str(path))}
    else:
        tables = whole
    return {
        name: _about(shared | _mapping(said, f"{path}, {name}"), f"{path}, {name}")
        for name, said in tables.items()
    }


def _misspelt(whole: Mapping[str, Any]) -> bool:
    """Whether a name at the top is nearly that of a field: a table of that name stands below
    `tables`."""
    return any(near_miss(name, _FIELDS) for name in whole)


def names(pattern: str, name: str, path: str) -> bool:
    """Whether an entry means a table."""
    plain = path.rpartition("/")[2].partition(".")[0]
    return pattern in ("", name, path, plain) or fnmatch(path, pattern)


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TaskError(f"--describe {where}: wanted names with values, not {value!r}"[:200])
    return {str(k): v for k, v in cast("dict[Any, Any]", value).items()}


def _about(said: Mapping[str, Any], where: str) -> About:
    for name in said:
        if name not in _FIELDS:
            raise TaskError(f"--describe {where}: no field {name!r}{near_miss(name, _FIELDS)}")
    columns = _mapping(said.get("columns") or {}, f"{where}, columns")
    for name, words in columns.items():
        if not isinstance(words, str):
            raise TaskError(f"--describe {where}: column {name}: wanted words, not {words!r}")
    plain = {k: str(said[k]).strip() for k in ("title", "licence", "about") if said.get(k)}
    return About(columns={k: " ".join(str(v).split()) for k, v in columns.items()}, **plain)


def _from_lines(text: str) -> About:
    title, licence, about = "", "", list[str]()
    columns: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, words = (part.strip() for part in line.partition(":"))
        if not colon or not words:
            about.append(line)
        elif name.lower() == "title":
            title = words
        elif name.lower() in ("licence", "license"):
            licence = words
        else:
            columns[name.strip("`*- ")] = words
    return About(title, licence, "\n".join(about).strip(), columns)


# --- licences by their many names

OPEN = {
    *("cc0", "cc-by", "cc-by-sa", "public-domain", "odbl", "dbcl", "odc-by", "pddl"),
    *("cdla-sharing", "cdla-permissive"),
    *("mit", "apache", "gpl", "lgpl", "agpl", "bsd"),
}
_PLAIN = (
    (r"\bcc.?0\b|cc.?zero", "cc0"),
    (r"\bpddl\b", "pddl"),
    (r"\bodbl\b|open database", "odbl"),
    (r"database contents|dbcl", "dbcl"),
    (r"\bodc.?by\b|open data commons attribution|odc attribution", "odc-by"),
    (r"cdla.*sharing|community data.*sharing", "cdla-sharing"),
    (r"cdla.*permissive|community data.*permissive", "cdla-permissive"),
    (r"\bagpl|affero", "agpl"),
    (r"\blgpl|lesser general public", "lgpl"),
    (r"\bgpl|general public licen[cs]e", "gpl"),
    (r"\bmit\b", "mit"),
    (r"\bapache\b", "apache"),
    (r"\bbsd\b", "bsd"),
    (r"public domain", "public-domain"),
)


def family(licence: str) -> str:
    """One name for all spellings and versions of a licence: `cc-by-nc-sa`, `mit`; a text that is
    none of the known ones stays as it is, in lower case."""
    low = " ".join(licence.lower().split())
    if re.search(r"\bcc.?by|creative commons|attribution", low) and not re.search(
        r"open data|\bodc\b", low
    ):
        parts = ["cc-by"] if re.search(r"\bby\b|attribution", low) else []
        for mark, words in (
            ("nc", r"\bnc\b|non.?commercial"),
            ("nd", r"\bnd\b|no.?deriv"),
            ("sa", r"\bsa\b|share.?alike"),
        ):
            if re.search(words, low):
                parts.append(mark)
        if parts:
            return "-".join(parts)
    for pattern, name in _PLAIN:
        if re.search(pattern, low):
            return name
    return low


_SPDX = {
    **{"cc0": "CC0-1.0", "pddl": "PDDL-1.0", "odbl": "ODbL-1.0", "odc-by": "ODC-By-1.0"},
    **{"mit": "MIT", "apache": "Apache-2.0", "dbcl": "DbCL-1.0"},
}
_NUMBERED = {  # families whose name holds the version
    **{f: f.upper() for f in ("cc-by", "cc-by-sa", "cc-by-nc", "cc-by-nd", "cc-by-nc-sa")},
    "cc-by-nc-nd": "CC-BY-NC-ND",
    **{"cdla-sharing": "CDLA-Sharing", "cdla-permissive": "CDLA-Permissive"},
}


def spdx(licence: str) -> str:
    """The SPDX name of a licence, by which `--licence` finds it: `Attribution 4.0 International (CC
    BY 4.0)` is `CC-BY-4.0`. A text that is none of the known ones, or names no version where that
    decides, stays as it is."""
    name = family(licence)
    if name in _SPDX:
        return _SPDX[name]
    version = re.search(r"\b([1-4]\.\d)\b", licence)
    if name in _NUMBERED and version:
        return f"{_NUMBERED[name]}-{version.group(1)}"
    return " ".join(licence.split())


def is_open(licence: str) -> bool:
    """Whether anyone may use, change and pass on: neither NC nor ND, and no unknown text."""
    return family(licence) in OPEN


def allowed(licence: str, wanted: Sequence[str]) -> bool:
    """Whether a licence is one of those wanted; `open` stands for all open ones."""
    return any(
        is_open(licence) if w.lower() == "open" else family(licence) == family(w) for w in wanted
    )


def read_licences(words: Sequence[str]) -> tuple[str, ...]:
    """The licences of `--licence A,B`. Raises `TaskError` for an empty name."""
    found = tuple(w.strip() for word in words for w in word.split(","))
    if any(not w for w in found):
        raise TaskError(f"--licence {','.join(words)}: an empty name; write for example CC0,MIT")
    return found


def unwanted(licence: str, wanted: Sequence[str]) -> str:
    """Why a table of this licence is not used."""
    return f"licence {licence!r} is none of {', '.join(wanted)}"


def add_described(to: Parser) -> None:
    """The options by which a user says what tables are, and which of them are used."""
    to.add_argument(
        "--describe",
        type=Path,
        metavar="FILE",
        help="YAML or text: titles, licences, and words for columns, of all tables or by table",
    )
    to.add_argument(
        "--licence",
        action="append",
        default=[],
        metavar="NAME",
        help="use only tables of these licences, such as CC0,MIT; open: all open ones",
    )
