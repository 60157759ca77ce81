"""Which tables are asked as series, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from data_gen.dare.build import inputs_of  # noqa: E402
from data_gen.dare.database import Built, Settings  # noqa: E402
from data_gen.dare.series import opened  # noqa: E402
from data_gen.dare.sources import sources  # noqa: E402
from data_gen.tally import Refusal  # noqa: E402

SETTINGS = Settings(Path(), 0, False, frozenset())


def sensor(folder: Path) -> Path:
    """A log of hours, five of which stand twice."""
    hours = pd.date_range("2024-01-01", periods=300, freq="h").strftime("%Y-%m-%d %H:%M:%S")
    stamps = sorted([*hours, *hours[40:45]])
    rows = [f"{stamp},{20 + i % 24 / 3:.2f},{i % 7}.5" for i, stamp in enumerate(stamps)]
    folder.mkdir()
    (folder / "log.csv").write_text("stamp,heat,damp\n" + "\n".join(rows) + "\n")
    return folder


def test_double_stamps_are_a_doubt_until_the_user_settles_it(tmp_path: Path) -> None:
    folder = sensor(tmp_path / "in")
    (source,) = sources([str(folder)])
    built = Built(source.name)
    assert opened(source, SETTINGS, built, "") is None
    (one,) = inputs_of([built], [])
    (doubt,) = one.doubts
    assert (doubt.code, doubt.path) == ("duplicate_stamps", "log.csv") and not one.used
    (folder / "tables.yaml").write_text(f'"{doubt.path}":\n  {doubt.settle}\n')
    (settled,) = [s for s in sources([str(folder)]) if s.path == "log.csv"]
    built = Built(settled.name)
    timed = opened(settled, SETTINGS, built, "")
    assert timed is not None and timed.column == "stamp" and len(timed.frame) == 300
    assert not built.doubts and not built.refused


def test_what_was_built_and_is_not_used_says_so() -> None:
    built = [Built("more", [{"file_path": "x"}]), Built("none")]
    built += [Built("more", refused=[Refusal("enough", "there were enough without it", "x")])]
    told = {one.name: one.why for one in inputs_of(built, [])}
    assert told["more"] == ("x: there were enough without it",) and told["none"]
