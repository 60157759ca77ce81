"""`--describe FILE`: what the user says of tables: title, licence, text, words for columns.

YAML holds `title`, `licence`, `about` and `columns` (column → words), or `tables` with these for
each table by name. Any other file is read as text: lines `Title: …`, `Licence: …` and
`column: words`; lines without a colon are the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from assay.console import near_miss
from assay.task import TaskError
from data_gen.dare.sources import Source
from data_gen.dare.wishes import loaded, require_columns, table_named

_FIELDS = ("title", "licence", "about", "columns", "tables")


@dataclass(frozen=True)
class About:
    """What is said of one table."""

    title: str = ""
    licence: str = ""
    about: str = ""
    columns: Mapping[str, str] = field(default_factory=dict[str, str])


def read_describe(path: Path) -> dict[str, About]:
    """Table → what is said of it; the name "" where the file names no table. Raises `TaskError`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"--describe {path}: {error}; give a UTF-8 file") from None
    if path.suffix.lower() not in (".yaml", ".yml"):
        return {"": _from_lines(text)}
    import yaml

    try:
        said: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise TaskError(f"--describe {path}: no YAML: {' '.join(str(error).split())}") from None
    whole = _mapping(said, str(path))
    if "tables" not in whole:
        return {"": _about(whole, str(path))}
    tables = _mapping(whole["tables"], f"{path}, tables")
    shared = {k: v for k, v in whole.items() if k != "tables"}
    return {
        str(n): _about(shared | _mapping(v, f"{path}, {n}"), f"{path}, {n}")
        for n, v in tables.items()
    }


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


def describe(sources: Sequence[Source], said: Mapping[str, About]) -> list[Source]:
    """The tables with what the user says of them. Raises `TaskError` for an unknown table."""
    found = {s.name: s for s in sources}
    for name, about in said.items():
        source = _meant(name, sources)
        found[source.name] = replace(
            source,
            title=about.title or source.title,
            licence=about.licence or source.licence,
            about=about.about or source.about,
            columns={**source.columns, **about.columns},
        )
    return [found[s.name] for s in sources]


def check_described(sources: Sequence[Source], said: Mapping[str, About]) -> None:
    """Raises `TaskError` for a described column that is not in its table."""
    for name, about in said.items():
        source = _meant(name, sources)
        if about.columns:
            require_columns("--describe", list(about.columns), source, loaded(source))


def _meant(name: str, sources: Sequence[Source]) -> Source:
    hits = table_named(name, sources) if name else list(sources)
    if len(hits) == 1:
        return hits[0]
    known = [s.slug for s in sources]
    problem = (
        f"no table {name!r}{near_miss(name, known)}"
        if name and not hits
        else f"{len(hits)} tables are meant; put each below `tables:` by its name, of "
        f"{', '.join(known[:5])}{' …' if len(known) > 5 else ''}"
    )
    raise TaskError(f"--describe: {problem}")
