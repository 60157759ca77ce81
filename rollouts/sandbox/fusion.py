"""SandboxFusion as a backend, over HTTP, with the client's own defences.

Its server drops long output, reads pipes only after the exit and replaces all of stdout by one
decode error. So the code runs below a wrapper of ours that caps both streams, keeps their bytes
and reports on one line; what comes back without that line is a failure of the sandbox.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from assay.http_client import EndpointError, Patience, get, opened, post
from rollouts.sandbox.exchange import Answer
from rollouts.sandbox.model import MIB, Limits, Result, SandboxError
from rollouts.sandbox.pool import check
from rollouts.sandbox.text import join
from rollouts.sandbox.verdict import judge

_WRAPPER = """
import base64, json, os, subprocess, sys, threading, time
env = {**os.environ, **ENV}
run = "import sys; sys.argv=['main.py']; sys.path[0]='';" + SEED + EXEC
start = time.monotonic()
p = subprocess.Popen([sys.executable, "-c", run], stdin=subprocess.PIPE, env=env,
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
kept = [[b"", b"", 0], [b"", b"", 0]]
def drain(pipe, into):
    while data := os.read(pipe.fileno(), 65536):
        into[2] += len(data)
        room = HALF - len(into[0])
        into[0] += data[:room]
        into[1] = (into[1] + data[room:])[-HALF:]
threads = [threading.Thread(target=drain, args=a, daemon=True)
           for a in ((p.stdout, kept[0]), (p.stderr, kept[1]))]
for t in threads: t.start()
def feed():
    try: p.stdin.write(base64.b64decode(STDIN)); p.stdin.close()
    except OSError: pass
threading.Thread(target=feed, daemon=True).start()
end = "exit"
try: p.wait(WALL)
except subprocess.TimeoutExpired:
    end = "timeout"; p.kill(); p.wait()
for t in threads: t.join(1)
code = p.returncode
streams = [[base64.b64encode(k[0]).decode(), base64.b64encode(k[1]).decode(), k[2]] for k in kept]
print(MARK + json.dumps({"end": end, "code": code, "wall": time.monotonic() - start,
                         "streams": streams}), flush=True)
os._exit(0)
"""
_CODE_FILE = "assay_main.py"
_EXEC = (
    "g={'__name__':'__main__','__file__':NAME,'__builtins__':__builtins__};"
    "exec(compile(open(NAME,'rb').read(),NAME,'exec',dont_inherit=True),g)"
).replace("NAME", repr(_CODE_FILE))
_SEED = (
    "import random; random.seed({0})\ntry:\n import numpy; numpy.random.seed({0})\n"
    "except ImportError: pass\n"
)
_THREADS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR")


class FusionClient:
    """`run` as the pool has it, answered by a SandboxFusion server (or ours) at `url`."""

    def __init__(
        self, url: str, concurrency: int = 32, queue_s: float = 120.0, retries: int = 3
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"sandbox url {url!r}: begin it with http:// or https://")
        self._root = url.rstrip("/")
        self.url = self._root + "/run_code"
        self._ours: bool | None = None
        self.queue_s, self.retries = queue_s, retries
        self._slots = asyncio.Semaphore(concurrency)

    async def __aenter__(self) -> FusionClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def run(
        self,
        code: str | bytes,
        files: Mapping[str, bytes | str] | None = None,
        fetch: Sequence[str] = (),
        limits: Limits | None = None,
        seed: int | None = None,
        *,
        stdin: bytes = b"",
    ) -> Result:
        """Run `code` there; `sandbox_error` for anything that is not the code's own doing."""
        limits = limits or Limits()
        source, inputs = check(code, files, fetch)
        if "*" in fetch:
            raise ValueError("fetch='*': this protocol needs the names of the files")
        mark = secrets.token_hex(16)
        asked = time.monotonic()
        async with self._slots:
            queued = time.monotonic() - asked
            try:
                body = _body(source, inputs, fetch, limits)
                if await self._speaks_ours():
                    body |= {"code": source.decode("utf-8", "replace"), "seed": seed}
                    body |= {"stdin": stdin.decode("utf-8", "replace")}
                    del body["files"][_CODE_FILE]
                else:
                    body |= {"code": _wrap(mark, limits, seed, stdin)}
                    body["run_timeout"] += 5  # the wrapper keeps the time and the output so far
                answer = await self._post(body, limits.wall_s + 5 + self.queue_s)
                read = _read_ours if self._ours and "assay" in answer else _read
                return read(answer, mark, limits, fetch, queued)
            except (SandboxError, ValueError, TypeError, KeyError) as error:
                return Result("sandbox_error", why=str(error)[:500], queue_s=queued)

    async def _speaks_ours(self) -> bool:
        """Whether the server is `assay sandbox serve`, which needs no wrapper."""
        if self._ours is None:
            try:
                async with opened("", 10.0) as session:
                    self._ours = "layers" in await get(session, self._root + "/metrics")
            except EndpointError as error:
                if not error.status:
                    return False  # asked again with the next call; the post says what is wrong
                self._ours = False
        return self._ours

    async def _post(self, body: dict[str, Any], seconds: float) -> dict[str, Any]:
        """What never reached the code is tried again; what took too long may have run."""
        patience = Patience(self.retries + 1, self.queue_s, 0.4, 30.0, slow=False)
        try:
            async with opened("", seconds) as session:
                return await post(session, self.url, body, patience, dict)
        except EndpointError as error:
            reached = "" if error.status else "cannot reach the sandbox server: "
            raise SandboxError(f"{reached}{error}") from None


def _body(
    source: bytes, inputs: Mapping[str, bytes], fetch: Sequence[str], limits: Limits
) -> dict[str, Any]:
    return {
        "language": "python",
        "files": {n: _text(d) for n, d in {**inputs, _CODE_FILE: source}.items()},
        "fetch_files": list(fetch),
        "run_timeout": limits.wall_s,
        "memory_limit_MB": limits.memory_mb,
    }


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _wrap(mark: str, limits: Limits, seed: int | None, stdin: bytes) -> str:
    env = {f"{name}_NUM_THREADS": str(limits.threads) for name in _THREADS}
    env |= {"PYTHONHASHSEED": "0", "LOKY_MAX_CPU_COUNT": str(limits.threads), "TZ": "UTC"}
    env |= {"PYTHONIOENCODING": "utf-8", "LANG": "C.UTF-8"}
    values = {
        "ENV": env,
        "SEED": "" if seed is None else "\n" + _SEED.format(seed % (1 << 32)),
        "EXEC": _EXEC,
        "HALF": min(limits.output_kb * 512, 32_768),  # longer output is dropped over there
        "WALL": limits.wall_s,
        "MARK": mark,
        "STDIN": _text(stdin),
    }
    return "".join(f"{name} = {value!r}\n" for name, value in values.items()) + _WRAPPER


def _read(
    answer: dict[str, Any], mark: str, limits: Limits, fetch: Sequence[str], queued: float
) -> Result:
    run: dict[str, Any] = answer.get("run_result") or {}
    printed = str(run.get("stdout") or "")
    at = printed.rfind(mark)
    if at < 0:
        state = run.get("status") or answer.get("status")
        cut = "[DecodeError]" in printed or len(printed) >= 200_000
        reason = "output_limit" if cut else f"no report from the wrapper ({state})"
        raise SandboxError(f"{reason}: {str(answer.get('message') or '')[:200]}")
    report = json.loads(printed[at + len(mark) :].splitlines()[0])
    streams = [(_bytes(h), _bytes(t), int(n)) for h, t, n in report["streams"]]
    files, refused = _files(answer.get("files") or {}, limits, fetch)
    out, err = (join(*stream) for stream in streams)
    code = int(report["code"])
    made = Answer(str(report["end"]), 0, 0.0, 0.0, 0, 0.0, False, streams, files, refused)
    status, why = judge(made, code, err, limits)
    return Result(
        status=status,
        exit_code=code,
        signal=-code if code < 0 else None,
        stdout=out,
        stderr=err,
        stdout_bytes=streams[0][2],
        stderr_bytes=streams[1][2],
        files=files,
        refused=refused,
        wall_s=float(report["wall"]),
        layers={"level": "remote"},
        why=why,
        queue_s=queued,
    )


def _read_ours(
    answer: dict[str, Any], _: str, limits: Limits, fetch: Sequence[str], queued: float
) -> Result:
    """The whole result, as `assay sandbox serve` adds it."""
    files, refused = _files(answer.get("files") or {}, limits, fetch)
    given: dict[str, Any] = {**answer["assay"], "files": files, "queue_s": queued}
    given["refused"] = {**refused, **given["refused"]}
    return Result(**given)


def _bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except binascii.Error as error:
        raise SandboxError(f"not base64: {error}") from None


def _files(
    given: Mapping[str, Any], limits: Limits, fetch: Sequence[str]
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Only names that were asked for, under the caps; the rest is refused with a reason."""
    files: dict[str, bytes] = {}
    refused = {name: "missing" for name in fetch if given.get(name) is None}
    room = limits.fetch_total_mb * MIB
    for name in fetch:
        if given.get(name) is None:
            continue
        data = _bytes(given[name])
        if len(data) > min(limits.fetch_mb * MIB, room):
            refused[name] = f"{len(data)} bytes are more than the limit"
        else:
            files[name], room = data, room - len(data)
    return files, refused
