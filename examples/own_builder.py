"""A builder of your own: what a regular expression finds in a note, gold computed twice.

    assay tasks find_all --family examples/own_builder.py --out T --seed 1 count=60

`Builder` is the skeleton of Assay's own builders (docs/extend.md). The parts below are what this
one adds: notes as sources, expressions as drafts, gold by `re`, a second proof by another program.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from re import compile as compiled
from string import ascii_lowercase, ascii_uppercase, digits

from assay import Answer, Builder, Family, Refused, Score, Task

SETS = {"[A-Z]": ascii_uppercase, "[0-9]": digits, "[a-z]": ascii_lowercase, "-": "-"}
NOTES = 30


@dataclass(frozen=True)
class Draft:
    """An expression as its parts: (set of characters, least, most times)."""

    note: str
    parts: tuple[tuple[str, int, int], ...]

    @property
    def pattern(self) -> str:
        counts = {(1, 1): "", (0, 1): "?"}
        return "".join(s + counts.get((a, b), f"{{{a},{b}}}") for s, a, b in self.parts)


class FindAll(Builder[str, Draft, list[str]]):
    """Tasks that ask for every match of an expression in the note of a depot."""

    def sources(self) -> dict[str, str]:
        """A note is in one split, with all that is asked of it."""
        return {f"depot {number}": _note(number) for number in range(NOTES)}

    def draft(self, source: str, rng: Random) -> Draft:
        counts = ((1, 1), (0, 1), (1, 2), (2, 3))
        parts = tuple((rng.choice([*SETS]), *rng.choice(counts)) for _ in range(rng.randint(2, 4)))
        return Draft(source, parts)

    def gold(self, draft: Draft) -> list[str]:
        found = [match[0] for match in compiled(draft.pattern).finditer(draft.note) if match[0]]
        if not 2 <= len(found) <= 8:
            raise Refused("no list of two to eight matches", f"{len(found)} matches")
        if len(set(found)) == 1:
            raise Refused("one match over and over")
        return found

    def again(self, draft: Draft, gold: list[str]) -> None:
        """Find the matches from the parts, without `re`: at each place, the first way that goes
        through when every part takes as much as it can."""
        found, at = list[str](), 0
        while at < len(draft.note):
            end = next(_ends(draft.note, at, draft.parts), at)
            found += [draft.note[at:end]] if end > at else []
            at = max(end, at + 1)
        if found != gold:
            raise Refused("proof: differs", f"{draft.pattern} finds {gold}, again {found}")

    def words(self, draft: Draft, gold: list[str]) -> str:
        ask = f"Which parts of the note does the regular expression {draft.pattern} match?"
        return f"{ask} Write each match on a line of its own, in order.\n\n{draft.note}"

    def task(self, draft: Draft, gold: list[str], words: str) -> Task:
        return Task(
            id=f"{draft.note.partition(':')[0]} {draft.pattern}",
            family="find_all",
            track=f"{len(draft.parts)} parts",
            split="",
            prompt=[{"role": "user", "content": words}],
            gold={"matches": gold},
            meta={"licence": "CC0-1.0", "pattern": draft.pattern},
        )


def _ends(text: str, at: int, parts: tuple[tuple[str, int, int], ...]) -> Iterator[int]:
    """Where a match of the parts that begins at `at` may end, in the order of preference."""
    if not parts:
        yield at
        return
    (name, least, most), *rest = parts
    room = 0
    while room < most and text[at + room : at + room + 1] in {*SETS[name]}:
        room += 1
    for taken in range(room, least - 1, -1):
        yield from _ends(text, at + taken, tuple(rest))


def _note(number: int) -> str:
    rng = Random(number)

    def code() -> str:
        return "".join(rng.choice(SETS[rng.choice([*SETS])]) for _ in range(rng.randint(3, 6)))

    return f"depot {number}: " + " ".join(code() for _ in range(12))


def score(task: Task, answer: Answer) -> Score:
    said = [line.strip() for line in answer.text.splitlines() if line.strip()]
    right = float(said == task.gold["matches"])
    return Score(right, right, {}, "ok" if right else "other matches")


FAMILY = Family(
    "find_all",
    score,
    gold=lambda task: "\n".join(task.gold["matches"]),
    cheats={"every word": lambda task: "\n".join(task.prompt[0]["content"].split()[-12:])},
    build=FindAll().build,
)
