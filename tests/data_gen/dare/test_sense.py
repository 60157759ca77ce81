"""Columns that make no sense as targets in their table, and features that make none beside one."""

from __future__ import annotations

import random
from typing import Any

import pytest

pd = pytest.importorskip("pandas")

from data_gen.dare.beside import beside_none, two_give  # noqa: E402
from data_gen.dare.sense import misplaced, no_table, panel  # noqa: E402
from data_gen.dare.sources import Source  # noqa: E402
from data_gen.dare.time_columns import Timed, are_events, is_one_series  # noqa: E402

ROWS = 240


def draws(seed: int, low: float = 0, high: float = 99) -> list[float]:
    rng = random.Random(seed)
    return [round(rng.uniform(low, high), 1) for _ in range(ROWS)]


def labels(seed: int, values: list[Any]) -> list[Any]:
    rng = random.Random(seed)
    return [rng.choice(values) for _ in range(ROWS)]


def table(**columns: Any) -> Any:
    return pd.DataFrame(
        {"size": draws(1), "age": draws(2), "town": labels(3, ["a", "b"]), **columns}
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("baseline", ""),
        ("bili", "bilirubin at study entry"),
        ("OrigPrice", ""),
        ("priGPA", "cumulative GPA prior to term"),
        ("pat1", "the number of patents (one year lag)"),
        ("demlag", ""),
    ],
)
def test_what_was_before_is_no_target(name: str, text: str) -> None:
    frame = table(**{name: draws(5)})
    assert misplaced(frame, {name: text})[name] == "a value from before the others"
    assert misplaced(frame.rename(columns={name: "price"}), {}) == {}


def test_of_one_quantity_in_several_years_the_last_is_asked_for() -> None:
    frame = table(re74=draws(4), re75=draws(5), re78=draws(6), pop_1996=draws(7), pop_2001=draws(8))
    odd = misplaced(frame, {})
    assert set(odd) == {"re74", "re75", "pop_1996"}
    assert odd["re74"] == "a value from before re75"


def test_what_came_later_is_no_feature() -> None:
    frame = table(re75=draws(5), re78=draws(6), u74=labels(7, [0, 1]))
    texts = {"re75": "earnings in 1975", "re78": "earnings in 1978", "u74": "no work in 1974"}
    left = beside_none(frame, "re75", ["size", "re78", "u74"], texts)
    assert left == {"re78": "it is from later"}


def test_repeats_of_a_measure_are_no_targets() -> None:
    items = {f"item{i}": draws(i) for i in range(1, 6)}
    assert set(misplaced(table(**items), {})) == set(items)
    assert set(misplaced(table(exam1=draws(4), exam2=draws(5)), {})) == {"exam1"}


def test_what_the_choices_offer_is_no_target() -> None:
    frame = table(mode=labels(4, ["car", "bus"]), **{"cost.car": draws(5), "cost.bus": draws(6)})
    assert set(misplaced(frame, {})) == {"cost.car", "cost.bus"}


def test_a_crossed_design_is_found_and_chance_is_not() -> None:
    dose = [f"d{i % 3}" for i in range(ROWS)]
    plant = [f"p{i // 3 % 4}" for i in range(ROWS)]
    odd = misplaced(table(dose=dose, plant=plant), {})
    assert "part of the design" in odd["dose"] and "part of the design" in odd["plant"]
    assert misplaced(table(dose=labels(7, ["d", "e", "f"])), {}) == {}


def test_one_of_several_indicators_of_one_answer_is_no_target() -> None:
    faith = labels(5, ["x", "y", "z", "none"])
    flags = {f: [int(v == f) for v in faith] for f in "xyz"}
    assert set(misplaced(table(**flags), {})) == set("xyz")
    assert misplaced(table(x=labels(6, [0, 1]), y=labels(7, [0, 1])), {}) == {}


def test_a_value_of_a_group_is_found_without_the_group() -> None:
    price = {t: 50 + i * 1.23457 for i, t in enumerate("abcdefghij")}
    frame = table(price=[price[t] for t in labels(5, list("abcdefghij"))])
    assert "of a group" in misplaced(frame, {})["price"]
    frame = table(price=[5 * round(v / 5) + 0.5 for v in draws(5)])
    assert misplaced(frame, {}) == {}


@pytest.mark.parametrize("shared", [True, False])
def test_a_value_of_a_person_is_none_of_a_visit(shared: bool) -> None:
    own = dict(enumerate(draws(5)[:40]))
    noise = draws(6)
    person = [i % 40 for i in range(ROWS)]
    frame = table(
        person_id=person, mood=[own[p] + n / 20 for p, n in zip(person, noise, strict=True)]
    )
    frame = frame if shared else frame.assign(mood=noise)
    assert ("mood" in misplaced(frame, {})) is shared


def walk(seed: int) -> list[float]:
    rng, at = random.Random(seed), 0.0
    out: list[float] = []
    for _ in range(ROWS):
        at += rng.gauss(0, 1)
        out.append(at)
    return out


def test_rows_that_follow_from_one_another_are_not_split_at_random() -> None:
    frame = table(rate=walk(5))
    assert "continues the row before" in misplaced(frame, {})["rate"]
    assert misplaced(frame, {}, series=True) == {}
    assert misplaced(frame.sample(frac=1, random_state=1), {}) == {}
    assert misplaced(table(rate=sorted(draws(5))), {}) == {}  # sorted by it: that says nothing


def test_groups_in_the_order_of_the_file_are_no_series() -> None:
    rng = random.Random(5)
    kind = [f"k{i // 80}" for i in range(ROWS)]
    frame = table(kind=kind, length=[10 * int(k[1]) + rng.gauss(0, 1) for k in kind])
    assert "length" not in misplaced(frame, {})


@pytest.mark.parametrize(
    ("target", "feature", "text"),
    [
        ("SquareFeet", "CostPerFt", "SalePrice / SquareFeet (rounded)"),
        ("uclms", "guclms2", "luclms - luclms[n-1]"),
        ("wage", "lwage", ""),
        ("fatal", "nfatal", ""),
    ],
)
def test_what_is_computed_from_the_target_is_no_feature(
    target: str, feature: str, text: str
) -> None:
    frame = table(**{target: draws(5), feature: draws(6)})
    assert set(beside_none(frame, target, ["size", "age", feature], {feature: text})) == {feature}


def test_parts_and_shares_of_one_whole_are_no_features() -> None:
    frame = table(own=draws(5), total=draws(6), a=draws(7), b=draws(8))
    texts = {
        "own": "wife's total monthly income",
        "total": "total monthly income",
        "a": "percent of votes for A",
        "b": "percent of votes for B",
    }
    assert set(beside_none(frame, "own", ["total", "a"], texts)) == {"total"}
    assert set(beside_none(frame, "a", ["b", "size"], texts)) == {"b"}


def test_what_nearly_gives_the_target_is_no_feature() -> None:
    rng = random.Random(3)
    frame = table(net=draws(5))
    frame["gross"] = [v * 1.1 + rng.gauss(0, 3) for v in frame["net"]]
    frame["rival"] = draws(6)
    frame["won"] = (frame["net"] > frame["rival"]).astype(int)
    left = beside_none(frame, "net", ["size", "gross", "rival", "won"], {})
    assert set(left) == {"gross", "won"}
    frame["card"] = [0 if i % 3 else 1 for i in range(ROWS)]
    frame["spent"] = frame["card"] * (1 + frame["size"])
    assert set(beside_none(frame, "card", ["size", "spent"], {})) == {"spent"}


def source(title: str, about: str) -> Source:
    return Source("o", "s", title, "CC0", pd.DataFrame, about)


@pytest.mark.parametrize(
    ("title", "about", "texts", "why"),
    [
        ("Fake Data on Happiness", "", {}, "made up"),
        ("Stores", "A simulated data set of 400 stores.", {}, "made up"),
        ("Veterans", "", {"status": "0 = censored, 1 = died"}, "censored"),
        ("Lungs", "Examples: survfit(Surv(time, status) ~ 1)", {}, "censored"),
        ("Homes", "Source: Klein (1997) _Survival Analysis Techniques_.", {}, "censored"),
        ("Casualties", "`Seatbelts` is a multiple time series, with columns", {}, "one series"),
        ("Returns", "Monthly observations from 1969 to 1998", {}, "one series"),
        ("Patches", "", {"ttr": "Time in days until relapse"}, "censored"),
        ("Spells", "", {"censor2": "1 if employed again"}, "censored"),
        ("Houses", "Houses sold in 2019, measured by the town.", {"price": "in euros"}, ""),
    ],
)
def test_tables_that_are_asked_for_nothing(
    title: str, about: str, texts: dict[str, str], why: str
) -> None:
    said = no_table(source(title, about), texts, list(texts))
    assert why in said if why else said == ""


def test_single_events_are_no_series() -> None:
    rng = random.Random(5)
    days = pd.Timestamp("2020-01-01")
    even = pd.DataFrame({"_when": [days + pd.Timedelta(days=i) for i in range(200)]})
    odd = even.assign(_when=[days + pd.Timedelta(hours=rng.expovariate(0.01)) for _ in range(200)])
    assert not are_events(Timed(even, "day", "%Y-%m-%d", []))
    assert are_events(Timed(odd, "day", "%Y-%m-%d", []))


def test_years_and_months_in_columns_of_their_own_are_a_series() -> None:
    rows = [(y, m, float(m)) for y in range(1990, 2010) for m in range(1, 13)]
    frame = pd.DataFrame(rows, columns=["Year", "Month", "rate"])
    assert is_one_series(frame) and not is_one_series(frame.sample(frac=1, random_state=1))


def test_a_panel_is_found_by_its_rows_and_by_its_words() -> None:
    rows = [
        (town, week, random.Random(town).gauss(30, 9)) for town in range(40) for week in range(6)
    ]
    frame = pd.DataFrame(rows, columns=["Town", "Week", "load"])
    assert "several times" in panel(source("Pigs", ""), frame, {})
    assert panel(source("Pigs", ""), frame.assign(Week=[i % 5 for i in range(240)]), {}) == ""
    assert "several times" in panel(source("Farms", "a panel of 171 observations"), table(), {})
    assert panel(source("Wages", "Cross-section of the Panel Study on Income"), table(), {}) == ""


@pytest.mark.parametrize(
    ("target", "feature", "texts", "gone"),
    [
        ("avg_humidity", "low_humidity", {}, True),
        ("humidity", "wind", {}, False),
        ("exam3", "course", {"exam3": "Exam 3 grade.", "course": "Overall course grade."}, True),
        ("course", "exam3", {"exam3": "Exam 3 grade.", "course": "Overall course grade."}, False),
    ],
)
def test_other_statistics_of_the_target_are_no_features(
    target: str, feature: str, texts: dict[str, str], gone: bool
) -> None:
    frame = table(**{target: draws(5), feature: draws(6)})
    assert (feature in beside_none(frame, target, ["size", feature], texts)) is gone


def test_growth_is_not_asked_for_beside_both_ends_of_it() -> None:
    frame = table(growth=draws(5), gdp60=draws(6), gdp85=draws(7))
    assert set(beside_none(frame, "growth", ["size", "gdp60", "gdp85"], {})) == {"gdp85"}
    assert beside_none(frame, "size", ["gdp60", "gdp85"], {}) == {}


def test_a_trend_that_counts_the_rows_makes_a_series() -> None:
    assert is_one_series(table(t=list(range(ROWS))))
    assert not is_one_series(table(rank=list(range(ROWS))))


def test_columns_of_one_description_are_parts_or_alternatives() -> None:
    texts = {n: f"price for {n} mode" for n in ("beach", "pier", "boat")}
    texts |= {f"re{y}": f"real earnings in 19{y}" for y in (74, 75, 78)}
    texts |= {n: f"Standardized {n} score." for n in ("math", "reading", "writing")}
    odd = misplaced(table(**{name: draws(i) for i, name in enumerate(texts)}), texts)
    assert set(odd) == {"beach", "pier", "boat", "re74", "re75"}


def test_each_person_with_each_choice_is_a_design() -> None:
    rows = [(i // 4, "abcd"[i % 4], i * 7919 % 101) for i in range(ROWS)]
    frame = pd.DataFrame(rows, columns=["household", "mode", "cost"])
    assert "part of the design" in misplaced(frame, {})["mode"]


def test_several_rows_of_a_person_are_not_split_at_random() -> None:
    frame = table(subject=[i % 60 for i in range(ROWS)])
    assert "several times" in panel(source("Wages", ""), frame, {})
    assert panel(source("Wages", ""), frame.assign(subject=range(ROWS)), {}) == ""
    assert panel(source("Pupils", ""), frame.rename(columns={"subject": "school"}), {}) == ""


def test_what_two_numbers_nearly_make_is_not_asked_for() -> None:
    rng = random.Random(4)
    frame = table(weight=draws(5, 40, 110), fat=draws(6, 5, 35), area=draws(7, 50, 200))
    frame["lean"] = frame["weight"] * (1 - frame["fat"] / 100)
    frame["each"] = draws(8, 10, 60)
    frame["price"] = [
        a * e * rng.uniform(0.95, 1.05) for a, e in zip(frame.area, frame.each, strict=True)
    ]
    assert "weight and fat" in two_give(frame, "lean", ["size", "weight", "fat"])
    assert "product" in two_give(frame, "price", ["age", "area", "each"])
    assert two_give(frame, "weight", ["size", "fat", "age", "area"]) == ""
    gaps = {f"gap{i}": [float(j) if j % 4 == i else None for j in range(ROWS)] for i in range(4)}
    features = ["size", "weight", "fat", *gaps]  # no row is whole
    assert "weight and fat" in two_give(frame.assign(**gaps), "lean", features)
    assert two_give(frame.assign(**gaps), "weight", ["size", "fat", "age", *gaps]) == ""


def test_the_time_until_an_event_is_no_feature_of_the_event() -> None:
    frame = table(died=labels(4, [0, 1]), futime=draws(5), dose=draws(6))
    texts = {"died": "1 = died", "futime": "days from enrolment", "dose": "days of treatment"}
    assert set(beside_none(frame, "died", ["size", "futime", "dose"], texts)) == {"futime"}
    texts = {"died": "died in hospital", "futime": "days from enrolment until death"}
    named = frame.rename(columns={"futime": "t"})
    texts["t"] = texts.pop("futime")
    assert set(beside_none(named, "died", ["size", "t", "dose"], texts)) == {"t"}
    assert beside_none(frame, "size", ["futime", "dose"], texts) == {}  # no event is asked for


def test_a_part_of_an_index_is_no_target_beside_the_index_and_its_other_parts() -> None:
    parts = {f"part{i}": draws(10 + i) for i in range(4)}
    whole = [round(sum(row) / 4, 1) for row in zip(*parts.values(), strict=True)]
    frame = table(**parts, index=whole)
    features = ["size", "age", "part1", "part2", "part3", "index"]
    assert "together give it" in two_give(frame, "part0", features)
    assert two_give(frame, "part0", features[:-1]) == ""
    assert two_give(frame.head(59), "part0", features) == ""  # too few rows to say so
    loose = frame.assign(part0=frame["part0"] + [x / 6 for x in draws(31)])
    assert two_give(loose, "part0", features) == ""
    assert "together give it" in two_give(loose, "part0", features, 0.94)


def test_an_empty_column_says_nothing() -> None:
    frame = table(gone=[None] * ROWS, lost=[float("nan")] * ROWS)
    assert set(misplaced(frame, {})) <= {"size", "age", "town"}
