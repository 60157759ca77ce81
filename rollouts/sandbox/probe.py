"""What this machine can enforce, found by doing it: for `assay doctor` and the metadata of runs."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from rollouts.sandbox.model import Config, SandboxError
from rollouts.sandbox.pool import Pool


def report(config: Config | None = None) -> dict[str, Any]:
    """The level, every layer, and a reason for each that is missing. Never raises.

    `level` is "none" where not even a filtered process can be started.
    """
    return asyncio.run(_report(config or Config(workers=1, min_level="limits")))


async def _report(config: Config) -> dict[str, Any]:
    try:
        async with Pool(config) as pool:
            found = await pool.report()
            result = await pool.run("print(6 * 7)")
    except SandboxError as error:
        return {"level": "none", "layers": {}, "missing": {"sandbox": str(error)}, "warm": False}
    return {**asdict(found), "warm": result.stdout == "42\n"}


def lines(found: dict[str, Any]) -> list[str]:
    """The report for people."""
    layers = ", ".join(f"{k}={v}" for k, v in found["layers"].items())
    text = [f"sandbox level: {found['level']} ({found.get('uid', '?')} user)", f"layers: {layers}"]
    return text + [f"missing {name}: {why}" for name, why in found["missing"].items()]
