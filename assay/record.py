"""What made a set of files: the command, its inputs' hashes, the versions and the outputs' hashes.

The front door writes `provenance.json` into every folder that a command made, or
`NAME.provenance.json` beside a single file. `assay verify` compares files with it.
The record holds no time and no machine, so the same work gives the same record.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from assay import console
from assay.files import file_hash, write_bytes
from assay.machine import usable_cores
from assay.task import TaskError, json_text

NAME = "provenance.json"
OUT = "{out}"  # in a recorded command: the folder or file that it wrote to
ROOT = Path(__file__).resolve().parent.parent
# State of a run that goes on, which its own manifests cover, and what is no result.
_PASSED = ("checkpoints", "wandb", "tensorboard", "__pycache__")
_HOW = ("workers", "memory", "stage", "shards", "shard", "part", "work")
_made: list[Path | None] = []

# what the gold executors and scorers compute with: another version may give other gold
GOLD = ("beautifulsoup4", "ftfy", "numpy", "rapidfuzz", "regex", "selectolax")
TABLES = ("pandas", "pyarrow", "scikit-learn", *GOLD)  # what answers over tables depend on too
# what weights and answers depend on beside it
PROVENANCE = (
    *("assay", *GOLD, "duckdb", "pandas", "pyarrow", "safetensors", "scikit-learn"),
    *("tokenizers", "torch", "transformers"),
)


def installed(packages: Iterable[str] = GOLD) -> dict[str, str]:
    """Python's version, and that of each package that is installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class Made:
    """One command and what it made. `OUT` stands in the command for where it wrote to. Paths of
    `inputs` are as the command got them, paths of `outputs` are relative to the folder of the
    record; both map to SHA-256."""

    command: tuple[str, ...]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    versions: Mapping[str, str]
    code: Mapping[str, Any] | None = None


def made(out: str | Path) -> None:
    """Say, from inside a command, where it writes; needed where no `--out` says so."""
    _made.append(Path(out))


def part() -> None:
    """Say, from inside a command, that it made a part of something: there is no record yet."""
    _made.append(None)


def forget() -> None:
    """Forget what `made` was told: a new command begins."""
    _made.clear()


def write_records(argv: Sequence[str]) -> list[Path]:
    """Write the record of a command that has ended well; returns the files written.

    A folder that holds the working directory is not the command's own, and gets no record.
    """
    outs = {Path(word) for word in _values(argv, "out") if word not in ("-", "/dev/stdout")}
    if None in _made:
        return []
    outs |= {out for out in _made if out is not None}
    here = Path.cwd()
    own = [out for out in sorted(outs) if not here.is_relative_to(out.resolve())]
    written = [_write(out, argv) for out in own if out.is_dir() or out.is_file()]
    return [path for path in written if path is not None]


def _write(out: Path, argv: Sequence[str]) -> Path | None:
    path = record_of(out)
    outputs = hashes(out)
    if not outputs:
        return None
    ends = (f"--out={out}", f"out={out}")
    given = [w.partition("=")[0] + f"={OUT}" if w in ends else w for w in _what(argv)]
    words = [OUT if w == str(out) else w for w in given]
    named = any(OUT in word for word in words)
    command = (*words, *(() if named else ("--out", OUT)))
    try:
        earlier = read_record(path)
    except (TaskError, OSError):
        earlier = []  # none, or one that nobody can read: it is written anew
    kept: list[Made] = []
    for one in earlier:
        same = {name: digest for name, digest in one.outputs.items() if outputs.get(name) == digest}
        # another command of the same kind takes its place
        if same and _kind(one.command) != _kind(command):
            kept.append(replace(one, outputs=same))
    known = {name: digest for one in kept for name, digest in one.outputs.items()}
    fresh = {name: digest for name, digest in outputs.items() if known.get(name) != digest}
    now = Made(command, _inputs(argv, out), fresh, installed(PROVENANCE), revision())
    record = {"assay_provenance": 1, "made": [asdict(one) for one in (*kept, now)]}
    write_bytes(path, json_text(record, indent=1))
    return path


def _what(argv: Sequence[str]) -> list[str]:
    """The words of a command without those that only say how it is done: they change no byte."""
    kept: list[str] = []
    skip = False
    for word in argv:
        name = word.partition("=")[0]
        if not skip and name.removeprefix("--") not in _HOW:
            kept.append(word)
        skip = not skip and name.startswith("--") and name[2:] in _HOW and "=" not in word
    return kept


def _kind(command: Sequence[str]) -> Sequence[str]:
    """What a command does: `sft`, `tasks cdr`."""
    return command[: 2 if command[0] == "tasks" else 1]


def record_of(out: Path) -> Path:
    """Where the record of a folder or of a file lies."""
    return out / NAME if out.is_dir() else out.with_name(f"{out.name}.{NAME}")


def read_record(path: Path) -> list[Made]:
    """Read a record file (`record_of`): what was made by each command, in the order they ran.
    Raises `TaskError` for a file that is not there, is no record, or is of a newer version."""
    try:
        row: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TaskError(f"{path}: no such record; only what `assay` wrote has one") from None
    except ValueError as error:
        raise TaskError(f"{path}: is no record of provenance ({error})") from None
    try:
        if row["assay_provenance"] != 1:
            raise TaskError(f"{path}: was written by a newer Assay; update to read it")
        return [
            Made(
                tuple(map(str, one["command"])),
                code=one["code"],
                **{n: {str(k): str(v) for k, v in one[n].items()} for n in _HASHES},
            )
            for one in row["made"]
        ]
    except (KeyError, TypeError, AttributeError):
        raise TaskError(f"{path}: is no record of provenance; make the files again") from None


_HASHES = ("inputs", "outputs", "versions")


def hashes(out: Path) -> dict[str, str]:
    """SHA-256 by name of a file (and the manifest beside it), or of every file of a folder."""
    if out.is_file():
        beside = out.with_name(out.name + ".manifest.json")
        return {p.name: file_hash(p) for p in (out, beside) if p.is_file()}
    paths = list(_files(out))

    with ThreadPoolExecutor(usable_cores()) as threads:  # hashing holds no lock of Python's
        return {
            str(path.relative_to(out)): digest
            for path, digest in zip(paths, threads.map(file_hash, paths), strict=True)
        }


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        own = parts[-1].endswith(NAME) or parts[-1].endswith(".tmp")
        passed = own or any(name in _PASSED or name.startswith(".") for name in parts)
        if not passed and path.is_file() and not path.is_symlink():
            yield path


def _values(argv: Sequence[str], name: str) -> Iterator[str]:
    """What `--name` or the setting `name=` is given."""
    for place, word in enumerate(argv):
        if word == f"--{name}" and place + 1 < len(argv):
            yield argv[place + 1]
        elif word.startswith((f"--{name}=", f"{name}=")):
            yield word.partition("=")[2]


def _inputs(argv: Sequence[str], out: Path) -> dict[str, str]:
    """The files and folders that the words of a command name, and those that a YAML file among
    them names, but for what lies in its own output."""
    found: dict[str, str] = {}
    for word in filter(None, _words(argv)):
        path = Path(word)
        with suppress(OSError, ValueError):  # too long, or not to be a path
            if path.exists() and not path.is_relative_to(out) and not out.is_relative_to(path):
                found[word] = file_hash(path)
    return dict(sorted(found.items()))


def _words(argv: Sequence[str]) -> Iterator[str]:
    for word in argv:
        value = word.partition("=")[2] if "=" in word else word
        value = value.rpartition(".py:")[0] + ".py" if ".py:" in value else value
        if value.endswith((".yaml", ".yml")) and Path(value).is_file():
            yield from _named_in(Path(value))
        yield value


def _named_in(path: Path) -> list[str]:
    """The texts in a YAML file."""
    import yaml

    try:
        return _texts(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError):
        return []


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = cast("dict[Any, Any]", value).values() if isinstance(value, dict) else value
    listed = cast("list[Any]", [*inner]) if isinstance(value, dict | list) else []
    return [text for one in listed for text in _texts(one)]


def revision(root: Path = ROOT) -> dict[str, Any] | None:
    """The commit that Assay runs from, and whether tracked files differ from it; None when it does
    not run from a git checkout (an installed package, a copy, no git)."""
    try:
        if Path(_git(root, "rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return None  # installed inside somebody else's checkout
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
        return {"revision": _git(root, "rev-parse", "HEAD"), "dirty": bool(changed)}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.strip()


# --- assay verify

_VERIFY = """\
`assay verify`: compare what a command made with its record.

assay verify DIR      every recorded file is there and unchanged, inputs too
assay verify FILE     of a single file, with the record beside it
"""


def main(argv: Sequence[str]) -> int:
    """`assay verify`: exit status 0 when everything is as recorded, 1 when something differs."""
    options = console.parser("verify", _VERIFY)
    options.add_argument("path", type=Path, help="folder or file that a command wrote")
    console.add_json(options)
    args = options.parse_args(argv)
    if not args.path.exists():
        raise TaskError(f"{args.path}: no such file or folder")
    path = args.path if args.path.name.endswith(NAME) else record_of(args.path)
    record = read_record(path)
    said = [*_changed_outputs(record, path.parent), *_changed_inputs(record)]
    notes = [] if args.path.is_file() else _unrecorded(record, path.parent)
    notes += _other_versions(record)
    files = sum(len(one.outputs) for one in record)
    if args.json:
        report = {"ok": not said, "files": files, "differences": said, "notes": notes}
        print(json.dumps(report, indent=2))
    else:
        end = f"{len(said)} differences" if said else "as recorded"
        notes = [f"note: {n}" for n in notes]
        print("\n".join([*said, *notes, f"{files} recorded files: {end}"]))
    return console.DONE if not said else console.FAILED


def _changed_outputs(record: Sequence[Made], folder: Path) -> Iterator[str]:
    recorded = {name: digest for one in record for name, digest in one.outputs.items()}
    for name, digest in sorted(recorded.items()):
        if not (folder / name).is_file():
            yield f"{name}: is missing"
        elif file_hash(folder / name) != digest:
            yield f"{name}: has changed since it was written"


def _changed_inputs(record: Sequence[Made]) -> Iterator[str]:
    for name, digest in {pair: None for one in record for pair in one.inputs.items()}:
        if not Path(name).exists():
            yield f"input {name}: is not here (run this where the command was run)"
        elif file_hash(Path(name)) != digest:
            yield f"input {name}: has changed since it was used"


def _other_versions(record: Sequence[Made]) -> list[str]:
    here = installed(PROVENANCE)
    pairs = {(k, v) for one in record for k, v in one.versions.items() if here.get(k) != v}
    return [f"{k}: made with {v}, here {here.get(k, 'not installed')}" for k, v in sorted(pairs)]


def _unrecorded(record: Sequence[Made], folder: Path) -> list[str]:
    known = {name for one in record for name in one.outputs}
    names = (str(path.relative_to(folder)) for path in _files(folder))
    return [f"{name}: is not recorded" for name in names if name not in known]
