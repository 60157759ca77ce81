"""Queries that a model wrote, run by a process of their own: one for each process of ours.

That process knows nothing of gold. Databases live in its memory, every connection is read-only, and
an authorizer lets nothing through but reading and the functions of SQLite that compute. It can open
no file, socket or process (assay/confined_process.py). Limits are counted in steps of SQLite's
machine, so that they are the same on every computer; a query that spends its processor seconds
between two steps (in the planner, in a pattern) is ended by a signal, with the process. A query can
end that process; it never ends this one, and never hangs. What the query did and what the machine
did are told apart: `Failed` is the query's, `RunnerLost` is not.

Wire, JSON both ways: `{"database", "tables"?, "sql", "limits"}` is answered by `{"rows"}`,
`{"error", "why"}` or `{"unknown": true}` where the database was not sent before.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
from collections import OrderedDict
from dataclasses import asdict, dataclass
from typing import Any

from assay.confined_process import ConfinedProcess, ProcessEnded, ProcessLost, answer_requests
from rewards.sql.data import Database, Row, cell_of

MEMORY_MB = 1024  # of the process
RunnerLost = ProcessLost


@dataclass(frozen=True)
class Limits:
    """Of one query: steps of SQLite's machine, processor seconds, rows and bytes of the result,
    bytes of one cell, columns, and bytes of the text."""

    steps: int = 10_000_000
    cpu_s: float = 5.0
    rows: int = 10_000
    bytes: int = 2_000_000
    cell: int = 100_000
    columns: int = 200
    sql: int = 100_000


@dataclass(frozen=True)
class Failed:
    """A query without a result: `error` is a word (`sql_error`, `refused`, `too_slow`, `too_large`,
    `several`, `no_rows`), `why` a sentence of SQLite or of a limit."""

    error: str
    why: str


RUNNER = ConfinedProcess(__name__, "SQL queries are run")


def _ask(database: Database, sql: str, limits: Limits) -> dict[str, Any]:
    """The process's answer to one query. Raises `RunnerLost`."""
    asked = json.dumps({"database": database.digest, "sql": sql, "limits": asdict(limits)})
    try:
        reply = json.loads(RUNNER.ask(asked.encode()))
        if reply.get("unknown"):
            whole = f'{asked[:-1]}, "tables": {database.text}}}'
            reply = json.loads(RUNNER.ask(whole.encode()))
        return reply
    except ProcessEnded as ended:
        if ended.status != -signal.SIGPROF:
            raise
        return {"error": "too_slow", "why": "more processor seconds than a query may take"}


def run(database: Database, sql: str, limits: Limits | None = None) -> list[Row] | Failed:
    """Run one query over a database: its rows, or why there are none. Raises `RunnerLost`.

    A query that ended the process is run once more in a fresh one; the second time it is its own
    fault (`crashed`), as long as a plain query can be run.
    """
    limits = limits or Limits()
    try:
        reply = _ask(database, sql, limits)
    except RunnerLost:
        _ask(database, "SELECT 1", limits)  # the machine's fault shows here
        try:
            reply = _ask(database, sql, limits)
        except RunnerLost as lost:
            reply = {"error": "crashed", "why": str(lost)}
    if "error" in reply:
        return Failed(str(reply["error"]), str(reply["why"]))
    return [tuple(map(cell_of, row)) for row in reply["rows"]]


# --- the process that runs queries --------------------------------------------------------------

_KEPT = 256  # databases in memory
_STEPS = 10_000  # between two looks at the limit
_HEAP = 384 << 20  # bytes that SQLite may hold
# functions whose value differs from call to call, or that reach outside
REFUSED = frozenset(
    """
    random randomblob load_extension readfile writefile edit fts3_tokenizer sqlite_log
    sqlite_compileoption_get sqlite_compileoption_used current_date current_time current_timestamp
    """.split()  # noqa: SIM905
)
_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, 33)  # 33: SQLITE_RECURSIVE
_CHANGES = ("CREATE", "DROP", "ALTER", "INSERT", "UPDATE", "DELETE")
_ACTIONS = (*_CHANGES, "PRAGMA", "TRANSACTION", "ATTACH", "DETACH")
_NAMES = {
    getattr(sqlite3, name): name.removeprefix("SQLITE_")
    for name in dir(sqlite3)
    if name.removeprefix("SQLITE_").partition("_")[0] in _ACTIONS
}


def _authorizer(said: list[str]) -> Any:
    """What lets a query read and compute; what it refuses is put into `said`."""

    def decide(action: int, one: str | None, two: str | None, *_: Any) -> int:
        if action in _ALLOWED:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            if str(two).lower() not in REFUSED:
                return sqlite3.SQLITE_OK
            said.append(f"the function {two}")
        else:
            said.append(_NAMES.get(action, f"action {action}"))
        return sqlite3.SQLITE_DENY

    return decide


def _opened(tables: list[dict[str, Any]]) -> sqlite3.Connection:
    """The database of these tables (`ddl`, `insert`, `rows`), in memory."""
    base = sqlite3.connect(":memory:", isolation_level=None)
    base.execute("PRAGMA trusted_schema = OFF")
    base.execute("PRAGMA temp_store = MEMORY")
    base.execute("BEGIN")
    for table in tables:
        base.execute(table["ddl"])
        rows = (
            [bytes.fromhex(cell["hex"]) if isinstance(cell, dict) else cell for cell in row]  # pyright: ignore
            for row in table["rows"]
        )
        base.executemany(table["insert"], rows)
    base.execute("COMMIT")
    base.execute("PRAGMA query_only = ON")
    base.text_factory = lambda raw: raw.decode("utf-8", "replace")  # pyright: ignore
    return base


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


def _answered(base: sqlite3.Connection, sql: str, limits: dict[str, int]) -> dict[str, Any]:
    """The rows of one query, or why there are none. Never raises on what a query does."""
    said: list[str] = []
    left = limits["steps"] // _STEPS

    def step() -> int:
        nonlocal left
        left -= 1
        return left < 0

    _limit(base, limits)
    base.set_authorizer(_authorizer(said))
    base.set_progress_handler(step, _STEPS)
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
    with contextlib.closing(base.execute(sql)) as cursor:
        if cursor.description is None:
            return {"error": "no_rows", "why": "no SELECT"}
        found: list[list[Any]] = []
        size = 0
        for row in cursor:
            size += sum(8 if not isinstance(c, str | bytes) else 8 + len(c) for c in row)
            if len(found) >= limits["rows"] or size > limits["bytes"]:
                return {"error": "too_large", "why": "more rows or bytes than a result may have"}
            found.append([{"hex": c.hex()} if isinstance(c, bytes) else c for c in row])
        return {"columns": len(cursor.description), "rows": found}


def serve() -> None:
    """Answer queries (assay/confined_process.py)."""
    sqlite3.connect(":memory:").execute(f"PRAGMA hard_heap_limit = {_HEAP}")
    bases: OrderedDict[str, sqlite3.Connection] = OrderedDict()

    def answer(request: bytes) -> bytes:
        asked = json.loads(request)
        name = asked["database"]
        if "tables" in asked:
            bases[name] = _opened(asked["tables"])
            if len(bases) > _KEPT:
                bases.popitem(last=False)[1].close()
        if name not in bases:
            return b'{"unknown": true}'
        bases.move_to_end(name)
        return json.dumps(_answered(bases[name], asked["sql"], asked["limits"])).encode()

    answer_requests(answer, MEMORY_MB)
