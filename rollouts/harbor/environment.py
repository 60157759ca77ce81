"""The jail as a Harbor environment: `harbor run --environment-import-path
rollouts.harbor.environment:JailEnvironment`, with no Docker and no root.

Needs the package `harbor` (Python 3.12 or newer) in the process, and Assay on its path. Settings
are `--environment-kwarg`s: `python`, the interpreter that stands in for the image's (default: the
one that runs Harbor); `offline=true` runs tasks that may use the network
without one; `workers`, how many commands run at a time.
"""

# The package harbor is not installed where this project is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
import sys
from pathlib import Path, PurePath
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult, SandboxBuildFailedError
from harbor.environments.capabilities import (
    EnvironmentCapabilities,
    EnvironmentResourceCapabilities,
)
from harbor.models.task.config import NetworkMode

from assay.task import TaskError
from rollouts.harbor import container
from rollouts.harbor.container import Container, tree
from rollouts.sandbox.model import worker_count
from rollouts.sandbox.pool import Pool

DAY_S = 86_400  # of a command without a bound of its own
_pools: dict[tuple[asyncio.AbstractEventLoop, int, str], Pool] = {}


class JailEnvironment(BaseEnvironment):
    """One trial's files in the jail. Each command has a jail of its own over them: what it leaves
    running ends with it, and no command has a network. Trials of an event loop share a pool."""

    _container: Container  # of a trial that was started

    def __init__(
        self,
        *args: Any,
        python: str = "",
        offline: bool | str = False,
        workers: int | str = 0,
        **kwargs: Any,
    ) -> None:
        self._python = python or sys.executable
        self._offline = str(offline).lower() in ("true", "1", "yes")
        self._workers = int(workers) or worker_count()
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        return "assay-jail"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(memory_limit=True)

    def _validate_definition(self) -> None:
        """Nothing here: what cannot be honoured ends its own trial (`start`), not the whole job."""

    async def start(self, force_build: bool) -> None:
        """A container is made anew for every trial, whatever `force_build` says."""
        try:
            if self.network_policy.network_mode == NetworkMode.PUBLIC and not self._offline:
                raise TaskError(
                    "network_mode public: the jail has no network; set no-network in task.toml, or "
                    "run the task without one with --environment-kwarg offline=true"
                )
            asked = self.task_env_config.model_dump()
            image = container.read_image(self.environment_dir, asked)
            container.refuse_lacking(image, self._python)
        except TaskError as error:
            raise SandboxBuildFailedError(f"{self.environment_dir}: {error}") from None
        key = (asyncio.get_running_loop(), self._workers, self._python)
        if key not in _pools:
            _pools[key] = Pool(container.container_config(*key[1:]))
        self._container = Container(_pools[key], image)

    async def stop(self, delete: bool) -> None:
        """Nothing to do: no process is left, and the files go with this object."""

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self._container.put(tree(Path(source_path), target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        self._container.put(tree(Path(source_dir), target_dir))

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        if "" not in (found := self._container.files(source_path)):
            raise FileNotFoundError(f"{source_path}: no such file in the environment")
        _save(found, Path(target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        Path(target_dir).mkdir(parents=True, exist_ok=True)
        _save(self._container.files(source_dir), Path(target_dir))

    async def exec(
        self,
        command: str,
        cwd: str | PurePath | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command. `user` is not heeded: the jail has one, who owns every file."""
        seconds, place = float(timeout_sec or DAY_S), str(cwd or "")
        ran = await self._container.run(command, seconds, place, self._merge_env(env))
        said = "\n".join(filter(None, [ran.stderr, ran.why]))
        return ExecResult(stdout=ran.stdout, stderr=said, return_code=ran.exit_code)


def _save(files: dict[str, bytes], target: Path) -> None:
    """Write files below a folder, or the one without a name at its place."""
    for name, data in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(data)
