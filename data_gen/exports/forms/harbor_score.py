"""Scores what was left in the working folder, and writes reward.json. Needs no Assay: the modules
that it scores with lie in `vendor/`, beside it.

`python3 -I score.py [FOLDER [OUT]]`: the folder with the answer (default /app), and where
reward.json and details.json go (default /logs/verifier). Without an outcome, because the scorer
itself failed, no reward is written and the exit status is 1.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import math
import os
import stat
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType
from typing import Any

HERE = Path(__file__).resolve().parent
MOST = (64 << 20) + 1  # bytes read of one file; a scorer refuses files that large


class Source(importlib.machinery.SourceFileLoader):
    """Compiles a module anew: a cached one may be anybody's."""

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.get_data(self.path), self.path, "exec", dont_inherit=True)


class Vendored(importlib.abc.MetaPathFinder):
    """Finds the listed modules in `vendor/`, and no other ones of the same packages."""

    def __init__(self, modules: dict[str, str]) -> None:
        self.modules = modules
        self.tops = {name.partition(".")[0] for name in modules}

    def find_spec(
        self,
        fullname: str,
        path: Any = None,
        target: Any = None,
    ) -> ModuleSpec | None:
        del path, target
        name = fullname
        if name.partition(".")[0] not in self.tops:
            return None
        if name not in self.modules:
            raise ModuleNotFoundError(f"{name} does not travel with this task", name=name)
        place = HERE / self.modules[name]
        return importlib.util.spec_from_file_location(
            name,
            place,
            loader=Source(name, str(place)),
            submodule_search_locations=[str(place.parent)] if place.stem == "__init__" else None,
        )


def plain_file(path: Path) -> bytes | None:
    """The bytes of a regular file; None for what is not there, for links and for devices."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
            return None
        return file.read(MOST)


def named(where: str) -> Any:
    """The object that `module:name` names."""
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)


def descriptors_pass() -> bool:
    """Whether a descriptor can be sent through a socket, which the confined reader of files needs.
    Where it cannot, this container is the only confinement there is."""
    import socket

    ours, theirs = socket.socketpair()
    with ours, theirs, open(os.devnull) as null:
        try:
            socket.send_fds(ours, [b"x"], [null.fileno()])
        except OSError:
            return False
    return True


def score(about: dict[str, Any], folder: Path) -> Any:
    """The score of what lies in a folder."""
    from assay.task import Answer, Task

    task = Task.from_json(about["task"])
    text = plain_file(folder / about["text"]) if about["text"] else None
    found = {name: plain_file(folder / name) for name in about["files"]}
    files = {name: data for name, data in found.items() if data is not None}
    answer = Answer((text or b"").decode("utf-8", "replace"), files=files)
    if about["family"]:
        home, family = importlib.import_module("assay.family"), named(about["family"])
        arguments = (family.weights(),) if family.takes_weights else ()
        return home.guarded(family, task, answer, arguments)
    scorer = about["score"]
    if about["trusted"] and not descriptors_pass():
        scorer = about["trusted"]
    return named(scorer)(task, answer, named(about["weights"])())


def main(words: list[str]) -> int:
    folder = Path(words[0] if words else "/app")
    out = Path(words[1] if len(words) > 1 else "/logs/verifier")
    out.mkdir(parents=True, exist_ok=True)
    for name in ("reward.json", "reward.txt", "details.json"):
        if os.path.lexists(out / name):
            os.unlink(out / name)
    about = json.loads((HERE / "about.json").read_text(encoding="utf-8"))
    sys.meta_path.insert(0, Vendored(about["modules"]))
    try:
        made = score(about, folder)
    except Exception as error:
        print(f"the scorer failed: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    details = json.dumps(made.to_json(), indent=1)
    (out / "details.json").write_text(details, encoding="utf-8", errors="backslashreplace")
    print(details)
    if made.outcome is None or made.reward is None:
        print(f"no outcome: {made.why}", file=sys.stderr)
        return 1
    row = {"reward": float(made.reward), "outcome": float(made.outcome)}
    shown = about["parts"] or sorted(made.parts)
    parts = {f"part_{name}": float(made.parts.get(name, 0.0)) for name in shown}
    row.update({name: value for name, value in parts.items() if math.isfinite(value)})
    (out / "reward.json").write_text(json.dumps(row), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
