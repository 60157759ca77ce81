"""A recipe over a parquet file, and through Ray Data where that is installed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from front import command

main = command("execute")


pa = pytest.importorskip("pyarrow", reason="needs the parquet extra")
pq = pytest.importorskip("pyarrow.parquet", reason="needs the parquet extra")

RECIPE = "recipe:\n- clean_html_mapper\n- clean_links_mapper\n- words_num_filter: {min_num: 2}\n"
TEXTS = ["one two http://a.b/c", "one", None, "<" * 400_000, "three four"]


def files(tmp_path: Path, texts: list[str | None]) -> tuple[str, str, str]:
    source, recipe = tmp_path / "in.parquet", tmp_path / "recipe.yaml"
    table = pa.table({"n": list(range(len(texts))), "body": texts})
    pq.write_table(table, source, row_group_size=2)
    recipe.write_text(RECIPE)
    return str(source), str(tmp_path / "out.parquet"), str(recipe)


def test_kept_rows_are_written_and_failed_ones_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target, recipe = files(tmp_path, TEXTS)
    options = ["--recipe", recipe, "--text", "body", "--deadline", "0.5", "--workers", "2"]
    assert main([source, target, *options]) == 3
    said = re.split(r"^(?=assay execute: \d+ rows:)", capsys.readouterr().err, flags=re.M)[
        1
    ].splitlines()
    assert said[0] == "assay execute: 5 rows: kept 2, dropped 1, failed 2"
    assert [line.split()[:5] for line in said[2:5]] == [
        ["clean_html_mapper", "3", "0", "0", "0"],
        ["clean_links_mapper", "3", "1", "0", "-12"],
        ["words_num_filter", "3", "0", "1", "0"],
    ]
    assert pq.read_table(target).to_pydict() == {"n": [0, 4], "body": ["one two ", "three four"]}
    errors = Path(target + ".errors.jsonl").read_text().splitlines()
    assert [json.loads(e)["id"] for e in errors] == [2, 3]
    assert "infrastructure: timeout" in errors[1]
    assert main([source, target, *options, "--all-rows"]) == 3
    table = pq.read_table(target).to_pydict()
    assert table["gold_status"] == ["KEEP", "DROP", None, None, "KEEP"]
    assert table["body"][1:4] == TEXTS[1:4]


def test_bad_tables_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target, recipe = files(tmp_path, ["a"])
    assert main([source, target, "--recipe", recipe]) == 2
    assert "no column 'text'; it has n, body" in capsys.readouterr().err
    assert main([source, target, "--recipe", recipe, "--text-column", "n"]) == 2
    assert "column 'n' holds int64, not text" in capsys.readouterr().err
    assert main([source, target]) == 2
    assert "a parquet input needs --recipe" in capsys.readouterr().err
    Path(source).write_text("no parquet")
    assert main([source, target, "--recipe", recipe]) == 2
    assert "not a parquet file" in capsys.readouterr().err
    assert not Path(target).exists()


@pytest.mark.slow
def test_ray_writes_every_row_under_its_status(tmp_path: Path) -> None:
    pytest.importorskip("ray.data", reason="needs the ray extra", exc_type=ImportError)
    source, target, recipe = files(tmp_path, TEXTS)
    options = ["--recipe", recipe, "--text-column", "body", "--deadline", "0.5", "--engine", "ray"]
    assert main([source, target, *options]) == 3
    by_status = {
        status: sorted(
            (row["n"], row["body"])
            for part in Path(target, f"gold_status={status}").glob("*.parquet")
            for row in pq.ParquetFile(part).read().to_pylist()
        )
        for status in ("KEEP", "DROP", "FAILED")
    }
    assert by_status == {
        "KEEP": [(0, "one two "), (4, "three four")],
        "DROP": [(1, "one")],
        "FAILED": [(2, None), (3, TEXTS[3])],
    }


def test_parquet_files_with_other_columns_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("- clean_email_mapper\n")
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["x"], "n": [1]}), tmp_path / "b.parquet")
    words = [str(tmp_path / "*.parquet"), str(tmp_path / "out" / "x.parquet")]
    (tmp_path / "out").mkdir()
    assert main([*words, "--recipe", str(recipe)]) == 2
    assert "b.parquet: its columns are not those of" in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())


def test_several_parquet_files_become_one(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("- clean_email_mapper\n- words_num_filter: {min_num: 2}\n")
    for name, texts in (("a", ["one a@b.co two", "one"]), ("b", ["three four", None])):
        pq.write_table(
            pa.table({"text": pa.array(texts, pa.string())}), tmp_path / f"{name}.parquet"
        )
    target = str(tmp_path / "out.parquet")
    words = ["--recipe", str(recipe), "--workers", "1"]
    assert main([str(tmp_path / "[ab].parquet"), target, *words]) == 3
    assert pq.read_table(target).to_pylist() == [{"text": "one  two"}, {"text": "three four"}]
    (error,) = (tmp_path / "out.parquet.errors.jsonl").read_text().splitlines()
    assert json.loads(error)["id"] == 3  # counted over all files
    with fsspec.open("memory://tables/a.parquet", "wb") as file:
        file.write((tmp_path / "a.parquet").read_bytes())
    assert main(["memory://tables/a.parquet", target, *words]) == 0
    assert pq.read_table(target).to_pylist() == [{"text": "one  two"}]
    assert not (tmp_path / "out.parquet.errors.jsonl").exists()
