"""Tables in every form of file: found, read by the expression that gold pipelines use, written."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("openpyxl")
pytest.importorskip("pyarrow")

from lake_files import FORMS, frame, lake_of_all  # noqa: E402

from data_gen.krama.lakes.carried import export_carried, form_of, plain  # noqa: E402
from data_gen.krama.lakes.files import Layout, layouts, read_frame, top_lines, write_frames  # noqa: E402
from data_gen.krama.lakes.generate import to_task  # noqa: E402
from data_gen.krama.lakes.lake import Lake, open_lake  # noqa: E402
from data_gen.krama.lakes.questions import KINDS, question_for  # noqa: E402
from data_gen.krama.lakes.steps import NoQuestion  # noqa: E402
from data_gen.krama.lakes.tables import read_tables  # noqa: E402
from data_gen.krama.lakes.verify import validate  # noqa: E402
from rewards.task import Task  # noqa: E402
from rollouts.krama.index import index_lake, snippet  # noqa: E402
from rollouts.sandbox.model import Config  # noqa: E402
from rollouts.sandbox.pool import Pool  # noqa: E402


def test_every_form_is_found_and_read_back(tmp_path: Path) -> None:
    lake = lake_of_all(tmp_path / "lake")
    for number, (layout, top) in enumerate(FORMS):
        found = layouts(lake, lake / layout.path)
        assert found[0] == layout
        assert top_lines(found[0], lake) == top
        got = read_frame(layout.load, lake)
        want = frame(number).rename(columns={"Height": f"Height {number}"})
        assert list(got.columns) == list(want.columns)
        assert got["Kind"].tolist() == want["Kind"].tolist()
        assert got[f"Height {number}"].tolist() == pytest.approx(want[f"Height {number}"].tolist())
    tables = read_tables(lake)
    assert len(tables) == 8  # two sheets
    assert {t.said for t in tables if t.layout.form == "excel"} == {
        "sheet 'Homes' of book.xlsx",
        "sheet 'More' of book.xlsx",
    }
    assert all((t.years, t.groups) == (("Built",), ("Kind",)) for t in tables)


def test_files_are_the_same_bytes_twice_and_the_table_the_same_in_any(tmp_path: Path) -> None:
    digests: set[str] = set()
    for layout, top in FORMS:
        for out in ("a", "b"):
            write_frames(tmp_path / out, [(layout, frame(), top)])
        assert (tmp_path / "a" / layout.path).read_bytes() == (
            tmp_path / "b" / layout.path
        ).read_bytes()
        digests |= {t.digest for t in read_tables(tmp_path / "a") if t.path == layout.path}
    assert len(digests) == 1


def test_an_index_shows_columns_of_json_and_parquet(tmp_path: Path) -> None:
    lake = lake_of_all(tmp_path / "lake")
    notes = index_lake(lake).files
    for name, kind in (
        ("records.json", "records"),
        ("rows.jsonl", "records"),
        ("typed.parquet", "parquet"),
    ):
        assert (notes[name].kind, notes[name].rows) == (kind, 150)
        assert [c.kind for c in notes[name].columns] == [
            "text",
            "text",
            "integer",
            "number",
            "integer",
        ]
    text = snippet(index_lake(lake), 2000, "", rows=1)
    assert "typed.parquet: parquet" in text and "Height 6: number" in text
    (lake / "broken.parquet").write_bytes(b"PAR1 no")
    (lake / "deep.json").write_text('[{"a": {"b": 1}}]', encoding="utf-8")
    again = index_lake(lake).files
    assert (again["broken.parquet"].kind, again["deep.json"].kind) == ("binary", "text")
    assert layouts(lake, lake / "broken.parquet") == [Layout("broken.parquet", "parquet")]
    assert not [t for t in read_tables(lake) if t.path in ("broken.parquet", "deep.json")]


def tasks_over_all(lake: Lake) -> list[Task]:
    """One validated task for every file of the lake."""
    found: dict[str, Task] = {}
    for draw in range(2000):
        kind = list(KINDS)[draw % len(KINDS)]
        try:
            question = question_for(lake.tables, kind, draw)
        except NoQuestion:
            continue
        values, _ = validate(question, lake.frames)
        if values is not None:
            task = to_task(lake, question, values, "train", kind, draw)
            found.setdefault(task.meta["gold_files"][0], task)
        if len(found) == 7:
            break
    return list(found.values())


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="the sandbox is Linux only")
def test_gold_pipelines_give_their_answer_in_the_sandbox(tmp_path: Path) -> None:
    lake = open_lake(lake_of_all(tmp_path / "lake"))
    for path in [lake.folder, *lake.folder.iterdir()]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    tasks = tasks_over_all(lake)
    assert len(tasks) == 7

    async def go() -> list[Any]:
        pool = Pool(replace(Config(), workers=2, shared={"lake": str(lake.folder)}))
        try:
            return [
                await pool.run(t.gold["pipeline"], seed=0, shared={"data": "lake"}) for t in tasks
            ]
        finally:
            await pool.close()

    for task, result in zip(tasks, asyncio.run(go()), strict=True):
        assert result.status == "ok", (task.meta["gold_files"], result.stderr)
        assert json.loads(result.stdout)["main-task"] == task.gold["answer"]


def test_carried_tables_lie_in_a_mix_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the extra `tables`, where it is installed, has more than one mixed lake holds
    monkeypatch.setattr("data_gen.krama.lakes.carried.PACKAGES", ())
    kinds = {form_of("owner", f"t{i}", 200)[0].form for i in range(60)}
    assert kinds == {"csv", "excel", "json", "lines", "parquet"}
    assert form_of("owner", "t1", 200) == form_of("owner", "t1", 200)
    assert {form_of("owner", f"t{i}", 4000)[0].form for i in range(60)} == {"csv", "parquet"}
    assert plain(frame().head(9)) is None
    assert plain(frame().assign(Many=[[1]] * 150)) is None
    pytest.importorskip("sklearn")
    for out in ("a", "b"):
        export_carried(tmp_path / out)
    said = json.loads((tmp_path / "a" / "SOURCES.json").read_text("utf-8"))
    names = [n for n in said if said[n]["from"] == "sklearn"]
    assert len(names) == 4
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert read_frame(
            layouts(tmp_path / "a", tmp_path / "a" / name)[0].load, tmp_path / "a"
        ).shape
