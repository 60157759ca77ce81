"""`assay tasks cdr`: CDR-Bench tasks from raw corpora, by the benchmark's own construction."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from assay import console
from assay import record as provenance
from assay.workers import FEW, WorkerPool
from configs import KEY_ENV
from configs.cdr import CdrConfig
from configs.loader import load
from data_gen.cdr.documents import (
    LABELS,
    LONG,
    USED,
    chosen_operators,
    filters_of,
    mappers_of,
    scan_shard,
    sources_of,
)
from data_gen.cdr.merge import STATISTICS, Built, classes_of, left_out, merge, tables_of
from data_gen.cdr.plan import make_plan, word_shard
from data_gen.cdr.recipes import merge_library, trace_shard
from data_gen.cdr.units import FILTER, MAIN, MAPPER, ORDER, SWAP, say_examples
from data_gen.cdr.work import StageError, Work, begin, need_extra
from data_gen.certificate import Input, say_inputs
from data_gen.readers import CorpusError
from data_gen.rewording import add_writer
from rewards.cdr.release_files import RESULT_STYLES

STAGES = ("facts", "library", "traces", "plan", "rows", "merge")
MAPS = ("facts", "traces", "rows")  # these are run shard by shard
WORK = ".work"  # in the folder that is written
PART = 250  # documents in a file of the work folder
SHOWN = 5  # rows left out that are named on the screen


def main(argv: Sequence[str]) -> int:
    args = _parser().parse_intermixed_args(argv)  # settings may stand between options
    given = {
        "paraphrase.model": args.writer_model,
        "paraphrase.url": args.writer,
        "paraphrase.key_env": args.key_env if args.key_env != KEY_ENV else "",
        "fields.text": args.text_field,
        "workers": args.workers,
    }
    words = [f"{name}={value}" for name, value in given.items() if value]
    config = load(CdrConfig, args.config, [*args.settings, *words])
    config = replace(config, licences=(*config.licences, *args.licence))
    chosen_operators(config.operators.only)  # before anything is read
    need_extra()
    corpora = args.corpus or [find_corpus(name, args.config) for name in config.corpora]
    if not corpora:
        raise CorpusError("no corpus; give --corpus PATH or set corpora in the config")
    if args.part < 1 or args.shards < 1:
        raise StageError("--part and --shards: wanted 1 or more")
    if not 0 <= args.shard < args.shards:
        raise StageError(f"--shard {args.shard}: wanted 0 to {args.shards - 1}")
    if args.stage is None and args.shards > 1:
        raise StageError("--shards needs --stage: every stage is a job of its own")
    folder: Path = args.work or args.out / WORK
    workers = config.workers or os.cpu_count() or 1
    if args.stage is None:
        build(config, corpora, args.out, folder, args.part, workers)
        return 0
    # One stage. Each is its own command, on any node that sees the work folder; a stage that is
    # done already is not done again.
    work = begin(folder, config, sources_of(corpora), args.shards, args.part, whole=False)
    with WorkerPool(workers, few=FEW) as crew:
        run_stage(work, args.stage, args.shard, crew, args.out)
    if args.stage == STAGES[-1]:
        shutil.rmtree(folder)
    else:
        provenance.part()
    return 0


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
    home = Path(config or name).resolve().parent
    places = [Path(), *([home, home.parent] if config else [])]
    found = next((place / name for place in places if (place / name).exists()), None)
    if found is None:
        looked = ", ".join(str(place.resolve()) for place in places)
        raise CorpusError(
            f"corpora names {name}, which is not there (looked from {looked}); give --corpus PATH"
        )
    return str(found)


def build(
    config: CdrConfig, corpora: Sequence[str], out: Path, folder: Path, part: int, workers: int
) -> None:
    """All stages; all files take their places together.

    What is made on the way stands in `folder` until then; after a kill the same command goes on
    from it.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    begun = begin(folder, config, sources_of(corpora), 1, part, whole=True)
    try:
        with WorkerPool(workers, few=FEW) as crew:
            for stage in STAGES[:-1]:
                run_stage(begun, stage, 0, crew, out)
        run_stage(begun, STAGES[-1], 0, crew, out)  # it has the memory that the processes had
    except CorpusError:  # nothing to go on from
        shutil.rmtree(folder)
        for place in made[1:]:
            place.rmdir()
        raise
    shutil.rmtree(folder)


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
        db = tables_of(work, crew.workers)
        _say(work, db, merge(work, db, out), out)


def _say(work: Work, db: Any, built: Built, out: Path) -> None:
    """The counts of a build, what a small corpus could not give, and a line per input."""
    if built.manifest:
        _say_tracks(built.manifest, out)
    for line in _starved(work, db):
        print(line)
    rows = _rows_by_kind(db)
    query = f"SELECT count(*), count(*) FILTER (usable) FROM documents WHERE state = {USED}"
    documents, usable = db.execute(query).fetchone()
    mined = sum(len(one.recipes) for one in work.load("library").mined)
    print(
        f"{out / 'pipeline.jsonl'}: {documents} documents, {usable} of them usable; "
        f"{mined} mined recipes; {rows[MAPPER] + rows[FILTER]} atomic, {rows[MAIN]} main, "
        f"{3 * rows[ORDER]} order instances, {rows[SWAP]} swap pairs"
    )
    query = f"SELECT count(*) FROM documents WHERE state NOT IN ({USED}, {LONG})"
    (rows_left,) = db.execute(query).fetchone()
    left = left_out(work, db)
    for one in (next(left) for _ in range(min(rows_left, SHOWN))):
        print(f"assay tasks: {one}", file=sys.stderr)
    if rows_left:
        print(f"assay tasks: {rows_left} corpus rows left out", file=sys.stderr)
    documents_left = (Input(one.name, 0, (one.why,), one.licence) for one in left_out(work, db))
    inputs = classes_of(work, db, built.rows_of)
    say_inputs(inputs, out, members=chain(built.unsaid, documents_left))


def _say_tracks(manifest: dict[str, Any], out: Path) -> None:
    """The counts of the tracks, and what is in no split."""
    counts, found = manifest["counts"], manifest["statistics"]
    for track, count in counts["track"].items():
        print(f"{out / 'tracks' / track}.jsonl: {count} verified tasks")
    if told := counts.get("wording of result styles"):
        print(f"{' and '.join(RESULT_STYLES)}: {_listed(told)}")
    if manifest["units_refused"]:
        print(f"left out: {_listed(manifest['units_refused'])}")
    for why, count in manifest["left_out_of_splits"].items():
        if count:
            print(f"in no split: {count} rows, {why}")
    for what, count in manifest["words_say_another_thing"].items():
        print(f"  {count} rows: {what}")
    print(
        f"{found['anchors']} family anchors, {found['recipes']} recipes, {found['sequences']} "
        f"executable variants of {found['mean_recipe_length']} steps on average; inputs of "
        f"{found['mean_characters']:,} characters and instructions of {found['mean_words']} words "
        f"on average ({out / STATISTICS})"
    )
    say_examples(manifest)
    if said := manifest.get("paraphrases"):
        print(f"paraphrases: {_listed({k: n for k, n in said.items() if k != 'refused'})}")
        if said["refused"]:
            print(f"  refused: {_listed(said['refused'])}")
    print(
        f"{manifest['tasks']} tasks, {manifest['operators']} operators; "
        + ", ".join(f"{name} {n}" for name, n in counts["split"].items())
    )


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items())


def _rows_by_kind(db: Any) -> Counter[int]:
    return Counter(dict(db.execute("SELECT kind, count(*) FROM units GROUP BY kind").fetchall()))


def _starved(work: Work, db: Any) -> Iterator[str]:
    """What a small corpus could not give, in words: domains without a recipe, tracks without a
    task, filters that no threshold splits."""
    entries, plans = work.load("library").entries, work.load("plan").plans
    used = db.execute("SELECT DISTINCT plan FROM units").fetchall()
    first = [plans[number][0] for (number,) in used]
    recipes = Counter(entry.domain for entry in entries)
    query = (
        f"SELECT domain, count(*) FROM documents WHERE state = {USED} AND "
        "bit_count(active::BIGINT) > 1 GROUP BY domain"
    )
    active = dict(db.execute(query).fetchall())
    for domain, name in LABELS.items():
        if not recipes[domain]:
            yield (
                f"no recipe of domain {name}: {active.get(domain, 0)} documents with two or "
                "more active mappers, too few of them alike"
            )
    asked = {one.sequence[0] for one in first if one.kind in (MAPPER, FILTER)}
    if missing := [name for name in mappers_of(work.config) if name not in asked]:
        yield f"no document activates {', '.join(missing)}"
    if missing := [name for name in filters_of(work.config) if name not in asked]:
        yield f"no balanced KEEP and DROP for {', '.join(missing)}"
    families = sum(len(entry.families) for entry in entries)
    if few := families - len({one.family_id for one in first if one.kind == ORDER}):
        yield (
            f"order_f: {few} of {families} families had too few groups whose "
            "results differ (instances.min_groups)"
        )
    if entries and not _rows_by_kind(db)[SWAP]:
        yield "order_m: no swap of neighbours changes a result"
