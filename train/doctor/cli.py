"""`assay doctor`: what this machine can run, with `--for` whether a run can go on it, and with
`--attack` whether the sandbox holds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from assay import console
from train.doctor import gpu, machine, needs, node
from train.doctor.finding import Finding


def report() -> list[Finding]:
    """All that is known of this machine; never raises on an odd one."""
    boxed = machine.sandbox()
    return [
        *machine.findings(),
        *gpu.findings(),
        *node.findings(os.environ, boxed, len(gpu.devices(os.environ))),
        *machine.sandbox_lines(boxed),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report; 2 when `--for` finds something missing; with `--attack` 1 when an attack
    on the sandbox got through."""
    parser = console.parser("doctor", __doc__, settings="settings of the run that --for names")
    parser.add_argument(
        "--for",
        dest="run",
        metavar="FILE.yaml",
        help="only what this run needs, with a sentence for each thing that is missing",
    )
    parser.add_argument(
        "--backend",
        choices=needs.BACKENDS,
        help="of that run; default: verl or deepspeed where the file has a section `cluster`",
    )
    parser.add_argument(
        "--attack", action="store_true", help="try ten attacks on the sandbox and say what held"
    )
    parser.add_argument(
        "--level",
        help="at this sandbox level; default: the best one here",
        choices=("full", "confined", "limits"),
    )
    options = parser.parse_intermixed_args(argv)
    if options.run is None and (options.settings or options.backend):
        parser.error("settings and --backend belong to a run; name its file with --for")
    status = console.DONE
    if options.run is not None:
        status = _for(options.run, options.settings, options.backend)
    else:
        _print(report())
    return (_attack(options.level) or status) if options.attack else status


def _print(lines: Iterable[Finding]) -> None:
    for line in lines:
        print(f"{line.topic:<10} {line.text}")


def _for(file: str, settings: Sequence[str], backend: str | None) -> int:
    want = needs.wanted(file, settings, backend)
    print(f"{'for':<10} assay {want.command} --backend {want.backend}, {file}")
    found = needs.needs_of(want, os.environ)
    _print(line for line in found if line.ok)
    sys.stdout.flush()
    missing = [line for line in found if not line.ok]
    for line in missing:
        print(f"assay doctor: {line.topic}: {line.text}", file=sys.stderr)
    return console.UNUSABLE if missing else console.DONE


def _attack(level: str | None) -> int:
    canaries = machine.module("rollouts.sandbox.canaries")
    if canaries is None:
        print("assay doctor: --attack needs rollouts.sandbox, which is not here", file=sys.stderr)
        return console.UNUSABLE
    outcomes = canaries.run_all(level)
    for outcome in outcomes:
        if not outcome.stopped:
            print(f"open: {outcome.name}: {outcome.detail}")
    stopped = sum(outcome.stopped for outcome in outcomes)
    print(f"{'attacks':<10} level {outcomes[0].level}: {stopped} of {len(outcomes)} stopped")
    return int(stopped < len(outcomes))
