"""Ratios for table tasks: a reward against the same by pandas and scikit-learn; plumbing of
episodes against running the same code in the sandbox without them.

    OMP_NUM_THREADS=1 python -m benchmarks.dare [--episodes 40] [--rows 10000]
"""

from __future__ import annotations

import argparse
import asyncio
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any


def timed(work: Callable[[], Any], repeats: int) -> float:
    """Median seconds on the clock: part of a reward is done by the confined reader's process."""
    took: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return median(took)


def reward(rows: int, repeats: int) -> None:
    import pandas as pd
    from sklearn.metrics import f1_score, r2_score

    from rewards.dare.score import TableGold, score_table

    for kind in ("class-MM", "class-IF", "reg-IF", "reg-MM"):
        values = [
            f"label {i % 5}" if kind.startswith("class") else str(i * 1.37) for i in range(rows)
        ]
        text = "row_id,y\n" + "".join(f"{i},{v}\n" for i, v in enumerate(values, 1))
        gold = TableGold(kind, text, ("row_id",), ("y",), {})
        data = text.encode()

        def plain(text: str = text, kind: str = kind) -> float:
            truth, said = pd.read_csv(io.StringIO(text)), pd.read_csv(io.StringIO(text))
            both = truth.merge(said, on="row_id")
            if kind.startswith("class"):
                return float(f1_score(both["y_x"], both["y_y"], average="macro"))
            return float(r2_score(both["y_x"], both["y_y"]))

        assert score_table(gold, data).outcome == plain() == 1.0
        ours = timed(lambda gold=gold, data=data: score_table(gold, data), repeats)
        theirs = timed(plain, repeats)
        print(
            f"reward {kind:9} {rows} rows: {1e3 * ours:6.1f} ms; pandas and scikit-learn "
            f"{1e3 * theirs:6.1f} ms; {theirs / ours:.2f}x"
        )


async def plumbing(episodes: int) -> None:
    from tests.tiny_model import write_tiny_tokenizer  # a tokenizer without a model

    from assay.task import Task
    from rollouts.engines.scripted import ScriptedEngine
    from rollouts.environment import Budget
    from rollouts.environments import EnvironmentFactory, ToolSettings
    from rollouts.episode import rollout
    from rollouts.prompts import ChatTokenizer
    from rollouts.python_tool import NAME
    from rollouts.sandbox.pool import Pool
    from rollouts.scripted_agents import script
    from rollouts.trajectory import Sampling

    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        write_tiny_tokenizer(top)
        (top / "a.csv").write_text("a\n1\n")
        tokenizer = ChatTokenizer(top)
        tasks = [
            Task(
                f"t{i}",
                "table",
                "class-MM",
                "train",
                [{"role": "user", "content": f"Task {i}."}],
                {},
                (NAME,),
                {"a.csv": "a.csv"},
            )
            for i in range(episodes)
        ]
        shop = EnvironmentFactory(top, ToolSettings(brief=True))
        engine = ScriptedEngine(script("five_calls", tasks, tokenizer.calls), tokenizer)
        pool: Pool = shop.pool()
        await asyncio.gather(*(pool.run("print(0)") for _ in range(8)))  # warm

        start = time.perf_counter()
        await asyncio.gather(
            *(pool.run(f"print({i})", {"a.csv": b"a\n1\n"}) for i in range(5 * episodes))
        )
        bare = time.perf_counter() - start
        start = time.perf_counter()
        found = await rollout(
            tasks, engine, tokenizer, Sampling(2000), 1, 0, maker=shop.maker, budget=Budget(5)
        )
        whole = time.perf_counter() - start
        assert all(len(group[0].tool_calls) == 5 for group in found)
        await shop.close()
    print(f"{episodes} episodes of 5 calls: {whole:.2f} s, {episodes / whole:.1f} a second")
    print(
        f"the same {5 * episodes} calls without episodes: {bare:.2f} s; {whole / bare:.2f}x of that"
    )
    beyond = 1e3 * (whole - bare) / episodes
    print(f"beyond the calls: {beyond:.1f} ms an episode")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--episodes", type=int, default=40)
    args = parser.parse_args()
    reward(args.rows, args.repeats)
    asyncio.run(plumbing(args.episodes))


if __name__ == "__main__":
    main()
