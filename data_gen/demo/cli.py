"""`assay tasks demo` and `assay tasks order`: short refinement tasks from real prose."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from assay.console import Parser, add_out, add_seed, parser
from assay.files import atomic_write_set, write_bytes
from assay.record import GOLD, installed
from assay.task import Task, json_text, write_jsonl
from data_gen.builder_settings import given_values
from data_gen.corpora import Corpus, read_corpus
from data_gen.demo.build import DemoTaskError, build_demo_splits
from data_gen.demo.order import OrderSettings, build_order_tasks
from data_gen.demo.settings import DemoTaskSettings, preset
from data_gen.splits import add_splits, certificate, read_list, say_empty

CERTIFICATE = "certificate.json"
FILES = (CERTIFICATE, *(f"{n}.jsonl" for n in ("train_sft", "train_rl", "validation", "heldout")))


def parse_settings(words: Sequence[str]) -> DemoTaskSettings:
    """Settings from `key=value` words, on top of the difficulty they name.

    Raises `ConfigError` naming the key, what was given and what is wanted.
    """
    changes = given_values(DemoTaskSettings, words)
    return preset(str(changes.pop("difficulty", "medium")), **changes)


def write_splits(splits: Mapping[str, Sequence[Task]], out: Path, **more: Any) -> dict[str, Any]:
    """Write the splits and certificate.json, which holds `more` too; returns the certificate.

    Raises `DemoTaskError` when a split would share anything with the held-out one.
    """
    proof = certificate(splits)
    if not proof["ok"]:
        raise DemoTaskError(f"the splits overlap: {proof['overlaps']}; nothing was written")
    with atomic_write_set(out, stale=FILES) as new:
        for name, tasks in splits.items():
            write_jsonl(new / f"{name}.jsonl", (task.to_json() for task in tasks))
        proof |= more | {
            "sha256": {f"{n}.jsonl": _sha256(new / f"{n}.jsonl") for n in splits},
            "versions": installed(("assay", *GOLD)),
        }
        write_bytes(new / CERTIFICATE, json_text(dict(sorted(proof.items())), indent=2))
    return proof


def write_demo(
    corpus: Corpus, settings: DemoTaskSettings, seed: int, out: Path, listed: Collection[str] = ()
) -> dict[str, Any]:
    """Build and write the splits and certificate.json; returns the certificate. Documents whose ids
    are listed are held out.

    Raises `DemoTaskError` when a split would share anything with the held-out one.
    """
    splits = build_demo_splits(corpus, settings, seed, listed)
    if not settings.validation:
        del splits["validation"]
    return write_splits(
        splits,
        out,
        seed=seed,
        settings=asdict(settings),
        corpus=_about(corpus),
        classes={name: class_counts(tasks) for name, tasks in splits.items()},
    )


def _about(corpus: Corpus) -> dict[str, Any]:
    return {
        "sha256": corpus.sha256,
        "documents": len(corpus.documents),
        "rows_left_out": len(corpus.problems),
    }


def class_counts(tasks: Sequence[Task]) -> dict[str, int]:
    """Tasks without a filter, with one that keeps, with one that drops."""
    counts = Counter(str(task.meta["class"]) for task in tasks)
    return {name: counts[name] for name in ("keep", "keep_filter", "drop")}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _options(name: str, what: str, settings: type) -> Parser:
    """A parser whose help lists the settings with their defaults."""
    defaults = settings()
    listed = [f"  {f.name}={_shown(getattr(defaults, f.name))}" for f in fields(settings)]
    made = parser(f"tasks {name}", what, settings="a setting of the list below")
    made.epilog = "settings, with their defaults:\n" + "\n".join(listed) + f"\n\n{made.epilog}"
    add_out(made, "folder to write into", required=True)
    add_seed(made)
    made.add_argument("--corpus", help="JSONL corpus, gzip or plain (default: the shipped one)")
    add_splits(made, "documents", "heldout_documents", "validation_documents")
    return made


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(str(item) for item in value) + "]"  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(value).lower() if isinstance(value, bool) else str(value)


def _corpus(path: str | None) -> Corpus:
    corpus = read_corpus(path)
    for problem in corpus.problems[:5]:
        print(f"assay tasks: {problem}", file=sys.stderr)
    if corpus.problems:
        print(f"assay tasks: {len(corpus.problems)} corpus rows left out", file=sys.stderr)
    return corpus


def _shares(args: Any) -> list[str]:
    """The flags as the settings that they stand for."""
    given = {"heldout_documents": args.heldout_share, "validation_documents": args.validation_share}
    return [f"{name}={value}" for name, value in given.items() if value is not None]


def _say_empty(counts: Mapping[str, int], out: Path) -> None:
    say_empty(counts, out, "set heldout=N and validation=N above 0")


def demo(argv: Sequence[str]) -> int:
    """`assay tasks demo`: exit status 0; errors that a user can mend are raised."""
    what = "Short refinement tasks from real prose, for a small model (docs/tasks.md)."
    args = _options("demo", what, DemoTaskSettings).parse_intermixed_args(argv)
    settings = parse_settings([*args.settings, *_shares(args)])
    listed = read_list(args.heldout)
    proof = write_demo(_corpus(args.corpus), settings, args.seed, args.out, listed)
    for name, counts in proof["classes"].items():
        listed = ", ".join(f"{n} {kind}" for kind, n in counts.items())
        print(f"{args.out / name}.jsonl: {sum(counts.values())} tasks ({listed})")
    print(f"{args.out / 'certificate.json'}: no document, sentence or input is shared with heldout")
    _say_empty(proof["tasks"], args.out)
    return 0


def order(argv: Sequence[str]) -> int:
    """`assay tasks order`: exit status 0; errors that a user can mend are raised."""
    what = "Short order groups: one filter and one mapper in both orders."
    args = _options("order", what, OrderSettings).parse_intermixed_args(argv)
    settings = OrderSettings(**given_values(OrderSettings, [*args.settings, *_shares(args)]))
    corpus = _corpus(args.corpus)
    splits = build_order_tasks(corpus, settings, args.seed, read_list(args.heldout))
    if not splits["validation"]:
        del splits["validation"]
    write_splits(splits, args.out, seed=args.seed, settings=asdict(settings), corpus=_about(corpus))
    for name, tasks in splits.items():
        print(f"{args.out / name}.jsonl: {len(tasks)} tasks in {len(tasks) // 2} order groups")
    _say_empty({name: len(tasks) for name, tasks in splits.items()}, args.out)
    return 0
