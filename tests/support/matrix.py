"""`make test-matrix`: environments made from nothing, what is imported and tested in each, and the
table of docs/interop.md. `make test-interop`: the rows that hold our exports against the real
libraries.

`python tests/support/matrix.py [NAME …]` (all without names) makes `.matrix/NAME` with uv, imports
what the row names, runs its tests, and puts the row into the page. Rows that were not asked for
stay as they are. torch is the release of `make setup` where a row names no other; a folder of
wheels (PIP_FIND_LINKS) is looked into first. `--ci`: one row, no page, and an environment that
cannot be made is said and is no failure. `--interop`: all rows of `make test-interop`, which are
not in the page.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from train.install import TORCH  # noqa: E402  (this checkout's, installed or not)

PLACE = ROOT / ".matrix"
PAGE = ROOT / "docs" / "interop.md"
SECONDS = 1800  # of one step


@dataclass(frozen=True)
class Row:
    """An environment of tests/interop/matrix.toml."""

    words: str
    python: str
    imports: str
    tests: str
    shown: str
    resolve: bool = False
    interop: bool = False
    bare: str = ""  # installed after the others, without its own requirements


ASKED = tomllib.loads((ROOT / "tests" / "interop" / "matrix.toml").read_text("utf-8"))
DEFAULT = ASKED.pop("default")
ROWS = {name: Row(**{**DEFAULT, **row}) for name, row in ASKED.items()}


class NotMade(RuntimeError):
    """An environment that cannot be made or resolved; the last words of what was asked."""


def uv() -> str:
    """uv of the PATH, or one of our own."""
    if found := shutil.which("uv"):
        return found
    own = PLACE / "uv" / "bin"
    if not (own / "uv").exists():
        venv.create(own.parent, with_pip=True)
        said(str(own / "python"), "-m", "pip", "install", "-q", "uv")
    return str(own / "uv")


def said(*words: str, **environment: str) -> str:
    """What a command printed. Raises `NotMade` where it fails."""
    env = {**os.environ, "DS_BUILD_OPS": "0", **environment}
    done = subprocess.run(
        ["timeout", str(SECONDS), *words], cwd=ROOT, env=env, text=True, capture_output=True
    )
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise NotMade(lines[-1].strip()[:200] if lines else f"exit status {done.returncode}")
    return done.stdout


def pinned(text: str) -> dict[str, str]:
    """Package → version, of what uv lists."""
    return dict(re.findall(r"^([\w-]+)==(\S+)", text, re.MULTILINE))


def resolved(row: Row) -> dict[str, str]:
    """Versions that would be installed."""
    asked = [word for word in row.words.split() if word != "-e"]
    made = PLACE / "asked.in"
    made.write_text("\n".join(asked).replace(".[", f"{ROOT}[") + "\n")
    text = said(
        *(uv(), "pip", "compile", "-q", "--no-header", "--no-annotate", str(made)),
        *("--python-version", row.python, "--python-platform", "x86_64-manylinux_2_34"),
    )
    return pinned(text)


def made(name: str, row: Row) -> tuple[str, dict[str, str]]:
    """The environment's Python and its versions."""
    folder = PLACE / name
    python = str(folder / "bin" / "python")
    # pyenv's, which is on no PATH; else uv's own search
    found = sorted(map(str, Path.home().glob(f".pyenv/versions/{row.python}.*/bin/python")))
    said(uv(), "venv", "-q", "--clear", "--python", [row.python, *found][-1], str(folder))
    words = row.words.format(torch=TORCH).split()
    links = [f"--find-links={link}" for link in os.environ.get("PIP_FIND_LINKS", "").split()]
    install = (uv(), "pip", "install", "-q", "--python", python, *links)
    said(*install, *words)
    if row.bare:
        said(*install, "--no-deps", *row.bare.split())
    return python, pinned(said(uv(), "pip", "freeze", "--python", python))


def tried(python: str, row: Row) -> str:
    """What the environment did: imports, then tests."""
    paths = f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"
    env = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    said(python, "-c", "; ".join(f"import {name}" for name in row.imports.split()), **env)
    if not row.tests:
        return "imported: " + ", ".join(
            f"`{name.partition('.')[0]}`" for name in row.imports.split()
        )
    print(f"  {' '.join(row.tests.split())}", flush=True)
    words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    words += shlex.split(row.tests)
    env = {**os.environ, **env}
    done = subprocess.run(words, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, check=False)
    print(done.stdout[-3000:], flush=True)
    last = done.stdout.strip().splitlines()[-1].strip("= ")
    return re.sub(r" in .*", "", last) + ("" if done.returncode == 0 else " **failed**")


def entry(name: str, row: Row) -> str:
    """The row's line in the table."""
    try:
        if row.resolve:
            versions, result = resolved(row), "resolves"
        else:
            python, versions = made(name, row)
            result = tried(python, row)
    except NotMade as error:
        versions, result = {}, f"**not made**: {error}"
    shown = ", ".join(f"{p} {versions[p]}" for p in row.shown.split() if p in versions)
    day = datetime.datetime.now(datetime.UTC).date()
    return f"| {name} | {row.python} | {shown} | {result.replace('|', '/')} | {day} |"


def write(name: str, line: str) -> None:
    """Put a line into the page's table; other rows stay, those of no environment go."""
    head, rule, rest = PAGE.read_text("utf-8").partition("|---|---|---|---|---|\n")
    lines = rest.splitlines()
    old = {row.split("|")[1].strip(): row for row in lines if row.startswith("|")} | {name: line}
    listed = {n: row for n, row in ROWS.items() if not row.interop}
    rows = [old.get(n) or f"| {n} | {row.python} | | not run | |" for n, row in listed.items()]
    below = [row for row in lines if not row.startswith("|")]
    PAGE.write_text("\n".join([head + rule + rows[0], *rows[1:], *below]).rstrip() + "\n", "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="environments made from nothing, and their tests")
    parser.add_argument("names", nargs="*", choices=[[], *ROWS], metavar="NAME")
    parser.add_argument("--ci", action="store_true", help="no page; not made is no failure")
    parser.add_argument("--interop", action="store_true", help="the rows that are not in the page")
    args = parser.parse_args()
    PLACE.mkdir(exist_ok=True)
    failed = False
    for name in args.names or [n for n in ROWS if ROWS[n].interop == args.interop]:
        print(f"matrix: {name}", flush=True)
        line = entry(name, ROWS[name])
        print(line, flush=True)
        lacks = args.ci and "**not made**" in line
        if lacks:
            print(f"not run: tests in the environment {name!r} (it could not be made)")
        elif not args.ci and not ROWS[name].interop:
            write(name, line)
        failed |= "**" in line and not lacks
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
