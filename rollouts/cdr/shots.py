"""Few-shot examples: solved training tasks of the same track, drawn by seed for every task.

The paper's examples are of the task's own track (the release shows two fixed ones in every
prompt); the construction's code took the two shortest rows of the track. Here the pool of a track
is its shortest training tasks, and every task draws its own examples from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from assay.fingerprints import shingles, tokens
from assay.seeds import derive_seed
from assay.task import Task
from rollouts.words.cdr import Example, messages
from rollouts.words.templates import Words

POOL = 32  # tasks of one track and status that examples are drawn from: the shortest
SAME_RECIPE = 4  # of them that may have one recipe
NEAR = 0.8  # share of the shorter text's shingles from which two texts are copies
_LEAST = 4  # shingles below which a text is only compared whole


@dataclass(frozen=True)
class Shots:
    """How many examples a prompt shows, how long one may be (characters of its input and answer
    together), and the seed of the draw."""

    count: int = 2
    longest: int = 1000
    seed: int = 0


def add_shots(add: Callable[..., object]) -> None:
    """The options of `few_shot`: `args.shots` and `args.shot_chars`. `add` is the `add_argument` of
    a parser or of a group."""
    number: dict[str, Any] = {"type": int, "metavar": "N"}
    add("--shots", **number, default=Shots.count, help="examples of few_shot (%(default)s)")
    help_ = "characters of input and answer that an example may have (%(default)s)"
    add("--shot-chars", **number, default=Shots.longest, help=help_)


@dataclass(frozen=True)
class Shot:
    """A training task that may be shown."""

    id: str
    document: str
    recipe: str
    example: Example

    @property
    def rank(self) -> tuple[int, str]:
        """Shorter ones come first."""
        return len(self.example.text) + len(self.example.result), self.id


# By track and status, the shortest first.
Pool = Mapping[str, Mapping[str, Sequence[Shot]]]


def shows_examples(task: Task) -> bool:
    """Whether the task is asked with examples before it."""
    asked = task.gold.get("mode") == "few_shot" and bool(task.meta.get("requirement"))
    return asked and task.family == "refinement"


def pool_of(tasks: Iterable[Task], longest: int) -> Pool:
    """The examples that training tasks give, by track: at most `POOL` of each status, of different
    documents, no two of which are nearly alike. Tasks of other splits, and those without words,
    input or answer, give none. Memory is bounded by the number of recipes."""
    best: dict[tuple[str, str], dict[str, list[Shot]]] = {}
    for task in tasks:
        shot = _shot(task) if task.split == "train" else None
        if shot is None or shot.rank[0] > longest:
            continue
        recipes = best.setdefault((task.track, shot.example.status), {})
        kept = [s for s in recipes.get(shot.recipe, []) if s.document != shot.document]
        same = [s for s in recipes.get(shot.recipe, []) if s.document == shot.document]
        shortest = sorted([*kept, min([*same, shot], key=lambda s: s.rank)], key=lambda s: s.rank)
        recipes[shot.recipe] = shortest[:SAME_RECIPE]
    found: dict[str, dict[str, list[Shot]]] = {}
    for (track, status), recipes in sorted(best.items()):
        ranked = sorted((s for mine in recipes.values() for s in mine), key=lambda s: s.rank)
        found.setdefault(track, {})[status] = _different(ranked)
    return found


def _shot(task: Task) -> Shot | None:
    gold, words = task.gold, task.meta.get("requirement")
    said = (words, gold.get("input_text"), gold.get("status"), gold.get("text"))
    if task.family != "refinement" or not all(isinstance(value, str) for value in said):
        return None
    document = str(task.meta.get("document") or task.id)
    return Shot(task.id, document, _recipe(task), Example(*map(str, said)))


def _recipe(task: Task) -> str:
    steps: list[Any] = task.gold.get("recipe") or task.gold.get("operator_sequence") or []
    names = [str(s) if isinstance(s, str) else str(s["operator"]) for s in steps]
    return " ".join(names) or str(task.gold.get("semantic_operator") or "")


def _different(ranked: Sequence[Shot]) -> list[Shot]:
    """The first `POOL` that are of different documents and nearly alike with none before."""
    taken: list[Shot] = []
    for shot in ranked:
        if len(taken) == POOL:
            break
        known = {s.document for s in taken}
        if shot.document not in known and not any(_copies(shot, s.example) for s in taken):
            taken.append(shot)
    return taken


def draw(
    pool: Pool, track: str, key: str, document: str, texts: Example, shots: Shots
) -> list[Shot]:
    """The examples of one task, at most `shots.count`: of its track, of other documents, and
    nearly alike neither with its own input or answer (`texts`) nor with one another. Where the
    track has tasks to keep and tasks to drop, statuses take turns, so that examples do not speak
    for one of them. `key` names the task in the seed."""
    by_status = pool.get(track, {})
    free = sorted(
        (shot for mine in by_status.values() for shot in mine if shot.document != document),
        key=lambda shot: (derive_seed(shots.seed, "shots", key, shot.id), shot.id),
    )
    taken: list[Shot] = []
    while free and len(taken) < shots.count:
        last = taken[-1].example.status if taken else ""
        one = next((s for s in free if s.example.status != last), free[0])
        free.remove(one)
        known = {s.document for s in taken}
        alike = [texts, *(s.example for s in taken)]
        if one.document not in known and not any(_copies(one, other) for other in alike):
            taken.append(one)
    return taken


def with_examples(task: Task, pool: Pool, shots: Shots, words: Words | None = None) -> Task:
    """The task with its prompt asked anew, in `words`, behind its examples, whose ids
    `meta.examples` has.
    Unchanged where it shows none, or where the pool has nothing for it: it then shows the two
    fixed ones. Wordings of one instance show the same examples."""
    if not shows_examples(task):
        return task
    gold, requirement = task.gold, str(task.meta["requirement"])
    texts = Example(requirement, gold["input_text"], gold["status"], gold["text"])
    key, document = str(task.meta.get("instance") or task.id), document_of(task)
    drawn = draw(pool, task.track, key, document, texts, shots)
    if not drawn:
        return task
    shown = [shot.example for shot in drawn]
    prompt = messages(requirement, texts.text, "few_shot", examples=shown, words=words)
    meta = task.meta | {"examples": [shot.id for shot in drawn]}
    return replace(task, prompt=prompt, meta=meta)


def document_of(task: Task) -> str:
    """The document that a task is made of."""
    return str(task.meta.get("document") or task.gold.get("source_record_id") or task.id)


class _Marks(NamedTuple):
    """What a text is compared by: its letters and digits, and its shingles."""

    letters: str
    shingles: frozenset[str]


@lru_cache(maxsize=4096)
def _marks(text: str) -> _Marks:
    found, widths = tokens(text)
    return _Marks("".join(found), frozenset(shingles(found, widths)))


def _copies(shot: Shot, other: Example) -> bool:
    """Whether an example shows the other's input or answer, exactly or nearly, or a part of it."""
    own, theirs = shot.example, (other.text, other.result)
    return any(alike(a, b) for a in dict.fromkeys((own.text, own.result)) for b in theirs)


def alike(one: str, other: str) -> bool:
    """Whether two texts have the same letters and digits, or one's shingles are nearly all in the
    other. Texts without a letter are alike with none."""
    a, b = _marks(one), _marks(other)
    if a.letters == b.letters:
        return bool(a.letters)
    least = min(len(a.shingles), len(b.shingles))
    return least >= _LEAST and len(a.shingles & b.shingles) >= NEAR * least
