import gzip
import json
from collections import Counter

import pytest

from data_gen.corpora import SHIPPED, CorpusError, read_corpus
from data_gen.demo.passages import PassagePool, canonical_hash, cut_passages

PERMISSIVE = {"BSD-2-Clause", "BSD-3-Clause", "MIT", "Apache-2.0", "public domain"}


def test_the_shipped_corpus_is_whole_permissive_small_and_listed():
    corpus = read_corpus()
    assert len(corpus.documents) >= 300 and not corpus.problems
    assert {d.licence for d in corpus.documents} <= PERMISSIVE
    assert SHIPPED.stat().st_size < 600_000
    listed = SHIPPED.with_name("SOURCES.md").read_text("utf-8")
    for source, count in Counter(d.source for d in corpus.documents).items():
        assert f"| {source} |" in listed and f"| {count} |" in listed


def test_every_licence_that_asks_for_its_text_has_it():
    texts = SHIPPED.with_name("LICENCES.txt").read_text("utf-8")
    for source, licence in {(d.source, d.licence) for d in read_corpus().documents}:
        assert licence == "public domain" or f"\n{source} ({licence})\n" in texts


def test_bad_rows_are_named_with_their_line_and_the_rest_is_read(tmp_path):
    path = tmp_path / "c.jsonl"
    good = json.dumps({"id": "a", "text": "Some text."})
    path.write_text(f'{good}\n\n{{oops\n{{"id": "b"}}\n[]\n{good}\n{{"text": "Another."}}\n')
    corpus = read_corpus(path)
    assert [d.id for d in corpus.documents] == ["a", "row-7"]
    assert [p.split(":")[0] for p in corpus.problems] == [f"{path} line {n}" for n in (3, 4, 5, 6)]


def test_gzip_and_plain_read_alike(tmp_path):
    data = b'{"id": "a", "text": "Some text."}\n'
    (tmp_path / "p").write_bytes(data)
    (tmp_path / "z").write_bytes(gzip.compress(data))
    assert read_corpus(tmp_path / "p") == read_corpus(tmp_path / "z")


@pytest.mark.parametrize("data", [b"", b"{}\n", b"\xff\xfe", b"\x1f\x8bbroken"])
def test_a_corpus_without_a_usable_row_is_refused_by_name(data, tmp_path):
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(CorpusError, match="bad"):
        read_corpus(tmp_path / "bad")
    with pytest.raises(CorpusError, match="no such file"):
        read_corpus(tmp_path / "none")


def test_passages_are_whole_sentences_within_the_limit():
    document = read_corpus().documents[0]
    passages = cut_passages(document, 150)
    assert passages
    for passage in passages:
        assert len(passage.text) <= 150 and passage.text[-1] in ".!?:"


def test_canonical_hash_ignores_what_cleaning_changes():
    assert canonical_hash("A <b>Bold</b>  move!") == canonical_hash("a bold move")
    assert canonical_hash("a bold move") != canonical_hash("a bald move")


def test_a_pool_never_draws_a_banned_sentence():
    document = read_corpus().documents[0]
    passages = cut_passages(document, 200, 1)
    banned = frozenset(canonical_hash(p.text) for p in passages[1:])
    assert len(PassagePool(passages, banned)) == 1
