"""Tables of packages are asked only for what much speaks for; one's own are asked all the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("duckdb")

from dare_worlds import days, houses

from data_gen.dare import class_reg
from data_gen.dare.database import Built, Settings
from data_gen.dare.outcomes import TOO_LITTLE
from data_gen.dare.series import opened
from data_gen.dare.series_targets import series_targets
from data_gen.dare.sources import Source
from data_gen.dare.wishes import Wish
from rollouts.now import run_now
from rollouts.sandbox.pool import Config, Pool


def package(source: Source, **names: str) -> Source:
    """The same table in a package that says little about it."""

    def load() -> Any:
        return source.load().rename(columns=names)

    return replace(source, load=load, about="A page about it.", many=True)


def tried(
    source: Source, settings: Settings, sure: bool, patch: pytest.MonkeyPatch, before: int = 0
) -> Built:
    """What is tried of a table after `before` targets, without building it."""

    async def none(table: Any, plan: Any, rng: Any, built: Built) -> str:
        return f"tried {plan.targets[0]}"

    patch.setattr(class_reg, "_database", none)
    pool = Pool(Config(workers=1))
    return run_now(class_reg.build_table(source, settings, pool, 1, sure, before))


def test_a_table_of_a_package_is_asked_for_what_much_speaks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    careful = Settings(tmp_path, 0, False, frozenset())
    bold = replace(careful, less_sure=True)
    little = package(houses(tmp_path), preis="temperature")
    assert tried(little, careful, True, monkeypatch).refused.count(TOO_LITTLE) == 1
    assert TOO_LITTLE not in tried(little, bold, True, monkeypatch).refused
    assert "reg temperature: tried temperature" in tried(little, bold, False, monkeypatch).refused
    own = replace(little, many=False)
    assert TOO_LITTLE not in tried(own, careful, True, monkeypatch).refused
    priced = package(houses(tmp_path), preis="house_price")
    found = tried(priced, careful, True, monkeypatch)
    assert "reg house_price: tried house_price" in found.refused
    assert TOO_LITTLE not in found.refused


def test_a_later_round_goes_on_after_the_targets_that_were_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(tmp_path, 0, False, frozenset(), less_sure=True)
    table = replace(package(houses(tmp_path)), about="")
    rounds: list[list[str]] = []
    before = 0
    while (built := tried(table, settings, False, monkeypatch, before)).tried > before:
        rounds.append([why for why in built.refused if ": tried " in why])
        before = built.tried
    asked = [why for each in rounds for why in each]
    assert len(rounds) > 1 and len(asked) == len(set(asked)) == before
    one = tried(table, settings, False, monkeypatch, before)
    assert not [why for why in one.refused if ": tried " in why]


def test_a_series_of_a_package_is_forecast_where_much_speaks_for_it(tmp_path: Path) -> None:
    settings = Settings(tmp_path, 0, False, frozenset())
    little = package(days(tmp_path), menge="water flow")
    timed = opened(little, settings, Built("in"), "")
    assert timed is not None
    found, refused = series_targets(timed, little, Wish())
    assert found == [] and refused[-1] == f"series: {TOO_LITTLE}"
    found, _ = series_targets(timed, little, Wish(), less_sure=True)
    assert "water flow" in found
    assert "water flow" in series_targets(timed, replace(little, many=False), Wish())[0]
    much = package(days(tmp_path), menge="ridership")
    timed = opened(much, settings, Built("in"), "")
    assert timed is not None and series_targets(timed, much, Wish())[0] == ["ridership"]
