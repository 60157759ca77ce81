"""Every operator by name."""

from __future__ import annotations

from rewards.gold.catalog_filters import FILTERS
from rewards.gold.catalog_mappers import LATEX, PRIVACY, RAG, WEB
from rewards.gold.core import Operator

OPERATORS: dict[str, Operator] = {o.name: o for o in (*PRIVACY, *WEB, *LATEX, *RAG, *FILTERS)}

# What the benchmark's recipes pass to the only two mappers that take parameters there.
RECIPE_PARAMS: dict[str, dict[str, str]] = {
    "extract_tables_from_html_mapper": {"output_mode": "text", "text_output_format": "tsv"},
    "latex_figure_context_extractor_mapper": {
        "output_mode": "text",
        "text_output_format": "figure_context_blocks_v1",
    },
}
