"""Functions that code of a CodeAgent may call: their source is sent to its interpreter in the
sandbox. Each stands for itself and needs nothing but the standard library."""

from __future__ import annotations

from typing import Any

FINAL = "final_answer.json"  # where the interpreter leaves the answer


def list_files(pattern: str = "*") -> str:
    """Lists the files whose path or name matches a glob, one a line with their size.

    Args:
        pattern: A glob such as *2020*.csv.
    """
    import fnmatch
    import os

    found: list[str] = []
    for folder, _, names in os.walk("."):
        for name in set(names) - {"main.py", ".stdout", ".stderr"}:
            path = os.path.join(folder, name)[2:]
            if fnmatch.fnmatch(path, pattern) or fnmatch.fnmatch(name, pattern):
                found.append(f"{path} ({os.path.getsize(path)} bytes)")
    more = [f"and {len(found) - 200} more; give a narrower pattern"] if len(found) > 200 else []
    return "\n".join(sorted(found)[:200] + more) or f"no file matches {pattern!r}"


def read_file(path: str, start: int = 1, lines: int = 40) -> str:
    """Reads lines of a text file.

    Args:
        path: The file's path, as list_files shows it.
        start: The number of the first line; 1 is the file's first.
        lines: How many lines, 200 at most.
    """
    import itertools

    first, count = max(1, int(start)), max(1, min(int(lines), 200))
    with open(path, encoding="utf-8", errors="replace") as file:
        part = itertools.islice(file, first - 1, first - 1 + count)
        shown = [f"{first + i}: {line.rstrip()[:500]}" for i, line in enumerate(part)]
    return "\n".join(shown) or f"{path} ends before line {first}"


def final_answer(answer: Any = None) -> None:
    """Hands the answer in and ends the work.

    Args:
        answer: The answer, bare.
    """
    import json

    def plain(value: Any) -> Any:  # numpy's and pandas' values; anything else as its text
        for name in ("tolist", "to_dict"):
            if callable(make := getattr(value, name, None)):
                return make()
        return str(value)

    text = json.dumps(answer, default=plain, skipkeys=True)
    with open("final_answer.json", "w", encoding="utf-8") as file:
        file.write(text)
    raise SystemExit(0)
