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

FORMS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
STARTS = {"jsonl": b"{", "gz": b"\x1f\x8b", "zst": b"\x28\xb5\x2f\xfd", "parquet": b"PAR1"}
VARYING = ("wall_s", "tool_s", "seconds")


def rows_in(path: Path) -> list[dict[str, Any]]:
    """The rows of a file that is what its name says."""
    assert path.read_bytes().startswith(STARTS[path.name.rpartition(".")[2]]), path
    return [{k: v for k, v in row.items() if k not in VARYING} for _, row in read_rows(path)]


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The own family's file: a process knows a family by one file."""
    return str(write_mixed(tmp_path_factory.mktemp("sums"))[1])


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """The same tasks under every name."""
    made = [task.to_json() for task in mixed()]
    for form in FORMS:
        write_rows(tmp_path / f"tasks{form}", made)
    write_canned(tmp_path / "canned.jsonl")
    return tmp_path


def rolled(folder: Path, sums: str, tasks: str, out: str, *words: str) -> int:
    given = ["--tasks", str(folder / tasks), "--out", str(folder / out), "sampling.n=1"]
    model = ["--family", sums, "--model", f"canned:{folder / 'canned.jsonl'}"]
    return command("rollout")([*given, *model, *words])


def test_rollouts_are_the_same_from_and_to_every_form(tasks: Path, sums: str) -> None:
    assert rolled(tasks, sums, "tasks.jsonl", "r.jsonl") == 0
    wanted = rows_in(tasks / "r.jsonl")
    assert len(wanted) == len(mixed())
    for form in FORMS[1:]:
        assert rolled(tasks, sums, f"tasks{form}", f"r{form}") == 0
        assert rows_in(tasks / f"r{form}") == wanted
        assert not list(tasks.glob("*.journal"))


@pytest.mark.parametrize("form", FORMS[1:])
def test_a_packed_file_of_rollouts_is_gone_on_from(form: str, tasks: Path, sums: str) -> None:
    out = tasks / f"r{form}"
    assert rolled(tasks, sums, "tasks.jsonl", out.name, "--limit", "12") == 0
    first = rows_in(out)
    assert len(first) == 12
    first[0]["text"] = "kept as it was"
    write_rows(out, first)
    assert rolled(tasks, sums, "tasks.jsonl", out.name) == 0
    found = rows_in(out)
    assert len(found) == len(mixed()) and found[0]["text"] == "kept as it was"


def test_rollouts_that_were_cut_off_go_on_from_their_journal(tasks: Path, sums: str) -> None:
    assert rolled(tasks, sums, "tasks.jsonl", "r.jsonl.gz", "--limit", "12") == 0
    out, journal = tasks / "r.jsonl.gz", tasks / "r.jsonl.gz.journal"
    lines = b"".join(json_line(row) for _, row in read_rows(out))
    out.unlink()
    journal.write_bytes(lines + b'{"task_id": "torn')
    assert rolled(tasks, sums, "tasks.jsonl", out.name, "--limit", "13") == 0
    assert len(rows_in(out)) == 13 and not journal.exists()


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
    assert len(training_rows(name)) == len(mixed())
    assert len(training_tasks(name)) == len(mixed())
