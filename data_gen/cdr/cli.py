"""`assay tasks cdr`: CDR-Bench tasks from raw corpora, by the benchmark's own construction."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from assay import console
from assay import record as provenance
from assay.workers import FEW, WorkerPool
from configs.cdr import CdrConfig
from configs.loader import load
from data_gen.cdr import build_tables, few_shot
from data_gen.cdr.domains import LABELS, chosen_operators
from data_gen.cdr.facts import LONG, filters_of, mappers_of, scan_shard
from data_gen.cdr.lines import word_shard
from data_gen.cdr.merge import Built, classes_of, members, merge, rows_left, unsaid_rows
from data_gen.cdr.out import Tracks
from data_gen.cdr.plan import make_plan
from data_gen.cdr.recipes import merge_library
from data_gen.cdr.traces import trace_shard
from data_gen.cdr.units import FILTER, MAIN, MAPPER, ORDER, SWAP
from data_gen.cdr.work import StageError, Work, begin, need_extra
from data_gen.readers import CorpusError
from data_gen.rewording import KEY_ENV, add_writer
from data_gen.tally import say_inputs
from rewards.cdr.release_files import RESULT_STYLES

STAGES = ("facts", "library", "traces", "plan", "rows", "merge")
MAPS = ("facts", "traces", "rows")  # these are run shard by shard
WORK = ".work"  # in the folder that is written
PART = 250  # documents in a file of the work folder
# Megabytes of the command, and of each worker beside it (benchmarks/builders.py measures both).
ALONE, EACH = 650, 250
SHOWN = 5  # rows left out that are named on the screen


def main(argv: Sequence[str]) -> int:
    args = _parser().parse_intermixed_args(argv)  # settings may stand between options
    words = [f"paraphrase.model={args.writer_model}"] if args.writer_model else []
    words += [f"paraphrase.url={args.writer}"] if args.writer else []
    words += [f"paraphrase.key_env={args.key_env}"] if args.key_env != KEY_ENV else []
    words += [f"fields.text={args.text_field}"] if args.text_field else []
    words += [f"workers={args.workers}"] if args.workers else []
    config = load(CdrConfig, args.config, [*args.settings, *words])
    config = replace(config, workers=workers_of(config.workers, args.memory))
    if args.licence:
        config = replace(config, licences=(*config.licences, *args.licence))
    chosen_operators(config.operators.only)  # before anything is read
    need_extra()
    corpora = args.corpus or [find_corpus(name, args.config) for name in config.corpora]
    if args.part < 1 or args.shards < 1:
        raise StageError("--part and --shards: wanted 1 or more")
    if args.stage is None:
        if args.shards > 1 or args.shard:
            raise StageError("--shards needs --stage: every stage is a job of its own")
        build(config, corpora, args.out, args.work, args.part)
    else:
        stage(config, corpora, args)
    return 0


def workers_of(wanted: int, memory: str | None) -> int:
    """How many processes: as many as asked for (0: all cores), as far as the memory goes."""
    workers = wanted or os.cpu_count() or 1
    if memory is None:
        return workers
    size = re.fullmatch(r"(\d+(?:\.\d+)?)([MG])B?", memory.upper())
    if size is None:
        raise StageError(f"--memory {memory}: wanted a number with M or G, such as 1G")
    room = float(size[1]) * {"M": 1, "G": 1000}[size[2]]
    if room < ALONE:
        raise StageError(f"--memory {memory}: one process needs {ALONE}M; give that at least")
    fit = max(1, int((room - ALONE) // EACH))
    if fit < workers:
        print(f"--memory {memory}: {fit} of {workers} workers", file=sys.stderr)
    return min(workers, fit)


def stage(config: CdrConfig, corpora: Sequence[str], args: argparse.Namespace) -> None:
    """One stage of a build in shards. Each is its own command, on any node that sees the work
    folder; a stage that is done already is not done again."""
    if not corpora:
        raise CorpusError("no corpus; give --corpus PATH or set corpora in the config")
    if not 0 <= args.shard < args.shards:
        raise StageError(f"--shard {args.shard}: wanted 0 to {args.shards - 1}")
    folder = args.work or args.out / WORK
    work = begin(folder, config, corpora, args.shards, args.part, whole=False)
    with WorkerPool(config.workers, few=FEW) as crew:
        run_stage(work, args.stage, args.shard, crew, args.out)
    if args.stage == STAGES[-1]:
        shutil.rmtree(folder)
    else:
        provenance.part()


def _parser() -> console.Parser:
    parser = console.parser(
        "tasks cdr",
        "Build CDR-Bench tracks from corpora. Settings are those of configs/cdr.py as "
        "key=value words; configs/cdr_reference.yaml, cdr_paper.yaml and cdr_train.yaml are sets.",
        settings="settings of configs/cdr.py",
    )
    parser.add_argument("--config", help="YAML of settings")
    parser.add_argument("--out", required=True, type=Path, help="folder to write into")
    parser.add_argument(
        "--corpus",
        action="append",
        default=[],
        metavar="PATH",
        help="file, folder, pattern or URL of documents, instead of `corpora`; may be repeated",
    )
    parser.add_argument(
        "--licence",
        action="append",
        default=[],
        metavar="NAME",
        help="use documents of this licence alone, a pattern such as CC-BY*; may be repeated "
        "(the setting `licences`)",
    )
    parser.add_argument(
        "--text-field",
        metavar="NAME",
        help="field of the text, or a path such as doc.body (fields.text; fields.id, fields.domain "
        "and so on are settings)",
    )
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="processes (all cores)")
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="of all processes together, such as 1G: fewer workers when they would not fit",
    )
    add_writer(parser)
    shards = parser.add_argument_group("a corpus in shards (docs/clusters.md)")
    shards.add_argument("--stage", choices=STAGES, help="run this stage alone")
    shards.add_argument("--shards", type=int, default=1, metavar="K", help="parts of the corpus")
    shards.add_argument(
        "--shard", type=int, default=0, metavar="I", help="of facts, traces and rows: which one"
    )
    shards.add_argument("--work", type=Path, metavar="DIR", help="between stages (OUT/.work)")
    shards.add_argument(
        "--part", type=int, default=PART, metavar="N", help="documents in a file of the work folder"
    )
    return parser


def find_corpus(name: str, config: str | None) -> str:
    """A corpus that a config names: relative to the working folder, else to the config's folder
    or the one above it (a checkout keeps its presets in configs/)."""
    places = [Path()]
    if config is not None:
        home = Path(config).resolve().parent
        places += [home, home.parent]
    found = next((place / name for place in places if (place / name).exists()), None)
    if found is None:
        looked = ", ".join(str(place.resolve()) for place in places)
        raise CorpusError(
            f"corpora names {name}, which is not there (looked from {looked}); give --corpus PATH"
        )
    return str(found)


def _paraphrases(counts: dict[str, Any]) -> str:
    refused = ", ".join(f"{n} {why}" for why, n in counts["refused"].items())
    return (
        f"paraphrases: {counts['styles_paraphrased']} of {counts['styles_of_recipes']} wordings; "
        f"{counts['accepted']} of {counts['candidates']} candidates accepted"
        + (f"; refused: {refused}" if refused else "")
    )


def _told(counts: dict[str, int]) -> str:
    """How many rows are asked for by their result."""
    others = {why: n for why, n in counts.items() if why != "outcome"}
    why = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in others.items())
    return (
        f"{' and '.join(RESULT_STYLES)}: {counts.get('outcome', 0)} rows describe the result, "
        f"{sum(others.values())} tell the steps" + (f" ({why})" if why else "")
    )


def _say_tracks(made: Tracks, out: Path) -> None:
    """The counts of the tracks, and what is in no split."""
    manifest = made.manifest
    for track, count in manifest["counts"].get("track", {}).items():
        print(f"{out / 'tracks' / track}.jsonl: {count} verified tasks")
    if told := manifest["counts"].get("wording of result styles"):
        print(_told(told))
    refused = ", ".join(f"{n} {why}" for why, n in manifest["units_refused"].items())
    if refused:
        print(f"left out: {refused}")
    for why, count in manifest["left_out_of_splits"].items():
        if count:
            print(f"in no split: {count} rows, {why}")
    for (operator, does), own in made.unsaid.items():
        print(f"  {own.rows} rows: {operator} {does}")
    print(build_tables.short(manifest["statistics"]), f"({out / build_tables.FILE})")
    if shown := few_shot.said(manifest["few_shot"]) if "few_shot" in manifest else "":
        print(shown)
    if spoken := manifest.get("paraphrases"):
        print(_paraphrases(spoken))
    print(
        f"{manifest['tasks']} tasks, {manifest['operators']} operators; "
        + ", ".join(f"{name} {n}" for name, n in manifest["counts"].get("split", {}).items())
    )


def starved(work: Work, built: Built) -> list[str]:
    """What a small corpus could not give, in words: domains without a recipe, tracks without a
    task, filters that no threshold splits."""
    lines: list[str] = []
    library = built.library
    recipes = Counter(entry.domain for entry in library.entries)
    for domain, name in LABELS.items():
        if not recipes[domain]:
            lines.append(
                f"no recipe of domain {name}: {built.active.get(domain, 0)} documents with two or "
                "more active mappers, too few of them alike"
            )
    if missing := [name for name in mappers_of(work.config) if name not in built.operators]:
        lines.append(f"no document activates {', '.join(missing)}")
    if missing := [name for name in filters_of(work.config) if name not in built.operators]:
        lines.append(f"no balanced KEEP and DROP for {', '.join(missing)}")
    families = sum(len(entry.families) for entry in library.entries)
    if built.families < families:
        lines.append(
            f"order_f: {families - built.families} of {families} families had too few groups whose "
            "results differ (instances.min_groups)"
        )
    if library.entries and not built.rows[SWAP]:
        lines.append("order_m: no swap of neighbours changes a result")
    return lines


def build(
    config: CdrConfig,
    corpora: Sequence[str],
    out: Path,
    work: Path | None = None,
    part: int = PART,
) -> None:
    """Everything `assay tasks cdr` writes, in one command; all files take their places together.

    What is made on the way stands in the folder `work` until then; after a kill the same command
    goes on from it.
    """
    if not corpora:
        raise CorpusError("no corpus; give --corpus PATH or set corpora in the config")
    folder = work or out / WORK
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    begun = begin(folder, config, corpora, 1, part, whole=True)
    with ThreadPoolExecutor(1) as aside:
        try:
            with WorkerPool(workers_of(config.workers, None), few=FEW) as crew:
                for stage in STAGES:
                    run_stage(begun, stage, 0, crew, out)
                removed = aside.submit(shutil.rmtree, folder)  # while the processes end
        except CorpusError:  # nothing to go on from
            shutil.rmtree(folder)
            for place in made[1:]:
                place.rmdir()
            raise
        removed.result()


def run_stage(work: Work, stage: str, shard: int, crew: WorkerPool, out: Path) -> None:
    """One stage, of one shard where it is a map."""
    if stage == "facts":
        scan_shard(work, shard, crew)
    elif stage == "library":
        merge_library(work, crew)
    elif stage == "traces":
        trace_shard(work, shard, crew)
    elif stage == "plan":
        make_plan(work, crew, out)
    elif stage == "rows":
        word_shard(work, shard, crew)
    else:
        _say(work, merge(work, crew, out), out)


def _say(work: Work, built: Built, out: Path) -> None:
    """The counts of a build, what a small corpus could not give, and a line per input."""
    if built.tracks is not None:
        _say_tracks(built.tracks, out)
    for line in starved(work, built):
        print(line)
    rows = built.rows
    mined = sum(len(one.recipes) for one in built.library.mined)
    print(
        f"{out / 'pipeline.jsonl'}: {built.documents} documents, {built.usable} of them usable; "
        f"{mined} mined recipes; {rows[MAPPER] + rows[FILTER]} atomic, {rows[MAIN]} main, "
        f"{rows[ORDER]} order instances, {rows[SWAP]} swap pairs"
    )
    db = work.query(documents=work.documents)
    say_left_out(work, db)
    unsaid = unsaid_rows(built.tracks.unsaid) if built.tracks else []
    inputs = classes_of(work, db, built.rows_of)
    say_inputs(inputs, out, members=chain(unsaid, members(work, db)))


def say_left_out(work: Work, db: Any) -> None:
    """How many rows of the corpora are not used; the first are named."""
    (long,) = db.execute(f"SELECT count(*) FROM documents WHERE state = {LONG}").fetchone()
    left = rows_left(work, db)
    count = 0
    for count, one in enumerate(left, 1):
        if count <= SHOWN:
            print(f"assay tasks: {one}", file=sys.stderr)
    if count:
        print(f"assay tasks: {count} corpus rows left out", file=sys.stderr)
    if long:
        most = work.config.instances.max_text_length
        print(
            f"assay tasks: {long} documents longer than {most} characters left out "
            "(instances.max_text_length)",
            file=sys.stderr,
        )
