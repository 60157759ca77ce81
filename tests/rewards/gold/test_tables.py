"""A recipe over a parquet file, and through Ray Data where that is installed."""

from __future__ import annotations

import json
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
    assert "5 rows: kept 2, dropped 1, failed 2" in capsys.readouterr().err
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
    pq.write_table(pa.table({"n": [1], "body": ["x"], "more": [2]}), tmp_path / "io.parquet")
    for words, said in (
        ((source, "--recipe", recipe), "no column 'text'; it has n, body"),
        ((source, "--recipe", recipe, "--text", "n"), "column 'n' holds int64, not text"),
        ((source,), "a parquet input needs --recipe"),
        ((f"{tmp_path}/i*.parquet", "--recipe", recipe, "--text", "body"), "its columns are not"),
    ):
        assert main([words[0], target, *words[1:]]) == 2
        assert said in capsys.readouterr().err and not Path(target).exists()


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


def test_several_parquet_files_become_one(tmp_path: Path) -> None:
    recipe, target = tmp_path / "recipe.yaml", str(tmp_path / "out.parquet")
    recipe.write_text("- clean_email_mapper\n- words_num_filter: {min_num: 2}\n")
    for name, texts in (("a", ["one a@b.co two", "one"]), ("b", ["three four", None])):
        table = pa.table({"text": pa.array(texts, pa.string())})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    words = ["--recipe", str(recipe), "--workers", "1"]
    assert main([str(tmp_path / "[ab].parquet"), target, *words]) == 3
    assert pq.read_table(target).to_pylist() == [{"text": "one  two"}, {"text": "three four"}]
    (error,) = (tmp_path / "out.parquet.errors.jsonl").read_text().splitlines()
    assert json.loads(error)["id"] == 3  # counted over all files
