"""Corpora of every form, whole and in pieces, and the one that ships."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import tables

from configs.cdr import FieldsConfig
from data_gen import readers
from data_gen.cdr.documents import Found, found_in, sources_of
from data_gen.corpora import SHIPPED, read_corpus
from data_gen.readers import CorpusError, cut, find_sources, raw_rows, rows_before

TABLES = tables("readers")
ROWS = [{"id": f"d{n}", "text": f"text {n} \u2028 é"} for n in range(25)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()


def all_of(corpus: str | Path, fields: FieldsConfig | None = None, **how: Any) -> list[Found]:
    return list(found_in(cut(sources_of([corpus]), 1, 0), fields or FieldsConfig(), **how))


def ids(corpus: str | Path) -> list[str]:
    return [found.row["id"] for found in all_of(corpus) if found.row]


def read(corpus: Path, **how: Any) -> tuple[list[str], list[str]]:
    """The texts of a corpus, and what stands where there is none."""
    rows = all_of(corpus, **how)
    return [r.row["text"] for r in rows if r.row], [str(r.left()) for r in rows if not r.row]


def refuse(number: int, why: str) -> None:
    raise AssertionError(why)


@settings(max_examples=30)
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
            (Path(folder) / f"{number}.jsonl").write_bytes((data + "\n" * ends).encode())
        sources = find_sources(folder)
        got: list[Any] = []
        for piece in (p for shard in range(shards) for p in cut(sources, shards, shard)):
            before = rows_before(piece)
            got += [(piece.source.id, before + n, v) for n, v in raw_rows(piece, refuse)]
        files = enumerate(texts)
        assert got == [(f"{i}.jsonl", n, v) for i, own in files for n, v in enumerate(own, 1)]


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_compressed_files_and_parquet_are_read_alike(tmp_path: Path, shards: int) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq
    import zstandard

    packed = [zstandard.compress(part) for part in (LINES[:300], LINES[300:])]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(LINES))
    (tmp_path / "b.jsonl.zst").write_bytes(b"".join(packed))
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
    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/set/train/00.jsonl.gz", gzip.compress(LINES))
    memory.pipe("/bucket/set/dataset_infos.json", b"{}")
    places = [tmp_path / "x", f"{tmp_path}/**/one.*", f"file://{tmp_path}/x/*.jsonl"]
    for place in (*places, "memory://bucket/set", "memory://bucket/set/*/*.gz"):
        assert ids(place) == [row["id"] for row in ROWS], place
    memory.rm("/bucket", recursive=True)


def test_fields_by_other_names_and_paths(tmp_path: Path) -> None:
    path = tmp_path / "web.jsonl"
    rows = [{"uid": n, "doc": {"body": f"text {n}"}, "text": "not this"} for n in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"uid": 9}]))
    *found, last = all_of(path, FieldsConfig(text="doc.body", id="uid"))
    read_as = [(one.row["id"], one.row["text"]) for one in found if one.row]
    assert read_as == [(str(n), f"text {n}") for n in range(3)]
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


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_file_that_was_cut_off_loses_no_row_silently(tmp_path: Path, ending: str) -> None:
    zstandard = pytest.importorskip("zstandard")
    pack = gzip.compress if ending == "gz" else zstandard.compress
    data = pack("".join(f'{{"text": "{f"row {n} " * 40}"}}\n' for n in range(4000)).encode())
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(CorpusError, match=path.name):
        all_of(path)


@pytest.mark.parametrize("form", [".txt", ".json", ".jsonl", ".jsonl.gz"])
def test_texts_are_read_in_their_encoding_or_left_out(tmp_path: Path, form: str) -> None:
    """UTF-8, or what a mark says; anything else is left out until its encoding is said."""
    path = tmp_path / f"docs{form}"
    for encoding, text, marked in TABLES["texts_are_read_in_their_encoding"]:
        row: Any = {"id": "0", "text": text}
        said = json.dumps([row] if form == ".json" else row, ensure_ascii=False)
        data = (text if form == ".txt" else said).encode(encoding)
        path.write_bytes(gzip.compress(data) if form == ".jsonl.gz" else data)
        texts, left = read(path)
        assert texts == ([text] if marked else []) and len(left) == (not marked)
        assert marked or (path.name in left[0] and "encoding=" in left[0])
        assert read(path, encoding="" if marked else encoding) == ([text], [])


def test_only_lines_that_are_no_utf_8_or_lost_a_character_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = ['{"text": "é"}'.encode(), '{"text": "é"}'.encode("latin-1"), b'{"text": "e"}']
    lines += [json.dumps({"text": "c\ufffd"}, ensure_ascii=e).encode() for e in (True, False)]
    path.write_bytes(b"\n".join(lines))
    texts, left = read(path)
    assert texts == ["é", "e"]
    assert "line 2" in left[0] and len(left) == 3 and all("U+FFFD" in one for one in left[1:])


# --- the corpus of the demo


def test_the_shipped_corpus_is_whole_permissive_small_and_listed() -> None:
    corpus, documents = read_corpus(), read_corpus().documents
    assert len(documents) >= 300 and not corpus.problems and SHIPPED.stat().st_size < 600_000
    named = {"BSD-2-Clause", "BSD-3-Clause", "MIT", "Apache-2.0", "public domain"}
    assert {d.licence for d in documents} <= named
    texts = SHIPPED.with_name("LICENCES.txt").read_text("utf-8")
    for source, licence in {(d.source, d.licence) for d in documents}:
        assert licence == "public domain" or f"\n{source} ({licence})\n" in texts


def test_bad_rows_are_named_with_their_line_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    good = json.dumps({"id": "a", "text": "Some text."})
    path.write_text(f'{good}\n\n{{oops\n{{"id": "b"}}\n[]\n{good}\n{{"text": "Another."}}\n')
    corpus = read_corpus(path)
    assert [d.id for d in corpus.documents] == ["a", "row-7"]
    assert [p.split(":")[0] for p in corpus.problems] == [f"{path} line {n}" for n in (3, 4, 5, 6)]
    (tmp_path / "z").write_bytes(gzip.compress(path.read_bytes()))
    assert read_corpus(tmp_path / "z").sha256 == corpus.sha256
