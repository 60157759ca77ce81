# Records here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""From a command's options to answers: who answers, what is there already, and what it costs. What
`assay rollout` and `assay eval` do alike stands here; the sampler is rollouts/sampler.py."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from assay.console import Progress
from assay.family import THOUGHT
from assay.files import exclusive_file, weights_hash
from assay.journal import Journal, Key, Row, families_hash, read_record
from assay.task import Answer, Task, TaskError
from configs.answers import ServerConfig, called
from configs.machine import EngineConfig
from rollouts.engines.engine import context_of
from rollouts.engines.server import EMBEDDED, URLS, served
from rollouts.environments import EnvironmentFactory, ToolSettings, read_prompts
from rollouts.event_loop import asyncio_run
from rollouts.prompts import ChatTokenizer, template_arguments
from rollouts.sampler import (
    Allowance,
    Answers,
    Asked,
    Batch,
    Each,
    Model,
    Plan,
    expected,
    sample,
    tokens_of,
)
from rollouts.trajectory import Sampling, Trajectory
from rollouts.words.templates import line
from train.evaluation.benchmarks import Command, Evaluation
from train.evaluation.rows import CHEAT, REFERENCES, Tally

Note = Callable[[dict[str, str]], None]
Gathered = tuple[dict[Key, Row], list[dict[str, str]]]
SOLVER, CANNED = "solver:", "canned:"
UNASKED = "not asked for: the limit of cost or tokens was reached"


def is_reference(model: str) -> bool:
    return model in REFERENCES or model.startswith(CHEAT)


def is_remote(model: str) -> bool:
    return model.startswith(URLS)


def is_folder(model: str) -> bool:
    """Whether it is a model's folder, an adapter's, or a hub name."""
    words = model.startswith((*URLS, CANNED, SOLVER))
    return not (is_reference(model) or words)


C = TypeVar("C", Command, Evaluation)


def in_its_words(command: C) -> C:
    """The command with the words that `prompts` names, and with what is shown of a lake: as the
    release shows it in its own words. Raises `ConfigError`."""
    strict = isinstance(command, Evaluation) and command.strict
    prompts, tools = read_prompts(command.prompts, strict), command.tools
    for name, words in prompts.words.items():
        print(f"{name}: {line(words.to_json())}", flush=True)
    guru = prompts.words.get("ds_guru")
    theirs = guru.settings if guru else None
    rows, tokens = (theirs["rows"], 0) if theirs else (5, 8000)
    shown = {"snippet_rows": rows, "snippet_tokens": tokens}
    shown = {name: count for name, count in shown.items() if getattr(tools, name) is None}
    if theirs and "snippet_rows" in shown:
        print(f"ds_guru: {rows} rows of a table, as the release shows them (tools.snippet_rows)")
    return replace(command, asked_in=prompts, tools=replace(tools, **shown))


def environment_factory(command: Command, root: Path = Path("/")) -> EnvironmentFactory:
    """Environments for tasks whose files start from `root`."""
    tools = command.tools
    told = ("calls", "brief", "snippet_tokens", "snippet_rows", "tries")
    given = {name: getattr(tools, name) for name in told}
    if tools.run_s:
        given |= {"run_s": tools.run_s, "lake_run_s": tools.run_s}
    if tools.turns:
        given |= {"uses": tools.turns, "steps": max(tools.turns - 1, 1)}
    settings = ToolSettings(**given, words=command.asked_in.words)
    return EnvironmentFactory(root, settings, command.env or None)


@dataclass
class Given:
    """The answers to all tasks: `rows` as they were made of them, by task and sample, and what
    answered. `missing` were not asked for, for want of an allowance, which `limit` says."""

    rows: dict[Key, Row] = field(default_factory=dict[Key, Row])
    answered_by: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    missing: list[tuple[Task, int]] = field(default_factory=list[tuple[Task, int]])
    limit: str = ""

    def ordered(self, tasks: Sequence[Task]) -> list[Row]:
        rank = {task.id: i for i, task in enumerate(tasks)}
        return [self.rows[key] for key in sorted(self.rows, key=lambda k: (rank[k[0]], k[1]))]


@dataclass(frozen=True)
class Job:
    """What a command lets a model answer. `place` and `record` are the files of its journal,
    `servers` a folder for their logs; paths of the tasks' files are absolute. `row` makes a line of
    an answer, `reference` (name, task) gives an answer without a model. `gathered` are rows that
    other jobs made, and what answered them."""

    tasks: Sequence[Task]
    shop: EnvironmentFactory
    plan: Callable[[Task, Any, ChatTokenizer | None], Plan]
    row: Callable[[Task, Trajectory], Row]
    place: Path
    record: Path
    servers: Path
    what: str
    reference: Callable[[str, Task], Answer]
    gathered: Callable[[Mapping[str, Any]], Gathered] | None = None
    others: bool = False  # rows of tasks that are not asked may stay in the file


def answer_all(command: Command, job: Job) -> Given:
    """Let `--model` answer `job.tasks`, but for what the journal holds already.

    Raises `TaskError` for what cannot be used, and where going on would mix two samplings.
    """
    command = with_dtype(command, job.record)
    folders, tokenizer = _model_files(command)
    settings = settings_of(command, job.tasks, folders, tokenizer)
    plans = {task.id: job.plan(task, command, tokenizer) for task in job.tasks}
    drawn, server = command.sampling, command.server
    _say_context(folders, [plan.tokens for plan in plans.values()])
    ready: Gathered = job.gathered(settings) if job.gathered is not None else ({}, [])
    with (
        exclusive_file(job.place),
        Journal(job.place, job.record, job.tasks, settings, job.others) as journal,
    ):
        for about in ready[1]:
            journal.note(about)
        given = Given({**journal.done, **ready[0]}, settings=settings)
        asked = Asked(
            job.tasks,
            lambda task: plans[task.id],
            Sampling(0, drawn.temperature or 0.0, drawn.top_k, drawn.top_p, command.seed),
            drawn.n,
            command.seed,
            job.shop.maker,
            frozenset(given.rows),
        )
        allowance = Allowance(server.max_total_tokens, server.max_cost, server.price)
        allowance.already(journal.lost, map(row_tokens, journal.done.values()))
        missing, tally = asked.missing(), Tally()
        if given.rows:
            print(f"{len(given.rows)} answers are there already; {len(missing)} to go", flush=True)
        with Progress(job.what, "answers", len(missing)) as bar:

            def keep(task: Task, run: Trajectory) -> None:
                row = job.row(task, run)
                given.rows[task.id, run.sample] = row
                journal.write(row)
                if row["outcome"] is None:
                    journal.lose(*tokens_of(run))
                tally.add(row)
                bar.note(tally.text())
                bar.add(int(run.failure is None))

            if missing:
                job.shop.check(task for task, _ in missing)
                job.shop.announce(task for task, _ in missing)
                _say_expected(command, asked)
                with opened(command, asked, tokenizer, folders, job, journal.note) as model:
                    sample(asked, model, keep, allowance)
        if allowance.reached:
            given.missing = [(t, j) for t, j in missing if (t.id, j) not in given.rows]
            given.limit = _limit(server, allowance)
        journal.finish()
        given.answered_by = journal.answered_by
    return given


def row_tokens(row: Mapping[str, Any]) -> tuple[int, int]:
    """(tokens read, tokens written) of a row of a journal."""
    usage: Mapping[str, Any] = row.get("usage") or {}
    read = row.get("tokens_in", usage.get("prompt_tokens", 0))
    return int(read or 0), int(row.get("tokens_out", row.get("tokens", 0)) or 0)


def _limit(server: ServerConfig, allowance: Allowance) -> str:
    spent = f"{allowance.read + allowance.written:,} tokens"
    if server.price:
        spent += f", ${allowance.dollars:.4g}"
    names = {"server.max_cost": server.max_cost, "server.max_total_tokens": server.max_total_tokens}
    asked = " ".join(f"{name} {value:g}" for name, value in names.items() if value)
    return f"{asked} is reached ({spent} spent)"


def _say_expected(command: Command, asked: Asked) -> None:
    """What endpoints may cost, before the first request."""
    if not is_remote(command.who):
        return
    read, most = expected(asked)
    tools = any(task.tools for task in asked.tasks)
    said = f"{len(asked.missing())} answers: about {read:,} tokens to read"
    said += f"{' in first messages' if tools else ''}, "
    said += "and no bound of what is written" if most is None else f"{most:,} to write at most"
    if price := command.server.price:
        cheap, dear = (read * price[0] + n * price[1] for n in (0, most or 0))
        said += f"; ${cheap / 1e6:.4g} "
        said += "or more" if most is None else f"to ${dear / 1e6:.4g}"
    print(said, flush=True)


def _say_context(folders: Sequence[Path], rooms: Sequence[int]) -> None:
    """That a model reads less than its answers may have, where that is so."""
    most = max(rooms, default=0)
    try:
        context = context_of(json.loads((folders[-1] / "config.json").read_text(encoding="utf-8")))
    except (IndexError, OSError, ValueError):  # no folder, or one that its loader refuses
        return
    if 0 < context < most:
        print(
            f"{folders[-1].name} reads {context:,} tokens: an answer, which may have {most:,}, "
            "ends there with its prompt",
            flush=True,
        )


def with_dtype(command: Command, record: Path) -> Command:
    """The command with `engine.dtype=auto` settled for a model that is decoded here: as the journal
    of `record` was begun, else what is fast."""
    here = is_folder(command.who) and command.server.kind == EMBEDDED
    if not here or command.engine.dtype != "auto":
        return command
    from rollouts.engines.torch.engine import set_threads
    from rollouts.engines.torch.load import choose_device, choose_dtype

    set_threads(command.engine.threads or "auto")  # what is fast is measured with them
    begun: Mapping[str, Any] = (read_record(record) or {}).get("settings") or {}
    known = begun.get("dtype", "auto")
    fits = known != "auto" and begun.get("engine") == EMBEDDED
    dtype = known if fits else choose_dtype("auto", choose_device(command.engine.device))
    return replace(command, engine=replace(command.engine, dtype=dtype))


def _model_files(command: Command) -> tuple[list[Path], ChatTokenizer | None]:
    """(folders of the weights, tokenizer) of a model on this machine."""
    calls, template = command.tools.calls, command.model.chat_template_kwargs
    if is_folder(command.who):
        from train.model.folder import folders_of, tokenizer_of

        folders = folders_of(command.who)
        return folders, tokenizer_of(folders, calls, template)
    if not command.server.tokenizer:
        return [], None
    return [], ChatTokenizer(Path(command.server.tokenizer), calls, template)


# --- who answers ---------------------------------------------------------------------------------


@contextmanager
def opened(
    command: Command,
    asked: Asked,
    tokenizer: ChatTokenizer | None,
    folders: Sequence[Path],
    job: Job,
    note: Note,
) -> Generator[Model]:
    """What answers, ready to be asked. `note` is told what it is: the engine, the server's version,
    the number format. Raises `TaskError` for what cannot be used."""
    model = command.who
    try:
        if is_reference(model):
            yield Answers(lambda task: job.reference(model, task), tokenizer)
        elif model.startswith(SOLVER):
            yield _scripted(command, asked.tasks, tokenizer)
        elif model.startswith(CANNED):
            path = Path(model.removeprefix(CANNED))
            if not path.is_file():
                raise TaskError(f"--model {model}: no such file; give rows of canned replies")
            from rollouts.engines.scripted import CannedEngine

            yield Each(CannedEngine.from_file(path), in_flight=command.server.in_flight, name=model)
        elif command.server.kind != EMBEDDED:
            with (
                served(command, model, folders[0] if folders else None, job.servers) as found,
                _entered(found.engine(command.server)) as engine,
            ):
                note({"engine": command.server.kind, "version": engine.version})
                words = tokenizer or found.tokenizer
                bounded = _bounded(command, engine, words)
                yield Each(bounded.complete, words, command.server.in_flight, model)
        elif is_remote(model):
            with _entered(_endpoint(command)) as engine:
                yield Each(engine, None, command.server.in_flight, model)
                note(engine.about())  # known once it has answered
        else:
            assert tokenizer is not None
            from train.model.folder import load_local

            config = EngineConfig(
                threads=command.engine.threads,
                device=command.engine.device,
                dtype=command.engine.dtype,
            )
            engine = load_local(
                folders, tokenizer, config, command.engine.slots, job.servers.parent
            )
            note(engine.about())
            yield Batch(_bounded(command, engine, tokenizer), tokenizer, command.engine.slots)
    finally:
        asyncio_run(job.shop.close())


def _scripted(command: Command, tasks: Sequence[Task], tokenizer: ChatTokenizer | None) -> Model:
    """An agent without a model; a tokenizer gives its answers token ids."""
    from rollouts.engines.scripted import ScriptedChat, ScriptedEngine
    from rollouts.scripted_agents import OWN, OwnSolver, script
    from rollouts.tool_calls import call_format

    name = command.who.removeprefix(SOLVER)
    if name == OWN:
        return Each(OwnSolver(tasks), None, command.server.in_flight, command.who)
    if tokenizer is None:
        said = script(name, tasks, call_format(command.tools.calls))
        return Each(
            ScriptedChat(said, command.tools.calls), None, command.server.in_flight, command.who
        )
    engine = ScriptedEngine(script(name, tasks, tokenizer.calls), tokenizer)
    return Batch(engine, tokenizer, command.engine.slots)


def _endpoint(command: Command) -> Any:
    from rollouts.engines.http_engine import OpenAIEngine

    template = command.model.chat_template_kwargs
    return OpenAIEngine(
        command.who,
        command.server.model,
        key_env=command.server.key_env,
        in_flight=command.server.in_flight,
        patience_s=command.server.patience,
        timeout_s=command.server.timeout,
        calls=command.tools.calls,
        extra=({"chat_template_kwargs": template} if template else {}) | command.server.request,
    )


def _bounded(command: Command, engine: Any, tokenizer: ChatTokenizer) -> Any:
    """An engine of token ids with the bound of thoughts that the command line gives."""
    if not (most := command.sampling.max_thinking_tokens):
        return engine
    from rollouts.engines.thinking import ThinkingBudget

    return ThinkingBudget(engine, tokenizer, most)


@contextmanager
def _entered(engine: Any) -> Generator[Any]:
    """An engine with a session, for the one loop that all coroutines run on."""
    ready = asyncio_run(engine.__aenter__())
    try:
        yield ready
    finally:
        asyncio_run(engine.__aexit__(None, None, None))


# --- what is said at the end ---------------------------------------------------------------------


# field of a row, its value, from which share of answers on that is said, and what
ENDED = (
    (
        *("stop", "length", 0.0),
        "were cut by the token limit or the model's context; sampling.max_new_tokens raises the "
        "first",
    ),
    (
        *("why", THOUGHT, 0.0),
        "ended inside their thought and earn nothing; raise sampling.max_new_tokens, or bound the "
        "thought: sampling.max_thinking_tokens",
    ),
    (
        *("stop", "turns", 0.5),
        "stopped at the turn limit, before the model said that it was done; raise tools.turns, or "
        "teach it to end",
    ),
)


def say_end(command: str, rows: Sequence[Mapping[str, Any]], given: Given) -> int:
    """Say what was cut, lost and not asked for; the exit status, 3 where an outcome is missing."""

    def say(words: str) -> None:
        print(f"{command}: {words}", file=sys.stderr)

    for key, value, least, words in ENDED:
        count = sum(row.get(key) == value for row in rows)
        if count and count >= least * len(rows):
            say(f"{count} of {len(rows)} answers ({count / len(rows):.0%}) {words}")
    if given.missing:
        say(
            f"{given.limit}: {len(given.missing)} answers were not asked for; the same command "
            "with a higher limit goes on"
        )
    unasked = {(task.id, j) for task, j in given.missing}
    lost = [row for row in rows if row["outcome"] is None]
    broken = [row for row in lost if (row["task_id"], row["sample"]) not in unasked]
    if broken:
        first = broken[0]
        say(
            f"{len(broken)} of {len(rows)} answers have no outcome and count nowhere; the first: "
            f"{first['task_id']}: {first.get('failure') or first['why']}; the same command asks "
            "them again"
        )
    return 3 if broken or given.missing else 0


# what changes neither an answer nor a score; tasks and code stand for themselves
FREE = (
    *("out", "in_flight", "threads", "json", "key_env", "name", "price", "slots", "device"),
    *("no_baselines", "tasks", "family", "include_trained", "patience", "timeout", "part"),
    *("gather", "limit", "chosen", "max_cost", "max_total_tokens", "asked_in", "server_python"),
    *("gpus", "prompts"),
)
THINKING = "enable_thinking"  # the argument of chat templates


def settings_of(
    command: Command,
    tasks: Sequence[Task],
    folders: Sequence[Path] = (),
    tokenizer: ChatTokenizer | None = None,
) -> dict[str, Any]:
    """For the record, and to refuse going on with something else. `folders` hold the weights, an
    adapter's and its base model's."""
    said: dict[str, Any] = {}
    for name, value in vars(command).items():
        if name in FREE:
            continue
        inner = vars(value) if is_dataclass(value) else {}
        said |= {called(f"{name}.{own}"): inner[own] for own in inner} or {called(name): value}
    if command.solver is None:  # `assay eval`, whose records have agents and files so
        del said["solver"]
        said["agent"] = said["agent"] or ""
        said |= {name: str(Path(said[name])) for name in ("examples", "dsbench") if said[name]}
    found = {name: said[name] for name in sorted(said) if name not in FREE}
    if folders:
        found["weights"] = weights_hash(folders)
    if tokenizer is not None:
        found["tokenizer"] = tokenizer.fingerprint
    found["families"] = families_hash(tasks)
    if words := command.asked_in.settings(tasks):
        found["words"] = words
    return found


def thinking(command: Command) -> bool | None:
    """Whether the model is told to think before it answers: by the arguments of its chat template
    on the command line, by `server.request`, else by its folder. None where nothing says so."""
    asked = command.server.request.get("chat_template_kwargs")
    found = dict(asked) if isinstance(asked, dict) else {}
    found |= command.model.chat_template_kwargs
    folder = Path(command.who).expanduser()
    if THINKING not in found and folder.is_dir():
        found = template_arguments(folder)
    value = found.get(THINKING)
    return None if value is None else bool(value)
