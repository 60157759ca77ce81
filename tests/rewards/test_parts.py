"""Files in parts: together they are the whole, however they are cut."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.rows import Block, blocks
from rewards.parts import Part, lines_of, parts

LINES = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\n", b"\r\n", "é\u2028".encode()]))
SAME_FOLDER = (HealthCheck.function_scoped_fixture,)


@settings(deadline=None, suppress_health_check=SAME_FOLDER)
@given(LINES.map(b"".join), st.integers(1, 9), st.booleans())
def test_parts_of_any_size_are_the_lines_of_the_file(
    tmp_path: Path, data: bytes, size: int, marked: bool
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" * marked + data)
    jobs = list(parts([str(path)], size))
    found = [lines_of(job) for job in jobs]
    assert b"".join(found) == data
    whole = [line for one in found if one for line in one.removesuffix(b"\n").split(b"\n")]
    assert whole == (data.removesuffix(b"\n").split(b"\n") if data else [])
    if jobs:
        assert jobs[-1].position == path.stat().st_size


def test_what_cannot_be_read_from_the_middle_comes_in_blocks(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    plain.write_bytes(b"1\n2\n3")
    packed.write_bytes(gzip.compress(b"4\n5\n"))
    names = [str(plain), str(packed)]
    jobs = list(parts(names, 2))
    assert [type(job) for job in jobs] == [Part, Part, Part, Block]
    assert b"".join(map(lines_of, jobs)) == b"1\n2\n34\n5\n"
    assert jobs[-1].position == [*blocks(names)][-1].position
    assert {job.source for job in jobs} == set(names)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with pytest.raises(FileNotFoundError, match=r"x\.jsonl"):
        list(parts([str(path)]))
    path.write_bytes(b"1\n")
    job = next(parts([str(path)]))
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"x\.jsonl"):
        lines_of(job)
