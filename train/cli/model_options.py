"""Settings of the commands that let a model answer tasks, `assay rollout` and `assay eval`: who
answers, how it samples, and how episodes run, as `key=value` of configs/answers.py."""

from __future__ import annotations

import re
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, cast

from assay import console
from configs.answers import EARLIER, EvaluationConfig, RolloutConfig, ServeConfig
from configs.loader import ConfigError, dotted_names, load, settings_help
from rollouts.engines.server.process import EMBEDDED, URLS

# settings that the code calls by another name than their own
CALLED = {
    "server.kind": "engine",
    "server.python": "server_python",
    "server.args": "server_args",
    "server.model": "endpoint_model",
    "server.request": "request_fields",
    "reward": "rewards",
}
SETTING = re.compile(r"[a-z_]+(\.\w+)*=")


def parser(command: str, what: str, kind: type[RolloutConfig | ServeConfig]) -> console.Parser:
    """The parser of a command whose settings are `kind`; its help lists them all. An option that is
    a setting now is refused with the setting's name."""
    made = console.parser(command, what)
    made.add_argument(
        "words", nargs="*", metavar="key=value", help="any setting of the list at the end"
    )
    made.epilog = f"{settings_help(kind)}\n\n{console.STATUSES}"
    made.moved = EARLIER | {
        f"--{_called(name).replace('_', '-')}": name for name in dotted_names(kind)
    }
    return made


def _called(name: str) -> str:
    return CALLED.get(name, name.rpartition(".")[2])


def settle(args: Any, kind: type[RolloutConfig], answers: bool, temperature: float) -> None:
    """Put every setting of `kind` into `args` under its own name (`CALLED`: another). `answers`:
    whether no model is asked. `temperature`: where none is set. Raises `ConfigError` in one
    sentence."""
    config = load(kind, None, [*args.words, *_words_of(args)])
    for part in fields(config):
        value = getattr(config, part.name)
        if not is_dataclass(value):
            setattr(args, _called(part.name), value)
            continue
        for field in fields(value):
            setattr(args, _called(f"{part.name}.{field.name}"), getattr(value, field.name))
    args.n = args.n or None
    args.temperature = temperature if args.temperature is None else args.temperature
    args.server_python = args.server_python or sys.executable
    if isinstance(config, EvaluationConfig):
        args.agent = args.agent or ""
        args.examples, args.dsbench = (p and Path(p) for p in (args.examples, args.dsbench))
    thoughts = args.max_thinking_tokens
    if args.model and args.model.startswith(URLS) and not args.endpoint_model:
        raise ConfigError(f"--model {args.model}: say which model there: server.model=NAME")
    if thoughts and args.engine == EMBEDDED and args.model.startswith(URLS):
        raise ConfigError(
            f"sampling.max_thinking_tokens={thoughts}: an endpoint of words bounds thoughts "
            "itself; give its own field, such as server.request.thinking_token_budget=N for "
            "vLLM, or server.kind with server.tokenizer"
        )
    if args.n is not None and args.n > 1 and answers:
        raise ConfigError(f"sampling.n={args.n}: {args.model} gives the same answer each time")
    if (args.n or 1) > 1 and args.temperature == 0 and not args.model.startswith("solver:"):
        raise ConfigError(
            f"sampling.n={args.n}: at temperature 0 all answers to a task are the same; set "
            "sampling.temperature=1, or sampling.n=1"
        )


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
