"""Options of the commands that let a model answer tasks, `assay rollout` and `assay eval`: who
answers, how it samples, and how episodes run. Each is defined here, once for both."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from assay import console
from configs.loader import ConfigError
from rollouts.engines.server.opening import EMBEDDED, URLS, add_engine

# `engine.slots=64` is `--slots 64`, as in the settings of the commands that train
WORDS = {f"engine.{name}": name for name in ("device", "dtype", "threads", "slots")}
TEMPLATE, PROMPTS = "model.chat_template_kwargs", "prompts"


class Renamed(argparse.Action):
    """An option's earlier name: it still works, and says the name it has now."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        now = f"--{self.dest.replace('_', '-')}"
        print(f"{parser.prog}: {option_string} is called {now} now", file=sys.stderr)
        setattr(namespace, self.dest, values)


def _renamed(to: Any, now: str, *before: str) -> None:
    to.add_argument(
        *before,
        dest=now,
        action=Renamed,
        type=int,
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
    )


def add_words(made: argparse.ArgumentParser) -> None:
    """`key=value` words."""
    made.add_argument(
        "words",
        nargs="*",
        metavar="key=value",
        help="reward.FAMILY.SETTING=VALUE: how answers are scored; model.chat_template_kwargs="
        "JSON or .NAME=VALUE; engine.slots=64 and the like: the same as --slots 64; "
        "prompts=release:DIR: ask in the words of a copy of the release, prompts=FILE: in your own",
    )
    made.set_defaults(prompts="")


def add_sampling(to: Any, n: str, temperature: float) -> None:
    """How often and how a model is sampled; `n` says the default number in words."""
    add = to.add_argument
    add("--n", type=int, default=None, metavar="K", help=f"answers a task ({n})")
    _renamed(to, "n", "--samples", "--repeats")
    add("--seed", type=int, default=0, help="of everything that is drawn (%(default)s)")
    add("--temperature", type=float, default=temperature, help="0 is greedy (default: %(default)s)")
    add("--top-p", type=float, default=1.0, help="1: off (default: %(default)s)")
    add("--top-k", type=int, default=0, help="0: off (default: %(default)s)")
    add(
        "--max-new-tokens",
        type=int,
        default=0,
        metavar="N",
        help="of one message. 0: by task, half as long again as gold in the model's own tokens; "
        "4096 with tools, where gold is no text, and at an endpoint. A model that thinks before it "
        "answers needs more",
    )
    _add_thinking(add)


def _add_thinking(add: Any) -> None:
    add(
        "--max-thinking-tokens",
        type=int,
        default=0,
        metavar="N",
        help="of the thought that a message of a model folder, or of --engine, begins with: then "
        "its closing mark is put there, and the model answers (0: no bound but --max-new-tokens)",
    )


def add_model(to: Any) -> None:
    """Who answers, and what it may cost."""
    add = to.add_argument
    add_engine(to)
    add("--endpoint-model", default="default", help="its name at the endpoint (%(default)s)")
    add(
        "--key-env",
        default="OPENAI_API_KEY",
        metavar="VARIABLE",
        help="environment variable with the endpoint's key (%(default)s)",
    )
    add("--request", default="{}", metavar="JSON", help="more fields of a request; null drops one")
    add(
        "--chat-template-kwargs",
        default="{}",
        metavar="JSON",
        help="arguments of the chat template, such as '{\"enable_thinking\": false}'; an endpoint "
        "is sent them with every request",
    )
    add("--in-flight", type=int, default=16, metavar="N", help="requests side by side (16)")
    _renamed(to, "in_flight", "--workers")
    add("--patience", type=float, default=600.0, metavar="S", help="seconds to retry a request for")
    add("--timeout", type=float, default=600.0, metavar="S", help="seconds one try may take")
    add("--price", default="", metavar="IN,OUT", help="dollars a million tokens read and written")
    add(
        "--max-cost",
        type=float,
        default=0.0,
        metavar="DOLLARS",
        help="ask nothing more once this is spent, all starts together; needs --price (0: no "
        "limit)",
    )
    add(
        "--max-total-tokens",
        type=int,
        default=0,
        metavar="N",
        help="the same for tokens read and written (0: no limit)",
    )
    add(
        "--tokenizer",
        metavar="FOLDER",
        help="of a model behind a URL, with --engine; of a scripted solver",
    )
    add("--device", default="auto", choices=("auto", "cpu", "cuda"), help="auto: a GPU if there is")
    add(
        "--dtype",
        default="auto",
        choices=("auto", "bfloat16", "float32"),
        help="auto: bfloat16 where it is fast, else float32; what goes on keeps its own",
    )
    add("--threads", type=int, default=0, help="0: all cores")
    add("--slots", type=int, default=64, help="answers decoded side by side (default: %(default)s)")
    _renamed(to, "slots", "--chunk")


def add_episodes(to: Any) -> None:
    """How episodes with tools run."""
    add = to.add_argument
    add("--env", action="append", default=[], metavar="FILE.py:NAME", help="tools of your own")
    add("--turns", type=int, default=0, help="messages of a model; 0: by task")
    add("--run-s", type=float, default=0.0, help="seconds of one tool run; 0: by task")
    add("--max-length", type=int, default=0, help="tokens of an episode; 0: any")
    add(
        "--tries",
        type=int,
        default=5,
        metavar="N",
        help="pipelines that a few-shot agent of a lake may run before it has failed (%(default)s)",
    )
    add("--calls", default="hermes", help="how calls are spelled (%(default)s)")
    add("--brief", action="store_true", help="a short description of the tool")
    add(
        "--snippet-tokens",
        type=int,
        metavar="N",
        help="of a lake in the prompt; 0: all of it (8000; all in a release's words)",
    )
    add(
        "--snippet-rows",
        type=int,
        metavar="N",
        help="of each group of files there, as far as these tokens allow (5; as many as the "
        "release shows in its words)",
    )


def settle(args: Any, answers: bool) -> None:
    """Check what the options say and fill in what follows from them: `rewards`, by family and
    setting, `request_fields`, `price`. `answers`: whether no model is asked. Raises `ConfigError`
    in one sentence."""
    _take_words(args)
    if args.model and args.model.startswith(URLS) and not args.endpoint_model:
        raise ConfigError(f"--model {args.model}: say which model there: --endpoint-model NAME")
    least = {"n": 1, "in_flight": 1, "slots": 1, "threads": 0, "turns": 0, "top_k": 0}
    least |= {"max_new_tokens": 0, "max_total_tokens": 0, "max_length": 0, "limit": 0}
    least |= {"tries": 1, "snippet_rows": 0, "snippet_tokens": 0, "max_cost": 0, "temperature": 0}
    least |= {"max_thinking_tokens": 0}
    for name, most in least.items():
        if (given := getattr(args, name)) is not None and given < most:
            raise ConfigError(f"--{name.replace('_', '-')} {given}: give {most} or more")
    if 0 < (args.snippet_tokens or 0) < 50:
        raise ConfigError(f"--snippet-tokens {args.snippet_tokens}: give 50 or more, or 0 for all")
    if not 0 < args.top_p <= 1:
        raise ConfigError(f"--top-p {args.top_p}: give a share above 0, 1 at most")
    if args.max_thinking_tokens and args.engine == EMBEDDED and args.model.startswith(URLS):
        raise ConfigError(
            f"--max-thinking-tokens {args.max_thinking_tokens}: an endpoint of words bounds "
            "thoughts itself; give its own field, such as --request "
            "'{\"thinking_token_budget\": N}' for vLLM, or --engine with --tokenizer"
        )
    if args.n is not None and args.n > 1 and answers:
        raise ConfigError(f"--n {args.n}: {args.model} gives the same answer each time")
    if (args.n or 1) > 1 and args.temperature == 0 and not args.model.startswith("solver:"):
        raise ConfigError(
            f"--n {args.n}: at temperature 0 all answers to a task are the same; give "
            "--temperature 1, or --n 1"
        )
    args.request_fields = json_object("--request", args.request)
    args.chat_template_kwargs = json_object("--chat-template-kwargs", args.chat_template_kwargs)
    args.price = prices(args.price)
    if args.max_cost and not args.price:
        raise ConfigError(f"--max-cost {args.max_cost:g}: say what tokens cost, --price IN,OUT")


def _take_words(args: Any) -> None:
    """`key=value` words into the options they stand for."""
    import yaml

    rewards: dict[str, dict[str, Any]] = {}
    template: dict[str, Any] = json_object("--chat-template-kwargs", args.chat_template_kwargs)
    for word in [*args.words, *_words_of(args)]:
        name, equals, text = word.partition("=")
        parts, value = name.split("."), yaml.safe_load(text)
        if equals and name in WORDS:
            kind = int if WORDS[name] in ("threads", "slots") else str
            if not isinstance(value, kind) or isinstance(value, bool):
                raise ConfigError(f"{word}: wanted a value as of --{WORDS[name]}")
            setattr(args, WORDS[name], value)
        elif equals and name == PROMPTS:
            args.prompts = text
        elif equals and name == TEMPLATE and isinstance(value, dict):
            template |= cast("dict[str, Any]", value)
        elif equals and name.startswith(f"{TEMPLATE}.") and len(parts) == 3:
            template[parts[2]] = value
        elif equals and len(parts) == 3 and parts[0] == "reward":
            rewards.setdefault(parts[1], {})[parts[2]] = value
        else:
            more = [f"{TEMPLATE}=JSON", f"{PROMPTS}=FILE", f"{PROMPTS}=release:DIR"]
            known = ", ".join(["reward.FAMILY.SETTING=VALUE", *more, *WORDS])
            hint = console.near_miss(name, [*WORDS, TEMPLATE, PROMPTS])
            raise ConfigError(f"{word}: wanted {known}{hint}")
    args.rewards, args.chat_template_kwargs = rewards, json.dumps(template)


def _words_of(args: Any) -> list[str]:
    """`key=value` words that stand among those of `--tasks`, which takes all that follow it; they
    are taken out there. A file of such a name is a file."""
    listed: Any = args.tasks
    if not isinstance(listed, list):
        return []
    given = cast("list[str]", listed)
    found = [w for w in given if re.match(r"[a-z_]+(\.\w+)*=", w) and not Path(w).exists()]
    args.tasks = [word for word in given if word not in found]
    return found


def json_object(option: str, text: str) -> dict[str, Any]:
    """The fields of an option that is a JSON object. Raises `ConfigError` for anything else."""
    try:
        fields: Any = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text}: not valid JSON ({error})") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"{option} {text}: wanted a JSON object, such as '{{\"top_k\": 1}}'")
    return cast("dict[str, Any]", fields)


def prices(text: str) -> tuple[float, ...]:
    """`IN,OUT` in dollars a million tokens, () for none. Raises `ConfigError`."""
    if not text:
        return ()
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if len(found) != 2 or min(found) < 0:
        raise ConfigError(f"--price {text}: wanted two numbers, such as 0.15,0.60")
    return found


def in_words(numbers: Sequence[float]) -> str:
    """Dollars in words, with as many digits as say something."""
    return " to ".join(f"${n:.2f}" if n >= 1 else f"${n:.4f}" for n in numbers)
