"""Stand-ins of the three releases: their files and functions by name, in words and code of ours."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "releases"
# kind of words → (path in a checkout → its text)
FILES = {
    kind.name: {
        str(path.relative_to(kind).with_suffix("")): path.read_text("utf-8")
        for path in sorted(kind.rglob("*.txt"))
    }
    for kind in sorted(DATA.iterdir())
}


def write_release(folder: Path, name: str) -> Path:
    """The stand-in of a kind's release."""
    for path, text in FILES[name].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def imported(path: Path) -> ModuleType:
    """A file of a stand-in, really imported: what a reading of it is held against."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Asked:
    """Where a request of an imported runner ends."""

    messages: Any = None

    def _call_once(self, messages: Any) -> str:
        self.messages = messages
        return ""
