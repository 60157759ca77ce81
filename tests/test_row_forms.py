"""Every command reads and writes rows by name: plain, .gz, .zst and parquet are the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from front import command
from mixed_tasks import mixed, write_canned, write_mixed

from assay.rows import read_rows, write_rows
from assay.task import json_line
from train.examples import training_rows
from train.run.data import training_tasks

pytest.importorskip("zstandard")
pytest.importorskip("pyarrow")

FORMS = {".jsonl": b"{", ".jsonl.gz": b"\x1f\x8b", ".jsonl.zst": b"\x28\xb5\x2f\xfd"}
FORMS[".parquet"] = b"PAR1"
VARYING = ("wall_s", "tool_s", "seconds")


def rows_in(path: Path) -> list[dict[str, Any]]:
    """The rows of a file that is what its name says."""
    assert path.read_bytes().startswith(FORMS["." + path.name.partition(".")[2]]), path
    return [{k: v for k, v in row.items() if k not in VARYING} for _, row in read_rows(path)]


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The own family's file: a process knows a family by one file."""
    return str(write_mixed(tmp_path_factory.mktemp("sums"))[1])


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """The same tasks under every name."""
    for form in FORMS:
        write_rows(tmp_path / f"tasks{form}", [task.to_json() for task in mixed()])
    write_canned(tmp_path / "canned.jsonl")
    return tmp_path


def rolled(folder: Path, sums: str, tasks: str, out: str, *words: str) -> list[dict[str, Any]]:
    given = ["--tasks", str(folder / tasks), "--out", str(folder / out), "sampling.n=1"]
    model = ["--family", sums, "--model", f"canned:{folder / 'canned.jsonl'}"]
    assert command("rollout")([*given, *model, *words]) == 0
    assert not list(folder.glob("*.journal"))
    return rows_in(folder / out)


@pytest.mark.parametrize("form", FORMS)
def test_rollouts_are_the_same_from_and_to_every_form_and_gone_on_from(
    form: str, tasks: Path, sums: str
) -> None:
    wanted = rolled(tasks, sums, "tasks.jsonl", "whole.jsonl")
    first = rolled(tasks, sums, f"tasks{form}", f"r{form}", "--limit", "12")
    assert first == wanted[:12] and len(wanted) == len(mixed())
    first[0]["text"] = "kept as it was"
    write_rows(tasks / f"r{form}", first)
    assert rolled(tasks, sums, f"tasks{form}", f"r{form}") == [first[0], *wanted[1:]]


def test_rollouts_that_were_cut_off_go_on_from_their_journal(tasks: Path, sums: str) -> None:
    wanted = rolled(tasks, sums, "tasks.jsonl", "r.jsonl.gz", "--limit", "13")
    lines = [json_line(row) for _, row in read_rows(tasks / "r.jsonl.gz")][:12]
    (tasks / "r.jsonl.gz").unlink()
    (tasks / "r.jsonl.gz.journal").write_bytes(b"".join(lines) + b'{"task_id": "torn')
    assert rolled(tasks, sums, "tasks.jsonl", "r.jsonl.gz", "--limit", "13") == wanted


@pytest.mark.parametrize("form", FORMS)
def test_what_reads_tasks_reads_every_form(
    form: str, tasks: Path, sums: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, family = str(tasks / f"tasks{form}"), ["--family", sums]
    own = [row for _, row in read_rows(tasks / "tasks.jsonl") if row["family"] == "sums"]
    write_rows(tasks / f"own{form}", own)
    audit = ["--tasks", str(tasks / f"own{form}"), "--out", str(tasks / f"audit{form}")]
    assert command("audit")([*family, *audit]) in (0, 1)
    assert rows_in(tasks / f"audit{form}")
    plain = str(tasks / "tasks.jsonl")
    assert command("tasks", "check")([name, "--against", plain, *family]) == 1  # all is shared
    assert str(len(mixed())) in capsys.readouterr().out
    out = ["--out", str(tasks / "ev")]
    assert command("eval")(["--model", "gold", "--tasks", name, *family, *out]) == 0
    results = json.loads((tasks / "ev" / "results.json").read_text())
    assert len(results["rows"]) == len(mixed())
    export = ["verifiers", "--tasks", str(tasks / f"own{form}"), "--out", str(tasks / "ex")]
    assert command("export")([*export, *family]) == 0
    assert len(training_rows(name)) == len(training_tasks(name)) == len(mixed())
