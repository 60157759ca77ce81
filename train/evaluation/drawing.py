"""`--limit`: an even draw of tasks over tracks and slices, the same wherever it is made."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from assay.family import family_of, has_family, slices_of
from assay.seeds import derive_seed
from assay.task import Task, TaskError


def even_draw(tasks: Sequence[Task], limit: int, seed: int) -> list[Task]:
    """At most about `limit` tasks (0: all), the same number of each track and within a track as
    even over the values of its slices as can be, drawn by seed and in their old order.

    A task that is asked in several ways counts once; order groups and such ways are kept whole, so
    that a few more than `limit` may be left.
    """
    if not limit:
        return list(tasks)
    if limit < 0:
        raise TaskError(f"--limit {limit}: give 1 or more, or 0 for all")
    units: dict[str, list[Task]] = {}
    for task in tasks:
        units.setdefault(unit_of(task), []).append(task)
    tracks: dict[str, list[str]] = {}
    for unit, members in units.items():
        tracks.setdefault(members[0].track, []).append(unit)
    draws = [_Draw(track, names, units, seed) for track, names in tracks.items()]
    taken: set[str] = set()
    count = 0
    while count < limit and any(draw.left for draw in draws):
        for draw in draws:
            if draw.left and count < limit:
                unit = draw.next()
                taken.add(unit)
                count += len({task.meta.get("instance") or task.id for task in units[unit]})
    return [task for task in tasks if unit_of(task) in taken]


class _Draw:
    """Units of one track, drawn so that values of slices come up as evenly as they can; those of
    the same values in an order by seed."""

    def __init__(
        self, track: str, names: Sequence[str], units: Mapping[str, Sequence[Task]], seed: int
    ) -> None:
        self.left = len(names)
        self._had: Counter[tuple[str, str]] = Counter()
        self._alike: dict[tuple[tuple[str, str], ...], deque[tuple[int, str]]] = {}
        for key, name in sorted((derive_seed(seed, "limit", track, n), n) for n in names):
            self._alike.setdefault(_slices(units[name][0]), deque()).append((key, name))

    def next(self) -> str:
        """The next unit: of those whose slices were drawn least."""

        def rank(pairs: tuple[tuple[str, str], ...]) -> tuple[int, tuple[int, str]]:
            return sum(self._had[pair] for pair in pairs), self._alike[pairs][0]

        chosen = min(self._alike, key=rank)
        self._had.update(chosen)
        self.left -= 1
        _, name = self._alike[chosen].popleft()
        if not self._alike[chosen]:
            del self._alike[chosen]
        return name


def _slices(task: Task) -> tuple[tuple[str, str], ...]:
    if not has_family(task.family):
        return ()
    return tuple(slices_of(family_of(task), task).items())


def unit_of(task: Task) -> str:
    """What is drawn whole: an order group, an instance in all its wordings, or a task."""
    return f"{task.family}/{task.group or task.meta.get('instance') or task.id}"
