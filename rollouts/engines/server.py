"""Servers of one's own: started on free ports, one a device, and ended with all they began: when
they are no longer wanted, on a signal, and (watched_server.py) when this process is killed."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from assay.task import TaskError
from configs.answers import RolloutConfig, ServerConfig
from rollouts.prompts import ChatTokenizer

if TYPE_CHECKING:
    from rollouts.engines.http_engine import ServerEngine

EMBEDDED = "embedded"
URLS = ("http://", "https://")


LOOK_S = 0.5
END_S = 30.0  # between TERM and KILL
_WATCHED = (sys.executable, "-I", Path(__file__).with_name("watched_server.py"))
# a proxy knows nothing of this machine's own address
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Launch:
    """How a server is started. `python` is the interpreter of the environment that has it."""

    kind: str
    model: str
    name: str
    python: str = sys.executable
    more: tuple[str, ...] = ()
    gpus: int = 1  # that one server is cut over
    start_s: float = 1800.0  # to load and compile a large model
    environ: Mapping[str, str] = field(default_factory=dict[str, str])  # on top of this process's

    def command(self, port: int, device: str = "") -> list[str]:
        """The words that start it on GPUs, or (without `device`) on the CPU. vLLM serves the
        longest request that there is room for; by itself it ends where the model's own longest has
        none."""
        served = ["--host", "127.0.0.1", "--port", str(port)]
        if self.kind == "vllm":
            module = ["vllm.entrypoints.openai.api_server", "--model", self.model]
            served += ["--served-model-name", self.name, "--generation-config", "vllm"]
            if device:
                served += ["--max-model-len", "auto", "--tensor-parallel-size", str(self.gpus)]
            else:
                # vLLM 0.32 sets a request's random numbers back where a prompt is cut into pieces,
                # which a generator on a CPU cannot do: the server would end
                served.append("--no-enable-chunked-prefill")
        elif self.kind == "sglang":
            module = ["sglang.launch_server", "--model-path", self.model]
            served += ["--served-model-name", self.name, "--enable-deterministic-inference"]
            served += ["--tp-size", str(self.gpus)]
        else:
            module = ["assay", "serve", "--model", self.model]
            served += ["--name", self.name]
        return [self.python, "-m", *module, *served, *self.more]

    def environment(self, device: str = "") -> dict[str, str]:
        """This process's, with what the server wants; what is set already stays."""
        if device:
            return {**os.environ, **self.environ, "CUDA_VISIBLE_DEVICES": device}
        wanted = dict[str, str]()
        if self.kind == "vllm":
            threads = Path(self.python).parent.parent / "lib" / "libiomp5.so"
            wanted["KMP_BLOCKTIME"] = "1"  # else its threads spin while they wait
            if threads.is_file():  # vLLM's CPU build asks for it
                wanted["LD_PRELOAD"] = str(threads)
        return {**wanted, **os.environ, **self.environ}


def devices(each: int = 1) -> list[str]:
    """The GPUs of each server, by their names in CUDA_VISIBLE_DEVICES, `each` of those that may be
    used; one "" without any. Raises `TaskError` for fewer."""
    found = _devices()
    if len(found) < each or (each > 1 and found == [""]):
        raise TaskError(
            f"server.gpus={each}: {len(list(filter(None, found)))} GPU(s) are here; lower it"
        )
    return [",".join(found[at : at + each]) for at in range(0, len(found) - each + 1, each)]


def _devices() -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [one for one in named.split(",") if one] or [""]
    ask = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=True)
        return said.stdout.split() or [""]
    return [""]


@contextmanager
def servers(launch: Launch, on: Sequence[str], logs: Path) -> Generator[list[str]]:
    """The addresses of one server a device, all of them ready. Raises `TaskError` with the end of
    the log when one does not start."""
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(_signals_as_errors())
        started: list[tuple[str, subprocess.Popen[bytes], Path]] = []
        for place, device in enumerate(on):
            port, log = _free_port(), logs / f"server-{place}.log"
            process = stack.enter_context(_running(launch, port, device, log))
            started.append((f"http://127.0.0.1:{port}", process, log))
        for address, process, log in started:
            _await(address, process, log, launch)
        yield [address for address, _, _ in started]


@contextmanager
def _signals_as_errors() -> Generator[None]:
    """TERM and HUP end this process as an error does, so that the servers end with it."""
    here = threading.current_thread() is threading.main_thread()
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]

    def end(number: int, _: object) -> None:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)  # a second one must not break off the ending
        raise SystemExit(128 + number)

    for number in numbers if here else ():
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers if here else ():
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _running(
    launch: Launch, port: int, device: str, log: Path
) -> Generator[subprocess.Popen[bytes]]:
    """A process group of its own: a server starts others, which must not stay behind."""
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [*_WATCHED, str(os.getpid()), str(END_S), *launch.command(port, device)],
            env=launch.environment(device),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S + 2)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _await(address: str, process: subprocess.Popen[bytes], log: Path, launch: Launch) -> None:
    until = time.monotonic() + launch.start_s
    while time.monotonic() < until:
        if process.poll() is not None:
            raise TaskError(
                f"server.kind={launch.kind}: the server ended with status {process.returncode}; "
                f"{log} ends with: {_last(log)}"
            )
        with (
            contextlib.suppress(OSError),
            _DIRECT.open(f"{address}/health", timeout=5) as answer,
        ):
            if answer.status == 200:
                return
        time.sleep(LOOK_S)
    raise TaskError(
        f"server.kind={launch.kind}: the server did not answer within {launch.start_s:.0f} s; "
        f"{log} ends with: {_last(log)}"
    )


def _last(log: Path) -> str:
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "nothing"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- from a command's options to servers that answer ---------------------------------------------


@dataclass(frozen=True)
class Served:
    """Servers that are ready, and what is needed to ask them."""

    addresses: list[str]
    kind: str
    name: str
    tokenizer: ChatTokenizer

    def engine(self, config: ServerConfig) -> ServerEngine:
        """A client with a command's settings for endpoints."""
        from assay.http_client import Patience
        from rollouts.engines.http_engine import ServerEngine

        return ServerEngine(
            self.addresses,
            self.kind,
            self.name,
            self.tokenizer.stop_ids,
            key_env=config.key_env,
            in_flight=config.in_flight,
            timeout_s=config.timeout,
            patience=Patience(seconds=config.patience),
            extra=config.request,
        )


@contextmanager
def served(config: RolloutConfig, model: str, folder: Path | None, logs: Path) -> Generator[Served]:
    """`folder`: of the model, None where `model` is an address; then `server.tokenizer` is the
    folder of the tokenizer. Raises `TaskError` for what cannot be used."""
    server = config.server
    if folder is None:
        if not server.tokenizer:
            raise TaskError(
                f"server.kind={server.kind} --model {model}: give the model's tokenizer, "
                "server.tokenizer=FOLDER: ids go there and come back"
            )
        tokenizer = ChatTokenizer(Path(server.tokenizer), config.tools.calls)
        yield Served([model], server.kind, server.model, tokenizer)
        return
    tokenizer = ChatTokenizer(folder, config.tools.calls)
    name = folder.name
    more = tuple(shlex.split(server.args))
    python = server.python or sys.executable
    launch = Launch(server.kind, str(folder), name, python, more, server.gpus)
    with servers(launch, devices(server.gpus), logs) as addresses:
        yield Served(addresses, server.kind, name, tokenizer)
