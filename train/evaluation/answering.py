"""Who answers: a reference without a model, a chat endpoint, or an engine of token ids.

Every answer is handed over when it is there. What breaks in the infrastructure is an answer with
a failure; when too many break in a row the endpoint counts as gone, and the run ends with one
sentence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.schema import ToolsConfig
from rewards.seeds import derive_seed
from rewards.task import Task, TaskError
from rollouts.chat_rollout import Plain
from rollouts.engines.server.opening import EMBEDDED, served
from rollouts.episode import Ask as Continue
from rollouts.episode import ChatEngine, rollout, run_episode
from rollouts.now import run_now
from rollouts.prompts import ChatTokenizer
from rollouts.tools import call_format
from rollouts.trajectory import Sampling, Trajectory, retried
from rollouts.workshop import ToolSettings, Workshop, tool_settings
from train.evaluation.contract import Plan
from train.evaluation.gone import Gone
from train.evaluation.rows import CHEAT, REFERENCES, answered, reference_answer

PLAIN_CHUNK, TOOL_CHUNK = 64, 16  # episodes of an engine side by side
URLS = ("http://", "https://")
Item = tuple[Task, int]  # a task and the number of the sample
Keep = Callable[[Task, Trajectory], None]
Note = Callable[[dict[str, str]], None]


@dataclass(frozen=True)
class Ask:
    """What is to be answered: `todo` lacks an answer, `tasks` are all of the run."""

    tasks: Sequence[Task]
    todo: Sequence[Item]
    plans: Mapping[str, Plan]  # by task id
    samples: int
    sampling: Sampling
    seed: int


def is_reference(model: str) -> bool:
    return model in REFERENCES or model.startswith(CHEAT)


def is_remote(model: str) -> bool:
    """Whether an endpoint bounds the length of answers by itself."""
    return model.startswith(URLS)


def is_folder(model: str) -> bool:
    """Whether it is a model's folder, an adapter's, or a hub name."""
    words = model.startswith((*URLS, "canned:", "solver:"))
    return not (is_reference(model) or words)


def _has_server(args: Any) -> bool:
    return args.engine != EMBEDDED and (is_folder(args.model) or is_remote(args.model))


def answer_all(ask: Ask, args: Any, shop: Workshop, keep: Keep, note: Note) -> None:
    """Let `--model` answer everything in `ask.todo`. `note` is told what answers: the engine, the
    server's version, the number format. Raises `TaskError` for what cannot be used."""
    if is_reference(args.model):
        for task, _ in ask.todo:
            keep(task, answered(task, reference_answer(task, args.model), ask.seed))
        return
    shop.check(task for task, _ in ask.todo)
    shop.announce(task for task, _ in ask.todo)
    if _has_server(args):
        _by_server(ask, args, shop, keep, note)
        return
    if is_folder(args.model) or args.tokenizer:
        _by_engine(ask, args, shop, keep, note)
        return
    _side_by_side(_by_chat(ask, args, shop, keep))


def _side_by_side(work: Coroutine[Any, Any, None]) -> None:
    try:
        run_now(work)
    except ExceptionGroup as errors:  # of the workers: the first one says it
        raise errors.exceptions[0] from None


def workshop(args: Any) -> Workshop:
    """Environments for tasks whose files have absolute paths."""
    tools = ToolsConfig(
        calls=args.calls,
        brief=args.brief,
        snippet_tokens=args.snippet_tokens,
        snippet_rows=args.snippet_rows,
        tries=args.tries,
    )
    settings = tool_settings(tools)
    run_s = {"run_s": args.run_s} if args.run_s else {}
    executor: dict[str, Any] = {**vars(settings.executor), **run_s, "uses": args.turns or 5}
    kept = ("snippet_tokens", "rows", "tries")
    lake: dict[str, Any] = {name: getattr(settings.lake, name) for name in kept} | run_s
    return Workshop(
        Path("/"),
        ToolSettings(
            settings.budget,
            type(settings.executor)(**executor),
            type(settings.lake)(**lake),
        ),
        args.env or None,
    )


# --- an engine of token ids ----------------------------------------------------------------------


def _by_engine(ask: Ask, args: Any, shop: Workshop, keep: Keep, note: Note) -> None:
    engine, tokenizer = load_engine(args, ask.tasks)
    note(engine.about())
    todo = {(task.id, sample) for task, sample in ask.todo}
    try:
        for part in chunks(ask, args.chunk):
            if not any((task.id, j) in todo for task in part for j in range(ask.samples)):
                continue
            plan = ask.plans[part[0].id]
            groups = run_now(
                rollout(
                    part,
                    engine,
                    tokenizer,
                    sampling_of(ask, plan),
                    ask.samples,
                    ask.seed,
                    maker=shop.maker,
                    budget=plan.budget,
                )
            )
            for task, group in zip(part, groups, strict=True):
                for run in group:
                    if (task.id, run.sample) in todo:
                        keep(task, run)
    finally:
        run_now(shop.close())


def chunks(ask: Ask, wanted: int) -> list[list[Task]]:
    """All tasks in groups that are decoded side by side, whatever is answered already: what is
    decoded together decides the last bits, so a run that goes on meets the same neighbours."""
    kinds: dict[Any, list[Task]] = {}
    for task in ask.tasks:
        kinds.setdefault((ask.plans[task.id], bool(task.tools)), []).append(task)
    found: list[list[Task]] = []
    for (_, tools), tasks in kinds.items():
        size = max(1, (wanted or (TOOL_CHUNK if tools else PLAIN_CHUNK)) // ask.samples)
        found += [tasks[at : at + size] for at in range(0, len(tasks), size)]
    return found


def sampling_of(ask: Ask, plan: Plan) -> Sampling:
    return Sampling(plan.tokens, ask.sampling.temperature, ask.sampling.top_k, ask.sampling.top_p)


def load_engine(args: Any, tasks: Sequence[Task]) -> tuple[Any, Any]:
    """(engine, tokenizer) of a model folder or of a scripted solver with a tokenizer."""
    if args.model.startswith("solver:"):
        from rollouts.engines.scripted import ScriptedEngine
        from rollouts.solvers import script

        tokenizer = ChatTokenizer(Path(args.tokenizer), args.calls)
        name = args.model.partition(":")[2]
        return ScriptedEngine(script(name, tasks, tokenizer.calls), tokenizer), tokenizer
    from train.evaluation.local import load_local

    return load_local(args, args.slots)


# --- an engine of words --------------------------------------------------------------------------


async def _by_chat(ask: Ask, args: Any, shop: Workshop, keep: Keep) -> None:
    async with AsyncExitStack() as stack:
        stack.push_async_callback(shop.close)
        engine = await _chat_engine(ask, args, stack)
        await _work(ask, args, keep, lambda task, j: _episode(ask, task, j, engine, shop))


def _by_server(ask: Ask, args: Any, shop: Workshop, keep: Keep, note: Note) -> None:
    """Each episode by itself, as token ids, from servers of one's own or the one at a URL."""
    from train.model.source import resolve_model

    folder = resolve_model(args.model) if is_folder(args.model) else None
    with served(args, folder, args.out / "servers") as found:

        async def run() -> None:
            async with AsyncExitStack() as stack:
                stack.push_async_callback(shop.close)
                engine = await stack.enter_async_context(found.engine(args.workers, args.key_env))
                note({"engine": args.engine, "version": engine.version})
                words = found.tokenizer
                await _work(
                    ask,
                    args,
                    keep,
                    lambda task, j: _episode(ask, task, j, engine.complete, shop, words),
                )

        _side_by_side(run())


async def _work(
    ask: Ask, args: Any, keep: Keep, episode: Callable[[Task, int], Awaitable[Trajectory]]
) -> None:
    gone = Gone(args.model)
    queue = iter(ask.todo)

    async def worker() -> None:
        for task, sample in queue:  # shared: each goes to the first worker that is free
            run = await episode(task, sample)
            keep(task, run)
            gone.see(run)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(args.workers, len(ask.todo))):
            group.create_task(worker())


async def _chat_engine(ask: Ask, args: Any, stack: AsyncExitStack) -> ChatEngine:
    name = args.model.partition(":")[2]
    if args.model.startswith("solver:"):
        from rollouts.engines.scripted import ScriptedChat
        from rollouts.solvers import script

        return ScriptedChat(script(name, ask.tasks, call_format(args.calls)), args.calls)
    if args.model.startswith("canned:"):
        from rollouts.engines.scripted import CannedEngine

        if not Path(name).is_file():
            raise TaskError(f"--model {args.model}: no such file; give rows of canned replies")
        return CannedEngine.from_file(Path(name))
    from rollouts.engines.http_engine import OpenAIEngine

    return await stack.enter_async_context(
        OpenAIEngine(
            args.model,
            args.endpoint_model,
            key_env=args.key_env,
            in_flight=args.workers,
            patience_s=args.patience,
            timeout_s=args.timeout,
            calls=args.calls,
            extra=args.request_fields,
        )
    )


async def _episode(
    ask: Ask,
    task: Task,
    sample: int,
    engine: ChatEngine | Continue,
    shop: Workshop,
    tokenizer: ChatTokenizer | None = None,
) -> Trajectory:
    """One episode; with tools a broken one is tried once more (requests are by their engine)."""
    plan = ask.plans[task.id]

    async def attempt() -> Trajectory:
        seed = derive_seed(ask.seed, task.id, sample)
        around = shop.maker(task, sample, seed) if task.tools else Plain(task)
        sampling = sampling_of(ask, plan)
        return await run_episode(
            task, sample, around, engine, sampling, ask.seed, plan.budget, tokenizer
        )

    found = await attempt()
    if found.failure is None or not task.tools:
        return found
    return retried(found, await attempt())
