"""Paraphrases for a whole task set: per recipe and style a few candidates, the accepted ones kept.

As in the benchmark's construction (spec section 10): candidates are asked for at temperature 0.8,
judged at temperature 0, and of the accepted ones of a style the one with the smallest hash is
used; where none is accepted the grammar's own wording stays. Everything asked is a row of
`paraphrases.jsonl`, accepted or not and why, and is never asked again: the same file gives the same
tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from assay.console import Progress
from assay.http_client import ChatEndpoint, CircuitBreaker, EndpointError
from assay.journal import append_rows, read_journal, rewrite_journal
from assay.task import TaskError
from configs.cdr import InstructConfig, ParaphraseConfig
from data_gen.cdr.instruct import InstructionError, PromptVariant, chosen, pool, wordings_of
from data_gen.cdr.paraphrase import Candidate, paraphrase
from data_gen.cdr.rows import PlannedRow, key_of
from rewards.cdr.release_files import stable_id
from rewards.gold import Step

Row = dict[str, Any]
FILE = "paraphrases.jsonl"


@dataclass(frozen=True)
class Wording:
    """An accepted paraphrase, and the recipe that was recovered from it."""

    text: str
    steps: tuple[Step, ...]


# (recipe_prompt_key, style id) -> the wording that stands in for the grammar's
Wordings = Mapping[tuple[str, str], Wording]


@dataclass(frozen=True)
class Job:
    """One style of one recipe."""

    key: str
    steps: tuple[Step, ...]
    base: PromptVariant


@dataclass
class Paraphrased:
    """Wordings to use, and what became of everything that was asked."""

    wordings: dict[tuple[str, str], Wording] = field(default_factory=dict[Any, Wording])
    counts: dict[str, Any] = field(default_factory=dict[str, Any])


def jobs_of(
    units: Sequence[Sequence[PlannedRow]], instruct: InstructConfig, config: ParaphraseConfig
) -> Iterator[Job]:
    """The styles that the units' tasks are asked in, recipe by recipe, each once."""
    pools: dict[str, list[PromptVariant]] = {}
    seen: set[tuple[str, str]] = set()
    for planned in (planned for unit in units for planned in unit):
        key = key_of(planned)
        if int(stable_id("paraphrase", key), 16) >= config.share * (1 << 64):
            continue
        if key not in pools:
            try:
                pools[key] = pool(planned.steps, key, instruct.seed, instruct.forms)
            except InstructionError:  # left out later, with this reason
                pools[key] = []
        size, name = len(pools[key]), planned.instance.id
        picked = list(range(size))
        if not instruct.all_prompts and size:
            picked = chosen(size, instruct.variants, instruct.seed, key, name)
            count = max(len(picked), instruct.variants_per_task)
            picked += wordings_of(size, picked, count, instruct.seed, key, name)[len(picked) :]
        for variant in (pools[key][i] for i in picked):
            if (key, variant.style_id) not in seen:
                seen.add((key, variant.style_id))
                yield Job(key, tuple(planned.steps), variant)


def paraphrase_units(
    units: Sequence[Sequence[PlannedRow]],
    instruct: InstructConfig,
    config: ParaphraseConfig,
    out: Path,
) -> Paraphrased:
    """Ask for what `out/paraphrases.jsonl` does not hold yet, and choose.

    Raises `TaskError` when the endpoint is gone; what it said is kept.
    """
    jobs = list(jobs_of(units, instruct, config))
    asker = _Asker(config, out / FILE)
    found: list[list[Row]] = []
    with (
        Progress("paraphrases", "styles", len(jobs)) as bar,
        ThreadPoolExecutor(config.workers, "paraphrase") as threads,
    ):
        for rows in threads.map(asker.ask, jobs):
            found.append(rows)
            bar.add()
    # in the order of the tasks, without what they no longer ask for
    rewrite_journal(out / FILE, (row for rows in found for row in rows))
    return _choose(jobs, found, asker.failed)


class _Asker:
    """Asks for a job's candidates, each answer journalled as it comes; safe from many threads."""

    def __init__(self, config: ParaphraseConfig, journal: Path) -> None:
        if not config.model:
            raise TaskError("paraphrase.model is empty; say which model the endpoint has")
        self._endpoint = ChatEndpoint(config.url, config.model, config.key_env, config.timeout_s)
        self._breaker = CircuitBreaker(config.url)
        self._candidates, self._journal, self._lock = config.candidates, journal, Lock()
        self._known: dict[tuple[str, str, int, str], Row] = {}
        self.failed = 0
        for row in read_journal(journal):
            name = (row["recipe_prompt_key"], row["style_id"], row["slot"], row["base"])
            self._known[name] = row

    def ask(self, job: Job) -> list[Row]:
        """A row a candidate; those that the endpoint failed to give are left out."""
        return [row for slot in range(self._candidates) if (row := self._one(job, slot))]

    def _one(self, job: Job, slot: int) -> Row | None:
        base = job.base
        name = (job.key, base.style_id, slot, base.user_requirement)
        if name in self._known:
            return self._known[name]
        self._breaker.check()
        try:
            made = paraphrase(job.steps, base, self._endpoint)
        except EndpointError as error:
            with self._lock:
                self.failed += 1
            self._breaker.see(str(error), answered="no_answer" in error.notes)
            return None
        self._breaker.see(None)
        row = _row(job, slot, made)
        with self._lock:
            append_rows(self._journal, [row])
        return row


def _row(job: Job, slot: int, made: Candidate) -> Row:
    name = stable_id(job.key, f"{job.base.style_id}__{slot}", made.text)
    return {
        "recipe_prompt_key": job.key,
        "style_id": job.base.style_id,
        "slot": slot,
        "candidate_id": name,
        "base": job.base.user_requirement,
        "text": made.text,
        "refused": made.refused,
        "recovered": [{"operator": s.operator, "params": s.params} for s in made.steps],
    }


def _choose(jobs: Sequence[Job], found: Sequence[Sequence[Row]], failed: int) -> Paraphrased:
    done = Paraphrased()
    for job, rows in zip(jobs, found, strict=True):
        good = [r for r in rows if not r["refused"] and _steps(r) == job.steps]
        if good:
            style = job.base.style_id
            best = min(
                good,
                key=lambda r: stable_id("prompt-candidate-canonical", style, r["candidate_id"]),
            )
            done.wordings[job.key, style] = Wording(best["text"], _steps(best))
    asked = [row for rows in found for row in rows]
    refused = Counter(str(row["refused"]) for row in asked if row["refused"])
    done.counts = {
        "styles_of_recipes": len(jobs),
        "styles_paraphrased": len(done.wordings),
        "candidates": len(asked),
        "accepted": len(asked) - refused.total(),
        "refused": dict(sorted(refused.items())),
        "not_answered": failed,
    }
    return done


def _steps(row: Row) -> tuple[Step, ...]:
    return tuple(Step(s["operator"], dict(s["params"])) for s in row["recovered"])
