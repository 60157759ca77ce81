# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""Shards of one input over a Ray cluster: gold execution, rollouts, scoring on many nodes.

    python -m train.backends.verl.ray_shards out=DIR --input I.jsonl --shards 64 --align 8 \\
        --to ALL.jsonl -- rollout --tasks {in} --out {out} --model M sampling.n=8

The same `run_shard` and `merge` as in a Slurm array, so the same bytes; Ray places the shards and
tries one again when its node is lost. The folder must be on a file system that every node sees.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.console import Progress
from assay.task import TaskError
from train.cluster.shards import Cut, ShardError, merge, run_shard

RETRIES = 3


def run_one(cut: Cut, index: int, words: Sequence[str]) -> tuple[int, str]:
    """(exit status, where it ran) of one shard, in this process."""
    import assay

    where = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    return run_shard(cut, index, words, assay.main), where


def spread(cut: Cut, words: Sequence[str], cpus: float, gpus: float) -> Counter[str]:
    """Run all shards on the cluster this process is connected to; how many each node did.

    Raises `ShardError` naming the shards that failed; finished ones are skipped next time.
    """
    import ray

    remote: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)(run_one)
    waiting = {remote.remote(cut, i, list(words)): i for i in range(cut.shards)}
    failed: list[int] = []
    places: Counter[str] = Counter()
    with Progress("shards", "shards", cut.shards) as bar:
        while waiting:
            (ready,), _ = ray.wait(list(waiting), num_returns=1)
            index = waiting.pop(ready)
            try:
                status, where = ray.get(ready)
                places[where] += 1
            except Exception as error:  # the worker died, or the shard's own sentence
                print(f"shard {index}: {type(error).__name__}: {error}", file=sys.stderr)
                status = 1
            failed += [index] if status else []
            bar.add()
    if failed:
        raise ShardError(
            f"shards {', '.join(map(str, sorted(failed)))} of {cut.shards} failed; their words are "
            "above; run the same command to do them again"
        )
    return places


def main(argv: list[str]) -> int:
    """Exit status 0; 1 when shards failed, 2 for a request that cannot be used."""
    at = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", metavar="out=DIR")
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument("--align", type=int, default=1)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--cpus", type=float, default=1, help="of one shard")
    parser.add_argument("--gpus", type=float, default=0, help="of one shard")
    args = parser.parse_args(argv[:at])
    import ray

    out = Path(args.out.removeprefix("out=")).resolve()
    where = os.environ.get("RAY_ADDRESS")
    ray.init(address=where, log_to_driver=False, **({} if where else {"include_dashboard": False}))
    try:
        cut = Cut(args.input.resolve(), out, args.shards, args.align)
        places = spread(cut, argv[at + 1 :], args.cpus, args.gpus)
        rows = merge(cut, args.to)
    except TaskError as error:
        print(f"ray_shards: {error}", file=sys.stderr)
        return 1
    finally:
        ray.shutdown()
    told = ", ".join(f"{node} {count}" for node, count in sorted(places.items()))
    print(f"{args.to}: {rows} rows of {args.shards} shards ({told})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
