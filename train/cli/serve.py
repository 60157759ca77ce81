"""`assay serve`: an OpenAI-compatible endpoint on the embedded engine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from assay import console
from assay.errors import install_extra
from assay.task import TaskError
from configs.answers import ServeConfig
from configs.loader import ConfigError, load
from train.cli import model_options

SHARE = 0.6  # of the memory that is left, for keys and values
DESCRIPTION = """Serve a model folder, an adapter folder or a hub name on this machine, with
/v1/chat/completions (tools included), /v1/completions (texts or token ids), /v1/models and
/health. Requests that wait together are answered together."""


def parser() -> console.Parser:
    """Every option and setting, with its default in the help."""
    made = model_options.parser("serve", DESCRIPTION, ServeConfig)
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
    from assay.memory import available_memory
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


def main(argv: list[str]) -> int:
    """Serve until it is interrupted or terminated."""
    args = parser().parse_intermixed_args(argv)
    config = load(ServeConfig, None, args.words)
    try:
        from aiohttp import web
    except ModuleNotFoundError:
        raise TaskError(f"assay serve needs aiohttp; {install_extra('client')}") from None
    from rollouts.serving.protocol import Limits
    from rollouts.serving.server import Batches, Service
    from train.evaluation.local import folders_of, load_local, tokenizer_of

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
