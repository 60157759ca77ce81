"""`assay sandbox run FILE.py` and `assay sandbox serve`."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import signal
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from assay import console
from assay.errors import install_extra
from rollouts.sandbox.model import LEVELS, STACK, Config, Limits, Result, SandboxError, worker_count
from rollouts.sandbox.pool import Pool, check, report_lines

if TYPE_CHECKING:
    from aiohttp import web

# ---- SandboxFusion's protocol
# A server that speaks SandboxFusion's protocol over the warm pool, so users can swap by URL.


_MOST_BYTES = 1 << 29
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


async def start(pool: Pool, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Serve over a pool; returns the runner, to be cleaned up, and the port that was bound."""
    from aiohttp import web  # an extra, and slow to load

    async def run_code(request: web.Request) -> web.Response:
        # a page in somebody's browser can post text to loopback, but not JSON without asking first
        if request.content_type != "application/json":
            return web.json_response({"message": "send Content-Type: application/json"}, status=415)
        try:
            arguments = parse(await request.json())
        except ValueError as error:
            return web.json_response({"message": str(error)}, status=422)
        return web.json_response(answer(await pool.run(**arguments)))

    async def ping(_: web.Request) -> web.Response:
        return web.json_response("pong")

    async def metrics(_: web.Request) -> web.Response:
        calls = pool.by_status.total()
        found = {"calls": calls, "by_status": pool.by_status, "retried": pool.retried}
        return web.json_response({**found, "layers": (await pool.report()).short()})

    app = web.Application(client_max_size=_MOST_BYTES)
    app.router.add_post("/run_code", run_code)
    app.router.add_get("/v1/ping", ping)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner, int(runner.addresses[0][1])


# ---- the command

_EXIT = {"timeout": 124, "sandbox_error": 125, "memory": 137, "disk": 137}
STATUSES = (
    "exit status of `run`: the program's own; 124 its time was up, 125 the sandbox failed,\n"
    "137 out of memory or disk, 2 the request cannot be used"
)


def main(argv: list[str]) -> int:
    """Returns the code's own exit status; 124 timeout, 125 sandbox, 137 memory or disk, 2 usage."""
    args = _parser().parse_args(argv)
    try:
        return asyncio.run(_serve(args) if args.command == "serve" else _run(args))
    except (ValueError, SandboxError, OSError) as error:
        print(f"assay sandbox: {error}", file=sys.stderr)
        return 125 if isinstance(error, SandboxError) else 2


def _parser() -> console.Parser:
    parser = console.parser("sandbox", __doc__)
    parser.epilog = STATUSES
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what, epilog, fill in (
        ("run", "run one file in a jail", STATUSES, _add_run),
        ("serve", "serve SandboxFusion's protocol", console.STATUSES, _add_serve),
    ):
        made: console.Parser = commands.add_parser(
            name,
            help=what,
            description=what,
            formatter_class=console.Layout,
            epilog=epilog,
            allow_abbrev=False,
        )
        add = made.add_argument
        add("--min-level", choices=LEVELS, default="confined", help="refuse a weaker one")
        add("--level", choices=LEVELS, help="force one, for tests")
        fill(made)
    return parser


def _add_run(made: console.Parser) -> None:
    add = made.add_argument
    add("file", help="the program; - reads it from standard input")
    add("--files", nargs="*", default=[], help="inputs: PATH, NAME=PATH or a directory")
    add("--shared", metavar="DIR", help="show its files to the program, not copied")
    add("--fetch", nargs="*", default=[], help="files to bring back; '*' for all")
    add("--out", default=".", help="where they go; what is there already stays")
    add("--arg", action="append", default=[], help="an argument for the program")
    add("--timeout", type=float, default=200.0, help="seconds")
    add("--memory", type=int, default=4096, help="MB per process")
    add("--seed", type=int, help="seed of random and numpy.random")
    console.add_json(made)
    add("--cold", action="store_true", help="import nothing ahead: starts sooner")


def _add_serve(made: console.Parser) -> None:
    add = made.add_argument
    add("--host", default="127.0.0.1", help="address; this one is reached from here alone")
    add("--port", type=int, default=8080, help="0: a free one")
    help_ = "calls side by side; 0: one a core, fewer where memory is short"
    add("--workers", type=int, default=0, help=help_)


def inputs(given: list[str]) -> dict[str, bytes]:
    """Read the inputs: a directory gives all its files, NAME=PATH renames."""
    found: dict[str, bytes] = {}
    for item in given:
        name, _, renamed = item.partition("=")
        path = Path(renamed or name)
        if path.is_dir():
            under = [p for p in sorted(path.rglob("*")) if p.is_file()]
            found |= {str(p.relative_to(path)): p.read_bytes() for p in under}
        elif path.is_file():
            found[name if renamed else path.name] = path.read_bytes()
        else:
            raise ValueError(f"--files {item}: there is no such file")
    return found


def save(result: Result, directory: str) -> list[str]:
    """Write what came back; a sentence for each file that is there already."""
    problems: list[str] = []
    os.makedirs(directory, exist_ok=True)
    for name, data in result.files.items():
        try:
            with open(f"{directory}/{name}", "xb") as file:
                file.write(data)
        except FileExistsError:
            problems.append(f"{directory}/{name} is there already; give another --out")
    return problems


async def _run(args: argparse.Namespace) -> int:
    path = Path(args.file)
    if args.file != "-" and not path.is_file():
        raise ValueError(f"there is no file {args.file!r}")
    code = sys.stdin.buffer.read() if args.file == "-" else path.read_bytes()
    limits = Limits(wall_s=args.timeout, memory_mb=args.memory)
    files, stack = inputs(args.files), () if args.cold else STACK
    shared = {"shared": args.shared} if args.shared else {}
    name = "shared" if shared else None
    config = Config(1, args.min_level, args.level, spares=0, stack=stack, shared=shared)
    async with Pool(config) as pool:
        report = await pool.report()
        if report.level != "full":
            _say("\n".join(report_lines(asdict(report))))
        result = await pool.run(
            code, files, args.fetch, limits, args.seed, argv=args.arg, shared=name
        )
    problems = save(result, args.out)
    if args.json:
        print(json.dumps({**asdict(result), "files": sorted(result.files)}, indent=2))
    else:
        sys.stdout.write(result.stdout)
        sys.stderr.write(result.stderr)
    if result.status not in ("ok", "error"):
        problems.append(f"{result.status}: {result.why}")
    problems += [f"{name!r} did not come back: {why}" for name, why in result.refused.items()]
    for problem in problems:
        _say(problem)
    code = result.exit_code or 0
    return _EXIT.get(result.status, 128 - code if code < 0 else code)


def _say(text: str) -> None:
    print(f"assay sandbox: {text}", file=sys.stderr)


async def _serve(args: argparse.Namespace) -> int:
    if find_spec("aiohttp") is None:
        raise SandboxError(f"serving needs aiohttp; {install_extra('client')}")
    workers = args.workers or worker_count()
    done, loop = asyncio.Event(), asyncio.get_running_loop()
    async with Pool(Config(workers, min_level=args.min_level, level=args.level)) as pool:
        level = (await pool.report()).level
        runner, port = await start(pool, args.host, args.port)
        if args.host not in ("127.0.0.1", "localhost", "::1"):
            _say("anyone who reaches this address can run code here; put a firewall in front")
        print(f"serving http://{args.host}:{port}/run_code at level {level}", flush=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, done.set)
        await done.wait()
        await runner.cleanup()
    return 0
