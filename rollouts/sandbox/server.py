"""A server that speaks SandboxFusion's protocol over the warm pool, so users can swap by URL."""

from __future__ import annotations

import base64
from typing import Any, cast

from aiohttp import web

from rollouts.sandbox.model import Limits, Result
from rollouts.sandbox.pool import Pool, check

_MOST_BYTES = 1 << 29
_POOL = web.AppKey("pool", Pool)
_FIELDS: dict[str, tuple[tuple[type, ...], str]] = {
    "code": ((str,), "the program as a string"),
    "language": ((str,), "python"),
    "stdin": ((str,), "a string"),
    "files": ((dict,), "an object of name: base64 text"),
    "fetch_files": ((list,), "a list of names"),
    "seed": ((int,), "a whole number"),
    "run_timeout": ((int, float), "seconds"),
    "memory_limit_MB": ((int, float), "a number"),
}


def parse(body: Any) -> dict[str, Any]:
    """The request as arguments of `Pool.run`; ValueError with one sentence for anything that could
    not be run. As in the protocol, null and -1 stand for what is not given."""
    if not isinstance(body, dict):
        raise ValueError("give a JSON object")
    fields = cast("dict[str, Any]", body)
    given = {name: value for name, value in fields.items() if value is not None and value != -1}
    for name, (kinds, what) in _FIELDS.items():
        if name in given and type(given[name]) not in kinds:
            raise ValueError(f"{name}={str(given[name])[:80]!r}: give {what}")
    if "code" not in given:
        raise ValueError("code: give the program as a string")
    if given.get("language", "python") != "python":
        raise ValueError(f"language={given['language']!r}: this server runs python only")
    files, fetch = dict[str, bytes](), list(map(str, given.get("fetch_files", [])))
    for name, text in given.get("files", {}).items():
        try:
            files[name] = base64.b64decode(text or "", validate=True)
        except (TypeError, ValueError):
            raise ValueError(f"files: {name!r} is not base64") from None
    check(given["code"], files, fetch)
    wall, memory = given.get("run_timeout", 10.0), given.get("memory_limit_MB", 4096)
    return {
        "code": given["code"],
        "files": files,
        "fetch": fetch,
        "limits": Limits(wall_s=wall, memory_mb=int(memory)),
        "stdin": given.get("stdin", "").encode(),
        "seed": given.get("seed"),
    }


def answer(result: Result) -> dict[str, Any]:
    """A result in the protocol's words."""
    lost = result.status == "sandbox_error"
    run: dict[str, Any] = {
        "status": "TimeLimitExceeded" if result.status == "timeout" else "Finished",
        **{"execution_time": result.wall_s, "return_code": result.exit_code},
        **{"stdout": result.stdout, "stderr": result.stderr},
    }
    state = "Success" if result.status == "ok" else "Failed"
    return {
        "status": "SandboxError" if lost else state,
        "message": result.why,
        "compile_result": None,
        "run_result": None if lost else run,
        "executor_pod_name": None,
        "files": {n: base64.b64encode(d).decode() for n, d in result.files.items()},
    }


async def _run_code(request: web.Request) -> web.Response:
    # a page in somebody's browser can post text to loopback, but not JSON without asking first
    if request.content_type != "application/json":
        return web.json_response({"message": "send Content-Type: application/json"}, status=415)
    try:
        arguments = parse(await request.json())
    except ValueError as error:
        return web.json_response({"message": str(error)}, status=422)
    return web.json_response(answer(await request.app[_POOL].run(**arguments)))


async def _ping(_: web.Request) -> web.Response:
    return web.json_response("pong")


async def _metrics(request: web.Request) -> web.Response:
    pool = request.app[_POOL]
    calls = pool.by_status.total()
    found = {"calls": calls, "by_status": pool.by_status, "retried": pool.retried}
    return web.json_response({**found, "layers": (await pool.report()).short()})


async def start(pool: Pool, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Serve; returns the runner, to be cleaned up, and the port that was bound."""
    app = web.Application(client_max_size=_MOST_BYTES)
    app[_POOL] = pool
    app.router.add_post("/run_code", _run_code)
    app.router.add_get("/v1/ping", _ping)
    app.router.add_get("/metrics", _metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner, int(runner.addresses[0][1])
