"""Probing: the level that is found on simulated machines, refusal below the minimum."""

from __future__ import annotations

import json

import pytest
from harness import needs_root, on_machine, running, usable
from namespaces import is_root_without_namespaces

from rollouts.sandbox import jail
from rollouts.sandbox.model import Config, SandboxError

AS = ["user"] if jail.is_root() else []
ASK = (
    "import json; from rollouts.sandbox import pool, model;"
    "print(json.dumps(pool.machine_report(model.Config(workers=1, min_level={!r}, stack=()))))"
)


def report_on(kinds: list[str], minimum: str = "limits") -> dict[str, object]:
    done = on_machine([*AS, *kinds], "-c", ASK.format(minimum))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("kinds", "level", "why"),
    [
        ([], "full", ""),
        (["called_root"], "full", ""),
        (["masked_proc"], "full", "own_proc"),
        (["no_landlock"], "full", "landlock"),
        (["no_userns"], "confined", "user_ns"),
        (["docker"], "confined", "user_ns"),
        (["no_userns", "no_landlock"], "limits", "landlock"),
    ],
)
def test_each_poorer_machine_gets_its_level(
    reached: str, kinds: list[str], level: str, why: str
) -> None:
    usable("full", reached)
    found = report_on(kinds)
    assert found["level"] == level
    assert why in found["missing"] if why else not found["missing"]  # type: ignore[operator]
    assert found["warm"] is True


@needs_root
def test_the_node_s_root_under_another_name_is_refused() -> None:
    """`unshare -r` as root: what it runs keeps root's id, which nothing binds."""
    if is_root_without_namespaces():
        pytest.skip("no user namespace can be made here")
    done = on_machine(["called_root"], "-c", ASK.format("limits"))
    found = json.loads(done.stdout)
    assert found["level"] == "none" and "run as another user" in found["missing"]["sandbox"]


def test_no_silent_downgrade(reached: str) -> None:
    usable("full", reached)
    found = report_on(["no_userns", "no_landlock"], minimum="confined")
    assert found["level"] == "none" and "min_level=limits" in str(found["missing"])
    config = Config(workers=1, level="confined", landlock_abi=0, stack=())
    with pytest.raises(SandboxError, match="confined"), running(config):
        pass


def test_an_older_landlock_still_confines() -> None:
    config = Config(workers=1, level="confined", landlock_abi=1, stack=())
    with running(config) as (run, _):
        result = run("import os\nos.kill(os.getppid(), 0)")
        assert "PermissionError" in result.stderr
        assert run("print(open('/etc/shadow').read())").status == "error"
        assert result.layers["landlock_abi"] == 1
