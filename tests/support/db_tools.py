"""Tools over a small SQLite file, and tools that fail: what a user's file may hold."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Literal

from rollouts.environment import EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.tool_calls import ToolSpec
from rollouts.tools import Context, tool

ROWS = [("apple", 3), ("pear", 5), ("plum", 8)]


def write_db(path: Path) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("create table stock (name text, count integer)")
        db.executemany("insert into stock values (?, ?)", ROWS)
        db.commit()
    return path


@tool
def tables(ctx: Context) -> list[str]:
    """Names of the tables."""
    with contextlib.closing(sqlite3.connect(ctx.path("db"))) as db:
        return [name for (name,) in db.execute("select name from sqlite_master")]


@tool
def query(sql: str, ctx: Context, limit: int = 10) -> list[list[str]]:
    """Run a SELECT.

    Args:
        sql: One statement,
            without a semicolon.
        limit: Most rows.
    """
    with contextlib.closing(sqlite3.connect(f"file:{ctx.path('db')}?mode=ro", uri=True)) as db:
        return [list(map(str, row)) for row in db.execute(sql).fetchmany(limit)]


@tool
def answer(value: str, ctx: Context) -> str:
    """Hand in the answer."""
    ctx.files["answer.txt"] = value
    ctx.finish()
    return "received"


@tool
def hang(how: Literal["sleep", "loop"] = "sleep") -> str:
    """Never come back."""
    while True:
        if how == "sleep":
            time.sleep(0.05)


@tool
async def wait() -> str:
    """Never come back either."""
    await asyncio.sleep(3600)
    return ""


@tool
async def double(number: int, ctx: Context) -> str:
    """Twice a number, computed in the sandbox."""
    (ctx.folder / "scratch.txt").write_text("x")
    result = await ctx.run_python(f"print({number} * 2)")
    return result.stdout.strip()


TOOLS = [tables, query, answer]
FAILING = [tables, hang, wait]


class Echo:
    """A whole environment of one's own."""

    def __init__(self, task, ctx: Context) -> None:  # type: ignore[no-untyped-def]
        self.task, self.ctx = task, ctx

    async def open(self) -> EpisodeStart:
        return EpisodeStart(self.task.prompt, [ToolSpec("echo", "Echo.", {"type": "object"})])

    async def reply(self, said: ModelTurn) -> Reply:
        self.ctx.files["said.txt"] = said.text
        return Reply(done=True)

    async def close(self) -> EpisodeEnd:
        return EpisodeEnd(self.ctx.close())
