# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""CDR-Bench: `cdr:PLACE` opened as tasks, how they are asked, and the release's files and metrics
from generic rows. Where rows lie stands in cdr_layout.py, the tables in cdr_tables.py.

Every row is asked in its K prompt variants; the files' answers are read and scored exactly as the
release does it. Requests that failed are no answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assay.rows import read_rows
from assay.task import Task, TaskError, write_jsonl
from assay.thoughts import answer_after_thoughts
from rewards.cdr.json_answers import JSON, MIXED
from rewards.cdr.leaderboard import leaderboard
from rewards.cdr.release_files import sample_variants, score_file, write_scores
from rewards.cdr.score import gold_answer
from rewards.parse import parse_release
from rollouts.cdr.prompts import MARK, messages
from rollouts.cdr.shots import Pool, Shots, pool_of, shows_examples, with_examples
from rollouts.prompts import ChatTokenizer
from rollouts.sampler import Plan
from rollouts.words.templates import Words, places
from train.evaluation import cdr_tables
from train.evaluation.answering import thinking
from train.evaluation.benchmarks import (
    OF_A_RELEASE,
    Benchmark,
    Found,
    Opened,
    Row,
    budget_of,
    in_words,
    plain_plan,
    published_room,
)
from train.evaluation.cdr_layout import TRAIN, Picked, parse_tracks, pick_rows, tell
from train.evaluation.tables import Draw, aligned, points

ANSWER_TOKENS = 32_768  # of an answer, in the paper (App. B.1); an endpoint has its own bound
STYLES = 3  # of wording, in the semantic extension
ADDED = ("status", "text", "mode")  # to a row, in the gold of its tasks


def plan(task: Task, args: Any, tokenizer: ChatTokenizer | None) -> Plan:
    if "instance_id" not in task.gold:  # a text of one's own
        return plain_plan(task, args, tokenizer)
    room: int = args.max_new_tokens
    if not room and tokenizer is not None:
        room = published_room(task, args, tokenizer, ANSWER_TOKENS)
    return Plan(room, budget_of(args))


# --- tasks ---------------------------------------------------------------------------------------


def open_folder(rest: str, args: Any) -> Opened:
    """`cdr:PLACE[:track,…]`, `cdr:DIR/heldout.jsonl` or `cdr:DIR/train.jsonl`."""
    picked = pick_rows(rest, args.all_rows)
    what = _what(parse_tracks(rest)[0], picked)
    said = [*tell(picked, args.strict)]
    if picked.left_out:
        said.append(
            f"{picked.left_out} rows are left out: only {what} is evaluated; cdr.all_rows=true "
            "asks for every row"
        )
    pool = examples_of(picked.split or picked.home, args)
    rows = [row for mine in picked.tracks.values() for row in mine]
    tasks = [_task(row, i, v, args) for row in rows for i, v in variants_of(row, args)]
    if pool:
        tasks = [with_examples(task, pool, _shots(args), _words(args)) for task in tasks]
    if line := _without_examples(tasks, args):
        said.append(line)
    return Opened(
        tasks,
        notes={"mode": args.mode, "k": args.k, "rows_left_out": picked.left_out},
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


def _words(args: Any) -> Words | None:
    """The words that rows are asked in; None: ours."""
    return args.asked_in.words.get("refinement")


def _shots(args: Any) -> Shots:
    return Shots(args.shots, args.shot_chars, args.seed)


def _draws(args: Any) -> bool:
    """Whether few_shot draws examples: a release's words have their own."""
    words = _words(args)
    return words is None or "examples" in places(words.texts["few_shot"])


def variants_of(row: Row, args: Any) -> list[tuple[int, Row]]:
    """(index, variant) of the K variants that a row is asked in, chosen as the release does."""
    listed: list[Row] = row.get("prompt_variants") or []
    if not listed:
        raise TaskError(f"row {row['instance_id']}: no prompt_variants; give rows with prompts")
    key = str(row.get("recipe_prompt_key") or row.get("recipe_id") or "")
    k = 0 if row["track_family"] == "semantic_extension" else args.k
    picked = sample_variants(len(listed), k, args.seed, key, row["instance_id"])
    return [(i, listed[i]) for i in picked]


def examples_of(place: Path, args: Any) -> Pool:
    """The examples of few_shot: of the training tasks of a build's folder, or those that the
    command line names; {} for another mode, and where there are none. Raises `TaskError`."""
    if args.mode != "few_shot":
        return {}
    if not _draws(args):
        if args.examples is not None:
            raise TaskError(
                f"cdr.examples={args.examples}: the words of few_shot have their own examples; "
                "leave it out, or leave prompts= out"
            )
        return {}
    if args.shots < 1 or args.shot_chars < 1:
        raise TaskError("cdr.shots and cdr.shot_chars: give 1 or more")
    folder = place.parent if place.is_file() else place
    beside = next((f for f in (folder / TRAIN, folder.parent / TRAIN) if f.is_file()), None)
    path: Path | None = args.examples or beside
    if path is None:
        return {}
    if not path.is_file():
        raise TaskError(f"cdr.examples={path}: no such file; give training tasks as JSON lines")
    rows = (row for _, row in read_rows(path))  # a file that only lists ids gives none
    tasks = (Task.from_json(row, str(path)) for row in rows if "prompt" in row)
    return pool_of(tasks, args.shot_chars)


def _without_examples(tasks: Sequence[Task], args: Any) -> str:
    """A line about prompts with the two fixed examples, "" when there is none."""
    bare = [t for t in tasks if shows_examples(t) and "examples" not in t.meta]
    if args.mode != "few_shot" or not bare:
        return ""
    if not _draws(args):
        return f"few_shot: {len(bare)} prompts show the examples of the words that are asked in"
    tracks = ", ".join(dict.fromkeys(task.track for task in bare))
    return (
        f"few_shot: {len(bare)} prompts of {tracks} show two fixed examples, for want of training "
        f"tasks of at most {args.shot_chars} characters; cdr.examples=FILE names some"
    )


def _task(row: Row, index: int, variant: Row, args: Any) -> Task:
    """A row in one variant; the id says which."""
    added = {"status": row["reference_status"], "text": row["reference_text"], "mode": args.mode}
    steps = [str(step) for step in row.get("operator_sequence") or []]
    filtered = row.get("operator_kind") == "filter" or any(s.endswith("_filter") for s in steps)
    words = _words(args)
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
        prompt=messages(asked, text, args.mode, form, words=words),
        gold=row | added,
        group=row.get("order_group_instance_id") or None,
        meta=meta | ({MARK: words.hash} if words is not None else {}),
    )


# --- the release's files -------------------------------------------------------------------------


def prediction_rows(tasks: Sequence[Task], rows: Sequence[Row], args: Any) -> list[Row]:
    """Release prediction rows from the rows of one track's tasks, in order; an answer with a
    failure is a request that failed."""
    instances: dict[str, list[tuple[Task, Row]]] = {}
    for task, row in zip(tasks, rows, strict=True):
        instances.setdefault(str(task.gold["instance_id"]), []).append((task, row))
    found: list[Row] = []
    for pairs in instances.values():
        original = {k: v for k, v in pairs[0][0].gold.items() if k not in ADDED}
        picked = dict(variants_of(original, args))
        asked = {int(task.id.rpartition("#")[2]): row for task, row in pairs}
        found.append(
            original
            | {
                "request_model": args.name,
                "request_backend": "assay",
                "request_temperature": 0.0,
                "request_enable_thinking": bool(thinking(args)),
                "prompt_mode": args.mode,
                "selected_prompt_variant_indices": list(picked),
                "prompt_variant_sample_size": args.k if args.k > 0 else "all",
                "prompt_variant_sampling_seed": args.seed,
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


def tables(tasks: Sequence[Task], rows: Sequence[Row], out: Path, args: Any) -> Found:
    """Write the release's files under `out/data/evaluation`; the paper's metrics by track."""
    root, model = out / "data" / "evaluation", args.name
    first = [(t, r) for t, r in zip(tasks, rows, strict=True) if r["sample"] == 0]
    papers: dict[str, Row] = {}
    answers: dict[str, cdr_tables.TrackAnswers] = {}
    for track in dict.fromkeys(task.track for task, _ in first):
        mine = [(t, r) for t, r in first if t.track == track]
        core = mine[0][0].gold["track_family"] == "core_rule"
        label = args.k if args.k > 0 else "all"
        suffix = f"{args.mode}_k{label}_seed{args.seed}" if core else "semantic_styles3"
        home = root / track / model
        done = prediction_rows([t for t, _ in mine], [r for _, r in mine], args)
        write_jsonl(home / f"predictions_{suffix}.jsonl", done)
        known = str(done[0].get("benchmark_track") or track)  # what the release calls the track
        # the semantic extension has three styles, and is scored at 3
        asked = min(len(row["variant_predictions"]) for row in done)
        k = args.k if core else STYLES if asked >= STYLES else 0
        scored = score_file(done, k, args.seed, known, model)
        write_scores(home / f"score_{suffix}", scored)
        papers[track] = scored.paper
        answers[track] = cdr_tables.TrackAnswers(done, scored)
    leaderboard([root], root / "reports")
    shown = cdr_tables.tables_of(papers, answers, Draw(seed=args.seed))
    return Found(
        {
            "paper_metrics": papers,
            "parsing": "release here, strict in rows and tables",
            "shown": [asdict(table) for table in shown],
        },
        in_words(f"{paper_table(papers)}\nfiles: {root}", tasks, args),
    )


def paper_table(papers: Mapping[str, Row]) -> str:
    """The tracks' numbers as plain text, in per cent."""
    names = ("mean_rs@k", "mean_rs", "mean_rg", "ocs_at_k")
    lines = [["track", "rows", *names]]
    for track, paper in papers.items():
        lines.append([track, str(paper["num_instances"]), *(points(paper.get(n)) for n in names)])
    return "\n".join(aligned(lines))


BENCHMARK = Benchmark(
    open=open_folder,
    plan=plan,
    tables=tables,
    report=cdr_tables.write_errors,
    several=cdr_tables.side_by_side,
)
