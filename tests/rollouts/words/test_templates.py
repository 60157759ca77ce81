"""Template files: what they may hold, how they are filled, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from configs.loader import ConfigError
from rollouts.environments import WORDS, read_prompts
from rollouts.words.templates import escaped, filled, hash_of, kind_of, ours, unfilled

KINDS = {name: kind_of(WORDS, name) for name in WORDS}


@given(st.text(), st.text())
def test_braces_and_values_come_out_as_they_went_in(text: str, value: str) -> None:
    assert filled(escaped(text), {}) == text
    assert filled(escaped(text) + "{x}" + escaped(text), {"x": value}) == text + value + text


@given(st.text(max_size=30), st.text(max_size=30))
def test_what_a_template_was_filled_with_is_found_again(one: str, other: str) -> None:
    template = "The whole: {whole}\n\nOnly this: {part}"
    found = unfilled(template, filled(template, {"whole": one, "part": other}))
    assert found is not None
    assert filled(template, found) == filled(template, {"whole": one, "part": other})
    assert unfilled(template, one) is None or "\n\nOnly this: " in one


@pytest.mark.parametrize("name", WORDS)
def test_our_own_files_are_valid_and_can_be_copied(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    copy = tmp_path / "own.yaml"
    copy.write_bytes(kind.ours.read_bytes())
    words = read_prompts(str(copy)).of(name)
    assert words.texts == ours(kind).texts and words.source == "own"
    assert words.hash == ours(kind).hash == hash_of(words.texts)[:16]
    assert set(words.texts) == set(kind.slots)


BROKEN = [
    ("direct", "Do {requirement}.", "refinement: direct: the text lacks {input}"),
    ("direct", "{requirement} {input} {gold}", "unknown place {gold}; known are {requirement}"),
    ("direct", "{requirement!r} {input}", "{requirement} is no place"),
    ("direct", "{requirement.x} {input}", "{requirement.x} is no place"),
    ("direct", "{requirement} {input} {", "Single '{' encountered"),
    ("direct", 3, "direct: wanted a text"),
    ("direct", None, "direct: wanted a text"),
    ("hello", "x", "refinement: unknown field hello; known are system, "),
]


@pytest.mark.parametrize(("field", "text", "said"), BROKEN)
def test_what_cannot_be_used_is_refused_in_a_sentence(
    field: str, text: object, said: str, tmp_path: Path
) -> None:
    texts = {**ours(KINDS["refinement"]).texts, field: text}
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({"refinement": texts}), encoding="utf-8")
    with pytest.raises(ConfigError) as found:
        read_prompts(str(path))
    assert str(path) in str(found.value) and said in str(found.value)


def test_sections_fields_and_files_that_are_missing_are_named(tmp_path: Path) -> None:
    texts = dict(ours(KINDS["ds_guru"]).texts)
    del texts["repair"]
    path = tmp_path / "a.yaml"
    for rows, said in (
        ({"ds_guru": texts}, "field repair is missing"),
        ({"cdr": {}}, "unknown section cdr; known are refinement"),
        ({}, "no section in it"),
    ):
        path.write_text(yaml.safe_dump(rows) if rows else "", encoding="utf-8")
        with pytest.raises(ConfigError, match=said):
            read_prompts(str(path))
    (tmp_path / "empty").mkdir()
    for place, said in (("b.yaml", "no such file or folder"), ("empty", r"no \*\.yaml in it")):
        with pytest.raises(ConfigError, match=said):
            read_prompts(str(tmp_path / place))


def test_a_folder_of_files_is_read_and_no_section_twice(tmp_path: Path) -> None:
    for name in WORDS:
        (tmp_path / f"{name}.yaml").write_bytes(KINDS[name].ours.read_bytes())
    assert set(read_prompts(str(tmp_path)).words) == set(WORDS)
    (tmp_path / "again.yaml").write_bytes(KINDS["ds_guru"].ours.read_bytes())
    with pytest.raises(ConfigError, match=r"section ds_guru is also in .*again\.yaml"):
        read_prompts(str(tmp_path))
