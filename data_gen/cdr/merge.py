"""The last stage: the files of a build, and what became of its documents."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO

from assay.console import Progress
from assay.files import atomic_write_set, write_bytes, yaml_beside
from assay.task import json_line, json_text
from configs.cdr import CdrConfig
from configs.loader import dump
from data_gen.cdr.documents import (
    LABELS,
    LONG,
    MAPPERS,
    PAPER,
    TORN,
    TWICE,
    UNLICENSED,
    USED,
    Found,
    Left,
    Record,
    Row,
    label,
    names_of,
    rank_domains,
)
from data_gen.cdr.instruct import Worded
from data_gen.cdr.recipes import Library, LibraryRecipe
from data_gen.cdr.units import (
    ORDER,
    SWAP,
    TRACKS,
    Unit,
    compared,
    instances,
    show_examples,
    splitter,
    unbalanced,
)
from data_gen.cdr.work import Work, packed, said
from data_gen.certificate import CERTIFICATE, Input, certificate
from data_gen.overlap import shared
from rollouts.words.cdr import Shots

SPLITS = ("train", "validation", "heldout")
STATISTICS = "statistics.md"
MANIFEST_TRACKS = tuple(f"tracks/{track}.jsonl" for track in TRACKS)
# What a build may write; files of an older build that are not written again go.
FILES = (
    "config.yaml",
    "pipeline.jsonl",
    "manifest.json",
    STATISTICS,
    CERTIFICATE,
    *MANIFEST_TRACKS,
    *(f"tracks_all_prompts/{track}.jsonl" for track in TRACKS),
    *(f"{split}.jsonl" for split in SPLITS),
)
SOURCES = 12  # of a domain; more (a folder of text files) are one class
_IDLE = "usable, but no task drew them"
Counts = defaultdict[str, Counter[Any]]  # of values, by what is counted


@dataclass(frozen=True)
class Built:
    """What a build made, for the last lines of the command: the manifest where there are tracks,
    how many rows each document gave, and the refused parts that are no documents."""

    manifest: dict[str, Any] | None
    rows_of: Counter[str]
    unsaid: list[Input] = field(default_factory=list[Input])


def merge(work: Work, db: Any, out: Path) -> Built:
    """Write everything to `out`; all files take their places together. `db`: of `tables_of`."""
    with atomic_write_set(out, stale=FILES) as new:
        dump(work.config, new / "config.yaml")
        with open(new / "pipeline.jsonl", "wb") as file:
            file.writelines(_pipeline(db, work.load("library")))
        if work.config.tracks:
            return write_tracks(work, db, new)
    query = (
        f"SELECT id, sum(CASE kind WHEN {ORDER} THEN 3 ELSE 1 END) FROM units JOIN documents "
        f"USING (number) WHERE kind != {SWAP} GROUP BY id"
    )
    return Built(None, Counter({said(name): int(count) for name, count in rows_of(db, query)}))


def tables_of(work: Work, threads: int) -> Any:
    """What the stages before made, as views of one connection."""
    units, done = str(work.folder / "units.parquet"), work.parts("rows")
    return work.query(threads, documents=work.documents, units=units, done=done)


def rows_of(db: Any, query: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, which goes on while they are used."""
    own = db.cursor()
    own.execute(query)
    while chunk := own.fetchmany(1000):
        yield from chunk


# --- pipeline.jsonl


def _pipeline(db: Any, library: Library) -> Iterator[bytes]:
    """Its lines. Order pairs come last here."""
    query = f"SELECT id, domain, active FROM documents WHERE state = {USED} ORDER BY number"
    for name, domain, mask in rows_of(db, query):
        active = names_of(mask)
        yield json_line(
            {
                "kind": "pipeline_activation",
                "doc_id": said(name),
                "domain": label(domain),
                "active": list(active),
                "ranked_domain": _ranked(domain, active),
            }
        )
    yield from map(json_line, _library_rows(library))
    order = f"CASE kind WHEN {SWAP} THEN {ORDER} WHEN {ORDER} THEN {SWAP} ELSE kind END"
    query = f"SELECT pipeline FROM done JOIN units USING (unit) ORDER BY {order}, unit"
    for (lines,) in rows_of(db, query):
        yield lines


@lru_cache(maxsize=20_000)
def _ranked(domain: str, active: tuple[str, ...]) -> str | None:
    ranked = rank_domains(active, domain)[0] if len(active) >= 2 else None
    known = ranked is not None and any(op in active for op in MAPPERS[ranked])
    return label(ranked) if ranked and known else None


def _library_rows(library: Library) -> Iterator[Row]:
    """Families and recipes, domain by domain."""
    for mined in library.mined:
        for family in mined.families:
            yield {
                "kind": "pipeline_family",
                "domain": label(mined.domain),
                "family_id": family.id,
                "anchor": list(family.anchor),
                "subset_support": family.subset_support,
                "family_support": family.family_support,
                "num_records": mined.records,
                "threshold": mined.threshold,
            }
        yield from (_recipe_row(one) for one in library.entries if one.domain == mined.domain)


def _recipe_row(entry: LibraryRecipe) -> Row:
    recipe = entry.recipe
    row: Row = {
        "kind": "pipeline_recipe",
        "domain": label(entry.domain),
        "recipe_id": recipe.id,
        "family_id": recipe.family_id,
        "support": recipe.support,
        "ordered": list(recipe.ordered),
        "support_records": entry.support_records,
        "order_families": [
            {
                "order_family_id": family.id,
                "filter": family.filter,
                "min_support": family.min_support,
                "slots": {
                    slot: {
                        "step": point.step,
                        "params": point.params,
                        "sequence": list(family.sequences[slot]),
                    }
                    for slot, point in family.slots.items()
                },
            }
            for family in entry.families
        ],
        "main_variants": [
            {
                "recipe_variant_id": variant.id,
                "recipe_type": variant.recipe_type,
                "sequence": list(variant.sequence),
                "filter_params": variant.params,
            }
            for variant in entry.variants
        ],
    }
    return row | ({"composed": True} if recipe.composed else {})


# --- tracks, tasks, manifest and certificate


def write_tracks(work: Work, db: Any, out: Path) -> Built:
    """Write the tracks, the splits and what is said about them in the new folder `out`."""
    config, plan = work.config, work.load("plan")
    units = list(_units(db, plan.plans))
    made, aside, unsaid = divided(units, config)
    counts, facts = _write_lines(made, out)
    found = statistics(counts["track"], facts, work.load("library").entries)
    left: dict[str, Any] = {
        "left_out_of_splits": aside,
        "words_say_another_thing": {" ".join(why): rows for why, (rows, _) in unsaid.items()},
    }
    manifest: dict[str, Any] = {
        "tasks": counts["track"].total(),
        "counts": {kind: dict(sorted(own.items())) for kind, own in counts.items()},
        "units_refused": dict(sorted(Counter(u.refused for u in units if u.refused).items())),
        "units": len(units),
        "operators": len(counts["operator"]),
        "prompt_mode": config.instruct.mode,
        "files": [name for name in MANIFEST_TRACKS if counts["track"][Path(name).stem]],
        **left,
        "statistics": found,
    }
    (out / STATISTICS).write_text(page(found), encoding="utf-8")
    if config.instruct.mode == "few_shot":
        asked = config.instruct
        shots = Shots(asked.shots, asked.shot_chars, asked.seed)
        manifest["few_shot"] = show_examples(out, [f"{split}.jsonl" for split in SPLITS], shots)
    if plan.paraphrases is not None:
        manifest["paraphrases"] = plan.paraphrases
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    (out / "manifest.json").write_text(text, encoding="utf-8")
    prints = {side: [p for u in made if u.side == side for p in u.compared] for side in SPLITS}
    alike, own = compared(prints)
    tasks = {side: len(listed) for side, listed in prints.items()}
    proof = certificate("cdr", tasks, alike, config.split.seed, **own, **left)
    write_bytes(out / CERTIFICATE, json_text(proof, indent=2))
    rows: Counter[str] = Counter()
    for unit in made:
        rows[unit.record.id] += len(unit.rows)
    refused = [
        Input(operator, 0, (f"{count} rows in no split: it {does}; first {document}",))
        for (operator, does), (count, document) in unsaid.items()
    ]
    return Built(manifest, rows, refused)


def _units(db: Any, plans: Sequence[Any]) -> Iterator[Unit]:
    """The worded units in the order of the tracks. Many rows share a text: equal signatures are
    held once."""
    known: dict[bytes, bytes] = {}
    query = (
        "SELECT unit, plan, bits, id, domain, refused, operator, does, digests, signs, "
        "done.filename, done.start, done.size FROM units JOIN documents USING "
        "(number) JOIN done USING (unit) WHERE place >= 0 ORDER BY place"
    )
    for number, own, bits, name, domain, refused, *why, digests, signs, file, at, size in rows_of(
        db, query
    ):
        signs = [None if sign is None else known.setdefault(sign, sign) for sign in signs]
        rows = instances(plans[int(own)], Record(said(name), domain, ""), bits)
        prints = list(zip(digests, signs, strict=True))
        yield Unit(number, rows, refused, (why[0], why[1]), prints, (file, at, size))


Unsaid = dict[tuple[str, str], tuple[int, str]]  # rows and first document by operator and deed


def divided(units: Sequence[Unit], config: CdrConfig) -> tuple[list[Unit], dict[str, int], Unsaid]:
    """(the units to write, each with its split; how many rows are in no split and why; of those
    whose words do not say what happens to the text, which). Ids occur once.

    Set aside are units whose words do not say what happens to their text; of training and
    validation also those of which an input or reference occurs in a split that is kept from them,
    and some for the balance of KEEP and DROP.
    """
    split = splitter(units, config.split)
    made: list[Unit] = []
    seen: set[str] = set()
    unsaid: Unsaid = {}
    for unit in units:
        ids = [row.id for row in unit.rows]
        if unit.refused or not seen.isdisjoint(ids):
            continue
        seen.update(ids)
        made.append(unit)
        unit.side = split(unit)
        if unit.side and unit.unsaid[0]:
            rows, first = unsaid.get(unit.unsaid, (0, unit.record.id))
            unsaid[unit.unsaid] = (rows + len(unit.rows), first)
            unit.side = ""
    unsaid = dict(sorted(unsaid.items(), key=lambda one: (-one[1][0], one[0])))
    alike = [*_alike(made, "validation", ("heldout",))]
    alike += _alike(made, "train", ("heldout", "validation"))
    uneven: list[Unit] = []
    if config.select.balance_filtered:
        for side in ("train", "validation"):
            uneven += unbalanced(one for one in made if one.side == side)
    for unit in uneven:
        unit.side = ""
    counts = {
        "whose words do not say what happens to the text": sum(n for n, _ in unsaid.values()),
        "like a row of another split": sum(len(unit.rows) for unit in alike),
        "for the balance of KEEP and DROP": sum(len(unit.rows) for unit in uneven),
    }
    return made, counts, unsaid


def _alike(made: Sequence[Unit], side: str, kept: Container[str]) -> list[Unit]:
    """Set aside the units of a side that share an input or a reference with those of `kept`."""
    own = [(unit, one) for unit in made if unit.side == side for one in unit.compared]
    others = [one for unit in made if unit.side in kept for one in unit.compared]
    found = {id(own[j][0]) for j in shared([one for _, one in own], others)}
    alike = [unit for unit in made if id(unit) in found]
    for unit in alike:
        unit.side = ""
    return alike


def _write_lines(made: Sequence[Unit], out: Path) -> tuple[Counts, Counts]:
    """Write the lines of all units; what the manifest counts, and what the statistics are of."""
    counts, facts = Counts(Counter), Counts(Counter)
    with ExitStack() as opened, Progress("tracks", "units", len(made)) as progress:
        files: dict[str, BinaryIO] = {}

        def file(name: str) -> BinaryIO:
            if name not in files:
                (out / name).parent.mkdir(exist_ok=True)
                files[name] = opened.enter_context(open(out / name, "wb"))
            return files[name]

        for split in SPLITS:
            file(f"{split}.jsonl")
        for unit in made:
            for one in packed(*unit.place):
                name = f"{one.row['source_track']}.jsonl"
                file(f"tracks/{name}").write(json_line(one.row))
                if one.pool:
                    file(f"tracks_all_prompts/{name}").write(json_line(_all_prompts(one)))
                for task in one.tasks_in(unit.side):
                    file(f"{unit.side}.jsonl").write(json_line(task.to_json()))
                _count(one, unit.side, counts, facts)
            progress.add(1)
    return counts, facts


def _all_prompts(one: Worded) -> Row:
    return one.row | {
        "prompt_variants": [v.to_json() for v in one.pool],
        "prompt_variant_count": len(one.pool),
        "selected_prompt_variant_indices": list(range(len(one.pool))),
        "prompt_sampling_policy": "all",
    }


def _count(one: Worded, side: str, counts: Counts, facts: Counts) -> None:
    """Count a row that goes to a split ("": none), and its tasks there."""
    row = one.row
    domain, status, track = row["domain"], row["reference_status"], row["source_track"]
    operators = set(row["operator_sequence"])
    for kind, value in (
        *(("track", track), ("domain", domain), ("status", status)),
        *((f"status of {track}", status), ("difficulty", row["difficulty_label"])),
        *(("recipe_length", str(row["recipe_length"])), ("split", side or "unused")),
        *(("operator", name) for name in operators),
        *([("wording of result styles", one.told)] if one.told else []),
    ):
        counts[kind][value] += 1
    for kind, value in (
        *(("characters", row["input_length_chars"]), ("recipe", row["recipe_id"])),
        *(("bucket", f"{domain}/{row['input_length_bucket']}"), ("length", row["recipe_length"])),
        *(("pool", row["prompt_candidate_pool_count"]),),
        *(("sequence", ">".join(row["operator_sequence"])),),
        *(("words", len(v["user_requirement"].split())) for v in row["prompt_variants"]),
        *(("operator", f"{domain}/{name}") for name in operators),
    ):
        facts[kind][value] += 1
    held = [name for name in operators if name.endswith("_filter")]
    for task in one.tasks_in(side):
        counts[f"tasks of {side}"][task.track] += 1
        counts[f"styles of {side}"][task.meta["style"]] += 1
        for name in ("any_filter", *held) if held else ("no_filter",):
            counts[f"filter and status of {side}"][f"{name}:{status}"] += 1
        if wording := task.meta.get("wording"):
            counts[f"result styles of {side}"][wording] += 1


# --- the rows of the paper's Tables 4, 6 and 7


def statistics(
    tracks: Counter[str], facts: Counts, library: Iterable[LibraryRecipe]
) -> dict[str, Any]:
    """Table 6 as numbers by the keys of statistics.yaml, `domains` with Table 7's, and Table 4's. A
    recipe counts where a task asks for it, an anchor where one of its recipes counts."""
    used = [entry for entry in library if facts["recipe"][entry.recipe.id]]
    buckets, operators = facts["bucket"], facts["operator"]
    sizes = {size: _ending(buckets, f"/{size}") for size in ("short", "medium", "long")}
    return {
        "tasks": tracks.total(),
        **{track: tracks[track] for track in TRACKS},
        "mean_characters": _mean(facts["characters"]),
        "median_characters": _median(facts["characters"]),
        "fewest_characters": min(facts["characters"], default=0),
        "most_characters": max(facts["characters"], default=0),
        **sizes,
        "operators": len({name.rpartition("/")[2] for name in operators}),
        "anchors": len({(e.domain, e.recipe.family_id) for e in used if not e.recipe.composed}),
        "recipes": len(used),
        "sequences": len(facts["sequence"]),
        "mean_recipe_length": _mean(facts["length"]),
        "mean_pool": _mean(facts["pool"]),
        "median_pool": _median(facts["pool"]),
        "mean_words": _mean(facts["words"]),
        "median_words": _median(facts["words"]),
        "domains": {
            domain: {
                "tasks": sum(n for key, n in buckets.items() if key.startswith(f"{domain}/")),
                **{size: buckets[f"{domain}/{size}"] for size in sizes},
                "anchors": len({e.recipe.family_id for e in own if not e.recipe.composed}),
                "recipes": len(own),
            }
            for domain in sorted({key.rpartition("/")[0] for key in buckets})
            for own in [[e for e in used if domain in (e.domain, LABELS.get(e.domain))]]
        },
        "operator_tasks": dict(sorted(operators.items())),
    }


def _ending(counts: Counter[str], end: str) -> int:
    return sum(n for name, n in counts.items() if name.endswith(end))


def _mean(counts: Counter[int]) -> float:
    total = counts.total()
    return round(sum(value * n for value, n in counts.items()) / total, 2) if total else 0.0


def _median(counts: Counter[int]) -> float:
    return float(median(counts.elements())) if counts else 0.0


def page(found: Mapping[str, Any]) -> str:
    """The tables as Markdown, beside the paper's numbers where it prints them."""
    lines = ["# Statistics of this build", "", "## Table 6", ""]
    lines += ["| statistic | this build | the paper |", "|---|---|---|"]
    for key, name, paper in yaml_beside(__file__, "statistics.yaml"):
        lines.append(f"| {name} | {found[key]:,} | {paper} |")
    lines += ["", "## Table 7", ""]
    lines += ["| domain | tasks | short | medium | long | anchors | recipes |", "|---" * 7 + "|"]
    for domain, one in found["domains"].items():
        lines.append(f"| {domain} | " + " | ".join(f"{value:,}" for value in one.values()) + " |")
    lines += ["", "## Table 4", "", "Tasks that ask for an operator, by domain.", ""]
    names = sorted({key.rpartition("/")[2] for key in found["operator_tasks"]})
    domains = list(found["domains"])
    lines.append("| operator | " + " | ".join(domains) + " | among the paper's 29 |")
    lines.append("|---" * (len(domains) + 2) + "|")
    for name in names:
        own = [f"{found['operator_tasks'].get(f'{domain}/{name}', 0):,}" for domain in domains]
        lines.append(f"| {name} | " + " | ".join(own) + f" | {'yes' if name in PAPER else 'no'} |")
    return "\n".join(lines) + "\n"


# --- what became of the documents


def left_out(work: Work, db: Any) -> Iterator[Left]:
    """Everything that is not used: rows that hold no document, that are there twice, of another
    licence, too long, with too few active mappers; each kind in corpus order."""
    most, least = work.config.instances.max_text_length, work.config.instances.min_active
    kinds = [TORN, TWICE, UNLICENSED, LONG, USED]
    query = (
        "SELECT state, id, source, licence, chars, bit_count(active::BIGINT), shard, piece, row, "
        f"why FROM documents WHERE state != {USED} OR NOT usable "
        f"ORDER BY list_position({kinds}, state::INTEGER), number"
    )
    for state, name, source, licence, chars, active, shard, piece, row, torn in rows_of(db, query):
        if state == TORN:
            yield Left(**json.loads(torn))
            continue
        if state == TWICE:
            found = Found(work.pieces(int(shard))[int(piece)], "row", row, None)
            yield found.left(f"id {said(name)!r} occurs twice", "an id that occurs twice")
            continue
        why, kind = (
            f"{active} active mappers; {least} are wanted",
            f"fewer than {least} active mappers (instances.min_active)",
        )
        if state == UNLICENSED:
            why, kind = (
                f"licence {said(licence)!r} is left out",
                "a licence that --licence leaves out",
            )
        elif state == LONG:
            why, kind = (
                f"{chars} characters long; the limit is {most}",
                f"longer than {most} characters (instances.max_text_length)",
            )
        yield Left(said(name), why, kind, said(source), said(licence))


def classes_of(work: Work, db: Any, tasks_of: Mapping[str, int]) -> list[Input]:
    """The documents by domain and source; of a domain with many sources together. `tasks_of`: rows
    that a document gave."""

    def each() -> Iterator[tuple[str, str, int, str]]:
        """(class, licence, tasks, why there are none) of every document."""
        query = f"SELECT source, licence, usable, id FROM documents WHERE state = {USED}"
        for source, licence, usable, name in rows_of(db, query):
            tasks = tasks_of.get(said(name), 0)
            yield said(source), said(licence), tasks, _IDLE if usable and not tasks else ""
        for one in left_out(work, db):
            yield one.group, one.licence, 0, one.kind

    sources = Counter(name.partition(" / ")[0] for name in {group for group, *_ in each()})
    tasks: Counter[str] = Counter()
    why, licences = Counts(Counter), Counts(Counter)
    for group, licence, count, reason in each():
        domain = group.partition(" / ")[0]
        many = sources[domain] > SOURCES
        name = f"{domain} / {sources[domain]} sources" if many else group
        tasks[name] += count
        licences[name][licence] += 1
        why[name][reason] += 1
    found: list[Input] = []
    for name, own in licences.items():
        reasons = sorted((reason == _IDLE, -n, reason) for reason, n in why[name].items() if reason)
        first = [licence for licence, _ in sorted(own.items(), key=lambda one: (-one[1], one[0]))]
        more = f" and {len(first) - 3} more" if len(first) > 3 else ""
        told = tuple(f"{-n} {reason}" for _, n, reason in reasons)
        found.append(Input(name, tasks[name], told, ", ".join(first[:3]) + more))
    return found
