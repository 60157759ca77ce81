"""Vectors made by hand from the definitions, one table for both profiles."""

from __future__ import annotations

from typing import Any

import pytest
from places import tables

from rewards.gold import Step, bind, execute

TABLES = tables("gold")

# (operator, profile, parameters, input, output)
MAPPERS = TABLES["vectors_mappers"]

# (operator, profile, parameters, input, statistic, status)
FILTERS = TABLES["vectors_filters"]


@pytest.mark.parametrize(("operator", "profile", "params", "text", "wanted"), MAPPERS)
def test_mapper_vector(
    operator: str, profile: str, params: dict[str, Any], text: str, wanted: str
) -> None:
    assert execute(text, [Step(operator, params)], profile).text == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(("operator", "profile", "params", "text", "statistic", "status"), FILTERS)
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


def test_tables_become_rows_and_blank_line_between_tables() -> None:
    page = "<p>x<TABLE><tr><th> a </th><td>b<i> c</i></td></tr><tr></tr></TABLE><table><tr><td>d"
    text = {"output_mode": "text"}
    step = "extract_tables_from_html_mapper"
    assert execute(page, [Step(step, text)]).text == "a\tbc\n\nd"
    assert execute(page, [Step(step)]).text == page
    assert execute(page, [Step(step, {**text, "include_header": False})]).text == "d"
    assert execute("<table></table>", [Step(step, text)]).text == ""


def test_figures_with_sub_figures_carry_their_parent() -> None:
    paper = (
        "See \\ref{p} and \\cref{x, a}.\n\nNothing.\n\n\\begin{figure}[t]"
        "\\subfloat[One]{\\includegraphics{1.png}\\label{a}}\\subfloat{\\label{b}}"
        "\\caption{Both {of} them}\\label{p}\\end{figure}"
    )
    step = Step("latex_figure_context_extractor_mapper", {"output_mode": "text"})
    assert execute(paper, [step]).text == (
        "Figure 1\nLabel: a\nCaption: One\nParent Label: p\nParent Caption: Both {of} them\n"
        "Images:\n- 1.png\nCiting Paragraphs:\n- See \\ref{p} and \\cref{x, a}."
    )
