"""What is said to a client whose request cannot be answered."""

from __future__ import annotations


class RequestError(ValueError):
    """A request that cannot be answered. `status` is HTTP's, `field` the one at fault."""

    def __init__(self, said: str, field: str = "", status: int = 400, code: str = "") -> None:
        super().__init__(said)
        self.field, self.status, self.code = field, status, code
