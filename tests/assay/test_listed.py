"""Lists of words are read from beside the code, in their order, once."""

from __future__ import annotations

from pathlib import Path

from assay.listed import beside


def test_a_list_stands_in_the_folder_of_its_module(tmp_path: Path) -> None:
    module = str(tmp_path / "wording.py")
    (tmp_path / "words.yaml").write_text("b: [ä, c d]\na: ''\n", encoding="utf-8")
    first = beside(module, "words.yaml")
    assert list(first.items()) == [("b", ["ä", "c d"]), ("a", "")]
    assert beside(module, "words.yaml") is first
