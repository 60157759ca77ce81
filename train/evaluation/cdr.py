# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""CDR-Bench: `cdr:PLACE` opened as tasks, how they are asked, and the release's files and metrics
from generic rows. The paper's tables stand in cdr_tables.py.

Every row is asked in its K prompt variants; the files' answers are read and scored exactly as the
release does it. Requests that failed are no answers. Rows lie in the release and its copies, in
what `assay tasks cdr` wrote, or in one file:

tracks/TRACK.jsonl                   the release, and our builds; also in data/benchmark_v3
data/CONFIG/test.jsonl               the data set as the hub's viewer shows it
CONFIG/test-00000-of-00001.parquet   the same as parquet, or as `save_to_disk` writes it
benchmark_v3_all.jsonl               every row in one file
FILE                                 one file with rows of any tracks
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from assay.hub import local_place
from assay.rows import arrow_rows, read_rows
from assay.task import Task, TaskError, refuse_unfinished, write_jsonl
from assay.thoughts import answer_after_thoughts
from rewards.cdr.leaderboard import leaderboard
from rewards.cdr.release_files import CORE, SEMANTIC, check_row, find_tracks, sample_variants
from rewards.cdr.release_scores import JSON, MIXED, score_file, write_scores
from rewards.cdr.score import gold_answer
from rewards.parse import parse_release
from rollouts.prompts import ChatTokenizer
from rollouts.sampler import Plan
from rollouts.words.cdr import MARK, Pool, Shots, messages, pool_of, shows_examples, with_examples
from rollouts.words.templates import Words, places
from train.evaluation import cdr_tables
from train.evaluation.answering import thinking
from train.evaluation.benchmarks import (
    HELDOUT,
    OF_A_RELEASE,
    Benchmark,
    Command,
    Evaluation,
    Found,
    Opened,
    Row,
    budget_of,
    in_words,
    published_room,
)
from train.evaluation.tables import Draw, aligned, points

ANSWER_TOKENS = 32_768  # of an answer, in the paper (App. B.1); an endpoint has its own bound
STYLES = 3  # of wording, in the semantic extension
ADDED = ("status", "text", "mode")  # to a row, in the gold of its tasks


def plan(task: Task, command: Command, tokenizer: ChatTokenizer | None) -> Plan:
    room: int = command.sampling.max_new_tokens
    if not room and tokenizer is not None:
        room = published_room(task, command, tokenizer, ANSWER_TOKENS)
    return Plan(room, budget_of(command))


# --- tasks ---------------------------------------------------------------------------------------


def open_folder(rest: str, command: Evaluation) -> Opened:
    """`cdr:PLACE[:track,…]`, `cdr:DIR/heldout.jsonl` or `cdr:DIR/train.jsonl`."""
    picked = pick_rows(rest, command.cdr.all_rows)
    what = _what(parse_tracks(rest)[0], picked)
    said = [*tell(picked, command.strict)]
    if picked.left_out:
        said.append(
            f"{picked.left_out} rows are left out: only {what} is evaluated; cdr.all_rows=true "
            "asks for every row"
        )
    pool = examples_of(picked.split or picked.home, command)
    rows = [row for mine in picked.tracks.values() for row in mine]
    tasks = [_task(row, i, v, command) for row in rows for i, v in variants_of(row, command)]
    if pool:
        shots = Shots(command.cdr.shots, command.cdr.shot_chars, command.seed)
        tasks = [with_examples(task, pool, shots, _words(command)) for task in tasks]
    if line := _without_examples(tasks, command):
        said.append(line)
    return Opened(
        tasks,
        notes={"mode": command.cdr.mode, "k": command.cdr.k, "rows_left_out": picked.left_out},
        said=said,
        heldout=picked.heldout,
        asked=OF_A_RELEASE if picked.official else "",
        split=f"{what} ({len(rows)} rows)",
    )


def _what(word: str, picked: Picked) -> str:
    """Which rows these are."""
    if picked.split is not None and Path(word).is_file():
        return f"what {word} lists"
    if not picked.heldout:
        return f"all rows of {word}, training rows among them"
    return f"the held-out split of {word}" if picked.left_out else f"all rows of {word}"


def _words(command: Evaluation) -> Words | None:
    """The words that rows are asked in; None: ours."""
    return command.asked_in.words.get("refinement")


def _draws(command: Evaluation) -> bool:
    """Whether few_shot draws examples: a release's words have their own."""
    words = _words(command)
    return words is None or "examples" in places(words.texts["few_shot"])


def variants_of(row: Row, command: Evaluation) -> list[tuple[int, Row]]:
    """(index, variant) of the K variants that a row is asked in, chosen as the release does."""
    listed: list[Row] = row.get("prompt_variants") or []
    if not listed:
        raise TaskError(f"row {row['instance_id']}: no prompt_variants; give rows with prompts")
    key = str(row.get("recipe_prompt_key") or row.get("recipe_id") or "")
    k = 0 if row["track_family"] == "semantic_extension" else command.cdr.k
    picked = sample_variants(len(listed), k, command.seed, key, row["instance_id"])
    return [(i, listed[i]) for i in picked]


def examples_of(place: Path, command: Evaluation) -> Pool:
    """The examples of few_shot: of the training tasks of a build's folder, or those that the
    command line names; {} for another mode, and where there are none. Raises `TaskError`."""
    if command.cdr.mode != "few_shot":
        return {}
    if not _draws(command):
        if command.cdr.examples is not None:
            raise TaskError(
                f"cdr.examples={command.cdr.examples}: the words of few_shot have their own "
                "examples; leave it out, or leave prompts= out"
            )
        return {}
    if command.cdr.shots < 1 or command.cdr.shot_chars < 1:
        raise TaskError("cdr.shots and cdr.shot_chars: give 1 or more")
    folder = place.parent if place.is_file() else place
    beside = next((f for f in (folder / TRAIN, folder.parent / TRAIN) if f.is_file()), None)
    path = Path(command.cdr.examples) if command.cdr.examples else beside
    if path is None:
        return {}
    if not path.is_file():
        raise TaskError(f"cdr.examples={path}: no such file; give training tasks as JSON lines")
    rows = (row for _, row in read_rows(path))  # a file that only lists ids gives none
    tasks = (Task.from_json(row, str(path)) for row in rows if "prompt" in row)
    return pool_of(tasks, command.cdr.shot_chars)


def _without_examples(tasks: Sequence[Task], command: Evaluation) -> str:
    """A line about prompts with the two fixed examples, "" when there is none."""
    bare = [t for t in tasks if shows_examples(t) and "examples" not in t.meta]
    if command.cdr.mode != "few_shot" or not bare:
        return ""
    if not _draws(command):
        return f"few_shot: {len(bare)} prompts show the examples of the words that are asked in"
    tracks = ", ".join(dict.fromkeys(task.track for task in bare))
    return (
        f"few_shot: {len(bare)} prompts of {tracks} show two fixed examples, for want of training "
        f"tasks of at most {command.cdr.shot_chars} characters; cdr.examples=FILE names some"
    )


def _task(row: Row, index: int, variant: Row, command: Evaluation) -> Task:
    """A row in one variant; the id says which."""
    mode = command.cdr.mode
    added = {"status": row["reference_status"], "text": row["reference_text"], "mode": mode}
    steps = [str(step) for step in row.get("operator_sequence") or []]
    filtered = row.get("operator_kind") == "filter" or any(s.endswith("_filter") for s in steps)
    words = _words(command)
    meta = {
        "instance": row["instance_id"],
        "requirement": variant["user_requirement"],
        "domain": row.get("domain"),
        "style": variant.get("style_id"),
        "difficulty": row.get("difficulty_label"),
        "has_filter": filtered,
        "order_slot": row.get("order_slot"),
    }
    asked, text, form = variant["user_requirement"], row["input_text"], row["output_format"]
    return Task(
        id=f"{row['instance_id']}#{index}",
        family="structured" if row["scoring_profile"] in (JSON, MIXED) else "refinement",
        track=row["source_track"],
        split="test",
        prompt=messages(asked, text, mode, form, words=words),
        gold=row | added,
        group=row.get("order_group_instance_id") or None,
        meta=meta | ({MARK: words.hash} if words is not None else {}),
    )


# --- the release's files -------------------------------------------------------------------------


def prediction_rows(tasks: Sequence[Task], rows: Sequence[Row], command: Evaluation) -> list[Row]:
    """Release prediction rows from the rows of one track's tasks, in order; an answer with a
    failure is a request that failed."""
    instances: dict[str, list[tuple[Task, Row]]] = {}
    for task, row in zip(tasks, rows, strict=True):
        instances.setdefault(str(task.gold["instance_id"]), []).append((task, row))
    found: list[Row] = []
    for pairs in instances.values():
        original = {k: v for k, v in pairs[0][0].gold.items() if k not in ADDED}
        picked = dict(variants_of(original, command))
        asked = {int(task.id.rpartition("#")[2]): row for task, row in pairs}
        found.append(
            original
            | {
                "request_model": command.name,
                "request_backend": "assay",
                "request_temperature": 0.0,
                "request_enable_thinking": bool(thinking(command)),
                "prompt_mode": command.cdr.mode,
                "selected_prompt_variant_indices": list(picked),
                "prompt_variant_sample_size": command.cdr.k if command.cdr.k > 0 else "all",
                "prompt_variant_sampling_seed": command.seed,
                "variant_predictions": [
                    _prediction(original, i, variant, asked[i]) for i, variant in picked.items()
                ],
            }
        )
    return found


def _prediction(row: Row, index: int, variant: Row, answer: Row) -> Row:
    status, text = None, None
    lost = answer["failure"]
    told = str(row.get("reference_json") or row.get("reference_text"))
    gold = gold_answer(row) if row["output_format"] == "tagged_text" else told
    said = answer_after_thoughts(answer["output"], gold)
    if lost is None and row["output_format"] == "json":
        status, text = "KEEP", said.strip()
    elif lost is None:
        read = parse_release(said)
        status, text = read.status, read.text
    return {
        "prompt_variant_index": index,
        "prompt_style_id": variant.get("style_id"),
        "prompt_style_label": variant.get("style_label"),
        "user_requirement": variant.get("user_requirement"),
        "predicted_status": status,
        "predicted_clean_text": text,
        "raw_response": answer["output"] if lost is None else "",
        "prediction_error": lost,
        "valid_prediction": lost is None,
    }


def tables(tasks: Sequence[Task], rows: Sequence[Row], out: Path, command: Evaluation) -> Found:
    """Write the release's files under `out/data/evaluation`; the paper's metrics by track."""
    root, model = out / "data" / "evaluation", command.name
    first = [(t, r) for t, r in zip(tasks, rows, strict=True) if r["sample"] == 0]
    papers: dict[str, Row] = {}
    answers: dict[str, cdr_tables.TrackAnswers] = {}
    for track in dict.fromkeys(task.track for task, _ in first):
        mine = [(t, r) for t, r in first if t.track == track]
        core = mine[0][0].gold["track_family"] == "core_rule"
        label = command.cdr.k if command.cdr.k > 0 else "all"
        suffix = f"{command.cdr.mode}_k{label}_seed{command.seed}" if core else "semantic_styles3"
        home = root / track / model
        done = prediction_rows([t for t, _ in mine], [r for _, r in mine], command)
        write_jsonl(home / f"predictions_{suffix}.jsonl", done)
        known = str(done[0].get("benchmark_track") or track)  # what the release calls the track
        # the semantic extension has three styles, and is scored at 3
        asked = min(len(row["variant_predictions"]) for row in done)
        k = command.cdr.k if core else STYLES if asked >= STYLES else 0
        scored = score_file(done, k, command.seed, known, model)
        write_scores(home / f"score_{suffix}", scored)
        papers[track] = scored.paper
        answers[track] = cdr_tables.TrackAnswers(done, scored)
    leaderboard([root], root / "reports")
    shown = cdr_tables.tables_of(papers, answers, Draw(seed=command.seed))
    return Found(
        {
            "paper_metrics": papers,
            "parsing": "release here, strict in rows and tables",
            "shown": [asdict(table) for table in shown],
        },
        in_words(f"{paper_table(papers)}\nfiles: {root}", tasks, command),
    )


def paper_table(papers: Mapping[str, Row]) -> str:
    """The tracks' numbers as plain text, in per cent."""
    names = ("mean_rs@k", "mean_rs", "mean_rg", "ocs_at_k")
    lines = [["track", "rows", *names]]
    for track, paper in papers.items():
        lines.append([track, str(paper["num_instances"]), *(points(paper.get(n)) for n in names)])
    return "\n".join(aligned(lines))


# --- where rows lie ----------------------------------------------------------------------------

RELEASE = "lukahh/CDR-Bench"  # on the hub
TRAIN = "train.jsonl"  # in the folder of a build
_ALL = "benchmark_v3_all.jsonl"
_ROOTS = ("", "data/benchmark_v3", "benchmark_v3")
_ENDINGS = ("jsonl", "parquet", "arrow")
# of a folder without track files: the first of these that it has, and what the hub is asked for
_VIEWS = (
    *("data/*/test*", "*/test*", "test*"),
    *("data/*/test/*", "*/test/*", "test/*", "data/test*", "data/*/data*", "*/data*", "data*"),
)
# rows of the published core tracks, paper Table 6
SIZES = {"atomic_m": 132, "atomic_f": 42, "agnostic_m": 497, "order_m": 286, "order_f": 2505}


@dataclass(frozen=True)
class Picked:
    """The rows to ask, by track.

    `left_out` rows of those tracks are not held out. `heldout` is False only when rows are asked
    that a build gives to training, or to no side. `official`: rows of the release, which has a test
    set alone. `lacks`: a line for each part of the release that this copy does not have.
    """

    tracks: dict[str, list[Row]]
    left_out: int = 0
    heldout: bool = True
    official: bool = False
    lacks: list[str] = field(default_factory=list[str])
    home: Path = Path()  # the folder or file that the rows were read from
    split: Path | None = None  # the file that names them, of a build


def parse_tracks(rest: str) -> tuple[str, list[str]]:
    """`PLACE` or `PLACE:track,track` as (place, track names). Raises `TaskError`."""
    head = "hf://" if rest.startswith("hf://") else ""
    place, _, names = rest.removeprefix(head).partition(":")
    if not place:
        raise TaskError(f"--tasks cdr:{rest}: wanted cdr:PLACE or cdr:PLACE:order_m,order_f")
    return head + place, [n.strip() for n in names.split(",") if n.strip()]


def pick_rows(rest: str, all_rows: bool = False) -> Picked:
    """The rows of `cdr:PLACE[:track,…]`. Of a build those that its heldout.jsonl names, all of them
    with `all_rows`; of the release and its copies all that are there.

    `cdr:DIR/heldout.jsonl` and `cdr:DIR/train.jsonl` ask the rows whose ids stand in that file.
    Raises `TaskError` when no row is left.
    """
    word, names = parse_tracks(rest)
    place = _fetched(word, names)
    listed = place.is_file() and not _holds_rows(place)  # a list of a build's tasks
    home, files = _files(place.parent if listed else place, names)
    split = place if listed else _split_file(home)
    lacks: list[str] = []
    tracks = _read(home, files, names, lacks.append if split is None and not names else None)
    if split is not None:
        return _of_split(tracks, home, split, all_rows)
    if not any(tracks.values()):
        why = f" ({lacks[0]})" if lacks else ""
        raise TaskError(f"--tasks cdr:{rest}: no row of a track is in {home}{why}")
    tracks = {track: rows for track, rows in tracks.items() if rows}
    # rows of our builds name their document; of a build without its lists the sides are not known
    official = not any("doc_id" in rows[0] for rows in tracks.values())
    lacks += _lacking(tracks, names, home) if official else []
    return Picked(tracks, 0, True, official, lacks, home)


def _fetched(word: str, names: Sequence[str]) -> Path:
    """The place on this machine. Of the hub's data sets the tracks, else what its viewer shows."""
    tracks = [f"tracks/{name}.*" for name in names] or ["tracks/*.jsonl", "tracks/*.parquet"]
    if word.startswith("hf://"):
        tracks += ["*.jsonl", "*.parquet"]
    if Path(word).expanduser().exists():
        return local_place(word, RELEASE)
    try:
        found = local_place(word, RELEASE, tracks)
        if found.is_file() or any(p.is_file() for p in found.rglob("*")):
            return found
    except TaskError as error:
        if "has no" not in str(error):
            raise
    return local_place(word, RELEASE, [f"{view}.{e}" for view in _VIEWS for e in _ENDINGS])


def _holds_rows(path: Path) -> bool:
    """Whether a file holds rows of the benchmark, by its first row."""
    if path.suffix == ".arrow":
        return True
    first = next(iter(read_rows(path)), None)
    return first is not None and "instance_id" in first[1] and "input_text" in first[1]


def _split_file(home: Path) -> Path | None:
    """Where a build names its held-out rows, or None. A build without any writes train.jsonl."""
    if home.is_file() and not home.parent.name.startswith("tracks"):
        return None
    places = (home.parent, home.parent.parent) if home.is_file() else (home, home.parent)
    for place in places:
        if any((place / name).is_file() for name in (HELDOUT, TRAIN)):
            return place / HELDOUT
    return None


def _files(place: Path, names: Sequence[str]) -> tuple[Path, dict[Path, str]]:
    """(the folder of tracks, or the file, or the folder of a view; the files with rows, each with
    its track, "" where rows of several lie in it)."""
    if place.is_file():
        refuse_unfinished(place.parent)
        return place, {place: ""}
    try:
        tracks = find_tracks(place, names)
    except TaskError:
        if mixed := _view(place):
            return place, dict.fromkeys(mixed, "")
        raise
    return next(iter(tracks.values())).parent, {path: track for track, path in tracks.items()}


def _read(
    home: Path,
    files: Mapping[Path, str],
    names: Sequence[str],
    torn: Callable[[str], None] | None,
) -> dict[str, list[Row]]:
    """Checked rows by track, in the benchmark's order. What cannot be read is told to `torn`, and
    its track goes as far as it can be read; without `torn` it is an error."""
    found: dict[str, list[Row]] = {track: [] for track in files.values() if track}
    for path, track in files.items():
        for row in _checked(_rows(path), torn):
            found.setdefault(track or str(row["source_track"]), []).append(row)
        if torn is not None and track and not found[track]:
            torn(f"{path}: no rows in it")
    for name in names:
        if name not in found:
            there = ", ".join(found) or "none"
            raise TaskError(f"{home}: no track {name!r}; there is {there}")
        if not found[name]:
            raise TaskError(f"track {name}: no rows in its file")
    rank = {name: place for place, name in enumerate((*CORE, *SEMANTIC))}
    chosen = names or sorted(found, key=lambda name: (rank.get(name, len(rank)), name))
    return {name: found[name] for name in chosen}


def _view(folder: Path) -> list[Path]:
    """The files of a folder that hold rows of several tracks."""
    refuse_unfinished(folder)
    for root in (folder / name for name in _ROOTS):
        for view in _VIEWS:
            for ending in _ENDINGS:
                if found := [p for p in sorted(root.glob(f"{view}.{ending}")) if p.is_file()]:
                    return found
        if (root / _ALL).is_file():
            return [root / _ALL]
    return []


def _rows(path: Path) -> Iterator[tuple[str, Row]]:
    if path.suffix != ".arrow":
        yield from read_rows(path)
        return
    with open(path, "rb") as file:
        for number, row in enumerate(arrow_rows(str(path), file), 1):
            yield f"{path} row {number}", row


def _checked(rows: Iterable[tuple[str, Row]], torn: Callable[[str], None] | None) -> Iterator[Row]:
    try:
        for where, row in rows:
            check_row(row, where)
            yield row
    except TaskError as error:
        if torn is None:
            raise
        torn(f"{error}; what stands before it is used")


def _lacking(tracks: Mapping[str, Sequence[Row]], names: Sequence[str], home: Path) -> list[str]:
    """A line for each track of the release that is not there or not whole. The core tracks and the
    semantic extension can each be had alone."""
    found: list[str] = []
    for suite in (CORE, SEMANTIC):
        if home.name == "tracks_all_prompts" and suite is SEMANTIC:
            continue
        lost = [name for name in suite if name not in tracks]
        if not names and len(lost) < len(suite):
            found += [f"{home}: track {name} is not there and is left out" for name in lost]
    for name, size in SIZES.items():
        mine = tracks.get(name, ())
        own = mine and mine[0].get("source_benchmark") == "cdrbench_rule_based"
        if own and len(mine) < size:
            found.append(f"{home}: {name} has {len(mine)} of the release's {size} rows")
    return found


def _of_split(everything: dict[str, list[Row]], home: Path, split: Path, all_rows: bool) -> Picked:
    """The rows of a build that a list of its tasks names."""
    for track, rows in everything.items():
        if not rows:
            raise TaskError(f"track {track}: no rows in its file")
    if all_rows:
        return Picked(everything, heldout=False, home=home)
    wanted = {str(row.get("id")) for _, row in read_rows(split)} if split.is_file() else set[str]()
    held = {t: [r for r in rows if r["instance_id"] in wanted] for t, rows in everything.items()}
    if not any(held.values()):
        raise TaskError(
            f"{split} names no row of {', '.join(everything)}; build with a held-out share, or "
            "give cdr.all_rows=true to evaluate the training rows too"
        )
    return Picked(
        {track: rows for track, rows in held.items() if rows},
        sum(map(len, everything.values())) - sum(map(len, held.values())),
        split.name == HELDOUT,
        home=home,
        split=split,
    )


def tell(picked: Picked, strict: bool) -> list[str]:
    """The lines about what a copy lacks. Raises `TaskError` for them with `strict`."""
    if strict and picked.lacks:
        more = f" (and {len(picked.lacks) - 1} more)" if picked.lacks[1:] else ""
        raise TaskError(f"{picked.lacks[0]}{more}; get the whole release, or leave out --strict")
    return picked.lacks


BENCHMARK = Benchmark(
    open=open_folder,
    plan=plan,
    tables=tables,
    report=cdr_tables.write_errors,
    several=cdr_tables.side_by_side,
)
