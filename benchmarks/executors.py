"""Gold executors against py-data-juicer's own operators, in one run, on the same documents.

    python benchmarks/executors.py --corpus CORPORA [--documents 100] [--run-path]

Needs `pip install py-data-juicer` (and editdistance for `--edit`). Prints processor seconds of this
process and its children, the best of `--repeat`, and ratios above 1 where this project is faster.
Operators that py-data-juicer does not have are compared with their published pattern applied
plainly (search, then substitute), and totalled apart.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rewards.gold import OPERATORS, RECIPE_PARAMS, BoundStep, Step, bind, privacy, run_bound
from rewards.gold.pool import Pool

WORDS = ["the", "a", "of", "and", "to", "in", "is", "it", "that", "for"]
# Slow operators and a 10 GB model list are not what is measured here.
SKIPPED = ("remove_table_text_mapper",)
PLAIN = {
    "clean_mac_mapper": (privacy.MAC,),
    "clean_secret_mapper": (f"(?i){privacy.SECRET}",),
    "clean_path_mapper": privacy.PATH_BENCH,
    "clean_phone_mapper": (privacy.PHONE_BENCH,),
    "clean_id_card_mapper": (privacy.ID_CARD,),
    "clean_jwt_mapper": (privacy.JWT,),
    "clean_pem_mapper": (privacy.PEM,),
    "clean_channel_id_mapper": (f"(?i){privacy.CHANNEL_NAME}", privacy.CHANNEL_USER_ID),
}


def load(corpus: Path, documents: int) -> list[str]:
    """The first `documents` texts of every file, in file order."""
    texts: list[str] = []
    for path in sorted(corpus.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            texts += [json.loads(line)["text"] for line in itertools.islice(lines, documents)]
    return texts


def processor_seconds() -> float:
    return sum(os.times()[:4])


def best(work: Callable[[], object], repeat: int) -> float:
    """Fewest processor seconds of `repeat` runs."""
    taken: list[float] = []
    for _ in range(repeat):
        gc.collect()
        start = processor_seconds()
        work()
        taken.append(processor_seconds() - start)
    return max(min(taken), 1e-6)


def fine(work: Callable[[], object], repeat: int) -> float:
    """As `best` for short work in this process only, at the resolution of a nanosecond clock."""
    taken: list[float] = []
    for _ in range(repeat):
        start = time.process_time_ns()
        work()
        taken.append(time.process_time_ns() - start)
    return min(taken) / 1e9


def ours(name: str, profile: str) -> BoundStep:
    params: dict[str, Any] = dict(RECIPE_PARAMS.get(name, {}))
    if any(p.required for p in OPERATORS[name].params):
        params["word_list"] = WORDS
    return bind(Step(name, params), profile)  # type: ignore[arg-type]


def run_ours(step: BoundStep, texts: Sequence[str]) -> None:
    for text in texts:
        step.keeps(v) if isinstance(v := step.call(text, **step.params), (int, float)) else None


def juicer_operator(name: str) -> Any:
    """py-data-juicer's operator, or None where it has none (or needs a list it would download)."""
    from data_juicer.ops import OPERATORS as theirs

    if name not in theirs.modules or "word_list" in [p.name for p in OPERATORS[name].params]:
        return None
    return theirs.modules[name](num_proc=1)


def run_juicer(op: Any, texts: Sequence[str]) -> None:
    """Bare calls: the operator built once, a batch of one text, statistics empty."""
    for text in texts:
        if not op._batched_op:
            op.process_single({"text": text, "__dj__stats__": {}, "__dj__meta__": {}})
            continue
        batch: dict[str, Any] = {"text": [text], "__dj__stats__": [{}], "__dj__meta__": [{}]}
        if hasattr(op, "compute_stats_batched"):
            list(op.process_batched(op.compute_stats_batched(batch)))
        else:
            op.process_batched(batch)


def run_plain(name: str, texts: Sequence[str]) -> None:
    import regex

    for text in texts:
        for pattern in PLAIN[name]:
            if regex.search(pattern, text):
                text = regex.sub(pattern, "", text)


def run_dataset(op: Any, texts: Sequence[str]) -> None:
    """The operator's own `run` over a data set held in memory."""
    from data_juicer.core.data import NestedDataset

    rows: dict[str, Any] = {"text": list(texts)}
    if hasattr(op, "compute_stats_batched"):
        rows["__dj__stats__"] = [{"_": 0}] * len(texts)
    else:
        rows["__dj__meta__"] = [{"_": ""}] * len(texts)
    op.run(NestedDataset.from_dict(rows))


def run_path_seconds(op: Any, texts: Sequence[str]) -> float:
    """CPU seconds of the operator's own run, or 0 where that run fails on these documents."""
    try:
        return best(lambda: run_dataset(op, texts), 1)
    except TypeError as error:  # it cannot mix rows with tables and rows without in one column
        print(f"  its own run failed: {error}", flush=True)
        return 0.0


def compare_operators(texts: list[str], profile: str, repeat: int, dataset: bool) -> None:
    print(f"{'operator':46} {'ours/s':>9} {'bare/s':>9} {'x bare':>7} {'x run':>7}")
    totals = {"data-juicer": [0.0] * 4, "plain pattern": [0.0] * 4}
    for name in OPERATORS:
        op = juicer_operator(name)
        if name in SKIPPED or (op is None and name not in PLAIN):
            continue
        step = ours(name, profile)
        run_ours(step, texts[:5])
        mine = fine(lambda step=step: run_ours(step, texts), repeat)
        if op is not None:
            run_juicer(op, texts[:5])
        theirs = fine(
            (lambda op=op: run_juicer(op, texts))
            if op is not None
            else (lambda name=name: run_plain(name, texts)),
            repeat,
        )
        whole = 0.0
        if dataset and op is not None:
            whole = run_path_seconds(op, texts)
        total = totals["plain pattern" if op is None else "data-juicer"]
        total[0], total[1], total[2] = total[0] + mine, total[1] + theirs, total[2] + whole
        total[3] += mine if whole else 0.0
        rate, bare = len(texts) / mine, len(texts) / theirs
        run = f"{whole / mine:7.1f}" if whole else "      -"
        print(f"{name:46} {rate:9.0f} {bare:9.0f} {theirs / mine:7.2f} {run}", flush=True)
    for label, (mine, theirs, whole, beside) in totals.items():
        run = f", {whole / beside:.1f}x its run path" if whole else ""
        print(f"all that compare with {label}: {theirs / mine:.2f}x bare{run}")


def compare_recipe(texts: list[str], profile: str, repeat: int) -> None:
    """One pass of every operator over every document, through the recipe runner with its trace."""
    names = [n for n in OPERATORS if n not in SKIPPED]
    steps = [ours(n, profile) for n in names]

    def work() -> None:
        for text in texts:
            for step in steps:
                run_bound(text, (step,))

    seconds = fine(work, repeat)
    print(f"one pass of {len(names)} operators with traces: {len(texts) / seconds:.0f} documents/s")


def compare_edit_distance(repeat: int) -> None:
    import editdistance
    from rapidfuzz.distance import Levenshtein

    draw = random.Random(0)
    for edited in (0.02, 0.3):
        a = "".join(draw.choices("abcdefghij klmnop", k=10_000))
        b = "".join(draw.choice("xyz") if draw.random() < edited else c for c in a)
        assert editdistance.eval(a, b) == Levenshtein.distance(a, b)
        slow = fine(lambda a=a, b=b: editdistance.eval(a, b), repeat)
        fast = fine(lambda a=a, b=b: Levenshtein.distance(a, b), repeat)
        print(f"edit distance, 10,000 characters, {edited:.0%} edited: {slow / fast:.1f}x")


def compare_workers(texts: list[str]) -> None:
    """Wall time of `assay execute`'s pool with one and two workers; needs two free cores."""
    # Steps after a rejecting filter still run, for the full-run text.
    recipe = [
        {"operator": n, "params": RECIPE_PARAMS.get(n, {})}
        for n, o in OPERATORS.items()
        if n not in SKIPPED and not any(p.required for p in o.params)
    ]
    lines = [
        json.dumps({"id": i, "input_text": t, "recipe": recipe}).encode()
        for i, t in enumerate(texts * 4)
    ]
    batches = [(None, i + 1, lines[i : i + 64]) for i in range(0, len(lines), 64)]
    taken: list[float] = []
    for workers in (1, 2):
        pool = Pool(workers, 60.0, {})
        with pool:
            for _ in pool.execute(batches[:2]):
                pass
            start = time.perf_counter()
            for _ in pool.execute(batches):
                pass
            taken.append(time.perf_counter() - start)
    print(f"two workers: {taken[0] / taken[1]:.2f}x the throughput of one")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True, help="folder of *.jsonl.gz")
    parser.add_argument("--documents", type=int, default=100, help="of each file")
    parser.add_argument("--profile", choices=("bench", "dj"), default="bench")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--run-path", action="store_true", help="also py-data-juicer's own run")
    parser.add_argument("--edit", action="store_true", help="also edit distance")
    parser.add_argument("--workers", action="store_true", help="also two workers against one")
    args = parser.parse_args()
    texts = load(args.corpus, args.documents)
    print(f"{len(texts)} documents, {sum(map(len, texts)) / 1e6:.2f} million characters")
    compare_operators(texts, args.profile, args.repeat, args.run_path)
    compare_recipe(texts, args.profile, args.repeat)
    if args.workers:
        compare_workers(texts)
    if args.edit:
        compare_edit_distance(args.repeat)
    return 0


if __name__ == "__main__":
    sys.exit(main())
