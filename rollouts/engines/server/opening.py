"""From a command's options to servers that answer: started here, or found at an address."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.task import TaskError
from rollouts.prompts import ChatTokenizer

if TYPE_CHECKING:
    from rollouts.engines.http_engine import ServerEngine

EMBEDDED = "embedded"
SERVERS = ("vllm", "sglang", "assay")  # those of DIALECTS, which only who asks one has to load
URLS = ("http://", "https://")


@dataclass(frozen=True)
class Served:
    """Servers that are ready, and what is needed to ask them."""

    addresses: list[str]
    kind: str
    name: str
    tokenizer: ChatTokenizer

    def engine(self, args: Any) -> ServerEngine:
        """A client with a command's options for endpoints."""
        from assay.http_client import Patience
        from rollouts.engines.http_engine import ServerEngine

        return ServerEngine(
            self.addresses,
            self.kind,
            self.name,
            self.tokenizer.stop_ids,
            key_env=args.key_env,
            in_flight=args.in_flight,
            timeout_s=args.timeout,
            patience=Patience(seconds=args.patience),
            extra=args.request_fields,
        )


@contextmanager
def served(args: argparse.Namespace, folder: Path | None, logs: Path) -> Generator[Served]:
    """`folder`: of the model, None where `--model` is an address; then `server.tokenizer` is the
    folder of the tokenizer. Raises `TaskError` for what cannot be used."""
    from rollouts.engines.server.process import Launch, devices, servers

    if folder is None:
        if not args.tokenizer:
            raise TaskError(
                f"server.kind={args.engine} --model {args.model}: give the model's tokenizer, "
                "server.tokenizer=FOLDER: ids go there and come back"
            )
        tokenizer = ChatTokenizer(Path(args.tokenizer), args.calls)
        yield Served([args.model], args.engine, args.endpoint_model, tokenizer)
        return
    tokenizer = ChatTokenizer(folder, args.calls)
    name = folder.name
    more = tuple(shlex.split(args.server_args))
    launch = Launch(args.engine, str(folder), name, args.server_python, more)
    with servers(launch, devices(), logs) as addresses:
        yield Served(addresses, args.engine, name, tokenizer)
