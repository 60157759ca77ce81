"""What a job's script will be asked to run, read without running it: to refuse early.

A plan is checked when it is submitted, a job when it starts; both before anything waits for hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from configs.loader import ConfigError, load
from configs.schema import GrpoRunConfig, SftRunConfig

BACKENDS = {
    "sft": ("embedded", "deepspeed"),
    "grpo": ("embedded", "verl"),
    "grpo_multinode": ("verl",),
}


@dataclass(frozen=True)
class Asked:
    """A script's command, its backend, and its settings as they will be resolved."""

    command: str
    backend: str
    config: SftRunConfig | GrpoRunConfig


def asked(command: str, words: Sequence[str]) -> Asked:
    """From the arguments of a script: `sft`, `grpo` (one node) or `grpo_multinode`.

    Raises `ConfigError` for what the command itself would refuse.
    """
    known = BACKENDS[command]
    given: dict[str, str | None] = {"--backend": known[0], "--config": None}
    settings: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name in given:
            if not equals and not rest:
                raise ConfigError(f"{name}: its value is missing")
            given[name] = value if equals else rest.pop(0)
        elif word.startswith("-"):
            raise ConfigError(f"{word}: wanted --backend, --config or key=value")
        else:
            settings.append(word)
    backend = str(given["--backend"])
    if backend not in known:
        raise ConfigError(f"--backend {backend}: wanted {' or '.join(known)} here")
    if command == "sft":
        return Asked(command, backend, load(SftRunConfig, given["--config"], settings))
    return Asked(command, backend, load(GrpoRunConfig, given["--config"], settings))
