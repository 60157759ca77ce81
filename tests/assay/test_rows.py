"""Inputs and outputs by name: blocks of lines, compression, patterns, URLs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import tables

from assay.rows import blocks, matching, read_rows, total_bytes, write_rows, writing
from assay.task import TaskError

TABLES = tables("assay")


def lines_of(names: list[str], size: int = 64) -> list[tuple[str, int, bytes]]:
    """(input, number, line) of every line, put together from blocks."""
    found: list[tuple[str, int, bytes]] = []
    for block in blocks(names, size):
        assert block.data
        parts = block.data.split(b"\n")
        parts = parts[:-1] if parts[-1] == b"" else parts
        found += [(block.source, block.number + i, line) for i, line in enumerate(parts)]
    return found


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=40), max_size=30), st.booleans(), st.integers(1, 90))
def test_blocks_hold_whole_lines_and_count_them(
    tmp_path_factory: pytest.TempPathFactory, given: list[bytes], ended: bool, size: int
) -> None:
    lines = [b"x" + line.replace(b"\n", b" ") for line in given]
    path = tmp_path_factory.mktemp("b") / "a.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n" * (ended and bool(lines)))
    name = str(path)
    wanted = [(name, number, line) for number, line in enumerate(lines, 1)]
    assert lines_of([name], size) == wanted
    for block in blocks([name], size):
        start = block.position - len(block.data)
        assert path.read_bytes()[start : block.position] == block.data
    assert total_bytes([name]) == path.stat().st_size


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_torn_file_is_named(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    name = str(tmp_path / f"x.jsonl{ending}")
    with writing(name) as out:
        out.write(b"".join(b"%d %d\n" % (i, i * i * 7919) for i in range(50_000)))
    Path(name).write_bytes(Path(name).read_bytes()[: 60_000 if ending == ".gz" else 50_000])
    with pytest.raises(TaskError, match=r"x\.jsonl\.\w+: cannot be decompressed from line \d+ on"):
        lines_of([name])


def test_urls_of_memory_and_of_files(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    for base in ("memory://streams", f"file://{tmp_path}"):
        for number in (1, 2):
            with writing(f"{base}/part-{number}.jsonl.gz") as out:
                out.write(b"%d\n" % number)
        names = matching([f"{base}/part-*.gz"])
        assert [line for *_, line in lines_of(names)] == [b"1", b"2"]
    with pytest.raises(RuntimeError), writing("memory://streams/half") as out:
        out.write(b"half")
        raise RuntimeError
    with pytest.raises(TaskError, match="memory://streams/half: no such file"):
        lines_of(["memory://streams/half"])


def test_names_that_mean_nothing_or_the_same(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("x")
    here = str(tmp_path / "a[1].txt")
    assert matching([here]) == [here]  # a file, though it looks like a pattern
    with pytest.raises(TaskError, match=r"none-\*: no file matches"):
        matching([str(tmp_path / "none-*")])
    with pytest.raises(TaskError, match="given twice"):
        matching([here, str(tmp_path / "." / "a[1].txt")])


ROWS = TABLES["rows_rows"]
NAMES = ("r.jsonl", "r.jsonl.gz", "r.jsonl.zst", "r.parquet")


@pytest.mark.parametrize("name", NAMES)
def test_rows_come_back_from_what_their_name_says(name: str, tmp_path: Path) -> None:
    for folder in "ab":
        assert write_rows(tmp_path / folder / name, ROWS) == 3
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    found = [(w.removeprefix(str(tmp_path)), r) for w, r in read_rows(tmp_path / "a" / name)]
    word = "row" if name.endswith("parquet") else "line"
    assert found == [(f"/a/{name} {word} {n}", row) for n, row in enumerate(ROWS, 1)]


@pytest.mark.parametrize(
    ("name", "data", "said"), TABLES["what_is_wrong_with_a_file_is_one_sentence"]
)
def test_what_is_wrong_with_a_file_is_one_sentence(
    name: str, data: bytes, said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TaskError, match=said) as error:
        list(read_rows(tmp_path / name))
    assert "\n" not in str(error.value)


def test_marks_line_ends_and_blank_lines_are_no_part_of_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n  \n{"a": 2}')
    (tmp_path / "empty.jsonl").write_bytes(b"")
    found = list(read_rows(tmp_path / "a.jsonl"))
    assert found == [(f"{tmp_path}/a.jsonl line {n}", {"a": v}) for n, v in ((1, 1), (4, 2))]
    assert list(read_rows(tmp_path / "empty.jsonl")) == []


def test_a_parquet_file_gives_its_rows_as_lines_in_blocks(tmp_path: Path) -> None:
    made = [{"n": n, "text": "x" * (n % 50)} for n in range(3000)]
    name = str(tmp_path / "a.parquet")
    write_rows(name, made)
    found = lines_of([name], 4000)
    assert [json.loads(line) for *_, line in found] == made
    assert [number for _, number, _ in found] == [*range(1, 3001)]
