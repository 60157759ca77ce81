"""`assay eval --tracks krama:DIR`: an agent over data lakes, in the benchmark's three settings.

End-to-end (the answer), pipeline design (does the code cover the key functionalities), sub-tasks
(each asked on its own). Tables by domain and overall, over tasks as published, in both readings,
with tokens and minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rewards.krama.answer import READINGS
from rewards.krama.coverage import judged_coverage
from rewards.krama.episode import ANSWER, PIPELINE, AnswerReward, score_episode
from rewards.krama.failure import category
from rewards.krama.judge import Judge, JudgeError, deterministic
from rewards.krama.judge_endpoint import Endpoint, EndpointJudge
from rewards.krama.release import harness
from rewards.task import Task, TaskError, json_text, read_tasks, unscored
from rollouts.environment import Budget
from rollouts.episode import ChatEngine, rollout
from rollouts.krama.explore import STEPS
from rollouts.krama.folder import LakeSettings
from rollouts.trajectory import Sampling, Trajectory
from rollouts.workshop import ToolSettings, Workshop, run_now
from train.evaluation.krama_tables import summary, text_tables
from train.run.errors import say_known_errors, say_unscored
from train.run.progress import Bar

Row = dict[str, Any]
AGENTS = {
    "ds-guru-no-context": ("ds_guru_no_context", 1),
    "ds-guru-one-shot": ("ds_guru_one_shot", 1),
    "ds-guru-few-shot": ("ds_guru_few_shot", 5),
    "lake-agent": ("lake_agent", STEPS),
}
SETTINGS = ("end-to-end", "subtasks")


@dataclass(frozen=True)
class Grader:
    """What scores rows: the reading for the outcome, the judge, and an endpoint for design."""

    reading: Any
    judge: Judge
    endpoint: Endpoint | None

    def row(self, task: Task, run: Trajectory, setting: str) -> Row:
        """One line of results.json."""
        said = run.answer()
        weights = AnswerReward(reading=self.reading)
        score = (
            unscored(f"failure: {said.failure}")
            if said.failure is not None
            else score_episode(
                task.gold, said.text, said.files, said.truncated, weights, self.judge
            )
        )
        left: Row = json.loads(run.files.get(ANSWER, b"{}"))
        code = run.files.get(PIPELINE, b"").decode("utf-8", "replace")
        response = left.get("response") or {}
        ended, files = str(run.notes.get("ended", "")), task.meta.get("gold_files") or []
        why = category(task.gold, response.get("answer"), score.outcome, ended, code, files)
        row: Row = {
            "id": task.id,
            "domain": task.meta["domain"],
            "setting": setting,
            "parent": task.meta.get("parent"),
            "difficulty": task.meta.get("difficulty"),
            **score.to_json(),
            "category": why,
            "answer": response.get("answer"),
            "cost": _cost(run),
            "notes": dict(run.notes),
            "failure": run.failure,
        }
        if run.failure is None:
            row["release"] = harness(
                str(task.gold["answer_type"]),
                task.gold["answer"],
                left.get("published"),
                self.judge,
            )
            row["design_judged"] = self._design(task, code) if setting == "end-to-end" else None
        return row

    def _design(self, task: Task, code: str) -> float | None:
        if self.endpoint is None:
            return None
        try:
            steps = [str(s.get("step") or "") for s in task.gold.get("subtasks") or []]
            return judged_coverage(steps, code, self.endpoint)
        except JudgeError:
            return None


def _cost(run: Trajectory) -> Row:
    prompt = run.usage.get("prompt_tokens", len(run.ids) - sum(run.loss_mask))
    return {
        "calls": run.turns,
        "prompt_tokens": prompt,
        "completion_tokens": run.sampled,
        "tokens": prompt + run.sampled,
        "seconds": round(run.wall_s, 3),
        "run_seconds": round(run.tool_s, 3),
        "model_seconds": round(max(0.0, run.wall_s - run.tool_s), 3),
    }


def load_tracks(folder: Path, settings: Sequence[str], doubted: bool) -> dict[str, list[Task]]:
    """Tasks by setting; a file of tasks (of `assay tasks lake`) has whole questions alone. Raises
    `TaskError` for a folder that `assay tasks krama` did not write."""
    if folder.is_file():
        return {"end-to-end": read_tasks(folder)}
    names = {"end-to-end": ["tasks"], "subtasks": ["subtasks"]}
    if doubted:
        names = {"end-to-end": ["tasks", "doubted"], "subtasks": ["subtasks", "doubted_subtasks"]}
    if not (folder / "tasks.jsonl").is_file():
        raise TaskError(
            f"{folder} holds no tasks.jsonl; build it with `assay tasks krama --workload … --lakes "
            f"… --out {folder}`"
        )
    return {
        setting: [t for n in names[setting] for t in read_tasks(folder / f"{n}.jsonl")]
        for setting in settings
    }


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="assay eval", description=__doc__)
    where = "krama:DIR of `assay tasks krama`, or krama:FILE.jsonl of `assay tasks lake`"
    made.add_argument("--tracks", required=True, help=where)
    which = "Hugging Face folder, URL of a chat endpoint, or canned:FILE.jsonl"
    made.add_argument("--model", required=True, help=which)
    made.add_argument("--endpoint-model", default="", help="the model's name at the endpoint")
    made.add_argument("--agent", choices=list(AGENTS), default="ds-guru-few-shot")
    made.add_argument("--settings", default="end-to-end,subtasks", help="which, with commas")
    made.add_argument("--reading", choices=READINGS, default="table3")
    made.add_argument("--doubted", action="store_true", help="also tasks whose gold is doubted")
    made.add_argument("--judge-url", help="OpenAI-compatible endpoint for paraphrase and design")
    made.add_argument("--judge-model", default="")
    made.add_argument("--limit", type=int, default=0, help="first N tasks of each setting")
    made.add_argument("--max-new-tokens", type=int, default=4096)
    made.add_argument("--temperature", type=float, default=0.0)
    made.add_argument("--workers", type=int, default=8, help="episodes side by side at an endpoint")
    made.add_argument(
        "--snippet-tokens",
        type=int,
        default=LakeSettings().snippet_tokens,
        help="of the lake's description in the prompt (about)",
    )
    made.add_argument(
        "--run-s", type=float, default=LakeSettings().run_s, help="seconds one pipeline may run"
    )
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--out", required=True, type=Path)
    return made


def main(argv: list[str]) -> int:
    """Exit status 0, 2 with one sentence, or 3 when some episodes have no outcome."""
    args = _parser().parse_args(argv)
    with say_known_errors("assay eval") as status:
        return _evaluate(args)
    return status.code


def _evaluate(args: Any) -> int:
    folder = Path(args.tracks.removeprefix("krama:"))
    settings = [s.strip() for s in args.settings.split(",") if s.strip()]
    if unknown := [s for s in settings if s not in SETTINGS]:
        raise TaskError(f"--settings {unknown[0]!r}: wanted {', '.join(SETTINGS)}")
    endpoint = Endpoint(args.judge_url, args.judge_model) if args.judge_url else None
    judge = EndpointJudge(endpoint) if endpoint else deterministic
    grader = Grader(args.reading, judge, endpoint)
    tool, turns = AGENTS[args.agent]
    rows: list[Row] = []
    for setting, found in load_tracks(folder, settings, args.doubted).items():
        tasks = [replace(t, tools=(tool,)) for t in found][: args.limit or None]
        with Bar(setting, len(tasks)) as bar:
            for task, run in _runs(args, folder, tasks, Budget(turns=turns, seconds=3600.0), bar):
                rows.append(grader.row(task, run, setting))
    meta = {
        "model": args.model,
        "agent": args.agent,
        "tracks": str(folder),
        "reading": args.reading,
        "seed": args.seed,
        "doubted": args.doubted,
    }
    tables = summary(rows)
    args.out.mkdir(parents=True, exist_ok=True)
    data = {"meta": meta, "tables": tables, "rows": rows}
    (args.out / "results.json").write_bytes(json_text(data, indent=1, default=str))
    shown = text_tables(tables, meta)
    (args.out / "tables.md").write_text(shown, encoding="utf-8")
    print(f"{shown}\nresults: {args.out / 'results.json'}")
    return say_unscored(rows, "id", "episodes")


def _runs(
    args: Any, folder: Path, tasks: list[Task], budget: Budget, bar: Bar
) -> list[tuple[Task, Trajectory]]:
    """Every task's episode, in order."""
    sampling = Sampling(args.max_new_tokens, args.temperature)
    lake = LakeSettings(snippet_tokens=args.snippet_tokens, run_s=args.run_s)
    root = folder.parent if folder.is_file() else folder
    shop = Workshop(root, ToolSettings(budget, lake=lake))
    shop.announce(tasks)
    if args.model.startswith(("http://", "https://", "canned:")):
        step = _by_chat(args, tasks, shop, sampling, budget, bar)
        return list(zip(tasks, run_now(step), strict=True))
    from configs.schema import EngineConfig
    from rollouts.prompts import ChatTokenizer
    from train.model.source import resolve_model
    from train.run.setup import load_checked, prepare

    config = EngineConfig()
    source = resolve_model(args.model)
    tokenizer = ChatTokenizer(source)
    policy = load_checked(source, config, prepare(config), train=False)
    engine = policy.engine(tokenizer.stop_ids, config.slots)
    done: list[tuple[Task, Trajectory]] = []
    try:
        for at in range(0, len(tasks), args.workers):
            part = tasks[at : at + args.workers]
            step = rollout(
                part, engine, tokenizer, sampling, 1, args.seed, maker=shop.maker, budget=budget
            )
            done += [(t, g[0]) for t, g in zip(part, run_now(step), strict=True)]
            bar.update(len(part))
    finally:
        run_now(shop.close())
    return done


async def _by_chat(
    args: Any, tasks: Sequence[Task], shop: Workshop, sampling: Sampling, budget: Budget, bar: Bar
) -> list[Trajectory]:
    from rollouts.chat_rollout import chat_rollout
    from rollouts.engines.scripted import CannedEngine
    from rollouts.engines.openai import OpenAIEngine

    async def run(engine: ChatEngine) -> list[Trajectory]:
        groups = await chat_rollout(
            tasks,
            engine,
            sampling,
            1,
            args.seed,
            maker=shop.maker,
            budget=budget,
            in_flight=args.workers,
            on_done=lambda: bar.update(1),
        )
        return [group[0] for group in groups]

    try:
        if args.model.startswith("canned:"):
            if not Path(args.model.removeprefix("canned:")).is_file():
                raise TaskError(f"--model {args.model}: no such file; give rows of canned replies")
            return await run(CannedEngine.from_file(Path(args.model.removeprefix("canned:"))))
        async with OpenAIEngine(args.model, args.endpoint_model, in_flight=args.workers) as remote:
            return await run(remote)
    finally:
        await shop.close()
