"""Tables as people keep them, in folders: each with how to load it, read by the one reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.tables.formats import PACKED, SEVERAL, files_below, form_of
from assay.tables.load import load_file, plan_file
from assay.tables.plan import Skipped, Unreadable
from assay.tables.settings import Doubt, TableSettings, read_settings
from data_gen.dare.layout import Frame
from data_gen.dare.published import same_as_published


@dataclass
class TableFile:
    """One table of a file: calling it reads the table, without the columns in doubt. `doubts` are
    those of single columns, as the last reading found them."""

    path: Path
    root: Path
    rules: TableSettings
    part: str = ""
    doubts: tuple[Doubt, ...] = ()
    why: str = ""  # it is no table that is read

    def __call__(self) -> Frame:
        """Raises `Unreadable` for a table that cannot be read, is in doubt, or is published."""
        if self.why:
            raise Unreadable(self.why)
        found = load_file(self.path, self.root, self.rules, part=self.part)[0]
        if isinstance(found, Skipped):
            raise Unreadable(found.why, found.doubts)
        plan, frame = found
        self.doubts = plan.doubts
        rule = self.rules.of(plan.path, self.part)
        if rule.published and (why := same_as_published(frame)):
            raise Unreadable(
                f"{why}; evaluate on it with --import, or set published: false in tables.yaml if "
                "it is another table"
            )
        return frame


def local_tables(top: Path) -> Iterator[tuple[Path, str, TableFile]]:
    """(file, name of the table, how to load it) below a folder, in the order of names; every file
    is among them. What cannot be read, or is a published table, raises `Unreadable` when it is
    loaded, not here."""
    rules = read_settings(top)
    tables, others = files_below(top)
    for path in tables:
        for title, load in tables_in(path, top, rules):
            yield path, title, load
    for one in others:
        name = "other files" if one.path == "." else one.path
        yield top / one.path, name, TableFile(top / one.path, top, rules, why=one.why)


def tables_in(
    path: Path, root: Path | None = None, rules: TableSettings | None = None
) -> Iterator[tuple[str, TableFile]]:
    """(name, how to load it) of each table of a file; nothing for what is no table."""
    root = path.parent if root is None else root
    rules = read_settings(root) if rules is None else rules
    form = form_of(path)
    stem = path.stem if path.suffix.lower() not in PACKED else Path(path.stem).stem
    if form and form not in SEVERAL:
        yield stem, TableFile(path, root, rules)
    elif form:
        parts = [found.part for found in plan_file(path, root, rules)]
        for part in parts:
            title = stem if len(parts) == 1 else f"{stem} {part}"
            yield title, TableFile(path, root, rules, part)
