"""`assay eval --tracks cdr:DIR`: the benchmark's files in, its metrics and leaderboards out.

Every row is asked in its K prompt variants, greedily; answers are read and scored exactly as the
release does it. Each answer is on disk as soon as it is there, so a killed run goes on where it
was; requests that failed are no answers, and are asked again by the same command.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewards.cdr.files import find_tracks, first_rows, read_track, reports, write_scores
from rewards.cdr.ids import sample_variants, stable_id
from rewards.cdr.predictions import JSON, MIXED
from rewards.cdr.scorefile import score_file
from rewards.parse import parse_release
from rewards.task import Task, TaskError, read_journal, read_jsonl, write_jsonl
from rollouts.cdr.prompts import messages

Row = dict[str, Any]
HELDOUT = "heldout.jsonl"  # in the folder of a build


@dataclass(frozen=True)
class Said:
    """One answer; `text` is None when the request failed, and `error` says why."""

    text: str | None
    error: str | None = None


# Answers tasks in any order, and hands each answer over when it is there.
Answerer = Callable[[Sequence[Task], Callable[[Task, Said], None]], None]


@dataclass(frozen=True)
class CdrEval:
    """How the benchmark is asked. `k` variants a row (0: all), chosen as the release chooses."""

    mode: str = "direct"
    k: int = 3
    seed: int = 0
    limit: int = 0
    all_rows: bool = False  # also the rows that a build trains on
    thinking: bool = False  # only recorded: `request_enable_thinking` of the predictions


def parse_tracks(text: str) -> tuple[Path, list[str]]:
    """`cdr:DIR` or `cdr:DIR:track,track` as (folder, track names)."""
    rest = text.removeprefix("cdr:")
    folder, _, names = rest.partition(":")
    if not folder:
        raise TaskError(f"--tracks {text}: wanted cdr:DIR or cdr:DIR:order_m,order_f")
    return Path(folder), [n.strip() for n in names.split(",") if n.strip()]


@dataclass(frozen=True)
class Picked:
    """The rows to ask, by track, and how many rows of those tracks were left out as not held out.

    `heldout` is False only when rows are asked that a build gives to training, or to no side.
    """

    tracks: dict[str, list[Row]]
    left_out: int = 0
    heldout: bool = True


def pick_rows(spec: str, config: CdrEval) -> Picked:
    """The rows of `cdr:DIR` that stand in the build's heldout.jsonl; all rows with
    `config.all_rows`, and of a folder without a record of splits (the published benchmark).

    `cdr:DIR/heldout.jsonl` and `cdr:DIR/train.jsonl` ask the rows whose ids stand in that file.
    Raises `TaskError` when no row is left.
    """
    place, names = parse_tracks(spec)
    folder = place.parent if place.is_file() else place
    paths = find_tracks(folder, names)
    home = next(iter(paths.values())).parent
    split = place if place.is_file() else _split_file((home, home.parent))
    if split is None or config.all_rows:
        return Picked(
            {t: read_track(p, config.limit) for t, p in paths.items()}, heldout=split is None
        )
    wanted = {str(row.get("id")) for _, row in read_jsonl(split)} if split.is_file() else set()
    everything = {track: read_track(path) for track, path in paths.items()}
    held = {t: [r for r in rows if r["instance_id"] in wanted] for t, rows in everything.items()}
    if not any(held.values()):
        raise TaskError(
            f"{split} names no row of {', '.join(paths)}; build with a held-out share, or give "
            "--all-rows to evaluate the training rows too"
        )
    return Picked(
        {track: first_rows(rows, config.limit) for track, rows in held.items() if rows},
        sum(map(len, everything.values())) - sum(map(len, held.values())),
        split.name == HELDOUT,
    )


def _split_file(places: Sequence[Path]) -> Path | None:
    """Where a build names its held-out rows, or None. A build without any writes train.jsonl."""
    for place in places:
        if any((place / name).is_file() for name in (HELDOUT, "train.jsonl")):
            return place / HELDOUT
    return None


def variants_of(row: Row, config: CdrEval) -> list[tuple[int, Row]]:
    """(index, variant) of the K variants a row is asked in."""
    listed: list[Row] = row.get("prompt_variants") or []
    if not listed:
        raise TaskError(f"row {row['instance_id']}: no prompt_variants; give rows with prompts")
    key = str(row.get("recipe_prompt_key") or row.get("recipe_id") or "")
    k = 0 if row["track_family"] == "semantic_extension" else config.k
    picked = sample_variants(len(listed), k, config.seed, key, row["instance_id"])
    return [(i, listed[i]) for i in picked]


def tasks_of(rows: Sequence[Row], config: CdrEval) -> list[Task]:
    """One task a row and variant; the id says which."""
    more = {"mode": config.mode}
    return [
        Task(
            id=f"{row['instance_id']}#{i}",
            family="structured" if row["scoring_profile"] in (JSON, MIXED) else "refinement",
            track=row["source_track"],
            split="test",
            prompt=messages(
                variant["user_requirement"],
                row["input_text"],
                config.mode,
                "json" if row["output_format"] != "tagged_text" else "tagged_text",
            ),
            gold=row | {"status": row["reference_status"], "text": row["reference_text"]} | more,
        )
        for row in rows
        for i, variant in variants_of(row, config)
    ]


def prediction_rows(
    rows: Sequence[Row], answers: Sequence[Said], model: str, config: CdrEval
) -> list[Row]:
    """Release prediction rows; an answer without text is a request that failed."""
    given = iter(answers)
    found: list[Row] = []
    for row in rows:
        picked = variants_of(row, config)
        predictions = [_prediction(row, i, variant, next(given)) for i, variant in picked]
        found.append(
            row
            | {
                "request_model": model,
                "request_backend": "assay",
                "request_temperature": 0.0,
                "request_enable_thinking": config.thinking,
                "prompt_mode": config.mode,
                "selected_prompt_variant_indices": [i for i, _ in picked],
                "prompt_variant_sample_size": config.k if config.k > 0 else "all",
                "prompt_variant_sampling_seed": config.seed,
                "variant_predictions": predictions,
            }
        )
    return found


def _prediction(row: Row, index: int, variant: Row, said: Said) -> Row:
    status, text, answer = None, None, said.text
    if answer is not None and row["output_format"] == "tagged_text":
        read = parse_release(answer)
        status, text = read.status, read.text
    elif answer is not None:
        status, text = "KEEP", answer.strip()
    return {
        "prompt_variant_index": index,
        "prompt_style_id": variant.get("style_id"),
        "prompt_style_label": variant.get("style_label"),
        "user_requirement": variant.get("user_requirement"),
        "predicted_status": status,
        "predicted_clean_text": text,
        "raw_response": answer or "",
        "prediction_error": None if answer is not None else said.error or "request failed",
        "valid_prediction": answer is not None,
    }


class Answers:
    """The answers to one track: what a former run left, and a journal of what comes in.

    A line a successful answer; `words` of it are a hash of the request, so that answers to other
    words of the same row are never taken for these.
    """

    def __init__(self, target: Path, tasks: Sequence[Task]) -> None:
        self._journal = target.with_name(target.name.replace("predictions_", "answers_", 1))
        self._words = {task.id: stable_id(task.prompt) for task in tasks}
        self.said: dict[str, Said] = {}
        for row in read_journal(self._journal):
            if self._words.get(row["id"]) == row["words"]:
                self.said[row["id"]] = Said(row["text"])
        if target.is_file():
            self._read_predictions(target, tasks)

    def _read_predictions(self, target: Path, tasks: Sequence[Task]) -> None:
        asked = {(t.gold["instance_id"], t.id): t.prompt[-1]["content"] for t in tasks}
        for _, row in read_jsonl(target):
            for one in row["variant_predictions"]:
                name = f"{row['instance_id']}#{one['prompt_variant_index']}"
                words = asked.get((row["instance_id"], name))
                same = words is not None and str(one["user_requirement"]) in words
                if not same or row["prompt_mode"] != tasks[0].gold["mode"]:
                    raise TaskError(f"{target} holds answers to other rows; give another --out")
                if one["valid_prediction"]:
                    self.said[name] = Said(one["raw_response"])

    def ask(self, tasks: Sequence[Task], answer: Answerer) -> list[Said]:
        """Every task's answer, in order; only those without one are asked."""
        todo = [task for task in tasks if task.id not in self.said]
        if todo:
            self._journal.parent.mkdir(parents=True, exist_ok=True)
            with open(self._journal, "a", encoding="utf-8") as journal:

                def keep(task: Task, said: Said) -> None:
                    self.said[task.id] = said
                    if said.text is not None:
                        line = {"id": task.id, "words": self._words[task.id], "text": said.text}
                        journal.write(json.dumps(line) + "\n")
                        journal.flush()

                answer(todo, keep)
        return [self.said.get(task.id) or Said(None, "not answered") for task in tasks]

    def close(self) -> None:
        """The predictions file holds everything now."""
        self._journal.unlink(missing_ok=True)


def evaluate_benchmark(
    picked: Picked, out: Path, model: str, answer: Answerer, config: CdrEval
) -> tuple[dict[str, Row], list[tuple[Task, Said]]]:
    """Answer the picked rows and write the release's files under `out/data/evaluation`.

    Returns paper metrics by track, and all tasks with their answers. What an earlier run answered
    is only scored.
    """
    root = out / "data" / "evaluation"
    papers: dict[str, Row] = {}
    asked: list[tuple[Task, Said]] = []
    for track, rows in picked.tracks.items():
        if not rows:
            raise TaskError(f"track {track}: no rows in its file")
        home = root / track / model
        label = config.k if config.k > 0 else "all"
        core = rows[0]["track_family"] == "core_rule"
        suffix = f"{config.mode}_k{label}_seed{config.seed}" if core else "semantic_styles3"
        target = home / f"predictions_{suffix}.jsonl"
        tasks = tasks_of(rows, config)
        answers = Answers(target, tasks)
        given = answers.ask(tasks, answer)
        done = prediction_rows(rows, given, model, config)
        write_jsonl(target, done)
        answers.close()
        scored = score_file(done, config.k if core else 0, config.seed, track, model)
        write_scores(home / f"score_{suffix}", scored)
        papers[track] = scored.paper
        asked += list(zip(tasks, given, strict=True))
    reports(root)
    return papers, asked


def paper_table(papers: dict[str, Row]) -> str:
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
