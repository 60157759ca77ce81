"""Corpora of every form, whole and in pieces."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import TaskError
from configs.cdr import FieldsConfig
from data_gen import readers
from data_gen.cdr.sources import Found, found_in, sources_of
from data_gen.readers import CorpusError, cut, find_sources, raw_rows, rows_before

ROWS = [{"id": f"d{n}", "text": f"text {n} \u2028 é"} for n in range(25)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()


def all_of(corpus: str | Path, fields: FieldsConfig | None = None) -> list[Found]:
    return list(found_in(cut(sources_of([corpus]), 1, 0), fields or FieldsConfig()))


def ids(corpus: str | Path) -> list[str]:
    return [found.row["id"] for found in all_of(corpus) if found.row]


def refuse(number: int, why: str) -> None:
    raise AssertionError(why)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.text("ab\n\r é", max_size=12), max_size=8), min_size=1, max_size=3),
    st.integers(1, 9),
    st.booleans(),
)
def test_the_pieces_of_all_shards_are_the_files(
    texts: list[list[str]], shards: int, ends: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, lines in enumerate(texts):
            data = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
            path = Path(folder) / f"{number}.jsonl"
            path.write_bytes((data + "\n" * ends).encode())
        sources = find_sources(folder)
        got: list[Any] = []
        for shard in range(shards):
            for piece in cut(sources, shards, shard):
                before = rows_before(piece)
                got += [(piece.source.id, before + n, v) for n, v in raw_rows(piece, refuse)]
        want = [
            (f"{i}.jsonl", n, line)
            for i, lines in enumerate(texts)
            for n, line in enumerate(lines, 1)
        ]
        assert got == want


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_compressed_files_and_parquet_are_read_alike(tmp_path: Path, shards: int) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq
    import zstandard

    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(LINES))
    (tmp_path / "b.jsonl.zst").write_bytes(
        zstandard.compress(LINES[:300]) + zstandard.compress(LINES[300:])
    )
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "c.parquet", row_group_size=4)
    sources = find_sources(str(tmp_path))
    found = [
        (piece.source.id, number + rows_before(piece), row["id"])
        for shard in range(shards)
        for piece in cut(sources, shards, shard)
        for number, row in raw_rows(piece, refuse)
    ]
    names = ("a.jsonl.gz", "b.jsonl.zst", "c.parquet")
    assert found == [(name, n, f"d{n - 1}") for name in names for n in range(1, 26)]


def test_patterns_folders_and_urls(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    (tmp_path / "x" / ".cache").mkdir(parents=True)
    (tmp_path / "x" / "one.jsonl").write_bytes(LINES)
    (tmp_path / "x" / ".cache" / "two.jsonl").write_bytes(b'{"id": "no", "text": "hidden"}\n')
    (tmp_path / "x" / "README.md").write_text("a note")
    want = [row["id"] for row in ROWS]
    assert (
        ids(tmp_path / "x") == ids(f"{tmp_path}/*/*.jsonl") == ids(f"{tmp_path}/**/one.*") == want
    )
    assert ids(f"file://{tmp_path}/x") == ids(f"file://{tmp_path}/x/*.jsonl") == want
    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/set/train/00.jsonl.gz", gzip.compress(LINES))
    memory.pipe("/bucket/set/dataset_infos.json", b"{}")
    for url in ("memory://bucket/set", "memory://bucket/set/*/*.gz"):
        assert ids(url) == want
    (source,) = sources_of(["memory://bucket/set/train/00.jsonl.gz"])
    assert (source.name, source.id) == ("00.jsonl.gz", "00.jsonl.gz")
    memory.rm("/bucket", recursive=True)


@pytest.mark.parametrize(
    ("corpus", "said"),
    [
        ("{}/none", "no such file or folder; give a corpus"),
        ("{}/*.jsonl", "no file fits this pattern"),
        ("{}", "no file of documents"),
        ("memory://nothing/here", "no such file or folder"),
        ("gs://bucket/docs", "install gcsfs"),
        ("nosuch://bucket/docs", "a URL that fsspec knows"),
    ],
)
def test_a_corpus_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, corpus: str, said: str
) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(TaskError, match=said) as caught:
        find_sources(corpus.format(tmp_path))
    assert "\n" not in str(caught.value)


def test_fields_by_other_names_and_paths(tmp_path: Path) -> None:
    path = tmp_path / "web.jsonl"
    rows = [{"uid": n, "doc": {"body": f"text {n}"}, "text": "not this"} for n in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"uid": 9}]))
    fields = FieldsConfig(text="doc.body", id="uid")
    *found, last = all_of(path, fields)
    assert [(one.row["id"], one.row["text"]) for one in found if one.row] == [
        (str(n), f"text {n}") for n in range(3)
    ]
    assert last.row is None and str(last.left()) == "web.jsonl row 4: no text in doc.body; left out"


def test_a_line_without_end_is_left_out_and_never_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "LONGEST_LINE", 200)
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"text": "a"}\n{"text": "' + b"x" * 950 + b'"}\n{"text": "b"}\n')
    for shards in (1, 3):
        found = [one for i in range(shards) for one in found_in(cut(sources_of([path]), shards, i))]
        assert [one.row and one.row["text"] for one in found] == ["a", None, "b"]
        assert found[1].where == "c.jsonl line 2"


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet", "a.arrow"])
def test_a_broken_file_is_named(tmp_path: Path, name: str) -> None:
    pytest.importorskip("pyarrow")
    head = {"gz": b"\x1f\x8b", "zst": b"\x28\xb5\x2f\xfd"}.get(name.rsplit(".", 1)[1], b"")
    (tmp_path / name).write_bytes(head + b"broken" * 20)
    with pytest.raises(CorpusError, match=f"{name}: cannot be read"):
        all_of(tmp_path / name)


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_compressed_file_that_is_cut_off_loses_no_row_silently(
    tmp_path: Path, ending: str
) -> None:
    text = "".join(json.dumps({"text": f"row {n} " * 40}) + "\n" for n in range(4000)).encode()
    if ending == "zst":
        packed = pytest.importorskip("zstandard").ZstdCompressor().compress(text)
    else:
        packed = gzip.compress(text)
    path = tmp_path / f"docs.jsonl.{ending}"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(CorpusError, match=path.name):
        for piece in cut(sources_of([path]), 1, 0):
            list(raw_rows(piece, lambda number, why: None))


def found(corpus: Path, encoding: str = "") -> tuple[list[str], list[str]]:
    """The texts of a corpus, and what stands where there is none."""
    rows = list(found_in(cut(sources_of([corpus]), 1, 0), encoding=encoding))
    return [r.row["text"] for r in rows if r.row], [str(r.left()) for r in rows if not r.row]


def in_form(folder: Path, form: str, texts: list[str], encoding: str) -> Path:
    """A corpus of these texts in one of the forms that hold bare bytes."""
    path = folder / f"docs{form}"
    rows = [{"id": str(n), "text": text} for n, text in enumerate(texts)]
    if form == ".txt":
        path.write_bytes(texts[0].encode(encoding))
    elif form == ".json":
        path.write_bytes(json.dumps(rows, ensure_ascii=False).encode(encoding))
    else:
        said = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode(encoding)
        path.write_bytes(gzip.compress(said) if form.endswith(".gz") else said)
    return path


FORMS = (".txt", ".json", ".jsonl", ".jsonl.gz")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_unicode_with_or_without_a_mark_is_read(tmp_path: Path, form: str, encoding: str) -> None:
    text = "Zürich \u2028 käse"
    assert found(in_form(tmp_path, form, [text], encoding)) == ([text], [])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("encoding", ["latin-1", "cp1251", "gbk", "utf-16-le"])
def test_what_is_no_utf_8_is_left_out_until_its_encoding_is_said(
    tmp_path: Path, form: str, encoding: str
) -> None:
    text = {"cp1251": "Москва", "gbk": "重庆市"}.get(encoding, "Zürich")
    path = in_form(tmp_path, form, [text], encoding)
    texts, left = found(path)
    assert texts == [] and len(left) == 1
    assert path.name in left[0] and "encoding=" in left[0]
    assert found(path, encoding) == ([text], [])


def test_only_the_lines_that_are_no_utf_8_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = ['{"text": "é"}'.encode(), '{"text": "é"}'.encode("latin-1"), b'{"text": "e"}']
    path.write_bytes(b"\n".join(lines))
    texts, left = found(path)
    assert texts == ["é", "e"] and [one.partition(":")[0] for one in left] == ["a.jsonl line 2"]


@pytest.mark.parametrize("escaped", [True, False])
def test_a_text_that_lost_a_character_is_left_out(tmp_path: Path, escaped: bool) -> None:
    path = tmp_path / "a.jsonl"
    row = json.dumps({"text": "caf\ufffd", "id": 1}, ensure_ascii=escaped)
    path.write_text(f'{row}\n{{"text": "tea"}}', encoding="utf-8")
    texts, left = found(path)
    assert texts == ["tea"] and len(left) == 1 and "U+FFFD" in left[0]
