"""Commands that are killed, stopped, out of disk or started twice, at moments of their writing.

After a fault no file under a final name is broken, and the same command ends with the bytes of a
run that nothing disturbed. Training has tests of its own (tests/train/), and so have the builders
that go on from their work folders (tests/data_gen/cdr/).
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faulty import Fault, command, ended, start
from mixed_tasks import refinement

from assay.task import write_jsonl

TIMES = re.compile(r"^(seconds|wall_s|tool_s|run_s|queue_s|spawn_s|code)$|^time/")
JOURNALS = ("rows.jsonl", "r.jsonl")  # a kill may tear the last line; the next start cuts it off
RECORDS = ("provenance.json", "results.json", "eval.json")  # tell of the run, too: only read
_ASK = "--tasks in/tasks.jsonl --model canned:in/canned.jsonl"
COMMANDS = {
    "tasks demo": "tasks demo --out out/t --seed 1 train_sft=6 train_rl=4 heldout=6 validation=2 "
    "difficulty=easy",
    "execute": "execute in/recipes.jsonl.gz out/gold.jsonl --workers 2",
    "score": "score --tasks in/tasks.jsonl in/outputs.jsonl --out out/s.jsonl.gz --workers 2",
    "rollout": f"rollout {_ASK} --out out/r.jsonl sampling.n=2 --seed 3",
    "eval": f"eval {_ASK} --out out/e",
    "select": "select --rollouts in/rollouts.jsonl --strategy av --valid 0 --out out/s.parquet",
    "slurm shard": "slurm shard out=out --input in/recipes.jsonl.gz --shards 2 --index 1 -- "
    "execute {in} {out} --workers 1",
}
ALONE = ("tasks demo", "rollout", "eval", "slurm shard")  # one process at a time in their folder


@dataclass(frozen=True)
class World:
    """Inputs, and what each command makes of them when nothing disturbs it."""

    top: Path
    whole: dict[str, tuple[dict[str, Any], int, int]]

    def begin(self, folder: Path) -> Path:
        (folder / "out").mkdir(parents=True)
        (folder / "in").symlink_to(self.top / "in")
        return folder

    def run(self, name: str) -> tuple[dict[str, Any], int, int]:
        """(files, changes of files, bytes of the largest file)."""
        if name not in self.whole:
            folder = self.begin(self.top / name.replace(" ", "-"))
            done = command(COMMANDS[name].split(), folder)
            assert done.status == 0, done.said
            size = max(p.stat().st_size for p in (folder / "out").rglob("*"))
            self.whole[name] = files(folder), done.changes, size
        return self.whole[name]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    top = tmp_path_factory.mktemp("faults")
    place = top / "in"
    place.mkdir()
    tasks = [refinement(n, "KEEP", n % 2) for n in range(8)]
    write_jsonl(place / "tasks.jsonl", [task.to_json() for task in tasks])
    said = "<status>KEEP</status><clean_text>no</clean_text>"
    rows = [{"id": t.id, "output": said} for t in tasks] * 100
    write_jsonl(place / "outputs.jsonl", rows)
    steps = [{"operator": "clean_email_mapper"}, {"operator": "clean_ip_mapper"}]
    text = "Mail ana@acme.io from 10.0.0.1.\n"
    recipes = [{"id": n, "input_text": text * (1 + n % 5), "recipe": steps} for n in range(150)]
    lines = "".join(json.dumps(row) + "\n" for row in recipes)
    (place / "recipes.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    (place / "canned.jsonl").write_text(json.dumps({"match": "", "replies": [said]}) + "\n")
    made = World(top, {})
    made.run("rollout")
    os.replace(top / "rollout" / "out" / "r.jsonl", place / "rollouts.jsonl")
    return made


def files(folder: Path) -> dict[str, Any]:
    """What every file says, without times; journals and what a kill may leave are not looked at
    twice. A file that cannot be read to its end raises."""
    found: dict[str, Any] = {}
    for path in sorted((folder / "out").rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or any(part.startswith(".") for part in path.parts[-2:]):
            continue
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        if path.suffix == ".parquet":
            import pyarrow.parquet as parquet

            found[name] = parquet.read_table(path).to_pylist()
        elif path.suffix == ".json":
            said = timeless(json.loads(data))
            found[name] = path.name in RECORDS or said
        elif ".jsonl" in path.suffixes:
            whole = data[: data.rfind(b"\n") + 1]
            assert whole == data or path.name in JOURNALS, f"{name} is cut off"
            found[name] = [timeless(json.loads(line)) for line in whole.splitlines()]
        else:
            found[name] = len(data) > 0 and data.rstrip()[-7:]
    return found


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if not TIMES.search(k)}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def again(name: str, folder: Path, world: World) -> None:
    """The same command ends as if nothing had been."""
    files(folder)
    done = command(COMMANDS[name].split(), folder)
    assert done.status == 0, done.said
    assert files(folder) == world.run(name)[0]
    assert not list((folder / "out").rglob("*.tmp"))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_begins_anew_or_goes_on(name: str, world: World, tmp_path: Path) -> None:
    changes = world.run(name)[1]
    for at in (changes // 2, changes - 1):
        folder = world.begin(tmp_path / str(at))
        done = command(COMMANDS[name].split(), folder, Fault(signal.SIGKILL, max(at, 1)))
        assert done.status == -signal.SIGKILL
        again(name, folder, world)


@pytest.mark.parametrize("name", ["tasks demo", "score", "rollout", "eval"])
def test_term_and_a_full_disk_end_a_command_cleanly(
    name: str, world: World, tmp_path: Path
) -> None:
    _, changes, size = world.run(name)
    faults = {
        "term": (Fault(signal.SIGTERM, max(1, changes // 2)), (0, 75, 143), "TERM|asked"),
        "full": (Fault(most=size // 2), (1, 2), "File too large|space"),
    }
    for kind, (fault, statuses, why) in faults.items():
        folder = world.begin(tmp_path / kind)
        done = command(COMMANDS[name].split(), folder, fault)
        assert done.status in statuses and "Traceback" not in done.said, done.said
        assert done.status == 0 or re.search(why, done.said), done.said
        again(name, folder, world)


@pytest.mark.parametrize("name", ALONE)
def test_a_second_process_is_refused_in_a_sentence(name: str, world: World, tmp_path: Path) -> None:
    words, folder = COMMANDS[name].split(), world.begin(tmp_path / "two")
    first = start(words, folder, Fault(signal.SIGSTOP, world.run(name)[1] // 2 + 1))
    status = Path(f"/proc/{first.pid}/stat")
    while first.is_alive() and status.read_text().rpartition(")")[2].split()[0] != "T":
        pass
    second = ended(start(words, folder, name="second"), folder, "second")
    os.kill(first.pid, signal.SIGCONT)
    assert ended(first, folder).status == 0
    assert second.status in (1, 2) and re.search("another|running", second.said), second.said
    again(name, folder, world)
