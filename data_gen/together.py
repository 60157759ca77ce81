"""Names that belong together, directly or through others (union-find)."""

from __future__ import annotations

from collections.abc import Iterable


class Together:
    """Groups of names, each called by its least name. A name that was never joined is alone."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def head(self, name: str) -> str:
        """The least name of the group."""
        path: list[str] = []
        while (parent := self._parent.get(name, name)) != name:
            path.append(name)
            name = parent
        self._parent.update(dict.fromkeys(path, name))
        return name

    def join(self, one: str, two: str) -> None:
        """Put the groups of two names together."""
        least, most = sorted((self.head(one), self.head(two)))
        self._parent[most] = least

    def heads(self, names: Iterable[str]) -> dict[str, str]:
        """Each name with the least of its group."""
        return {name: self.head(name) for name in names}
