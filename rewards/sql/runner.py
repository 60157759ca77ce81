"""The process that runs queries: started as a script, knows nothing of Assay or of gold.

Databases live in its memory, and every connection is read-only: an authorizer lets nothing through
but reading and the functions of SQLite that compute. Limits are counted in steps of SQLite's
machine, so that they are the same on every computer; a query that spends its processor seconds
between two steps (in the planner, in a pattern) is ended by a signal, with the process.

Wire: a length (`!I`) and JSON, both ways. `{"database", "tables"?, "sql", "limits"}` is answered by
`{"rows"}`, `{"error", "why"}` or `{"unknown": true}` where the database was not sent before.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import struct
import sys
from collections import OrderedDict
from typing import Any

KEPT = 256  # databases in memory
STEPS = 10_000  # between two looks at the limit
HEAP = 384 << 20  # bytes that SQLite may hold
# functions whose value differs from call to call, or that reach outside
REFUSED = frozenset(
    (
        "random",
        "randomblob",
        "load_extension",
        "readfile",
        "writefile",
        "edit",
        "fts3_tokenizer",
        "sqlite_compileoption_get",
        "sqlite_compileoption_used",
        "sqlite_log",
        "current_date",
        "current_time",
        "current_timestamp",
    )
)
_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, 33)  # 33: SQLITE_RECURSIVE


_NAMES = {
    getattr(sqlite3, name): name.removeprefix("SQLITE_")
    for name in dir(sqlite3)
    if name.startswith(("SQLITE_CREATE", "SQLITE_DROP", "SQLITE_ALTER"))
} | {
    sqlite3.SQLITE_INSERT: "INSERT",
    sqlite3.SQLITE_UPDATE: "UPDATE",
    sqlite3.SQLITE_DELETE: "DELETE",
    sqlite3.SQLITE_PRAGMA: "PRAGMA",
    sqlite3.SQLITE_TRANSACTION: "TRANSACTION",
    sqlite3.SQLITE_ATTACH: "ATTACH",
    sqlite3.SQLITE_DETACH: "DETACH",
    sqlite3.SQLITE_FUNCTION: "the function",
}


def _authorizer(said: list[str]) -> Any:
    """What lets a query read and compute; what it refuses is put into `said`."""

    def decide(action: int, one: str | None, two: str | None, *_: Any) -> int:
        if action in _ALLOWED:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and str(two).lower() not in REFUSED:
            return sqlite3.SQLITE_OK
        name = f" {two}" if action == sqlite3.SQLITE_FUNCTION else ""
        said.append(f"{_NAMES.get(action, f'action {action}')}{name}")
        return sqlite3.SQLITE_DENY

    return decide


def opened(tables: list[dict[str, Any]]) -> sqlite3.Connection:
    """The database of these tables (`ddl`, `insert`, `rows`), in memory."""
    base = sqlite3.connect(":memory:", isolation_level=None)
    base.execute("PRAGMA trusted_schema = OFF")
    base.execute("PRAGMA temp_store = MEMORY")
    base.execute("BEGIN")
    for table in tables:
        base.execute(table["ddl"])
        rows = (tuple(map(_value, row)) for row in table["rows"])
        base.executemany(table["insert"], rows)
    base.execute("COMMIT")
    base.execute("PRAGMA query_only = ON")
    base.text_factory = _text
    return base


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _value(cell: Any) -> Any:
    return bytes.fromhex(cell["hex"]) if isinstance(cell, dict) else cell  # pyright: ignore


def _cell(value: Any) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _limit(base: sqlite3.Connection, limits: dict[str, int]) -> None:
    for name, value in (
        (sqlite3.SQLITE_LIMIT_LENGTH, limits["cell"]),
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, limits["sql"]),
        (sqlite3.SQLITE_LIMIT_COLUMN, limits["columns"]),
        (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100),
        (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 50),
        (sqlite3.SQLITE_LIMIT_VDBE_OP, 50_000),
        (sqlite3.SQLITE_LIMIT_FUNCTION_ARG, 64),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
        (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
    ):
        base.setlimit(name, value)


def answered(base: sqlite3.Connection, sql: str, limits: dict[str, int]) -> dict[str, Any]:
    """The rows of one query, or why there are none. Never raises on what a query does."""
    said: list[str] = []
    left = limits["steps"] // STEPS

    def step() -> int:
        nonlocal left
        left -= 1
        return left < 0

    _limit(base, limits)
    base.set_authorizer(_authorizer(said))
    base.set_progress_handler(step, STEPS)
    signal.setitimer(signal.ITIMER_PROF, limits["cpu_s"])
    try:
        return _rows(base, sql, limits)
    except MemoryError:
        return {"error": "too_large", "why": "it needs too much memory"}
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        if said:
            return {"error": "refused", "why": f"{said[0]} is not allowed"}
        if left < 0:
            return {"error": "too_slow", "why": "more steps than a query may take"}
        text = str(error)[:200]
        if "one statement" in text:
            return {"error": "several", "why": "more than one statement"}
        large = "too big" in text or "out of memory" in text
        return {"error": "too_large" if large else "sql_error", "why": text}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        base.set_progress_handler(None, 0)
        base.set_authorizer(None)


def _rows(base: sqlite3.Connection, sql: str, limits: dict[str, int]) -> dict[str, Any]:
    cursor = base.execute(sql)
    try:
        if cursor.description is None:
            return {"error": "no_rows", "why": "no SELECT"}
        found: list[list[Any]] = []
        size = 0
        for row in cursor:
            size += sum(8 if not isinstance(c, str | bytes) else 8 + len(c) for c in row)
            if len(found) >= limits["rows"] or size > limits["bytes"]:
                return {"error": "too_large", "why": "more rows or bytes than a result may have"}
            found.append([_cell(c) for c in row])
        return {"columns": len(cursor.description), "rows": found}
    finally:
        cursor.close()


def _take(size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _give(data: bytes) -> None:
    view = memoryview(struct.pack("!I", len(data)) + data)
    while view:
        view = view[os.write(1, view[: 1 << 20]) :]


def confine(memory_mb: int) -> None:
    """No file may be opened or written, no process started, and memory has a bound."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    memory = memory_mb << 20
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bound = memory if hard < 0 else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))


def main() -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    confine(int(sys.argv[1]))
    sqlite3.connect(":memory:").execute(f"PRAGMA hard_heap_limit = {HEAP}")
    bases: OrderedDict[str, sqlite3.Connection] = OrderedDict()
    while True:
        try:
            (size,) = struct.unpack("!I", _take(4))
            asked = json.loads(_take(size))
        except EOFError:
            return
        name = asked["database"]
        if "tables" in asked:
            bases[name] = opened(asked["tables"])
            if len(bases) > KEPT:
                bases.popitem(last=False)[1].close()
        if name not in bases:
            _give(b'{"unknown": true}')
            continue
        bases.move_to_end(name)
        _give(json.dumps(answered(bases[name], asked["sql"], asked["limits"])).encode())


if __name__ == "__main__":
    main()
