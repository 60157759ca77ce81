"""`assay tasks semantic`: the semantic extension (spec section 16), four public data sets as atomic
and compositional rows.

The benchmark's own construction of these tracks is not public: sources, groups, splits, formats and
scoring are the published ones, the wording and the mapping of labels to groups are ours.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Container, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from assay import console
from assay.files import atomic_write_set
from assay.task import Task, derive_seed, write_jsonl
from data_gen.cdr.documents import sources_of
from data_gen.cdr.semantic_sources import DOMAINS, SOURCES, Row, Unusable, published
from data_gen.cdr.units import compared, say_examples, show_examples
from data_gen.certificate import Input, certificate, drawn_from, say_empty, say_inputs
from data_gen.overlap import copies, fingerprint
from data_gen.readers import CorpusError, cut, raw_rows
from data_gen.splits import add_splits, read_list, taken
from rewards.cdr.release_files import SEMANTIC
from rewards.cdr.release_scores import gold_response, score_structured
from rollouts.words.cdr import MODES, Shots, add_shots, messages

FILES = (
    *(f"tracks/{track}.jsonl" for track in SEMANTIC),
    "train.jsonl",
    "heldout.jsonl",
    "manifest.json",
    "certificate.json",
)


def samples_of(name: str, paths: Sequence[Path], left_out: Counter[str]) -> Iterator[Row]:
    """Every usable row of some files or folders as a sample, with `published` where it is of the
    benchmark's own part; the others are counted by reason."""
    domain = DOMAINS[name]

    def torn(number: int, why: str) -> None:
        left_out[why.partition(" (")[0]] += 1

    for path in paths:
        if not path.exists():
            raise CorpusError(f"{path}: no such file or folder; give the source's own files")
        for piece in cut(sources_of([path]), 1, 0):
            for _, raw in raw_rows(piece, torn):
                try:
                    if not isinstance(raw, dict):
                        raise Unusable("not an object")
                    given = cast("dict[str, Any]", raw)
                    own = published(name, given, piece.source.path, path)
                    yield domain.read(given) | {"published": own}
                except Unusable as error:
                    left_out[str(error)] += 1


def proved(row: Row) -> bool:
    """Whether gold scores 1 in both readings."""
    scores = [score_structured(row, gold_response(row), p) for p in ("strict", "release")]
    return all((s.outcome, s.reward) == (1.0, 1.0) for s in scores)


def build(
    name: str, paths: Sequence[Path], size: int | None, seed: int
) -> tuple[list[Row], dict[str, Any], set[str]]:
    """(rows, counts, ids of the rows whose samples may be the benchmark's) of one domain. Raises
    `CorpusError` when no row of the source is usable."""
    domain = DOMAINS[name]
    left_out: Counter[str] = Counter()
    samples = list(samples_of(name, paths, left_out))
    if not samples:
        why = "; ".join(f"{n} rows: {reason}" for reason, n in left_out.most_common(3))
        raise CorpusError(
            f"--{name} {', '.join(map(str, paths))}: no usable row ({why or 'no rows at all'}); "
            f"wanted the format of {SOURCES[name]['source']}, see docs/cdr.md"
        )
    chosen = domain.choose(samples, domain.size if size is None else size, seed)
    made = [row for sample in chosen for row in domain.rows(sample)]
    rows = [row for row in made if proved(row)]
    own = {sample["text"] for sample in samples if sample["published"]}  # copies too
    counts: dict[str, Any] = {
        "usable": len(samples),
        "chosen": len(chosen),
        "rows": len(rows),
        "refused": len(made) - len(rows),
        "published": sum(sample["text"] in own for sample in chosen),
        "left_out": dict(sorted(left_out.items())),
        "published_size": domain.size,
        "counted_in": domain.counts,
    }
    return rows, counts, {row["instance_id"] for row in rows if row["input_text"] in own}


def tasks_of(
    rows: Sequence[Row],
    mode: str,
    share: float,
    seed: int,
    own: Container[str] = (),
    validation: float = 0.0,
    listed: Collection[str] = (),
) -> Iterator[Task]:
    """Training, validation and held-out tasks: samples are split, their copies with them; those
    whose ids are listed are held out. A row is asked in one of its three styles, drawn by a hash.
    Rows of `own` (ids), which may be the benchmark's, are held out, count for no share, and are
    marked as published: nothing trains on them. Raises `CorpusError`."""
    first = copies({row["source_record_id"]: row["input_text"] for row in rows})
    if gone := sorted(set(listed) - first.keys()):
        raise CorpusError(f"--heldout: no sample has the id {gone[0]!r} ({len(gone)} are unknown)")
    kept = {first[row["source_record_id"]] for row in rows if row["instance_id"] in own}
    names = {*first.values()} - kept
    must = {first[name] for name in listed} - kept
    held = taken(names, share, lambda n: derive_seed(seed, "split", n), must)
    rest = names - {*held}
    chosen = taken(rest, validation, lambda n: derive_seed(seed, "validation", n))
    side = dict.fromkeys(rest, "train") | dict.fromkeys([*kept, *held], "heldout")
    side |= dict.fromkeys(chosen, "validation")
    for row in rows:
        text = row["scoring_profile"] == "text_refinement"
        drawn = derive_seed(seed, "wording", row["instance_id"])
        variant = row["prompt_variants"][drawn % len(row["prompt_variants"])]
        gold = {k: v for k, v in row.items() if v is not None and k != "prompt_variants"}
        more = {"status": row["reference_status"], "text": row["reference_text"], "mode": mode}
        yield Task(
            id=row["instance_id"],
            family="refinement" if text else "structured",
            track=row["source_track"],
            split=side[first[row["source_record_id"]]],
            prompt=messages(
                variant["user_requirement"],
                row["input_text"],
                mode if text else "direct",
                "tagged_text" if text else "json",
            ),
            gold=(gold | more) if text else gold,
            meta={
                **drawn_from(
                    row["source_benchmark"],
                    [SOURCES[row["domain"]]["licence"]],
                    row["domain"],
                    row["source_record_id"],
                ),
                "published": row["instance_id"] in own,
                "length_bucket": row["input_length_bucket"],
                "requirement": variant["user_requirement"],
                "style": variant["style_id"],
                "has_filter": False,
                "difficulty": None,
            },
        )


def write(
    out: Path, rows: Sequence[Row], tasks: Sequence[Task], manifest: dict[str, Any], shots: Shots
) -> None:
    """All files of a build, which take their places together."""
    tracks: dict[str, list[Row]] = {}
    for row in rows:
        tracks.setdefault(row["source_track"], []).append(row)
    sides = {s: [t for t in tasks if t.split == s] for s in ("train", "validation", "heldout")}
    alike, own = compared({side: [fingerprint(t) for t in mine] for side, mine in sides.items()})
    # references are labels that many samples share
    inputs = {
        pair: {kind: n for kind, n in counts.items() if not kind.startswith("references")}
        for pair, counts in alike.items()
    }
    proof = certificate("semantic", sides, inputs, manifest["seed"], recipes=own["recipes"])
    manifest |= {
        "tracks": {track: len(mine) for track, mine in tracks.items()},
        "split": {side: len(mine) for side, mine in sides.items()},
    }
    with atomic_write_set(out, stale=FILES) as new:
        for track, mine in tracks.items():
            write_jsonl(new / "tracks" / f"{track}.jsonl", mine)
        for side, made in sides.items():
            write_jsonl(new / f"{side}.jsonl", (task.to_json() for task in made))
        if shots.count:
            manifest["few_shot"] = show_examples(new, [f"{side}.jsonl" for side in sides], shots)
        for name, value in (("manifest", manifest), ("certificate", proof)):
            text = json.dumps(value, indent=2, sort_keys=True) + "\n"
            (new / f"{name}.json").write_text(text, encoding="utf-8")
    say_examples(manifest)


def _parser() -> console.Parser:
    parser = console.parser(
        "tasks semantic",
        "CDR-Bench's semantic extension from its four public data sets, given as the "
        "JSON, JSONL or parquet files (or folders of them) that they are published as.",
    )
    for name in DOMAINS:
        parser.add_argument(
            f"--{name}",
            action="append",
            type=Path,
            default=[],
            metavar="PATH",
            help=f"{SOURCES[name]['source']}; may be repeated",
        )
    sizes = ", ".join(f"{n} {d.size} {d.counts}" for n, d in DOMAINS.items())
    parser.add_argument("--samples", type=int, help=f"of each domain, 0: all (published: {sizes})")
    parser.add_argument("--seed", type=int, default=42)
    add_splits(parser, "samples", "0.2", "0.1")
    parser.add_argument("--mode", choices=MODES, default="direct", help="of text tasks")
    add_shots(parser.add_argument)
    parser.add_argument("--out", required=True, type=Path, help="folder to write into")
    return parser


def main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    given = {name: getattr(args, name) for name in DOMAINS if getattr(args, name)}
    if not given:
        raise CorpusError(f"nothing to read; give {', '.join(f'--{n} PATH' for n in DOMAINS)}")
    share = 0.2 if args.heldout_share is None else args.heldout_share
    validation = 0.1 if args.validation_share is None else args.validation_share
    listed = read_list(args.heldout)
    rows: list[Row] = []
    own: set[str] = set()
    manifest: dict[str, Any] = {"seed": args.seed, "domains": {}}
    for name, paths in given.items():
        made, counts, benchmarks = build(name, paths, args.samples, args.seed)
        rows += made
        own |= benchmarks
        manifest["domains"][name] = counts
        why = ", ".join(f"{n} {reason}" for reason, n in counts["left_out"].items())
        print(
            f"{name}: {counts['rows']} rows of {counts['chosen']} samples, {counts['usable']} were "
            f"usable{f' (left out: {why})' if why else ''}"
        )
    tasks = list(tasks_of(rows, args.mode, share, args.seed, own, validation, listed))
    shown = args.shots if args.mode == "few_shot" else 0
    write(args.out, rows, tasks, manifest, Shots(shown, args.shot_chars, args.seed))
    say_empty(
        Counter(t.split for t in tasks), args.out, "raise --heldout-share, --validation-share"
    )
    print(f"{args.out / 'tracks'}: {len(rows)} verified rows")
    if own:
        print(
            f"held out: {len(own)} rows from the part of a source that the benchmark draws from; "
            "for training give the source's training files"
        )
    inputs = [
        Input(SOURCES[name]["source"], counts["rows"], why, SOURCES[name]["licence"])
        for name, counts in manifest["domains"].items()
        for why in (tuple(f"{n} rows: {reason}" for reason, n in counts["left_out"].items()),)
    ]
    say_inputs(inputs, args.out)
    return 0
