"""Commands that let a model answer: `assay eval`, `assay rollout` and `assay serve`.

Who answers, how it samples and how episodes run are `key=value` settings of configs/answers.py.
What imports much is imported where a command runs.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from assay import console
from assay.console import task_filter
from assay.errors import install_extra
from assay.task import TaskError
from configs.answers import EARLIER, EvaluationConfig, RolloutConfig, ServeConfig, called
from configs.loader import ConfigError, dotted_names, load, settings_help
from rollouts.engines.server import EMBEDDED, URLS
from train.evaluation.benchmarks import FAMILIES, Command, Evaluation

K = TypeVar("K", bound=RolloutConfig)

SETTING = re.compile(r"[a-z_]+(\.\w+)*=")


def _parser(command: str, what: str, kind: type[RolloutConfig | ServeConfig]) -> console.Parser:
    """The parser of a command whose settings are `kind`; its help lists them all. An option that is
    a setting now is refused with the setting's name."""
    made = console.parser(command, what)
    made.add_argument(
        "words", nargs="*", metavar="key=value", help="any setting of the list at the end"
    )
    made.epilog = f"{settings_help(kind)}\n\n{console.STATUSES}"
    made.moved = EARLIER | {
        f"--{called(name).replace('_', '-')}": name for name in dotted_names(kind)
    }
    return made


def settle(args: Any, kind: type[K], answers: bool, temperature: float) -> K:
    """The settings that a command line asks for. `answers`: whether no model is asked.
    `temperature`: where none is set. Raises `ConfigError` in one sentence."""
    config = load(kind, None, [*args.words, *_words_of(args)])
    drawn, server, model = config.sampling, config.server, args.model
    if drawn.temperature is None:
        drawn = replace(drawn, temperature=temperature)
    if model and model.startswith(URLS) and not server.model:
        raise ConfigError(f"--model {model}: say which model there: server.model=NAME")
    thoughts = drawn.max_thinking_tokens
    if thoughts and server.kind == EMBEDDED and model.startswith(URLS):
        raise ConfigError(
            f"sampling.max_thinking_tokens={thoughts}: an endpoint of words bounds thoughts "
            "itself; give its own field, such as server.request.thinking_token_budget=N for "
            "vLLM, or server.kind with server.tokenizer"
        )
    if drawn.n > 1 and answers:
        raise ConfigError(f"sampling.n={drawn.n}: {model} gives the same answer each time")
    if drawn.n > 1 and drawn.temperature == 0 and not model.startswith("solver:"):
        raise ConfigError(
            f"sampling.n={drawn.n}: at temperature 0 all answers to a task are the same; set "
            "sampling.temperature=1, or sampling.n=1"
        )
    return replace(config, sampling=drawn)


def _words_of(args: Any) -> list[str]:
    """`key=value` words that stand among those of `--tasks` and `--gather`, which take all that
    follows; they are taken out there. A file of such a name is a file."""
    found: list[str] = []
    for name in ("tasks", "gather"):
        given: Any = getattr(args, name, None)
        if isinstance(given, list):
            listed = cast("list[str | Path]", given)
            words = [w for w in map(str, listed) if SETTING.match(w) and not Path(w).exists()]
            setattr(args, name, [word for word in listed if str(word) not in words])
            found += words
    return found


# --- assay eval

EVAL = """Score a model on tasks of any families, mixed, and write results.json, rows.jsonl
and report.html. A killed evaluation goes on when the same command is run again."""


def eval_parser() -> console.Parser:
    """Every option and setting, with its default in the help."""
    made = _parser("eval", EVAL, EvaluationConfig)
    add = made.add_argument
    names = ", ".join(f"{name}:DIR" for name in FAMILIES)
    add(
        "--model",
        required=True,
        help="gold, empty, cheat:NAME, solver:NAME, a model or adapter folder, a hub name, an "
        "OpenAI-compatible URL (up to /v1), or canned:FILE.jsonl",
    )
    add(
        "--tasks",
        required=True,
        nargs="+",
        action="extend",
        metavar="TASKS",
        help=f"files, folders, {names}; several and mixed",
    )
    add("--out", required=True, type=Path, help="folder for results and report")
    console.add_family(made)
    add("--env", action="append", default=[], metavar="FILE.py:NAME", help="tools of your own")
    add("--name", default="", help="the model's name in tables and files")
    add("--json", action="store_true", help="print meta, tables and baselines as JSON")
    console.add_seed(made)
    console.add_filter(made)
    add("--limit", type=int, default=0, metavar="N", help="an even draw of N tasks over tracks")
    add("--part", default="", metavar="I/N", help="every N-th task, from the I-th on (0 to N-1)")
    add(
        "--gather",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="put the finished parts of these folders together, and ask nothing",
    )
    add(
        "--include-trained",
        action="store_true",
        help="also rows that the model's record (trained_on.bin) says it was trained on",
    )
    add(
        "--strict",
        action="store_true",
        help="refuse a benchmark's copy that lacks parts, rather than ask what is there",
    )
    add("--no-baselines", action="store_true", help="leave gold and cheats out of the tables")
    return made


def evaluate(argv: list[str]) -> int:
    """`assay eval`: exit status 0; 3 when some answers have no outcome. Errors are raised."""
    command = evaluation(argv)
    from train.evaluation.run import run

    return run(command)


def evaluation(argv: list[str]) -> Evaluation:
    """What the words of `assay eval` ask for. Raises `ConfigError`."""
    args = eval_parser().parse_intermixed_args(argv)
    from train.evaluation.answering import is_reference

    config = settle(args, EvaluationConfig, is_reference(args.model), temperature=0.0)
    config = replace(config, sampling=replace(config.sampling, n=config.sampling.n or 1))
    return _command(Evaluation, args, config)


def _command(kind: type[K], args: Any, config: RolloutConfig) -> K:
    """The parsed options and the settings that they leave as one object."""
    given: dict[str, Any] = {"who": args.model, "chosen": task_filter(args)}
    given |= {f.name: getattr(args, f.name) for f in fields(kind) if f.name in vars(args)}
    return kind(**given | vars(config))


# --- assay rollout

ROLLOUT = """Sample answers to tasks, score them, and write them as JSONL. Answers come from a
model, or without one from --solver: gold, empty, cheat:NAME of any family, or a scripted agent. A
killed command goes on when it is run again."""
N = 8  # answers a task, where nobody says it


def rollout_parser() -> console.Parser:
    """Every option and setting, with its default in the help."""
    made = _parser("rollout", ROLLOUT, RolloutConfig)
    add = made.add_argument
    add("--tasks", required=True, type=Path, help="tasks.jsonl")
    add("--out", required=True, type=Path, help="rollouts.jsonl")
    add(
        "--model",
        default="",
        help="a model or adapter folder, a hub name, or an OpenAI-compatible URL (up to /v1)",
    )
    add(
        "--solver",
        default="",
        help="instead of a model: gold, empty, cheat:NAME, or a scripted agent such as reference; "
        "with --model as well its tokenizer gives the rows token ids",
    )
    console.add_family(made)
    add("--env", action="append", default=[], metavar="FILE.py:NAME", help="tools of your own")
    console.add_seed(made)
    console.add_filter(made)
    console.add_limit(made)
    return made


def rollout(argv: list[str]) -> int:
    """`assay rollout`: exit status 0; 3 when some rollouts have no outcome. Errors are raised."""
    args = rollout_parser().parse_intermixed_args(argv)
    return _run_rollout(args.tasks, _rollout_command(args))


def _rollout_command(args: Any) -> Command:
    """`--solver` and `--model` are one name of who answers. Raises `ConfigError`."""
    from rollouts.scripted_agents import OWN
    from train.evaluation.answering import is_reference

    if not args.model and not args.solver:
        raise ConfigError("give --model DIR_OR_URL, or --solver gold for answers without a model")
    start = args.model
    if args.solver:
        args.model = args.solver if is_reference(args.solver) else f"solver:{args.solver}"
    config = settle(args, RolloutConfig, answers=False, temperature=1.0)
    drawn, server = config.sampling, config.server
    if args.solver:
        server = replace(server, tokenizer=start or server.tokenizer)
    scripted = is_reference(args.model) or args.solver == OWN
    alike = scripted or drawn.temperature == 0
    drawn = replace(drawn, n=drawn.n or (1 if alike else N))
    return _command(Command, args, replace(config, sampling=drawn, server=server))


def _run_rollout(path: Path, command: Command) -> int:
    """Sample what the output does not hold yet; the exit status."""
    from assay.family import require_families, score_answer, use_families
    from assay.fingerprints import marks_of
    from assay.task import Task, read_tasks, with_absolute_files
    from configs.schema import weights_of
    from rollouts.scripted_agents import answer_by
    from rollouts.trajectory import Trajectory
    from train.evaluation.answering import (
        Job,
        answer_all,
        environment_factory,
        in_its_words,
        say_end,
    )
    from train.evaluation.benchmarks import plan_of
    from train.evaluation.rows import thought_of

    use_families(command.family)
    given = command.chosen.select(read_tasks(path), str(path))[: command.limit or None]
    require_families(given)
    root = path.resolve().parent
    command = in_its_words(command)
    shop = environment_factory(command, root)
    equipped = [shop.equip(with_absolute_files(task, root)) for task in given]
    tasks = command.asked_in.asked(equipped)
    shop.check(tasks)
    weights = weights_of(command.reward, "command line")
    by_id = {task.id: task for task in tasks}

    @lru_cache(1024)
    def marks(name: str) -> list[int]:
        return marks_of(by_id[name]).flat()

    def row(task: Task, run: Trajectory) -> dict[str, Any]:
        score = score_answer(task, run.answer(), weights)
        thought = thought_of(run, task)
        kept = {"thought": thought} if thought else {}
        more = {"run_seed": command.seed, "marks": marks(task.id)}
        return run.to_json(score, task) | kept | more

    out = command.out
    job = Job(
        tasks,
        shop,
        plan_of,
        row,
        place=out,
        record=out.with_name(f"{out.name}.settings.json"),
        servers=out.with_name(f"{out.name}.servers"),
        what="rollouts",
        reference=answer_by,
        others=True,
    )
    found = answer_all(command, job)
    rows = found.ordered(tasks)
    outcomes = [row["outcome"] for row in rows if row["outcome"] is not None]
    mean = sum(outcomes) / len(outcomes) if outcomes else float("nan")
    print(f"{out}: {len(outcomes)} scored rollouts, mean outcome {mean:.3f}")
    sys.stdout.flush()
    return say_end("assay rollout", rows, found)


# --- assay serve

SHARE = 0.6  # of the memory that is left, for keys and values
SERVE = """Serve a model folder, an adapter folder or a hub name on this machine, with
/v1/chat/completions (tools included), /v1/completions (texts or token ids), /v1/models and
/health. Requests that wait together are answered together."""


def serve_parser() -> console.Parser:
    """Every option and setting, with its default in the help."""
    made = _parser("serve", SERVE, ServeConfig)
    add = made.add_argument
    add("--model", required=True, help="a model or adapter folder, or a hub name")
    add("--name", default="", help="what clients call it; the folder's name if not given")
    add("--host", default="127.0.0.1", help="0.0.0.0 for other machines")
    add("--port", type=int, default=8000, help="0: any that is free")
    add(
        "--key-env",
        default="",
        metavar="VARIABLE",
        help="environment variable with the key that clients must send",
    )
    add("--max-length", type=int, default=0, help="tokens of a sequence; 0: what the model reads")
    add("--waiting", type=int, default=1024, help="requests in the queue before a 429")
    add("--seed", type=int, default=0, help="of requests that name none")
    return made


def bounds(folder: Path, longest: int, slots: int) -> tuple[int, int]:
    """(tokens of a sequence, samples side by side whose keys and values fit into memory)."""
    from assay.machine import available_memory
    from train.model.source import shape_of

    try:
        shape = shape_of(str(folder))
    except ConfigError:  # a model that transformers computes for us
        if not longest:
            raise TaskError(
                f"{folder} does not say how long a sequence may be; give --max-length"
            ) from None
        return longest, slots
    context = min(n for n in (longest, shape.positions) if n) if longest or shape.positions else 0
    if not context:
        raise TaskError(f"{folder} does not say how long a sequence may be; give --max-length")
    left = available_memory()
    if left is None:
        return context, slots
    fit = int(SHARE * left) // (2 * shape.kv_bytes * context)  # kv_bytes is of bf16
    return context, max(1, min(slots, fit))


def serve(argv: list[str]) -> int:
    """`assay serve`: serve until it is interrupted or terminated."""
    args = serve_parser().parse_intermixed_args(argv)
    config = load(ServeConfig, None, args.words)
    try:
        from aiohttp import web
    except ModuleNotFoundError:
        raise TaskError(f"assay serve needs aiohttp; {install_extra('client')}") from None
    from rollouts.openai_server import Batches, Limits, Service
    from train.model.folder import folders_of, load_local, tokenizer_of

    key = os.environ.get(args.key_env, "") if args.key_env else ""
    if args.key_env and not key:
        raise TaskError(f"--key-env {args.key_env}: the variable is empty; set it to the key")
    folders = folders_of(args.model)
    tokenizer = tokenizer_of(folders, config.tools.calls, config.model.chat_template_kwargs)
    engine = load_local(folders, tokenizer, config.engine, config.engine.slots)
    context, rows = bounds(folders[-1], args.max_length, config.engine.slots)
    name = args.name or Path(args.model).name
    service = Service(
        Batches(engine, rows, args.waiting), tokenizer, Limits(name, context), key, args.seed
    )

    def started(text: str, **_: object) -> None:
        print(f"{name}: {text}", file=sys.stderr, flush=True)

    web.run_app(service.app(), host=args.host, port=args.port, print=started)
    return console.DONE
