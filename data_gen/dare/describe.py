"""The tables of a build with what the user says of them (`data_gen.describe`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from assay.console import near_miss
from assay.task import TaskError
from data_gen.dare.sources import Source
from data_gen.dare.wishes import loaded, require_columns, table_named
from data_gen.describe import About, names


def describe(sources: Sequence[Source], said: Mapping[str, About]) -> list[Source]:
    """The tables with what the user says of them. Raises `TaskError` for an unknown table."""
    found = {s.name: s for s in sources}
    for name, about in said.items():
        for meant in _meant(name, sources):
            source = found[meant.name]
            found[meant.name] = replace(
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
        for source in _meant(name, sources) if about.columns else ():
            require_columns("--describe", list(about.columns), source, loaded(source))


def _meant(name: str, sources: Sequence[Source]) -> list[Source]:
    """The tables that an entry names: one by its name, several by a pattern of paths."""
    hits = table_named(name, sources) if name else list(sources)
    if len(hits) == 1:
        return hits
    if several := [s for s in sources if name and s.path and names(name, s.name, s.path)]:
        return several
    known = [s.slug for s in sources]
    problem = (
        f"no table {name!r}{near_miss(name, known)}"
        if name and not hits
        else f"{len(hits)} tables are meant; put each below `tables:` by its name, of "
        f"{', '.join(known[:5])}{' …' if len(known) > 5 else ''}"
    )
    raise TaskError(f"--describe: {problem}")
