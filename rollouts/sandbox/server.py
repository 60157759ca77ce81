"""A server that speaks SandboxFusion's protocol over the warm pool, so users can swap by URL."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from aiohttp import web

from rollouts.sandbox.model import Config, Limits, Result
from rollouts.sandbox.pool import Pool, plain_path

_MOST_BYTES = 1 << 29
_POOL = web.AppKey("pool", Pool)


class BadRequest(ValueError):
    """One sentence for the client: what was got and what belongs there."""


def _files(body: Mapping[str, Any]) -> dict[str, bytes]:
    given: Any = body.get("files") or {}
    if not isinstance(given, dict):
        raise BadRequest("files: give an object of name: base64 text")
    files: dict[str, bytes] = {}
    for name, text in cast("dict[str, Any]", given).items():
        if not plain_path(name):
            raise BadRequest(f"files: {name!r} is not a relative path below the work directory")
        try:
            files[name] = base64.b64decode(text or "", validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise BadRequest(f"files: {name!r} is not base64") from None
    return files


def _number(body: Mapping[str, Any], name: str, default: float, most: float) -> float:
    value = body.get(name)
    if value is None or value == -1:  # the protocol's own way to say "no limit of mine"
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise BadRequest(f"{name}={value!r}: give a number above 0 and at most {most:g}")
    return value


def parse(body: Any) -> dict[str, Any]:
    """The request as arguments of `Pool.run`; BadRequest for anything out of shape."""
    if not isinstance(body, dict):
        raise BadRequest("give a JSON object")
    fields = cast("dict[str, Any]", body)
    code: Any = fields.get("code")
    names: Any = fields.get("fetch_files") or []
    if not isinstance(code, str):
        raise BadRequest("code: give the program as a string")
    if fields.get("language", "python") != "python":
        raise BadRequest(f"language={fields['language']!r}: this server runs python only")
    if not isinstance(names, list) or not all(isinstance(n, str) for n in cast("list[Any]", names)):
        raise BadRequest("fetch_files: give a list of names")
    fetch = cast("list[str]", names)
    if bad := [n for n in fetch if "/" in n or not plain_path(n)]:
        raise BadRequest(f"fetch_files: {bad[0]!r} is not a plain name")
    files = _files(fields)
    if "main.py" in files:
        raise BadRequest("files: 'main.py' is where the code itself goes; use another name")
    seed = fields.get("seed")
    if seed is not None and type(seed) is not int:
        raise BadRequest("seed: give a whole number")
    limits = Limits(
        wall_s=_number(fields, "run_timeout", 10.0, 86_400),
        memory_mb=int(_number(fields, "memory_limit_MB", 4096, 1 << 20)),
    )
    stdin = fields.get("stdin") or ""
    if not isinstance(stdin, str):
        raise BadRequest("stdin: give a string")
    return {
        "code": code,
        "files": files,
        "fetch": fetch,
        "limits": limits,
        "stdin": stdin.encode(),
        "seed": seed,
    }


def answer(result: Result) -> dict[str, Any]:
    """A result in the protocol's words."""
    if result.status == "sandbox_error":
        state, run = "SandboxError", None
    else:
        state = "Success" if result.status == "ok" else "Failed"
        run = {
            "status": "TimeLimitExceeded" if result.status == "timeout" else "Finished",
            "execution_time": result.wall_s,
            "return_code": result.exit_code,
            "stdout": result.stdout,
            "stderr": result.stderr,
        }
    return {
        "status": state,
        "message": result.why,
        "compile_result": None,
        "run_result": run,
        "executor_pod_name": None,
        "files": {n: base64.b64encode(d).decode() for n, d in result.files.items()},
        # beyond the protocol, for a client that knows us
        "assay": {**asdict(result), "files": None},
    }


async def _run_code(request: web.Request) -> web.Response:
    # a page in somebody's browser can post text to loopback, but not JSON without asking first
    if request.content_type != "application/json":
        return web.json_response({"message": "send Content-Type: application/json"}, status=415)
    try:
        arguments = parse(await request.json())
    except BadRequest as error:
        return web.json_response({"message": str(error)}, status=422)
    except ValueError:
        return web.json_response({"message": "the body is not JSON"}, status=400)
    return web.json_response(answer(await request.app[_POOL].run(**arguments)))


async def _ping(_: web.Request) -> web.Response:
    return web.json_response("pong")


async def _metrics(request: web.Request) -> web.Response:
    pool = request.app[_POOL]
    counts = pool.metrics
    found = {"calls": counts.calls, "by_status": counts.by_status, "retried": counts.retried}
    return web.json_response({**found, "layers": (await pool.report()).short()})


def application(pool: Pool) -> web.Application:
    app = web.Application(client_max_size=_MOST_BYTES)
    app[_POOL] = pool
    app.router.add_post("/run_code", _run_code)
    app.router.add_get("/v1/ping", _ping)
    app.router.add_get("/metrics", _metrics)
    return app


async def start(config: Config, host: str, port: int) -> tuple[web.AppRunner, Pool, int]:
    """Serve; returns the runner and the pool to close, and the port that was bound."""
    pool = Pool(config)
    try:
        await pool.report()
        runner = web.AppRunner(application(pool))
        await runner.setup()
        site = web.TCPSite(runner, host, port)
        await site.start()
    except BaseException:
        await pool.close()
        raise
    return runner, pool, int(runner.addresses[0][1])
