"""The messages of a refinement task, by prompt mode (spec section 11), in words from a file, which
may be read out of the release's runner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from assay.fingerprints import shingles, tokens
from assay.task import Message, Task, derive_seed
from rewards.parse import ANALYSIS_MODES, render
from rollouts.words.templates import Kind, Read, Slot, Words, ours

RUNNER = Path("src/cdrbench_v3/run_inference.py")
MODES = ("direct", "few_shot", "plan_first", "state_aware")
# output_format of a row → the field of its request; rows of other formats are asked by mode
FORMATS = {"json": "json", "json_and_tagged_text": "json_and_text"}
_ASKED = ("requirement", "input")
SLOTS = {
    "system": Slot(),
    "system_analysis": Slot(),
    "contract": Slot(),
    "direct": Slot(("contract",), _ASKED),
    "few_shot": Slot(("contract", "examples"), _ASKED),
    "example": Slot(("number",), (*_ASKED, "output")),
    "examples": Slot(),
    "plan_first": Slot(("contract",), _ASKED),
    "state_aware": Slot(("contract",), _ASKED),
    "json": Slot((), _ASKED),
    "json_and_text": Slot((), _ASKED),
}

MARK = "words"  # in a task's meta: the hash of the words that it is asked in, where not ours


class Example(NamedTuple):
    """A solved task as a prompt shows it."""

    requirement: str
    text: str
    status: str
    result: str


def messages(
    requirement: str,
    text: str,
    mode: str = "direct",
    output_format: str = "tagged_text",
    examples: Sequence[Example] = (),
    words: Words | None = None,
) -> list[Message]:
    """System and user message; `examples` are those of few_shot, () for the fixed ones of the
    words. Raises ValueError for a mode that does not exist."""
    if mode not in MODES:
        raise ValueError(f"mode={mode!r}: wanted one of {', '.join(MODES)}")
    words = words or ours(KIND)
    form = FORMATS.get(output_format, "")
    shown: list[str] = []
    for one in examples:
        asked = {"number": len(shown) + 1, "requirement": one.requirement, "input": one.text}
        shown.append(words.fill("example", **asked, output=render(one.status, one.result)))
    around = {"contract": words["contract"], "examples": "\n\n".join(shown) or words["examples"]}
    user = words.fill(form or mode, requirement=requirement, input=text, **around)
    system = words["system_analysis" if mode in ANALYSIS_MODES and not form else "system"]
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def _ask(task: Task, words: Words) -> Task:
    """The task in these words; in few_shot behind their fixed examples. One that is asked in them
    already stays as it is."""
    if task.meta.get(MARK, ours(KIND).hash) == words.hash:
        return task
    form = task.gold.get("output_format")
    if form is None:
        form = "json" if task.family == "structured" else "tagged_text"
    mode = str(task.gold.get("mode") or "direct")
    said = (str(task.meta["requirement"]), str(task.gold["input_text"]))
    meta = {k: v for k, v in task.meta.items() if k != "examples"}
    if words.source != "ours":
        meta[MARK] = words.hash
    return replace(task, prompt=messages(*said, mode, str(form), words=words), meta=meta)


def read_release(folder: Path) -> Read | None:
    """The words of a release's checkout: what its runner sends in each mode for a row. Its few-shot
    request holds its own examples."""
    if not (folder / RUNNER).is_file():
        return None
    # loaded where a checkout is read; our own words need none of it
    from rollouts.words.release import called, mark, refused, template

    asked = {mode: (mode, "tagged_text") for mode in MODES}
    asked |= {name: ("direct", form) for form, name in FORMATS.items()}
    variant = {"style_id": "", "style_label": "", "user_requirement": mark("requirement")}
    row = {"prompt_variants": [variant], "input_text": mark("input")}
    calls = [
        {
            **{"file": str(RUNNER), "call": "_infer_one", "until": "messages"},
            "named": {
                **{"row": {**row, "output_format": form}, "index": 0},
                **{"prompt_mode": mode, "candidate_rows": list[Any]()},
            },
        }
        for mode, form in asked.values()
    ]
    sent, _ = called(folder, calls)
    found: dict[str, str] = {}
    systems: dict[str, str] = {}
    for name, messages in zip(asked, sent, strict=True):
        if [message["role"] for message in messages] != ["system", "user"]:
            raise refused(folder, f"{RUNNER}: messages of other roles")
        systems[name], found[name] = (template(message["content"]) for message in messages)
    analysis, plain = systems["state_aware"], systems["direct"]
    for name, system in systems.items():
        if system != (analysis if name in ANALYSIS_MODES else plain):
            raise refused(folder, f"{RUNNER}: a system message for {name}")
    texts = dict.fromkeys(SLOTS, "") | found | {"system": plain, "system_analysis": analysis}
    return Read(texts | {"example": "{requirement}{input}{output}"})


# releases by the hash of their words
KNOWN = {
    "b1532dbcbbc77c1388966fb36a7d204d6c61caf2b0c68ae51c452ce7d9b2eaa5": "CDR-Bench 6df0ac8",
}
OURS = Path(__file__).with_suffix(".yaml")
KIND = Kind("refinement", SLOTS, OURS, _ask, read_release, KNOWN)


# ---- few-shot examples
# Few-shot examples: solved training tasks of the same track, drawn by seed for every task.
#
# The paper's examples are of the task's own track (the release shows two fixed ones in every
# prompt); the construction's code took the two shortest rows of the track. Here the pool of a track
# is its shortest training tasks, and every task draws its own examples from it.


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
    """Ask a few-shot task again, in `words` (None: ours), behind `shots.count` examples drawn from
    `pool`; `meta.examples` keeps their ids. The same instance and seed draw the same examples.

    Returns the task as it is where its mode shows no examples, and where the pool has none for it:
    it then shows the two fixed ones of the words.
    """
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
