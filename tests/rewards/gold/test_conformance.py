"""Every conformance vector at hand, compared exactly: the full set, or the sample that ships; and
vectors made by hand from the definitions."""

from __future__ import annotations

from typing import Any

import pytest
from places import tables
from vectors import vectors

from rewards.gold import OPERATORS, GoldError, Step, bind, execute

MAPPERS = sorted(n for n, o in OPERATORS.items() if o.kind == "mapper")
FILTERS = sorted(n for n, o in OPERATORS.items() if o.kind == "filter")


def modest_is_missing(operator: str, profile: str) -> bool:
    try:
        import selectolax.parser  # noqa: F401
    except ImportError:
        return (operator, profile) == ("clean_html_mapper", "dj")
    return False


@pytest.mark.parametrize("operator", MAPPERS)
def test_mapper(operator: str) -> None:
    checked, wrong, skipped = 0, [], 0
    for row in vectors(f"mappers/{operator}"):
        if modest_is_missing(operator, row["profile"]):
            skipped += 1
            continue
        checked += 1
        step = bind(Step(operator, row["params"]), row["profile"])
        try:
            got = step.call(row["input_text"], **step.params)
        except GoldError:
            got = None
        if got != row.get("output_text"):
            wrong.append((row["profile"], row["params"], row["doc_id"]))
    assert not wrong, f"{len(wrong)} of {checked} differ, first {wrong[:3]}"
    if skipped:
        pytest.skip(f"{checked} bench rows agree; {skipped} dj rows need selectolax < 1.0")


@pytest.mark.parametrize("operator", FILTERS)
def test_filter(operator: str) -> None:
    checked, wrong = 0, []
    for row in vectors(f"filters/{operator}"):
        params = dict(row["params"])
        if "word_list" in row:
            params["word_list"] = row["word_list"]
        step = bind(Step(operator, params), row["profile"])
        statistic = step.call(row["input_text"], **step.params)
        checked += 1
        if {step.operator.stat_key: statistic} != {row["stat_key"]: row["stat"]}:
            wrong.append((row["doc_id"], statistic, row["stat"]))
        for check in row["checks"]:
            bound = bind(Step(operator, params | check["params"]), row["profile"])
            if ("KEEP" if bound.keeps(statistic) else "DROP") != check["status"]:
                wrong.append((row["doc_id"], check, statistic))
    assert not wrong, f"{len(wrong)} of {checked} differ, first {wrong[:3]}"


def recipe_of(names: list[str], filters: dict[str, dict[str, Any]]) -> list[Step]:
    from rewards.gold import RECIPE_PARAMS

    return [Step(n, dict(filters.get(n) or RECIPE_PARAMS.get(n, {}))) for n in names]


def test_recipes() -> None:
    checked, wrong = 0, []
    for row in vectors("recipes"):
        recipe = recipe_of(row["operator_sequence"], row["filter_params_by_name"])
        got = execute(row["input_text"], recipe, row["profile"])
        checked += 1
        full = row["output_text"] if row["full_run_text"] is None else row["full_run_text"]
        wanted = (row["status"], row["output_text"], full, row["states"], len(row["trace"]))
        same = (got.status, got.text, got.full_run_text, got.states, len(got.trace)) == wanted
        for mine, theirs in zip(got.trace, row["trace"], strict=False):
            same = same and {k: mine.get(k) for k in theirs} == theirs
        if not same:
            wrong.append((row["doc_id"], row["operator_sequence"]))
    assert not wrong, f"{len(wrong)} of {checked} differ, first {wrong[:3]}"


def test_order_pairs() -> None:
    for row in vectors("order_m"):
        for kind in ("canonical", "swapped"):
            recipe = recipe_of(row[f"{kind}_sequence"], {})
            texts = [v for k, v in row.items() if k.startswith(kind) and k.endswith("text")]
            assert [execute(row["input_text"], recipe, row["profile"]).text] == texts


# --- vectors made by hand, one table for both profiles

TABLES = tables("gold")


@pytest.mark.parametrize(
    ("operator", "profile", "params", "text", "wanted"), TABLES["vectors_mappers"]
)
def test_mapper_vector(
    operator: str, profile: str, params: dict[str, Any], text: str, wanted: str
) -> None:
    assert execute(text, [Step(operator, params)], profile).text == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operator", "profile", "params", "text", "statistic", "status"), TABLES["vectors_filters"]
)
def test_filter_vector(
    operator: str, profile: str, params: dict[str, Any], text: str, statistic: float, status: str
) -> None:
    keep, stats = bind(Step(operator, params), profile).judge(text)  # type: ignore[arg-type]
    assert (list(stats.values()), "KEEP" if keep else "DROP") == ([statistic], status)


def test_long_texts_pass_two_mappers_untouched() -> None:
    text = "www.x.org. " * 8000
    for operator in (
        "remove_repeat_sentences_mapper",
        "remove_words_with_incorrect_substrings_mapper",
    ):
        assert execute(text, [Step(operator)]).text == text
        assert execute(text[:80_000], [Step(operator)]).text != text[:80_000]
