"""`assay tasks`: build tasks and splits, and write them with the certificate of their split."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from data_gen.cdr.cli import main as cdr_main
from data_gen.check import main as check_main
from data_gen.corpora import Corpus, read_corpus
from data_gen.dare.cli import main as dare_main
from data_gen.demo.build import DemoTaskError, build_demo_tasks
from data_gen.demo.order import OrderSettings, build_order_tasks
from data_gen.demo.settings import DemoTaskSettings, SettingsError, preset
from data_gen.splits import certificate
from rewards.console import near_miss
from rewards.families import has_family
from rewards.task import Task, TaskError, write_jsonl


def parse_settings(pairs: Sequence[str]) -> DemoTaskSettings:
    """Settings from `key=value` words; tuples are comma-separated.

    Raises `SettingsError` naming the key, what was given and what is wanted.
    """
    defaults = {spec.name: spec.default for spec in fields(DemoTaskSettings)}
    changes: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise SettingsError(f"{pair!r}: wanted key=value")
        changes[name] = _value(name, value, defaults.get(name, ""))
    return preset(str(changes.pop("difficulty", "medium")), **changes)


def _numbers(value: str) -> tuple[float, ...]:
    return tuple(float(part) for part in value.split(",") if part.strip())


def _names(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _flag(value: str) -> bool:
    return {"true": True, "false": False}[value.lower()]


def _value(name: str, value: str, default: object) -> Any:
    """`value` as the type of the setting's default."""
    read: Callable[[str], Any] = str
    wanted = "text"
    if isinstance(default, bool):
        read, wanted = _flag, "true or false"
    elif isinstance(default, int):
        read, wanted = int, "a whole number"
    elif isinstance(default, float):
        read, wanted = float, "a number"
    elif isinstance(default, tuple):
        read = _numbers if "mappers" in name else _names
        wanted = "numbers with commas between"
    try:
        return read(value)
    except (ValueError, KeyError):
        raise SettingsError(f"{name}={value}: wanted {wanted}") from None


def write_demo(corpus: Corpus, settings: DemoTaskSettings, seed: int, out: Path) -> dict[str, Any]:
    """Build and write the three splits and certificate.json; returns the certificate.

    Raises `DemoTaskError` when a split would share anything with the held-out one.
    """
    sft, rl, heldout = build_demo_tasks(corpus, settings, seed)
    splits = {"train_sft": sft, "train_rl": rl, "heldout": heldout}
    proof = certificate(splits)
    if not proof["ok"]:
        raise DemoTaskError(f"the splits overlap: {proof['overlaps']}; nothing was written")
    for name, tasks in splits.items():
        write_jsonl(out / f"{name}.jsonl", (task.to_json() for task in tasks))
    files = {f"{n}.jsonl": _sha256(out / f"{n}.jsonl") for n in splits}
    proof |= {
        "seed": seed,
        "settings": asdict(settings),
        "corpus": {
            "sha256": corpus.sha256,
            "documents": len(corpus.documents),
            "rows_left_out": len(corpus.problems),
        },
        "classes": {name: class_counts(tasks) for name, tasks in splits.items()},
        "sha256": files,
    }
    text = json.dumps(proof, indent=2, sort_keys=True) + "\n"
    (out / "certificate.json").write_text(text, encoding="utf-8")
    return proof


def class_counts(tasks: Sequence[Task]) -> dict[str, int]:
    """Tasks without a filter, with one that keeps, with one that drops."""
    counts = Counter(str(task.meta["class"]) for task in tasks)
    return {name: counts[name] for name in ("keep", "keep_filter", "drop")}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _demo(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="assay tasks demo",
        description="Short refinement tasks from real prose, for a small model. Settings are "
        "key=value words: " + ", ".join(spec.name for spec in fields(DemoTaskSettings)) + ".",
    )
    parser.add_argument("settings", nargs="*", metavar="key=value")
    parser.add_argument("--out", required=True, type=Path, help="folder to write into")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", help="JSONL corpus, gzip or plain (default: the shipped one)")
    args = parser.parse_args(argv)
    settings = parse_settings(args.settings)
    corpus = read_corpus(args.corpus)
    for problem in corpus.problems[:5]:
        print(f"assay tasks: {problem}", file=sys.stderr)
    if corpus.problems:
        print(f"assay tasks: {len(corpus.problems)} corpus rows left out", file=sys.stderr)
    proof = write_demo(corpus, settings, args.seed, args.out)
    for name, counts in proof["classes"].items():
        listed = ", ".join(f"{n} {kind}" for kind, n in counts.items())
        print(f"{args.out / name}.jsonl: {sum(counts.values())} tasks ({listed})")
    print(f"{args.out / 'certificate.json'}: no document, sentence or input is shared with heldout")
    return 0


def _krama(argv: Sequence[str]) -> int:
    from data_gen.krama.cli import main as krama_main

    return krama_main(argv)


def _lake(argv: Sequence[str]) -> int:
    from data_gen.krama.lakes.build import main as lake_main

    return lake_main(argv)


def _semantic(argv: Sequence[str]) -> int:
    from data_gen.cdr.semantic.cli import main as semantic_main

    return semantic_main(argv)


def _order(argv: Sequence[str]) -> int:
    """`assay tasks order`: small order groups for the shipped model (docs/cdr.md)."""
    parser = argparse.ArgumentParser(
        prog="assay tasks order",
        description="Short order groups: one filter and one mapper in both orders.",
    )
    parser.add_argument("--out", required=True, type=Path, help="folder to write into")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", help="JSONL corpus, gzip or plain (default: the shipped one)")
    args = parser.parse_args(argv)
    splits = build_order_tasks(read_corpus(args.corpus), OrderSettings(), args.seed)
    proof = certificate(splits)
    if not proof["ok"]:
        raise DemoTaskError(f"the splits overlap: {proof['overlaps']}; nothing was written")
    for name, tasks in splits.items():
        write_jsonl(args.out / f"{name}.jsonl", (task.to_json() for task in tasks))
        print(f"{args.out / name}.jsonl: {len(tasks)} tasks in {len(tasks) // 2} order groups")
    text = json.dumps(proof | {"seed": args.seed}, indent=2, sort_keys=True) + "\n"
    (args.out / "certificate.json").write_text(text, encoding="utf-8")
    return 0


# name: (its command, what it does, an example). A new builder adds one function and one entry.
BUILDERS: dict[str, tuple[Callable[[Sequence[str]], int], str, str]] = {
    "demo": (
        _demo,
        "short refinement tasks from real prose, for a small model",
        "assay tasks demo --out tasks --seed 1 difficulty=easy",
    ),
    "cdr": (
        cdr_main,
        "CDR-Bench tracks from your documents, by the benchmark's construction",
        "assay tasks cdr --config configs/cdr_train.yaml --corpus docs.jsonl --out tasks",
    ),
    "semantic": (
        _semantic,
        "CDR-Bench's semantic extension: PII, hallucination, judged edits",
        "assay tasks semantic --help",
    ),
    "order": (
        _order,
        "small order groups: one filter and one mapper in both orders",
        "assay tasks order --out tasks --seed 1",
    ),
    "dare": (
        dare_main,
        "modelling tasks over tables: your own, or official databases",
        "assay tasks dare --tables my_tables/ --out tasks",
    ),
    "krama": (
        _krama,
        "KramaBench's workloads and lakes, for evaluation",
        "assay tasks krama --workload legal.json --lakes lakes/ --out tasks",
    ),
    "lake": (
        _lake,
        "questions over your own folders of tables, with executed gold",
        "assay tasks lake --lakes my_lake/ --heldout other_lake/ --out tasks",
    ),
    "check": (
        check_main,
        "what a set of tasks shares with another, exactly and nearly",
        "assay tasks check train.jsonl --against heldout.jsonl",
    ),
}


def usage() -> str:
    """Every builder in a line, with an example."""
    lines = [
        f"  {name:<9} {what}\n  {'':<9} {example}" for name, (_, what, example) in BUILDERS.items()
    ]
    return (
        "usage: assay tasks NAME --out DIR [--seed S] [key=value …]\n\n"
        "Build or import tasks and their splits, with a certificate of what the splits share.\n\n"
        + "\n".join(lines)
        + "\n  NAME      a family of your own that has build(seed, **settings)\n"
        + f"  {'':<9} assay tasks NAME --family my_family.py --out tasks --seed 1 [key=value …]\n\n"
        "assay tasks NAME --help shows a builder's options and settings.\n"
    )


def _builder(name: str, words: Sequence[str]) -> Callable[[Sequence[str]], int]:
    """The command of a builder, or of a family that brings its own."""
    own = any(word.partition("=")[0] == "--family" for word in words)
    if name in BUILDERS and (name == "check" or not own):
        return BUILDERS[name][0]
    if not own and not has_family(name):
        raise TaskError(
            f"no builder and no family {name!r}{near_miss(name, [*BUILDERS])}; "
            "`assay tasks --help` lists them; a family of your own needs --family FILE.py"
        )
    from data_gen.own import main as own_main

    return lambda argv: own_main(name, argv)


def main(argv: list[str]) -> int:
    """Exit status of a builder; errors that a user can mend are raised."""
    if not argv or argv[0] in ("-h", "--help"):
        print(usage(), end="", file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    return _builder(argv[0], argv[1:])(argv[1:])
