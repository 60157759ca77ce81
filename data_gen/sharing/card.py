"""The card of a data set: YAML that readers of data sets know, and what a person wants to know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from data_gen.certificate import CERTIFICATE
from data_gen.sharing.columns import COLUMNS
from data_gen.sharing.layout import FILES, Manifest

# names of licences in rows → identifiers that cards know
_KNOWN = {
    **{name: name for name in ("mit", "apache-2.0", "bsd-2-clause", "bsd-3-clause", "isc")},
    **{name: name for name in ("gpl-2.0", "gpl-3.0", "lgpl-2.1", "lgpl-3.0", "mpl-2.0")},
    **{name: name for name in ("cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0")},
    **{name: name for name in ("cc-by-nc-4.0", "cc-by-nc-sa-4.0", "odbl", "unlicense", "pddl")},
    **{name: "cc0-1.0" for name in ("cc0", "cc0-1.0")},
}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def card(name: str, made: Manifest) -> str:
    """The text of README.md."""
    front = yaml.safe_dump(_front(name, made), sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n{_body(name, made)}"


def _front(name: str, made: Manifest) -> dict[str, Any]:
    files = [{"split": s.name, "path": s.parquet} for s in made.splits if s.tasks]
    known = sorted({_KNOWN.get(licence.lower(), "other") for licence in made.licences})
    licence: dict[str, Any] = {"license": known[0] if len(known) == 1 else known}
    if "other" in known:
        other = [n for n in made.licences if n.lower() not in _KNOWN]
        licence["license_name"] = re.sub(r"[^a-z0-9.]+", "-", " ".join(other).lower()).strip("-")
    return {
        "pretty_name": name,
        "configs": [{"config_name": "default", "data_files": files}],
        **licence,
        "size_categories": [next((said for most, said in _SIZES if made.tasks < most), "n>1M")],
        "tags": ["assay", *made.families],
    }


def _body(name: str, made: Manifest) -> str:
    size = sum(count for _, count in made.files.values())
    if made.gold:
        gold = (
            "**Gold travels with the tasks**: the column `gold` holds what the scorer compares "
            "with. Who trains on these rows has seen the answers."
        )
    else:
        gold = (
            "**Without gold.** This is a public test set: answers are scored by whoever keeps the "
            "gold. The column `gold` is empty, and `meta` holds nothing that leads to it."
        )
    splits = [(s.name, f"`{s.parquet}`", str(s.tasks)) for s in made.splits]
    parts = [
        f"# {name}",
        f"{made.tasks} tasks of Assay with deterministic gold, {len(made.files)} files, "
        f"{size} bytes.",
        gold,
        _table(("split", "file", "tasks"), splits),
        _counted("family", made.families),
        _counted("track", made.tracks),
        _counted("licence of the data", made.licences)
        + "\nA task that was made from data of several licences is bound by each of them.",
        "## Use",
        "```\nassay pull DIR --out T\nassay eval --tasks T/… --model MODEL\n```\n\n"
        'or `datasets.load_dataset("DIR")`. '
        f"`{FILES}/` holds the files that tasks name, `{CERTIFICATE}` what the splits share, "
        "and `assay.json` the hash of every file, which pull checks.",
        "## Columns",
        _table(("column", "what"), [(f"`{n}`", what) for n, what in COLUMNS.items()]),
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _counted(what: str, counts: Mapping[str, int]) -> str:
    return _table((what, "tasks"), [(name, str(count)) for name, count in counts.items()])


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    said = ("| " + " | ".join(re.sub(r"\s+|\|", " ", c) for c in line) + " |" for line in lines)
    return "\n".join(said) + "\n"
