"""What may be meant in two ways is in doubt, and used with the line that settles it; what is clear
is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from places import tables

pd = pytest.importorskip("pandas")


from assay.tables.load import load_file  # noqa: E402
from assay.tables.plan import Skipped  # noqa: E402

TABLES = tables("tables")


def column(cells: Sequence[object], name: str = "v", more: str = "") -> str:
    head = f"k;{name}\n" if not more else f"k;{name};{more}\n"
    return head + "".join(f"k{i};{c}\n" for i, c in enumerate(cells))


def read(folder: Path, text: str | bytes, rule: str = "", name: str = "t.csv") -> Any:
    """(codes with their columns, the frame or None)."""
    data = text if isinstance(text, bytes) else text.encode()
    (folder / name).write_bytes(data)
    (folder / "tables.yaml").write_text(f'"*": {rule}' if rule else "", encoding="utf-8")
    (found,) = load_file(folder / name, folder)
    skipped = isinstance(found, Skipped)
    assert not skipped or found.why
    doubts = found.doubts if skipped else found[0].doubts
    for doubt in doubts:  # its line, if one settles it, can be pasted under the file's pattern
        loaded = yaml.safe_load(f'"{name}":\n  {doubt.settle}\n')
        assert isinstance(loaded[name], dict) or not doubt.settle, doubt.settle
    return [(d.code, d.column) for d in doubts], None if skipped else found[1]


TOWNS = ["Москва", "Самара", "Казань", "Тула"] * 10
DAYS = [f"2019-{m:02}-{d:02}" for m in range(1, 13) for d in (3, 14)]
LABELS = ("merged_cells", "{fill_down: [v, w]}", ["Ulm"] * 4 + ["Hof"] * 2 + ["Ulm"] * 2)
ONCE = ["Ulm", "", "", "", "Hof", "", "", ""]
SPARSE = "v;k\n" + "".join(f"{v};{i}.5\n" for i, v in enumerate(ONCE))
LIRES = [f"{i % 9 + 1},{i * 37 % 900 + 100}" for i in range(40)]


@pytest.mark.parametrize(
    ("text", "code", "rule", "wanted"),
    [
        (column(TOWNS).encode("cp1251"), "encoding", "{encoding: cp1251}", TOWNS),
        (column(["Gdańsk", "Łódź"] * 9).encode("cp1250"), "encoding", "{encoding: cp1250}", None),
        (column(["重庆", "上海"] * 9).encode("gbk"), "encoding", "{encoding: gbk}", None),
        (column(["Köln"] * 5).encode() + b"k9;K\xf6ln\n", "encoding", "", None),
        (column(["Köln"] * 5).encode() + b"k9;K\xc3", "encoding", "", None),
        (column(["1.250", "2.375"] * 9), "number_mark", '{decimal: "."}', [1.25, 2.375] * 9),
        (column(["1.250", "2.375"] * 9), "number_mark", '{decimal: ","}', [1250, 2375] * 9),
        (column(["1.250", "415"] * 9), "number_mark", '{decimal: ","}', [1250, 415] * 9),
        (column(LIRES), "number_mark", '{decimal: "."}', None),
        (column(["1.5", "2,5"] * 9), "number_mark", "{text: [v]}", ["1.5", "2,5"] * 9),
        (column([999, 999, *range(150, 250, 5)]), "sentinel", "{missing: {v: []}}", None),
        (column([-9999, *range(20)]), "sentinel", "{missing: {v: ['-9999']}}", None),
        (column([-9999, *range(20)], name="price: in €"), "sentinel", "", None),
        (column(["k.A.", *range(20)]), "sentinel", "{missing: {v: [k.A.]}}", None),
        (column([*range(20), "geheim", 7]), "sentinel", "{missing: {v: [geheim]}}", None),
        (column(["-", "2020-01-02", "2020-01-03"]), "sentinel", "{missing: {v: ['-']}}", None),
        (column(["01/02/2020", "03/04/2020"]), "date_order", "{dates: {v: '%d/%m/%Y'}}", None),
        (column(["food", "FOOD", "food"]), "alike_values", "{spellings: {v: distinct}}", None),
        (
            column(["São Paulo", "Sao Paulo", "Sao Paulo"]),
            "alike_values",
            "{spellings: {v: {São Paulo: Sao Paulo}}}",
            ["Sao Paulo"] * 3,
        ),
        (column(["Ulm", "Ulm ", "Ulm"]), "alike_values", "{spellings: {v: {'Ulm ': Ulm}}}", None),
        ("v;V\n1;2\n3;4\n", "alike_names", "{names: [k, v]}", [2, 4]),
        ("v;v\n1;2\n3;4\n", "alike_names", "{names: [k, v]}", [2, 4]),
        ("k;v\n1;2\n3;4;5\n6;7\n", "wide_rows", "{ragged: skip}", [2, 7]),
        ("k;v;w\n1;2;3\n3;4\n6;7;8\n", "short_rows", "{drop_rows: [3]}", [2, 7]),
        ("k;v;w\n1;2;3\n3;4\n6;7;8\n", "short_rows", "{drop_rows: []}", [2, 4, 7]),
        ("k,v\nB, Ulm,1\nC, Bonn,2\nD, Hof,3\n", "layout", "{names: [k, w, v]}", [1, 2, 3]),
        ("k~v\nb~1\nc~2\nd~3\n", "layout", "{sep: '~'}", [1, 2, 3]),
        ("k w v\nb x 1\nc y 2\nd z 3\n", "layout", "{sep: '\\s+'}", [1, 2, 3]),
        ("k;;v\nb;x;1\nc;y;2\n", "layout", "{names: [k, w, v]}", [1, 2]),
        (column(["5.5-", "7.5", "9", "12-"]), "number_mark", "{text: [v]}", None),
        (column(["−5.5", "7.5", "9", "−12"]), "number_mark", "{text: [v]}", None),
        (column(["12,34,567", "7,000", "4,50,000"]), "number_mark", "{text: [v]}", None),
        (column(["<5", *range(20), "<5"]), "sentinel", "{missing: {v: [<5]}}", None),
        (column([-1, -1, -1, *range(5, 30)]), "sentinel", "{missing: {v: []}}", None),
        (column([-9, -9, -9, *range(5, 30)]), "sentinel", "{missing: {v: ['-9']}}", None),
        (column([998, 998, *range(5, 90)]), "sentinel", "{missing: {v: ['998']}}", None),
        (
            column(["KÃ¶ln", "Bonn"]),
            "encoding",
            "{spellings: {v: {KÃ¶ln: Köln}}}",
            ["Köln", "Bonn"],
        ),
        (column(["1.2k", "800", "950"]), "number_mark", "{text: [v]}", None),
        (column(["CHF 5.50", "CHF 7.25"]), "number_mark", "{text: [v]}", None),
        (column([*range(20), "(12.50)"]), "number_mark", "{text: [v]}", None),
        (column(["(0.50)", "(12.00)"]), "number_mark", "{text: [v]}", None),
        ("v;w;k\nUlm;a;1\n;;2\n;b;3\n;;4\nHof;c;5\n;;6\nUlm;d;7\n;;8\n", *LABELS),
        (column(["2020-01-02", "03.02.2020"] * 9), "date_order", "{dates: {v: false}}", None),
        (column(["2020-01-02", "2020-01-02 10:00"]), "date_order", "{dates: {v: false}}", None),
        (column(["Ulm", "Ulm\u200b", "Ulm"]), "alike_values", "{spellings: {v: distinct}}", None),
        (column(["a-b", "a\u2011b", "a-b"]), "alike_values", "{spellings: {v: distinct}}", None),
        (column(["beet", "b\u0435et", "beet"]), "alike_values", "{spellings: {v: distinct}}", None),
        (column([*DAYS, "9999-12-31"]), "sentinel", "{missing: {v: ['9999-12-31']}}", None),
        (column([*DAYS, "1900-01-01"]), "sentinel", "{missing: {v: []}}", None),
        (SPARSE, "merged_cells", "{fill_down: [v]}", ["Ulm"] * 4 + ["Hof"] * 4),
        (SPARSE, "merged_cells", "{fill_down: []}", None),
        (SPARSE, "merged_cells", "{missing: {v: ['']}}", None),
    ],
)
def test_in_doubt_until_it_is_settled(
    text: str | bytes, code: str, rule: str, wanted: list[Any] | None, tmp_path: Path
) -> None:
    doubts, frame = read(tmp_path, text)
    assert {c for c, _ in doubts} == {code}
    assert frame is None or not {c for _, c in doubts} & set(frame.columns)
    if rule:
        doubts, frame = read(tmp_path, text, rule)
        assert doubts == [] and "v" in frame.columns
        assert wanted is None or frame["v"].tolist() == wanted


def test_a_label_that_is_left_out_fills_nothing(tmp_path: Path) -> None:
    doubts, frame = read(tmp_path, SPARSE, "{fill_down: [v], drop_rows: [6]}")
    assert (doubts, frame) == ([], None)
    doubts, frame = read(tmp_path, SPARSE, "{fill_down: [v], drop_rows: [5]}")
    assert doubts == [] and frame["v"].tolist() == ["Ulm"] * 3 + ["Hof"] * 4


@pytest.mark.parametrize(("text", "wanted"), TABLES["what_is_clear_is_read"])
def test_what_is_clear_is_read(text: str, wanted: dict[str, list[Any]], tmp_path: Path) -> None:
    doubts, frame = read(tmp_path, text)
    assert doubts == []
    for name, values in wanted.items():
        assert [None if pd.isna(v) else v for v in frame[name].tolist()] == values


def test_utf_16_is_told_by_its_mark_or_zero_bytes(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        doubts, frame = read(tmp_path, column(["Köln", "Łódź"]).encode(encoding))
        assert doubts == [] and frame["v"].tolist() == ["Köln", "Łódź"]


TITLED = "Reports by area,\n,\nArea,Reports\nNorth,12\nSouth,7\nWest,31\n"


def test_texts_below_an_empty_row_are_all_notes(tmp_path: Path) -> None:
    below = ",\nAreas are those of the survey.,\n,\nSource: the survey office,\n"
    doubts, _ = read(tmp_path, TITLED + below)
    assert doubts == [("notes", "")]
    doubts, frame = read(tmp_path, TITLED + below, "{drop_rows: [7-10]}")
    assert doubts == [] and list(frame["Reports"]) == [12, 7, 31]


def test_names_below_a_title_and_names_of_groups_are_in_doubt(tmp_path: Path) -> None:
    rows = "".join(f"{n},0.{n},<,{n * 7}\n" for n in range(1, 9))
    text = f"Water of the beach,,,\n,,West end,\nDay,Rain,Tag,Tag\n{rows}"
    doubts, _ = read(tmp_path, text)
    assert doubts == [("header_rows", "")]
    names = "{skip: 2, names: [Day, Rain, West tag, West count]}"
    doubts, frame = read(tmp_path, text, names)
    assert doubts == [] and list(frame["West count"]) == [n * 7 for n in range(1, 9)]
