# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""`assay slurm`: what the jobs of arrays run, and what puts their work together.

shard      one shard of an input: run by slurm/data_array.sbatch
merge      put the shards together, checking that none is missing or there twice
part       one part of an evaluation of a served checkpoint: run by slurm/serve_eval.sbatch
gather     put the parts together: rows, tables and report of one evaluation

Chains of jobs are scripts: slurm/*_qwen3_*.sh.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import itertools
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay import console
from assay.files import exclusive_file, write_bytes, write_text
from assay.rows import blocks
from assay.task import TaskError, json_line, json_text, parse_object
from configs.loader import ConfigError
from rollouts.engines.server import EMBEDDED, devices
from train.evaluation.results import RESULTS

Run = Callable[[list[str]], int]


# --- shards of an input


class ShardError(TaskError):
    """A shard that cannot be run or merged; the message names it."""


@dataclass(frozen=True)
class Cut:
    """How a JSONL file is cut, by arithmetic: `shards` pieces that begin at multiples of `align`
    rows.

    Shard i of N of a file with R rows is decided by (R, N, align, i) alone, so array tasks agree on
    it without talking. A command that works through its input in batches of `align` rows sees the
    same batches as on one machine, and writes the same bytes. A shard appears under its name when
    it is whole; a second run of it does nothing.
    """

    source: Path
    folder: Path
    shards: int
    align: int = 1

    def __post_init__(self) -> None:
        for name, value in (("shards", self.shards), ("align", self.align)):
            if value < 1:
                raise ShardError(f"--{name} {value}: wanted 1 or more")

    def output(self, index: int) -> Path:
        return self.folder / f"shard-{index:05d}.jsonl"

    def record(self, index: int) -> Path:
        return self.folder / f"shard-{index:05d}.json"


def rows_of(total: int, shards: int, align: int, index: int) -> range:
    """Rows of shard `index`: whole blocks of `align`, shared out evenly; may be empty."""
    if not 0 <= index < shards:
        raise ShardError(f"shard {index}: wanted 0 to {shards - 1}")
    blocks = -(-total // align)
    first, last = blocks * index // shards * align, blocks * (index + 1) // shards * align
    return range(min(first, total), min(last, total))


def run_shard(cut: Cut, index: int, command: Sequence[str], run: Run) -> int:
    """Run `command` with {in} and {out} filled in; returns its exit status, 0 if done before.

    The shard's record, written last, holds the input's hash and the rows, so that a merge notices
    an input that has changed on the way. What a stopped start left in the work folder is kept: a
    command that can go on from it (`rollout`) does, the others write it again.
    """
    refuse_command(command)
    with exclusive_file(cut.output(index)):
        return _run_shard(cut, index, command, run)


def refuse_command(words: Sequence[str]) -> None:
    """Raises `ShardError` for a command that does not read a shard and write one."""
    if not any("{in}" in word for word in words) or not any("{out}" in word for word in words):
        raise ShardError("the command has no {in} or no {out}; it must read one, write the other")


def _run_shard(cut: Cut, index: int, command: Sequence[str], run: Run) -> int:
    """`run_shard` in the process that holds the shard."""
    lines = _lines(cut.source)
    rows = rows_of(len(lines), cut.shards, cut.align, index)
    record = {
        "input": _hash(b"".join(lines)),
        "rows": [rows.start, rows.stop],
        "shards": cut.shards,
        "align": cut.align,
        "command": list(command),
    }
    work = cut.folder / f".work-{index:05d}"
    if _is_done(cut, index, record):
        shutil.rmtree(work, ignore_errors=True)  # a kill came between the record and this
        print(f"shard {index} is done already")
        return 0
    source, target = work / "in.jsonl", work / "out.jsonl"
    folder = cut.source.parent.resolve()
    piece = b"".join(_at_home(line, folder) for line in lines[rows.start : rows.stop])
    begun = json.dumps(record)
    if not (work / "begun").is_file() or (work / "begun").read_text(encoding="utf-8") != begun:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        source.write_bytes(piece)
        write_text(work / "begun", begun)
    words = [w.replace("{in}", str(source)).replace("{out}", str(target)) for w in command]
    if not len(rows):
        target.touch()
    elif status := run(words):
        return status
    if not target.is_file():
        raise ShardError(f"shard {index}: the command wrote no {target}")
    target.replace(cut.output(index))
    record["output"] = _hash(cut.output(index).read_bytes())
    write_text(cut.record(index), json.dumps(record) + "\n")
    shutil.rmtree(work, ignore_errors=True)
    return 0


def merge(cut: Cut, target: Path) -> int:
    """All shards in order into `target`, whole or not at all; returns the number of rows.

    Raises `ShardError` when a shard is missing, torn, of another input or cut otherwise, or when
    the rows' ids are not the input's ids in order, each the same number of times.
    """
    lines = _lines(cut.source)
    digest = _hash(b"".join(lines))
    whole = b"".join(_checked_piece(cut, i, digest, len(lines)) for i in range(cut.shards))
    inputs = [_id(line, f"{cut.source} line {i}") for i, line in enumerate(lines, 1)]
    rows = whole.splitlines()
    found = [_id(line, f"{cut.folder} row {i}") for i, line in enumerate(rows, 1)]
    times = len(found) // max(len(inputs), 1)
    wanted = [name for name in inputs for _ in range(max(times, 1))]
    if inputs and found != wanted:
        said = f"{len(found)} rows for {len(inputs)} inputs: some are missing or there twice"
        for place, (want, got) in enumerate(zip(wanted, found, strict=False), 1):
            if want != got:
                said = f"row {place} is {got}, wanted {want}: one is missing or there twice"
                break
        raise ShardError(f"{cut.folder}: {said}")
    write_bytes(target, whole)
    return len(rows)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _lines(path: Path) -> list[bytes]:
    if not path.is_file():
        raise ShardError(f"{path}: no such file")
    return [
        line if line.endswith(b"\n") else line + b"\n"
        for block in blocks([str(path)])
        for line in block.data.splitlines(keepends=True)
        if line.strip()
    ]


def _at_home(line: bytes, folder: Path) -> bytes:
    """A row whose relative paths (`files` of a task) still lead to what they led to from `folder`.

    A row without any stays as it is, byte for byte.
    """
    if b'"files"' not in line:
        return line
    row = json.loads(line)
    files = row.get("files") if isinstance(row, dict) else None
    if not isinstance(files, dict) or not all(isinstance(p, str) for p in files.values()):
        return line
    row["files"] = {name: os.path.normpath(folder / path) for name, path in files.items()}
    return json_line(row)


def _is_done(cut: Cut, index: int, record: dict[str, Any]) -> bool:
    try:
        old = _record(cut, index)
    except (OSError, ShardError):
        return False
    output = old.pop("output", None)
    changed = sorted(k for k in record if old.get(k) != record[k])
    if changed:
        raise ShardError(
            f"{cut.folder} holds shard {index} of another {', '.join(changed)}; "
            "give another out=, or remove it"
        )
    path = cut.output(index)
    return path.is_file() and _hash(path.read_bytes()) == output


def _checked_piece(cut: Cut, index: int, digest: str, total: int) -> bytes:
    path, record = cut.output(index), cut.record(index)
    if not path.is_file() or not record.is_file():
        raise ShardError(f"shard {index} of {cut.shards} is missing in {cut.folder}; run it again")
    old, piece = _record(cut, index), path.read_bytes()
    rows = rows_of(total, cut.shards, cut.align, index)
    if old.get("input") != digest or old.get("rows") != [rows.start, rows.stop]:
        raise ShardError(f"{path} was made from another input, or cut otherwise; run it again")
    if _hash(piece) != old.get("output"):
        raise ShardError(f"{path} is not what its task wrote; remove it and run the task again")
    return piece


def _record(cut: Cut, index: int) -> dict[str, Any]:
    """What stands in a shard's record. Raises `ShardError` for one that is damaged."""
    path = cut.record(index)
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise ShardError(f"{path}: damaged; remove it and run shard {index} again")
    return row


def _id(line: bytes, where: str) -> str:
    row = parse_object(line.decode("utf-8", "replace"), where)
    for name in ("task_id", "id"):
        if name in row:
            return str(row[name])
    raise ShardError(f"{where}: has neither 'id' nor 'task_id'")


# --- parts of an evaluation

WORDS = "part.json"  # what a part was asked, for the job that puts them together
OURS = ("--out", "--part", "--gather")


def run_part(out: Path, index: int, parts: int, words: Sequence[str], run: Run) -> int:
    """Part `index` of `parts`, into `out/part-INDEX`. A finished one is not run again."""
    if not 0 <= index < parts:
        raise ConfigError(f"--index {index}: wanted 0 to {parts - 1}, as --parts says")
    refuse_words(words)
    folder = out / f"part-{index}"
    if (folder / RESULTS).is_file():
        print(f"part {index} is done already: {folder}")
        return 0
    asked = [*words, *engine_words(words)]
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / WORDS, json_text({"parts": parts, "words": asked}))
    return run(["eval", *asked, "--out", str(folder), "--part", f"{index}/{parts}"])


def gather(out: Path, parts: int, run: Run) -> int:
    """All parts as one evaluation in `out`. Raises `TaskError` naming what is missing."""
    folders = [out / f"part-{index}" for index in range(parts)]
    missing = [folder.name for folder in folders if not (folder / RESULTS).is_file()]
    if missing:
        raise TaskError(f"{out}: not finished: {', '.join(missing)}; submit the array again")
    asked = [json.loads((folder / WORDS).read_text(encoding="utf-8")) for folder in folders]
    for folder, other in zip(folders, asked, strict=True):
        if other != asked[0]:
            raise TaskError(f"{folder} was asked something else than {folders[0]}: see {WORDS}")
    found = ["eval", *asked[0]["words"], "--out", str(out), "--gather", *map(str, folders)]
    return run(found)


def refuse_words(words: Sequence[str]) -> None:
    """Raises `ConfigError` for options that the job itself sets, and without a model."""
    for word in words:
        if word.split("=")[0] in OURS:
            raise ConfigError(f"{word}: the job itself sets it; remove it")
    if not _model(words):
        raise ConfigError("no --model among the words of the evaluation; give a model's folder")


def engine_words(words: Sequence[str]) -> list[str]:
    """The engine, where none was asked for: a server that is installed, if there is a GPU for it
    and the model is a folder."""
    named = any(word.split("=")[0] == "server.kind" for word in words)
    if named or devices() == [""] or not Path(_model(words)).is_dir():
        return []
    for kind in ("vllm", "sglang"):
        if importlib.util.find_spec(kind) is not None:
            return [f"server.kind={kind}"]
    print(f"neither vllm nor sglang is installed: server.kind={EMBEDDED}")
    return []


def _model(words: Sequence[str]) -> str:
    """What stands behind --model; empty without it."""
    after = (b for a, b in itertools.pairwise(words) if a == "--model")
    joined = (word.partition("=")[2] for word in words if word.startswith("--model="))
    return next(itertools.chain(after, joined), "")


# --- the command


def _assay(argv: list[str]) -> int:
    """Another `assay` command in this process."""
    import assay

    return assay.main(argv)


def _out(word: str) -> Path:
    if not word.startswith("out="):
        raise ConfigError(f"{word!r}: wanted out=DIR")
    return Path(word.removeprefix("out="))


def parser() -> argparse.ArgumentParser:
    made = console.parser("slurm", __doc__)
    kinds = made.add_subparsers(dest="kind", required=True)
    for kind in ("shard", "merge", "part", "gather"):
        one = kinds.add_parser(kind, formatter_class=console.Layout)
        one.add_argument("out", metavar="out=DIR")
        if kind in ("shard", "merge"):
            one.add_argument("--input", type=Path, required=True)
            one.add_argument("--shards", type=int, required=True)
            one.add_argument("--align", type=int, default=1, help="rows that stay together")
        else:
            one.add_argument("--parts", type=int, required=True)
        if kind in ("shard", "part"):
            one.add_argument("--index", type=int, required=True)
        if kind == "merge":
            one.add_argument("--to", type=Path, required=True)
    return made


def main(argv: list[str]) -> int:
    """Exit status of what was run. Errors that a user can mend are raised."""
    at = argv.index("--") if "--" in argv else len(argv)
    args, words = parser().parse_args(argv[:at]), argv[at + 1 :]
    out = _out(args.out)
    if args.kind == "part":
        return run_part(out, args.index, args.parts, words, _assay)
    if args.kind == "gather":
        return gather(out, args.parts, _assay)
    cut = Cut(args.input, out, args.shards, args.align)
    if args.kind == "shard":
        return run_shard(cut, args.index, words, _assay)
    print(f"{args.to}: {merge(cut, args.to)} rows of {args.shards} shards")
    return 0
