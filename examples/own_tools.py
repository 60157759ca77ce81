"""Tools of your own: two tools over a small SQLite file. See docs/extend.md."""

import random
import sqlite3

from assay import Context, Family, Score, Task, tool

FIGS = "SELECT boxes FROM stock WHERE fruit = 'fig'"


@tool
def query(ctx: Context, sql: str) -> list:
    """Run a SELECT statement; the first 20 rows come back."""
    with sqlite3.connect(ctx.folder / "shop.db") as db:  # a copy for this episode
        db.execute("CREATE TABLE IF NOT EXISTS stock (fruit TEXT PRIMARY KEY, boxes INTEGER)")
        db.executemany("INSERT OR IGNORE INTO stock VALUES (?, ?)", ctx.task.meta["stock"])
        db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)  # SQL cannot open other files
        return db.execute(sql).fetchmany(20)


@tool
def tables(ctx: Context) -> list:
    """List the tables with their columns."""
    return query(ctx, "SELECT sql FROM sqlite_master")


def build(seed: int, count: int = 60) -> dict[str, list[Task]]:
    draw, tasks = random.Random(seed), []
    for i in range(count):
        stock = [(fruit, draw.randrange(1, 90)) for fruit in ("plum", "pear", "fig")]
        ask = [{"role": "user", "content": f"Shop {i}: boxes of figs? Reply with the number."}]
        gold, meta = {"boxes": str(stock[-1][1])}, {"stock": stock}
        tasks.append(Task(f"{i}", "shop", "", "", ask, gold, ("tables", "query"), meta=meta))
    return {"train": tasks[: count // 2], "heldout": tasks[count // 2 :]}


def score(task: Task, answer) -> Score:
    return Score.of(answer.text.strip() == task.gold["boxes"])


def solver(task: Task, told: list[str]):  # the way, for a first SFT
    return told[0].strip('[]"') if told else ("query", {"sql": FIGS})


TOOLS = [tables, query]
FAMILY = Family(
    "shop", score, lambda t: t.gold["boxes"], build=build, environment=TOOLS, solver=solver
)
