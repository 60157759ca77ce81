"""`assay slurm`: what the jobs of arrays run, and what puts their work together.

shard      one shard of an input: run by slurm/data_array.sbatch
merge      put the shards together, checking that none is missing or there twice
part       one part of an evaluation of a served checkpoint: run by slurm/serve_eval.sbatch
gather     put the parts together: rows, tables and report of one evaluation

Chains of jobs are scripts: slurm/*_qwen3_*.sh.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from assay import console
from configs.loader import ConfigError
from train.cluster.serve import gather, run_part
from train.cluster.slurm import Cut, merge, run_shard


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
