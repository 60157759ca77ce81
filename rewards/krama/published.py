"""What is known of the published KramaBench: its size, and which files a model may be shown."""

from __future__ import annotations

from typing import Literal

Mode = Literal["full", "oracle", "oracle*", "trimmed", "obscured"]
MODES: tuple[Mode, ...] = ("full", "oracle", "oracle*", "trimmed", "obscured")

# domain → (tasks, sub-tasks), as in the paper's Table 2 and in the release of June 2025
COUNTS = {
    "archeology": (12, 71),
    "astronomy": (12, 68),
    "biomedical": (9, 38),
    "environment": (20, 148),
    "legal": (30, 188),
    "wildfire": (21, 120),
}

# Tasks that list a source which is not in the release's own lake under any spelling: a name of
# another version of a file, a pattern, or words. That such a source is not found says nothing.
LISTS_WHAT_IS_NOT_THERE = frozenset(
    {
        "astronomy-hard-7",
        "astronomy-hard-12",
        "legal-hard-24",
        "wildfire-hard-19",
        "wildfire-hard-21",
    }
)
