"""`assay tasks demo` and `assay tasks order`: short refinement tasks from real prose."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from assay.console import Parser, add_out, add_seed, parser
from assay.task import Task
from data_gen.builder_settings import given_values
from data_gen.certificate import CERTIFICATE, certificate, write_set
from data_gen.corpora import Corpus, Document, read_corpus
from data_gen.demo.build import DemoTaskError, build_demo_splits
from data_gen.demo.order import OrderSettings, build_order_tasks
from data_gen.demo.settings import DemoTaskSettings, preset
from data_gen.splits import add_splits, read_list, shared_passages
from data_gen.tally import Input, say_empty, say_inputs

FILES = tuple(f"{n}.jsonl" for n in ("train_sft", "train_rl", "validation", "heldout"))


def parse_settings(words: Sequence[str]) -> DemoTaskSettings:
    """Settings from `key=value` words, on top of the difficulty they name.

    Raises `ConfigError` naming the key, what was given and what is wanted.
    """
    changes = given_values(DemoTaskSettings, words)
    return preset(str(changes.pop("difficulty", "medium")), **changes)


def write_splits(
    builder: str,
    splits: Mapping[str, Sequence[Task]],
    out: Path,
    corpus: Corpus,
    settings: Any,
    seed: int,
    **own: Any,
) -> dict[str, Any]:
    """Write the splits, certificate.json and a line for each source; returns the certificate.

    Raises `DemoTaskError` when a split would share anything with the held-out one.
    """
    proof = certificate(
        builder,
        splits,
        shared_passages(splits),
        seed,
        settings=asdict(settings),
        corpus={
            "sha256": corpus.sha256,
            "documents": len(corpus.documents),
            "rows_left_out": len(corpus.problems),
        },
        **own,
    )
    if not proof["ok"]:
        raise DemoTaskError(f"the splits overlap: {proof['shared']}; nothing was written")
    write_set(out, splits, proof, FILES)
    say_inputs(inputs_of(splits, corpus), out)
    say_empty(proof["tasks"], out, "set heldout=N and validation=N above 0")
    return proof


def inputs_of(splits: Mapping[str, Sequence[Task]], corpus: Corpus) -> list[Input]:
    """A line for each domain and source of a corpus, and for each row that was left out."""
    tasks = Counter(str(t.meta["document"]) for own in splits.values() for t in own)
    classes: dict[str, list[Document]] = {}
    for document in corpus.documents:
        classes.setdefault(f"{document.domain} / {document.source}", []).append(document)
    found: list[Input] = []
    for name, own in classes.items():
        count = sum(tasks[document.id] for document in own)
        why = () if count else (f"{len(own)} documents: no task drew a passage of them",)
        found.append(Input(name, count, why, ", ".join(sorted({d.licence for d in own}))))
    return found + [Input(f"row {n}", 0, (said,)) for n, said in enumerate(corpus.problems, 1)]


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
    classes = {name: class_counts(tasks) for name, tasks in splits.items()}
    return write_splits("demo", splits, out, corpus, settings, seed, classes=classes)


def class_counts(tasks: Sequence[Task]) -> dict[str, int]:
    """Tasks without a filter, with one that keeps, with one that drops."""
    counts = Counter(str(task.meta["class"]) for task in tasks)
    return {name: counts[name] for name in ("keep", "keep_filter", "drop")}


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


def demo(argv: Sequence[str]) -> int:
    """`assay tasks demo`: exit status 0; errors that a user can mend are raised."""
    what = "Short refinement tasks from real prose, for a small model (docs/tasks.md)."
    args = _options("demo", what, DemoTaskSettings).parse_intermixed_args(argv)
    settings = parse_settings([*args.settings, *_shares(args)])
    listed = read_list(args.heldout)
    proof = write_demo(_corpus(args.corpus), settings, args.seed, args.out, listed)
    for name, counts in proof["demo"]["classes"].items():
        listed = ", ".join(f"{n} {kind}" for kind, n in counts.items())
        print(f"{args.out / name}.jsonl: {sum(counts.values())} tasks ({listed})")
    print(f"{args.out / CERTIFICATE}: no document, sentence or input is shared with heldout")
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
    write_splits("order", splits, args.out, corpus, settings, args.seed)
    for name, tasks in splits.items():
        print(f"{args.out / name}.jsonl: {len(tasks)} tasks in {len(tasks) // 2} order groups")
    return 0
