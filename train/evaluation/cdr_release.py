# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""CDR-Bench: `cdr:PLACE` opened as tasks, and the release's files and metrics from generic rows.
How tasks are asked stands in cdr.py, where their rows lie in cdr_layout.py.

Every row is asked in its K prompt variants; the files' answers are read and scored exactly as the
release does it. Requests that failed are no answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from rollouts.words.templates import Words, places
from train.evaluation.cdr_figures import TrackAnswers, figures
from train.evaluation.cdr_layout import TRAIN, Picked, parse_tracks, pick_rows, tell
from train.evaluation.contract import OF_A_RELEASE, Found, Opened, Row, in_words
from train.evaluation.settings import thinking
from train.evaluation.tables import Draw

STYLES = 3  # of wording, in the semantic extension
ADDED = ("status", "text", "mode")  # to a row, in the gold of its tasks


@dataclass(frozen=True)
class CdrEval:
    """How the benchmark is asked. `k` variants a row (0: all), chosen as the release chooses."""

    mode: str = "direct"
    k: int = 3
    seed: int = 0
    shots: Shots = field(default_factory=Shots)  # of few_shot
    examples: Path | None = None  # where they come from, else train.jsonl of the folder
    words: Words | None = None  # that rows are asked in; None: ours

    @property
    def draws(self) -> bool:
        """Whether few_shot draws examples: a release's words have their own."""
        return self.words is None or "examples" in places(self.words.texts["few_shot"])


def variants_of(row: Row, config: CdrEval) -> list[tuple[int, Row]]:
    """(index, variant) of the K variants a row is asked in."""
    listed: list[Row] = row.get("prompt_variants") or []
    if not listed:
        raise TaskError(f"row {row['instance_id']}: no prompt_variants; give rows with prompts")
    key = str(row.get("recipe_prompt_key") or row.get("recipe_id") or "")
    k = 0 if row["track_family"] == "semantic_extension" else config.k
    picked = sample_variants(len(listed), k, config.seed, key, row["instance_id"])
    return [(i, listed[i]) for i in picked]


def tasks_of(rows: Sequence[Row], config: CdrEval, pool: Pool | None = None) -> list[Task]:
    """One task a row and variant; the id says which. `pool`: what examples are drawn from."""
    made = [_task(row, i, v, config) for row in rows for i, v in variants_of(row, config)]
    if not pool:
        return made
    return [with_examples(task, pool, config.shots, config.words) for task in made]


def examples_of(place: Path, config: CdrEval) -> Pool:
    """The examples of few_shot: of the training tasks of a build's folder, or those that the
    command line names; {} for another mode, and where there are none. Raises `TaskError`."""
    if config.mode != "few_shot":
        return {}
    if not config.draws and config.examples is not None:
        raise TaskError(
            f"cdr.examples={config.examples}: the words of few_shot have their own examples; leave "
            "it out, or leave prompts= out"
        )
    if not config.draws:
        return {}
    if config.shots.count < 1 or config.shots.longest < 1:
        raise TaskError("cdr.shots and cdr.shot_chars: give 1 or more")
    folder = place.parent if place.is_file() else place
    beside = next((f for f in (folder / TRAIN, folder.parent / TRAIN) if f.is_file()), None)
    path = config.examples or beside
    if path is None:
        return {}
    if not path.is_file():
        raise TaskError(f"cdr.examples={path}: no such file; give training tasks as JSON lines")
    tasks = (t for _, row in read_rows(path) if (t := _example(row, path)))
    return pool_of(tasks, config.shots.longest)


def _example(row: Row, path: Path) -> Task | None:
    """A row of a split file as a task; a file that only lists ids gives none."""
    return Task.from_json(row, str(path)) if "prompt" in row else None


def _task(row: Row, index: int, variant: Row, config: CdrEval) -> Task:
    added = {"status": row["reference_status"], "text": row["reference_text"], "mode": config.mode}
    steps = [str(step) for step in row.get("operator_sequence") or []]
    filtered = row.get("operator_kind") == "filter" or any(s.endswith("_filter") for s in steps)
    meta = {
        "instance": row["instance_id"],
        "requirement": variant["user_requirement"],
        "domain": row.get("domain"),
        "style": variant.get("style_id"),
        "difficulty": row.get("difficulty_label"),
        "has_filter": filtered,
        "order_slot": row.get("order_slot"),
    }
    if config.words is not None:
        meta[MARK] = config.words.hash
    return Task(
        id=f"{row['instance_id']}#{index}",
        family="structured" if row["scoring_profile"] in (JSON, MIXED) else "refinement",
        track=row["source_track"],
        split="test",
        prompt=messages(
            variant["user_requirement"],
            row["input_text"],
            config.mode,
            row["output_format"],
            words=config.words,
        ),
        gold=row | added,
        group=row.get("order_group_instance_id") or None,
        meta=meta,
    )


def open_folder(rest: str, args: Any) -> Opened:
    """`cdr:PLACE[:track,…]`, `cdr:DIR/heldout.jsonl` or `cdr:DIR/train.jsonl`."""
    config = _config(args)
    picked = pick_rows(rest, args.all_rows)
    what = _what(parse_tracks(rest)[0], picked)
    said = [*tell(picked, args.strict)]
    if picked.left_out:
        said.append(
            f"{picked.left_out} rows are left out: only {what} is evaluated; cdr.all_rows=true "
            "asks for every row"
        )
    pool = examples_of(picked.split or picked.home, config)
    tasks = [task for rows in picked.tracks.values() for task in tasks_of(rows, config, pool)]
    if line := _without_examples(tasks, config):
        said.append(line)
    return Opened(
        tasks,
        notes={"mode": config.mode, "k": config.k, "rows_left_out": picked.left_out},
        said=said,
        heldout=picked.heldout,
        asked=OF_A_RELEASE if picked.official else "",
        split=f"{what} ({sum(map(len, picked.tracks.values()))} rows)",
    )


def _without_examples(tasks: Sequence[Task], config: CdrEval) -> str:
    """A line about prompts with the two fixed examples, "" when there is none."""
    bare = [t for t in tasks if shows_examples(t) and "examples" not in t.meta]
    if config.mode != "few_shot" or not bare:
        return ""
    if not config.draws:
        return f"few_shot: {len(bare)} prompts show the examples of the words that are asked in"
    tracks = ", ".join(dict.fromkeys(task.track for task in bare))
    return (
        f"few_shot: {len(bare)} prompts of {tracks} show two fixed examples, for want of training "
        f"tasks of at most {config.shots.longest} characters; cdr.examples=FILE names some"
    )


def _what(word: str, picked: Picked) -> str:
    """Which rows these are."""
    if picked.split is not None and Path(word).is_file():
        return f"what {word} lists"
    if not picked.heldout:
        return f"all rows of {word}, training rows among them"
    return f"the held-out split of {word}" if picked.left_out else f"all rows of {word}"


def _config(args: Any) -> CdrEval:
    shots = Shots(args.shots, args.shot_chars, args.seed)
    words = args.asked_in.words.get("refinement")
    return CdrEval(args.mode, args.k, args.seed, shots, args.examples, words)


def prediction_rows(
    tasks: Sequence[Task], rows: Sequence[Row], model: str, config: CdrEval, thinking: bool
) -> list[Row]:
    """Release prediction rows from the rows of one track's tasks, in order; an answer with a
    failure is a request that failed."""
    instances: dict[str, list[tuple[Task, Row]]] = {}
    for task, row in zip(tasks, rows, strict=True):
        instances.setdefault(str(task.gold["instance_id"]), []).append((task, row))
    found: list[Row] = []
    for pairs in instances.values():
        original = {k: v for k, v in pairs[0][0].gold.items() if k not in ADDED}
        picked = dict(variants_of(original, config))
        asked = {int(task.id.rpartition("#")[2]): row for task, row in pairs}
        found.append(
            original
            | {
                "request_model": model,
                "request_backend": "assay",
                "request_temperature": 0.0,
                "request_enable_thinking": thinking,
                "prompt_mode": config.mode,
                "selected_prompt_variant_indices": list(picked),
                "prompt_variant_sample_size": config.k if config.k > 0 else "all",
                "prompt_variant_sampling_seed": config.seed,
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
    config, root, model = _config(args), out / "data" / "evaluation", args.name
    thought = bool(thinking(args))
    first = [(t, r) for t, r in zip(tasks, rows, strict=True) if r["sample"] == 0]
    papers: dict[str, Row] = {}
    answers: dict[str, TrackAnswers] = {}
    for track in dict.fromkeys(task.track for task, _ in first):
        mine = [(t, r) for t, r in first if t.track == track]
        core = mine[0][0].gold["track_family"] == "core_rule"
        label = config.k if config.k > 0 else "all"
        suffix = f"{config.mode}_k{label}_seed{config.seed}" if core else "semantic_styles3"
        home = root / track / model
        done = prediction_rows([t for t, _ in mine], [r for _, r in mine], model, config, thought)
        write_jsonl(home / f"predictions_{suffix}.jsonl", done)
        known = str(done[0].get("benchmark_track") or track)  # what the release calls the track
        scored = score_file(done, _k_of(done, core, config), config.seed, known, model)
        write_scores(home / f"score_{suffix}", scored)
        papers[track] = scored.paper
        answers[track] = TrackAnswers(done, scored)
    leaderboard([root], root / "reports")
    return Found(
        {
            "paper_metrics": papers,
            "parsing": "release here, strict in rows and tables",
            "figures": figures(answers, Draw(seed=args.seed)),
        },
        in_words(f"{paper_table(papers)}\nfiles: {root}", tasks, args),
    )


def _k_of(rows: Sequence[Row], core: bool, config: CdrEval) -> int:
    """K of a track's RS@K. The semantic extension has three styles, and is scored at 3."""
    if core:
        return config.k
    return STYLES if min(len(row["variant_predictions"]) for row in rows) >= STYLES else 0


def paper_table(papers: Mapping[str, Row]) -> str:
    """The tracks' numbers as plain text, in per cent."""
    names = ("mean_rs@k", "mean_rs", "mean_rg", "ocs_at_k")
    lines = [f"{'track':<30}" + "".join(f"{n:>12}" for n in ("rows", *names))]
    for track, paper in papers.items():
        cells = [str(paper["num_instances"])]
        for name in names:
            value = paper.get(name)
            cells.append("–" if value is None else f"{100 * value:.2f}")
        lines.append(f"{track:<30}" + "".join(f"{c:>12}" for c in cells))
    return "\n".join(lines)
