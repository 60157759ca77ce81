"""`assay tasks cdr`: CDR-Bench tasks from raw corpora, by the benchmark's own construction."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from configs.cdr import CdrConfig
from configs.loader import dump, load
from data_gen.cdr.construct import (
    CALIBRATED_FILTERS,
    Construction,
    construct,
    pipeline_rows,
    usable_records,
)
from data_gen.cdr.documents import inputs_of, refused, too_long, too_plain
from data_gen.cdr.domains import ALL_MAPPERS, LABELS
from data_gen.cdr.out import FILES, Tracks, write_tracks
from data_gen.cdr.records import Replays
from data_gen.cdr.rows import planned_rows
from data_gen.cdr.sources import read_sources, scan
from data_gen.corpora import CorpusError
from data_gen.inputs import say_inputs
from rewards import console
from rewards.files import replacing_all
from rewards.task import write_jsonl


def main(argv: Sequence[str]) -> int:
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
        help="file or folder of documents, instead of `corpora`; may be repeated",
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
        "--paraphrase",
        metavar="URL",
        help="OpenAI-compatible endpoint to ask for freer wordings (paraphrase.url; docs/cdr.md)",
    )
    parser.add_argument("--paraphrase-model", metavar="NAME", help="its model (paraphrase.model)")
    args = parser.parse_intermixed_args(argv)  # settings may stand between options
    words = [f"paraphrase.model={args.paraphrase_model}"] if args.paraphrase_model else []
    words += [f"paraphrase.url={args.paraphrase}"] if args.paraphrase else []
    config = load(CdrConfig, args.config, [*args.settings, *words])
    if args.licence:
        config = replace(config, licences=(*config.licences, *args.licence))
    corpora = args.corpus or [find_corpus(name, args.config) for name in config.corpora]
    build(config, corpora, args.out)
    return 0


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
        + (f"; {counts['not_answered']} not answered" if counts["not_answered"] else "")
    )


def _say(made: Tracks, out: Path) -> None:
    """The counts of a build, and what is in no split."""
    manifest = made.manifest
    for track, count in manifest["counts"].get("track", {}).items():
        print(f"{out / 'tracks' / track}.jsonl: {count} verified tasks")
    refused = ", ".join(f"{n} {why}" for why, n in manifest["units_refused"].items())
    if refused:
        print(f"left out: {refused}")
    for why, count in manifest["left_out_of_splits"].items():
        if count:
            print(f"in no split: {count} rows, {why}")
    if spoken := manifest.get("paraphrases"):
        print(_paraphrases(spoken))
    print(
        f"{manifest['tasks']} tasks, {manifest['operators']} operators; "
        + ", ".join(f"{name} {n}" for name, n in manifest["counts"].get("split", {}).items())
    )


def starved(done: Construction) -> list[str]:
    """What a small corpus could not give, in words: domains without a recipe, tracks without a
    task, filters that no threshold splits."""
    lines: list[str] = []
    usable = Counter(r.domain for r in done.records if len(r.active) > 1)
    recipes = Counter(entry.domain for entry in done.library)
    for domain, name in LABELS.items():
        if not recipes[domain]:
            lines.append(
                f"no recipe of domain {name}: {usable[domain]} documents with two or more "
                "active mappers, too few of them alike"
            )
    found = {row.sequence[0] for row in done.atomic}
    if missing := [name for name in ALL_MAPPERS if name not in found]:
        lines.append(f"no document activates {', '.join(missing)}")
    if missing := [name for name in CALIBRATED_FILTERS if name not in found]:
        lines.append(f"no balanced KEEP and DROP for {', '.join(missing)}")
    families = sum(len(entry.families) for entry in done.library)
    built = len({row.family_id for row in done.order})
    if built < families:
        lines.append(
            f"order_f: {families - built} of {families} families had too few groups whose "
            "results differ (instances.min_groups)"
        )
    if done.library and not done.swaps:
        lines.append("order_m: no swap of neighbours changes a result")
    return lines


def build(config: CdrConfig, corpora: Sequence[str], out: Path) -> None:
    """Everything `assay tasks cdr` writes; all files take their places together."""
    if not corpora:
        raise CorpusError("no corpus; give --corpus PATH or set corpora in the config")
    sources = read_sources(corpora, config.licences)
    for problem in sources.problems[:5]:
        print(f"assay tasks: {problem}", file=sys.stderr)
    if sources.problems:
        print(f"assay tasks: {len(sources.problems)} corpus rows left out", file=sys.stderr)
    most = config.instances.max_text_length
    left = [*sources.problems, *too_long(sources.rows, most)]
    rows = [row for row in sources.rows if len(row["text"]) <= most]
    if len(rows) < len(sources.rows):
        print(
            f"assay tasks: {len(sources.rows) - len(rows)} documents longer than {most} "
            "characters left out (instances.max_text_length)",
            file=sys.stderr,
        )
    workers = config.workers or os.cpu_count() or 1
    records = scan(rows, workers, config.scan_profile, config.domains)
    left += too_plain(records, config.instances)
    done = construct(records, config, Replays())
    made: Tracks | None = None
    with replacing_all(out, stale=FILES) as new:
        dump(config, new / "config.yaml")
        write_jsonl(new / "pipeline.jsonl", pipeline_rows(done))
        if config.tracks:
            units = list(planned_rows(done, config.select.filter_variants))
            made = write_tracks(units, config, new, workers, out)
    if made is not None:
        _say(made, out)
    recipes = sum(len(mined.recipes) for mined in done.mined)
    for line in starved(done):
        print(line)
    print(
        f"{out / 'pipeline.jsonl'}: {len(records)} documents, "
        f"{len(usable_records(records, config))} of them usable; {recipes} mined recipes; "
        f"{len(done.atomic)} atomic, {len(done.main)} main, {len(done.order)} order instances, "
        f"{len(done.swaps)} swap pairs"
    )
    rows_of = made.rows_of if made is not None else instances_of(done)
    say_inputs(inputs_of(records, left, rows_of), out, members=refused(left))


def instances_of(done: Construction) -> Counter[str]:
    """How many instances each document gave, where no track is written."""
    return Counter(row.record.id for row in (*done.atomic, *done.main, *done.order))
