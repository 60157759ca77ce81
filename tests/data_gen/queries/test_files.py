"""Tables in every form of file: found, read by the expression that gold pipelines use, written."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

pd = pytest.importorskip("pandas")
pytest.importorskip("openpyxl")
pytest.importorskip("pyarrow")

from lake_files import FORMS, frame, lake_of_all  # noqa: E402
from proof_lake import question  # noqa: E402

from assay.tables.load import load  # noqa: E402
from assay.task import Task  # noqa: E402
from data_gen.queries.carried import Carried, export_carried, form_of, plain  # noqa: E402
from data_gen.queries.files import top_lines, write_frames  # noqa: E402
from data_gen.queries.lake import Lake, open_lake  # noqa: E402
from data_gen.queries.lake_build import (  # noqa: E402
    FULL,
    Draft,
    LakeBuilder,
    LakeTally,
)
from data_gen.queries.lake_checks import refusal, validate  # noqa: E402
from data_gen.queries.lake_questions import question_for  # noqa: E402
from data_gen.queries.lake_steps import NoQuestion  # noqa: E402
from data_gen.queries.ops import Clean, Figure, Load  # noqa: E402
from rollouts.krama.index import describe, index_lake, snippet  # noqa: E402
from rollouts.sandbox.model import Config  # noqa: E402
from rollouts.sandbox.pool import Pool  # noqa: E402


def test_every_form_is_found_and_read_back(tmp_path: Path) -> None:
    lake = open_lake(lake_of_all(tmp_path / "lake"))
    assert set(lake.refused) == {"."}  # tables.yaml is no table
    tables = {t.path: t for t in lake.tables if t.reading.part != "More"}
    assert len(lake.tables) == len(tables) + 1 == len(FORMS) + 1
    for number, layout in enumerate(FORMS):
        table = tables[layout.path]
        want = frame(number).rename(columns={"Height": f"Height {number}"})
        assert (table.rows, list(table.columns)) == (len(want), list(want.columns))
        assert (table.years, table.groups, table.names) == (("Built",), ("Kind",), ("Name",))
        assert table.numbers == (f"Height {number}", "Cost") and table.totals == ("Cost",)
        got = load(table.reading, lake.folder)
        assert got["Kind"].tolist() == want["Kind"].tolist()
        reading: Any = table.reading
        if layout.form in ("csv", "excel"):
            place = lake.folder / layout.path
            top = top_lines(place, layout.form, reading.part, reading.skip, reading.encoding)
            assert top == layout.top
    assert {t.said for t in lake.tables if t.reading.form == "excel"} == {
        "sheet 'Homes' of book.xlsx",
        "sheet 'More' of book.xlsx",
    }


def test_files_are_the_same_bytes_twice_and_the_table_the_same_in_any(tmp_path: Path) -> None:
    digests: set[str] = set()
    for layout in FORMS:
        for out in ("a", "b"):
            write_frames(tmp_path / out, [(layout, frame())])
        assert (tmp_path / "a" / layout.path).read_bytes() == (
            tmp_path / "b" / layout.path
        ).read_bytes()
    digests = {t.digest for t in open_lake(tmp_path / "a").tables}
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
    refused = open_lake(lake).refused
    assert "no readable parquet file" in refused["broken.parquet"]
    assert "holds objects or lists" in refused["deep.json"]


def tasks_over_all(lake: Lake) -> list[Task]:
    """One validated and proved task for every file of the lake."""
    found: dict[str, Task] = {}
    builder = LakeBuilder("train", 1, 0, FULL, LakeTally(), None)
    for table in lake.tables:
        for draw in range(60):
            kind = ("one_number", "group_values")[draw % 2]
            try:
                question = question_for([table], kind, draw)
            except NoQuestion:
                continue
            values, _ = validate(question, lake.folder)
            if values is not None:
                assert refusal(question, values, lake.shelf) is None
                draft = Draft(lake, question, kind, draw)
                found.setdefault(table.path, builder.task(draft, values, question.text))
                break
    return list(found.values())


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="the sandbox is Linux only")
def test_gold_pipelines_give_their_answer_in_the_sandbox(tmp_path: Path) -> None:
    lake = open_lake(lake_of_all(tmp_path / "lake"))
    for path in [lake.folder, *lake.folder.iterdir()]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    tasks = tasks_over_all(lake)
    assert len(tasks) == len(FORMS)

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
    monkeypatch.setattr("data_gen.queries.carried.PACKAGES", ())
    kinds = {form_of("owner", f"t{i}", 200).form for i in range(80)}
    assert kinds == {"csv", "excel", "json", "lines", "parquet", "html"}
    assert form_of("owner", "t1", 200) == form_of("owner", "t1", 200)
    large = {form_of("owner", f"t{i}", 4000).form for i in range(80)}
    assert large == {"csv", "parquet"}
    assert plain(frame().head(9)) is None
    assert plain(frame().assign(Many=[[1]] * 150)) is None
    pytest.importorskip("sklearn")
    for out in ("a", "b"):
        export_carried(tmp_path / out)
    said = json.loads((tmp_path / "a" / "SOURCES.json").read_text("utf-8"))
    names = [n for n in said if said[n]["from"] == "sklearn"]
    assert 4 <= len(names) <= 8  # some lie in two files
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    lakes = {Path(name).parts[0] for name in names}
    for lake in lakes:
        assert not any("cannot" in why for why in open_lake(tmp_path / "a" / lake).refused.values())


def gaps(shift: int) -> Any:
    """A table with numbers that are missing, in numbers of three decimals."""
    depth = [None if i % 7 == 2 else 1 + (i * 37 + shift) % 800 / 1000 for i in range(90)]
    return frame(shift).head(90)[["Name", "Kind", "Cost"]].assign(Depth=depth)


def test_what_a_builder_writes_for_no_value_is_settled_in_both_readers_and_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from functools import partial

    items = [Carried("own", f"t{n}", "CC0", partial(gaps, n)) for n in range(24)]
    monkeypatch.setattr("data_gen.queries.carried._owners", lambda: {"own": items})
    (folder,) = export_carried(tmp_path / "out")
    lake, index = open_lake(folder), index_lake(folder)
    assert not [d for t in lake.tables for d in t.doubts]
    assert not any(d for found in lake.doubts.values() for d in found)
    rules = yaml.safe_load((folder / "tables.yaml").read_text("utf-8"))
    words = {path: rule["missing"]["Depth"][0] for path, rule in rules.items() if "missing" in rule}
    assert set(words.values()) == {"M", "n/a", "-9999", "-999"}
    deep = [t for t in lake.tables if "Depth" in t.numbers]
    assert len(deep) == 24
    for table in deep:
        number = int(table.path.partition(".")[0].partition("_")[0][1:])
        want = {c: d for c, d in zip(*(gaps(number)[k] for k in ("Name", "Depth")), strict=True)}
        right = [want[n] for n in table.values["Name"] if want[n] == want[n]]
        mean = round(sum(right) / len(right), 3)
        steps = [Load(table.source("Name", "Depth")), Clean("Depth"), Figure("Depth", "mean", 3)]
        asked = question(lake, steps)
        values, why = validate(asked, lake.folder)
        assert values and abs(values["main-task"] - mean) < 0.002, (table.path, why)
        assert refusal(asked, values, lake.shelf) is None
    for path, word in words.items():
        told = describe(path, index.files[path])
        assert f"{word!r}: no value" in told and "in doubt" not in told
