"""Numbers and words of an original: one reading only, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("duckdb")

from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.proof.forms import opened
from data_gen.proof.marks import number, tidy_words, words
from data_gen.proof.original import NotProvable, Original


def numbers_of(folder: Path, text: str, name: str = "b") -> list[float | None]:
    path = folder / "t.csv"
    path.write_text(text, encoding="utf-8")
    table = opened(Original(path))
    made = number(table, name)
    return [row[0] for row in table.all(f"select {made} from {table.table} order by rn")]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a;b\nx;36,0\ny;5,2475\nz;1.234,5\n", [36.0, 5.2475, 1234.5]),
        ('a,b\nx,"1,234"\ny,"2,345,678"\n', [1234.0, 2345678.0]),
        ('a,b\nx,"1,234"\ny,"2,3"\n', [1.234, 2.3]),
        ("a\tb\nx\t1 234,5\ny\t1\u00a0234,5\n", [1234.5, 1234.5]),
        ("a;b\nx;1'234.5\ny;7.25\n", [1234.5, 7.25]),
        ("a;b\nx;1500\ny;1.234\n", [1500.0, 1.234]),  # whole thousands stand there without a mark
        ("a;b\nx;$1.50\ny;-$2.50\n", [1.5, -2.5]),
        ("a,b\nx,1e+3\ny,.5\nz,NaN\n", [1000.0, 0.5, None]),
        ("a;b\nx;12%\ny;5,5%\n", [12.0, 5.5]),
    ],
)
def test_marks_are_decided_by_cells_that_allow_one_reading(
    tmp_path: Path, text: str, wanted: list[float | None]
) -> None:
    assert numbers_of(tmp_path, text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "a;b\nx;1,234\ny;2,345\n",
        "a;b\nx;1.234\ny;2.345\n",
        "a;b\nx;1,5\ny;1.5\n",
        "a;b\nx;1,234\ny;2.345\n",
        "a;b\nx;tall\ny;short\nz;3\n",
        "a;b;c\nx;1,234;0,5\ny;2,345;3,2\n",  # another column says nothing of this one
        "a,b\nx,1.234\ny,200\n",
        'a,b\nx,"1,234"\ny,"2,345"\n',
        "a,b\nx,1.5\ny,M\nz,12\nw,4\nv,5\n",
        "a,b\nx,-999\ny,3\nz,12\n",
        "a,b\nx,999\ny,3\nz,12\nw,999\n",
        "a,b\nx,12E3\ny,205\nz,3\n",
        "a,b\nx,007\ny,12\nz,3\n",
        "a,b\nx,01.2019\ny,02.2019\n",
        "a,b\nx,10.1.1.1\ny,10.1.1.2\n",
        "a,b\nx,1234567890123456789\ny,2\n",
        "a,b\nx,$1\ny,€2\n",
        "a,b\nx,5%\ny,2\n",
    ],
)
def test_what_allows_two_readings_is_not_provable(tmp_path: Path, text: str) -> None:
    with pytest.raises(NotProvable):
        numbers_of(tmp_path, text)


@settings(deadline=None, max_examples=60)
@given(
    values=st.lists(st.integers(-9_999_999, 9_999_999), min_size=3, max_size=12),
    digits=st.integers(0, 4),
    marks=st.sampled_from([(",", "."), (",", ""), (",", " "), (".", ""), (".", ","), (".", "'")]),
    sep=st.sampled_from([";", "\t", ","]),
)
def test_a_number_is_read_as_it_was_meant_or_not_at_all(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[int],
    digits: int,
    marks: tuple[str, str],
    sep: str,
) -> None:
    decimal, group = marks
    cells: list[str] = []
    for value in values:
        text = f"{value / 10**digits:,.{digits}f}".replace(",", "_").replace(".", decimal)
        cells.append(text.replace("_", group))
    rows = [f'n{place}{sep}"{cell}"' for place, cell in enumerate(cells)]
    plain = all(abs(v) < 1000 * 10**digits for v in values) and digits == 3
    try:
        found = numbers_of(tmp_path_factory.mktemp("n"), f"a{sep}b\n" + "\n".join(rows) + "\n")
    except NotProvable:
        return
    if sep == "," and decimal == "," and (plain or not any(_open(c) is False for c in cells)):
        return  # between commas, 1,234 groups thousands by convention
    meant = [v / 10**digits for v in values]
    codes = {99.0, 999.0, 9999.0, 99999.0, 999999.0, 9999999.0}
    for one, other in zip(found, meant, strict=True):
        assert one == pytest.approx(other, rel=1e-12) or (one is None and abs(other) in codes)


def _open(cell: str) -> bool | None:
    """Whether a cell could group thousands (True), cannot (False), or has no comma."""
    if "," not in cell:
        return None
    before, _, after = cell.lstrip("-").partition(",")
    return len(after) == 3 and 1 <= len(before) <= 3 and before[0] != "0"


def test_a_number_that_is_one_among_others_is_no_code(tmp_path: Path) -> None:
    assert numbers_of(tmp_path, "a,b\nx,99\ny,90\nz,31\n") == [99.0, 90.0, 31.0]


def test_values_that_may_be_one_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for cells in (("food", "FOOD"), ("São", "Sao"), ("a b", "a  b")):
        path.write_text("a,b\n" + "".join(f"{c},{i}\n" for i, c in enumerate(cells)), "utf-8")
        with pytest.raises(NotProvable, match="may be one value"):
            words(opened(Original(path)), "a")


def test_words_have_single_spaces_and_no_word_for_no_value(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,"x  y"\n2,NA\n3,TRUE\n4, z \n')
    table = opened(Original(path))
    made = words(table, "b")
    found = [r[0] for r in table.all(f"select {made} from {table.table} order by rn")]
    assert found == ["x y", None, "True", "z"]


def test_numbers_taken_for_words_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b\nx;10,5\ny;11,5\n")
    with pytest.raises(NotProvable, match="taken for words"):
        words(opened(Original(path)), "b")


def test_what_the_user_says_counts(tmp_path: Path) -> None:
    (tmp_path / "tables.yaml").write_text('"*.csv": {decimal: ",", missing: {b: ["7,5", 8]}}')
    assert numbers_of(tmp_path, "a;b\nx;1,234\ny;2,345\nz;8\n") == [1.234, 2.345, None]


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ('{b: ","}', [1234, 2345]),
        ('{b: "."}', [1.234, 2.345]),
        ('{a: ".", "*": ","}', [1234, 2345]),
    ],
)
def test_the_mark_of_one_column_is_the_users(
    tmp_path: Path, rule: str, wanted: list[float]
) -> None:
    (tmp_path / "tables.yaml").write_text(f'"*.csv": {{decimal: {rule}}}')
    assert numbers_of(tmp_path, "a;b\n0.5;1.234\n1.5;2.345\n") == wanted


def test_a_word_for_no_value_may_be_a_category(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,none\n2,labour\n3,NA\n")
    table = opened(Original(path))
    made = tidy_words(table.column("b"), ["none"])
    found = [r[0] for r in table.all(f"select {made} from {table.table} order by rn")]
    assert found == ["none", "labour", None]
