"""Reading the words that a release's code makes: its own functions are called in the sandbox, with
a *mark*, `<:name:>`, in place of each value of a task. Where marks stand in the text that comes out
are the places of a template.
"""

from __future__ import annotations

import ast
import asyncio
import json
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.syntax import parse_python
from configs.loader import ConfigError
from rollouts.words import jailed
from rollouts.words.templates import escaped

_PROGRAM = Path(jailed.__file__).read_bytes()
_SECONDS = 20.0


def mark(name: str) -> str:
    """What stands for a value of a task."""
    return f"<:{name}:>"


def template(text: str) -> str:
    """A text with marks as a template with places."""
    return jailed.MARK.sub(r"{\1}", escaped(text))


def thing(**members: Any) -> dict[str, Any]:
    """An object with members, as an argument of a call."""
    return {"": members}


class Source:
    """A file of a release. Raises `ConfigError` for one that is no Python."""

    def __init__(self, folder: Path, name: Path) -> None:
        self.folder, self.path = folder, folder / name
        try:
            self.text = self.path.read_text(encoding="utf-8").replace("\r\n", "\n")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a text's escapes
                self.tree = parse_python(self.text)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise refused(folder, f"{name}: not Python that can be read ({error})") from None

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        found = (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef))
        return {one.name: one for one in found}

    def code(self, name: str) -> str:
        """The source of a function, for a hash."""
        return ast.get_source_segment(self.text, self.functions[name]) or ""


def refused(folder: Path, why: str) -> ConfigError:
    return ConfigError(
        f"{folder}: {why}: this form of a prompt is not read; use a release that Assay knows, or "
        "write its words into a file (docs/extend.md)"
    )


def called(folder: Path, calls: Sequence[Mapping[str, Any]]) -> tuple[list[Any], dict[str, Any]]:
    """(what the calls return, how stand-ins were called). A call names a `file` of the release and
    a function to `call`; may be `until` (a local name whose value is returned in place of the
    function's), `self` (members of a method's object), `given` and `named` arguments, and what is
    `known` from elsewhere (jailed.py). Raises `ConfigError`."""
    from rollouts.sandbox.model import Config, Limits, SandboxError
    from rollouts.sandbox.pool import Pool

    used = {str(call["file"]) for call in calls}
    used |= {at["file"] for call in calls for at in call.get("known", {}).values() if "file" in at}
    files = {name: Source(folder, Path(name)).text.encode() for name in used}
    files[jailed.CALLS] = json.dumps(calls).encode()

    async def run() -> Any:
        async with Pool(Config(workers=1, stack=(), spares=0)) as pool:
            limits = Limits(wall_s=_SECONDS, memory_mb=512)
            return await pool.run(_PROGRAM, files, [jailed.RESULTS], limits, seed=0)

    try:
        result = asyncio.run(run())
    except SandboxError as error:
        raise ConfigError(f"prompts=release: the sandbox cannot be started: {error}") from None
    if jailed.RESULTS not in result.files:
        why = result.stderr.strip().rpartition("\n")[2] or result.why
        raise refused(folder, why[-500:])
    results, told = json.loads(result.files[jailed.RESULTS])
    return results, told
