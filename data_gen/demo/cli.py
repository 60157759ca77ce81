"""`assay tasks demo` and `assay tasks order`: short refinement tasks from real prose."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from assay.console import Parser, add_out, add_seed, parser
from assay.task import Task
from configs.loader import given_values
from data_gen.certificate import Input, Tally, counted
from data_gen.corpora import Corpus, Document, read_corpus, shared_passages
from data_gen.demo.refinements import DemoBuilder, OrderBuilder
from data_gen.demo.settings import DemoTaskSettings, OrderSettings, preset
from data_gen.pipeline import finish
from data_gen.splits import add_splits, read_list


def parse_settings(words: Sequence[str]) -> DemoTaskSettings:
    """Settings from `key=value` words, on top of the difficulty they name.

    Raises `ConfigError` naming the key, what was given and what is wanted.
    """
    changes = given_values(DemoTaskSettings, words)
    return preset(str(changes.pop("difficulty", "medium")), **changes)


def write(
    builder: DemoBuilder | OrderBuilder, corpus: Corpus, out: Path, listed: Collection[str] = ()
) -> int:
    """Write the splits, certificate.json and a line for each source; documents whose ids are listed
    are held out. Returns the exit status. Raises `TaskError` when a split would share anything with
    the held-out one."""
    tally = Tally()
    splits = builder.splits(corpus, listed, tally)
    if not splits["validation"]:
        del splits["validation"]
    return finish(
        builder.name,
        out,
        splits,
        shared_passages(splits),
        inputs_of(splits, corpus),
        builder.seed,
        tally=tally,
        kind=_class,
        hint="set heldout=N and validation=N above 0",
        settings=asdict(builder.settings),
        corpus={
            "sha256": corpus.sha256,
            "documents": len(corpus.documents),
            "rows_left_out": len(corpus.problems),
        },
        classes=counted(splits, lambda task: (_class(task),)),
    )


def _class(task: Task) -> str:
    """Without a filter, with one that keeps, with one that drops."""
    return str(task.meta["class"])


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


def _built(builder: DemoBuilder | OrderBuilder, args: Namespace) -> int:
    corpus = read_corpus(args.corpus)
    for problem in corpus.problems[:5]:
        print(f"assay tasks: {problem}", file=sys.stderr)
    if corpus.problems:
        print(f"assay tasks: {len(corpus.problems)} corpus rows left out", file=sys.stderr)
    return write(builder, corpus, args.out, read_list(args.heldout))


def _words(args: Namespace) -> list[str]:
    """The settings, with the flags as the settings that they stand for."""
    given = {"heldout_documents": args.heldout_share, "validation_documents": args.validation_share}
    shares = [f"{name}={value}" for name, value in given.items() if value is not None]
    return [*args.settings, *shares]


def demo(argv: Sequence[str]) -> int:
    """`assay tasks demo`: exit status 0; errors that a user can mend are raised."""
    what = "Short refinement tasks from real prose, for a small model (docs/tasks.md)."
    args = _options("demo", what, DemoTaskSettings).parse_intermixed_args(argv)
    return _built(DemoBuilder(parse_settings(_words(args)), args.seed), args)


def order(argv: Sequence[str]) -> int:
    """`assay tasks order`: exit status 0; errors that a user can mend are raised."""
    what = "Short order groups: one filter and one mapper in both orders."
    args = _options("order", what, OrderSettings).parse_intermixed_args(argv)
    settings = OrderSettings(**given_values(OrderSettings, _words(args)))
    return _built(OrderBuilder(settings, args.seed), args)
