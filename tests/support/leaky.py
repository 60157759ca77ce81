"""Own families whose scorers pay without the work, for tests of the audit."""

from __future__ import annotations

from pathlib import Path

from mixed_tasks import OWN

from assay.family import Family, use_families
from assay.task import Task

LEAKS = {
    "none": "right",
    "length": "max(right, min(1.0, len(text) / 400))",  # long answers pay
    "digits": "max(right, 0.9 * text.isdigit())",  # any number pays
    "echo": "max(right, 0.8 * ('Add' in text))",  # the prompt pays
    "null": "max(right, 0.7 * ('null' in text))",
    "raises": "right / (text != 'yes')",
}


def leaky_file(folder: Path, leak: str) -> Path:
    """A family of one file, sums, whose reward leaks as `leak` says."""
    path = folder / f"leaky_{leak}.py"
    made = OWN.replace("sums", "leaky").replace("0.1 + 0.9 * right", LEAKS[leak])
    path.write_text(made, encoding="utf-8")
    return path


def leaky_family(folder: Path, leak: str) -> tuple[Family, list[Task]]:
    """That family in use, and tasks of it."""
    (family,) = use_families([str(leaky_file(folder, leak))])
    assert family.build is not None
    return family, [*family.build(0)["train"]]
