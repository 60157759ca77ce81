"""Gold executors against py-data-juicer's own operators, in one run, on the same documents.

    python -m benchmarks.executors --corpus CORPORA [--documents 100] [--rounds 3]

CORPORA is a folder of `*.jsonl.gz` with a `text` in each row. Bare calls of each
operator in turn, a batch of one text. Operators that py-data-juicer does not have are compared with
their published pattern applied plainly (search, then substitute), and totalled apart; without
`pip install py-data-juicer` they alone are. Ratios above 1: this project is faster.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.runner import compare, machine, timed
from rewards.gold import OPERATORS, RECIPE_PARAMS, BoundStep, Step, bind, privacy, run_bound

WORDS = ["the", "a", "of", "and", "to", "in", "is", "it", "that", "for"]
SKIPPED = ("remove_table_text_mapper",)  # slow, and not what is measured here
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


def ours(name: str) -> BoundStep:
    params: dict[str, Any] = dict(RECIPE_PARAMS.get(name, {}))
    if any(p.required for p in OPERATORS[name].params):
        params["word_list"] = WORDS
    return bind(Step(name, params))


def run_ours(step: BoundStep, texts: Sequence[str]) -> None:
    for text in texts:
        step.keeps(v) if isinstance(v := step.call(text, **step.params), (int, float)) else None


def theirs(name: str) -> Callable[[Sequence[str]], None] | None:
    """py-data-juicer's operator, or the pattern; None where there is neither, or where it would
    download a list."""
    import regex

    known: dict[str, Any] = {}
    with contextlib.suppress(ImportError):
        from data_juicer.ops import OPERATORS as juicer

        known = juicer.modules

    def plain(texts: Sequence[str]) -> None:
        for text in texts:
            for pattern in PLAIN[name]:
                if regex.search(pattern, text):
                    text = regex.sub(pattern, "", text)

    if name not in known or "word_list" in [p.name for p in OPERATORS[name].params]:
        return plain if name in PLAIN else None
    op: Any = known[name](num_proc=1)

    def run(texts: Sequence[str]) -> None:
        for text in texts:
            if not op._batched_op:
                op.process_single({"text": text, "__dj__stats__": {}, "__dj__meta__": {}})
                continue
            batch: Any = {"text": [text], "__dj__stats__": [{}], "__dj__meta__": [{}]}
            if hasattr(op, "compute_stats_batched"):
                batch = op.compute_stats_batched(batch)
            list(op.process_batched(batch))

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True, help="folder of *.jsonl.gz")
    parser.add_argument("--documents", type=int, default=100, help="of each file")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    texts = load(args.corpus, args.documents)
    size = sum(map(len, texts)) / 1e6
    print(f"{machine()}\n{len(texts)} documents, {size:.2f} million characters")
    totals = {"py-data-juicer": [0.0, 0.0], "plain patterns": [0.0, 0.0]}
    for name in OPERATORS:
        other = None if name in SKIPPED else theirs(name)
        if other is None:
            continue
        step = ours(name)
        sides = {
            "ours": lambda step=step: run_ours(step, texts),
            "theirs": lambda other=other: other(texts),
        }
        took = compare(name, sides, args.rounds, len(texts), "documents")
        total = totals["plain patterns" if other.__name__ == "plain" else "py-data-juicer"]
        total[0], total[1] = total[0] + took["ours"].cpu, total[1] + took["theirs"].cpu
    for label, (mine, rival) in totals.items():
        print(f"all that compare with {label}: {rival / max(mine, 1e-9):.2f} times as fast")
    steps = [ours(n) for n in OPERATORS if n not in SKIPPED]
    took = timed(lambda: [run_bound(text, (step,)) for text in texts for step in steps])
    print(
        f"one pass of {len(steps)} operators with traces: {len(texts) / took.cpu:.0f} documents/s"
    )


if __name__ == "__main__":
    main()
