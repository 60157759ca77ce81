"""Which columns are asked for: refusals in words."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from data_gen.dare.analyse import clean, refusals, without_marks  # noqa: E402
from data_gen.dare.targets import derived_one, is_identifier, judge, number_unfit, unfit  # noqa: E402

ROWS = 300
PAIR = {"parent": "fm", "child": "sd"}


def draw(seed: int, low: int = 1, high: int = 10**6) -> Any:
    rng = random.Random(seed)
    return pd.Series([rng.randint(low, high) for _ in range(ROWS)])


def towns() -> Any:
    rng = random.Random(2)
    popul = draw(1, 5000, 900_000)
    frame = pd.DataFrame({"popul": popul, "income": [rng.gauss(30, 6) for _ in range(ROWS)]})
    frame["logpopul"] = popul.map(math.log)
    frame["schools"] = (popul / 5000 + frame["income"]).round() + draw(4, 0, 30)
    frame["parks"] = draw(5, 0, 60)
    frame["places"] = frame["schools"] + frame["parks"]
    return frame


@pytest.mark.parametrize(
    ("name", "values", "text", "why"),
    [
        ("patient_id", draw(1), "", "an identifier"),
        ("customerID", draw(1), "", "an identifier"),
        ("nr", draw(1), "", "an identifier"),
        ("county", draw(1, 1, 9), "FIPS county code", "an identifier"),
        ("place", pd.Series(range(ROWS)).sample(frac=1, random_state=1), "", "an identifier"),
        ("no", pd.Series(range(0, 3 * ROWS, 3)), "", "an identifier"),
        ("day_of_year", draw(2, 1, 366), "", "a part of the calendar"),
        ("year", draw(2, 1990, 2009), "", "a part of the calendar"),
        ("yearBuilt", draw(2, 1900, 2009), "", "a part of the calendar"),
        ("mon", pd.Series(["Jan", "Feb", "March"] * 100), "", "a part of the calendar"),
        ("same", pd.Series([4] * ROWS), "", "a constant"),
        ("note", pd.Series([f"text {i} and more of it" for i in range(ROWS)]), "", "free text"),
        ("wt", draw(3, 1, 900), "sampling weight of the person", "a weight"),
        ("treatment", draw(3, 0, 1), "", "a part of the design"),
        ("flag", pd.Series([0] * 295 + [1] * 5), "", "nearly constant"),
        ("wind_dir", draw(3, 0, 360), "", "an angle"),
        ("dep_time", draw(3, 0, 23) * 100 + draw(4, 0, 59), "", "a part of the calendar"),
        ("hour", draw(3, 0, 2300) / 100, "", "a part of the calendar"),
        ("nutrient", draw(3, 0, 1), "fertilization treatment/nutrient level", "a part of the des"),
        ("inst", draw(3, 1, 30), "Institution code", "an identifier"),
        ("price", draw(3), "price in euros", ""),
        ("time_to_delivery", draw(3, 5, 90), "", ""),
        ("opening_hours", draw(3, 0, 1), "", ""),
        ("weight", draw(3, 40, 120), "weight of the person in kg", ""),
    ],
)
def test_columns_that_nobody_would_predict(name: str, values: Any, text: str, why: str) -> None:
    said = unfit(name, values.reset_index(drop=True), text)
    assert said.startswith(why) if why else said == ""


def test_prices_that_never_repeat_are_no_identifiers() -> None:
    assert not is_identifier("price", draw(9)) and is_identifier("x", pd.Series(range(50, 350)))


def test_a_transformation_is_refused_and_its_source_keeps_apart() -> None:
    frame = towns()
    features = [c for c in frame if c != "logpopul"]
    assert "popul alone gives it" in judge(frame, "logpopul", features).why
    features = [c for c in frame if c != "popul"]
    verdict = judge(frame, "popul", features)
    assert verdict.why == "" and list(verdict.left_out) == ["logpopul"]
    wanted = judge(frame, "logpopul", [c for c in frame if c != "logpopul"], wished=True)
    assert wanted.why == "" and list(wanted.left_out) == ["popul"]


def test_a_sum_is_refused_and_left_out_beside_its_parts() -> None:
    frame = towns().drop(columns="logpopul")
    assert (
        "schools and parks give it"
        in judge(frame, "places", ["popul", "income", "schools", "parks"]).why
    )
    parts = judge(frame, "parks", ["popul", "income", "schools", "places"])
    assert parts.why == "" and list(parts.left_out) == ["places"]
    wished = judge(frame, "places", ["popul", "income", "schools", "parks"], wished=True)
    assert set(wished.left_out) == {"schools", "parks"}


def test_a_label_of_two_others_is_refused() -> None:
    rng = random.Random(6)
    frame = pd.DataFrame({n: [rng.choice(v) for _ in range(ROWS)] for n, v in PAIR.items()})
    frame["pair"] = frame["parent"] + frame["child"]
    frame["size"] = draw(2)
    assert "parent and child give it" in judge(frame, "pair", ["parent", "child", "size"]).why
    assert judge(frame, "child", ["parent", "size"]).why == ""


def test_numbers_that_stand_for_names_are_no_quantity() -> None:
    assert number_unfit(draw(1, 500, 743), "(factor) brood number") != ""
    assert number_unfit(draw(1, 500, 743), "number of ticks") == ""


@pytest.mark.parametrize(
    "text",
    [
        "an ordered factor designating the school",
        "Factor; id of each pig",
        "id of the litter",
        "school indicator variable",
    ],
)
def test_numbers_that_name_something_are_no_columns(text: str) -> None:
    rng = random.Random(1)
    frame = pd.DataFrame(
        {
            "school": [rng.randrange(1000, 1060) for _ in range(300)],
            **{name: [rng.gauss(0, 1) for _ in range(300)] for name in "abcd"},
        }
    )
    frame = frame.rename(columns={"school": "pupils"})
    plain, named = (clean(frame, 0, {"pupils": said}) for said in ("pupils", text))
    assert plain is not None and "pupils" in plain.kinds
    assert named is not None and "pupils" not in named.kinds
    called = clean(frame.rename(columns={"pupils": "school"}), 0)
    assert called is not None and "school" not in called.kinds


def test_labels_that_begin_with_a_year_are_of_the_calendar() -> None:
    games = pd.Series([f"{1924 + 4 * (i % 9)} Winter" for i in range(300)])
    assert unfit("games", games) == "a part of the calendar"
    assert unfit("size", pd.Series([f"{100 * (i % 9)} m" for i in range(300)])) == ""


def test_of_columns_that_give_each_other_the_derived_one_is_known() -> None:
    assert derived_one(["lwage", "wage"], ["lwage", "wage"]) == "wage"  # no mark: the later
    assert derived_one(["log_wage", "wage"], ["log_wage", "wage"]) == "log_wage"
    assert derived_one(["a", "total_b", "c"], ["total_b", "a", "c"]) == "total_b"


def test_whole_numbers_are_classes_where_the_text_says_so() -> None:
    frame = pd.DataFrame({"use": draw(1, 1, 4), "x": draw(2), "y": draw(3), "z": draw(4)})
    looked = clean(frame, 0)
    assert looked is not None
    assert refusals(looked, "class")["use"] == "numbers that are no classes"
    said = {"use": "how often (1=always, 2=often, 3=sometimes, 4=never)"}
    assert refusals(looked, "class", said)["use"] == ""


@pytest.mark.parametrize("mark", [-9999, -99, 999, 9999])
def test_marks_for_no_value_are_no_values(mark: int) -> None:
    values = pd.Series([float(v) for v in draw(1, 10, 70)])
    values[::40] = mark
    left = without_marks(values)
    assert left.isna().sum() == len(values[::40]) and left.min() >= 10 and left.max() <= 70


def test_values_that_only_look_like_marks_stay() -> None:
    grades = pd.Series([float(v) for v in draw(1, 40, 99)])
    frost = pd.Series([float(v) for v in draw(1, -99, 40)])
    assert without_marks(grades).notna().all() and without_marks(frost).notna().all()


def grouped(told: bool) -> Any:
    """Pupils of 40 schools; a pair of the school's figures names it, and where `told`, its mood is
    what is asked for."""
    rng = random.Random(8)
    schools = [(5 + n % 8, 20 + n // 8, rng.gauss(0, 1)) for n in range(40)]
    rows = [(*schools[n % 40], rng.gauss(0, 1), n % 2) for n in range(400)]
    frame = pd.DataFrame(rows, columns=["classes", "staff", "mood", "own", "girl"])
    frame["mood"] = frame["mood"] if told else frame["own"] + frame["mood"] / 9
    return frame.drop(columns="own")


def test_a_target_that_all_rows_of_a_group_share_is_refused_where_the_group_is_named() -> None:
    features = ["classes", "staff", "girl"]
    why = judge(grouped(True), "mood", features).why
    assert "classes and staff" in why.replace("staff and classes", "classes and staff")
    assert "groups of rows that share it" in why
    assert judge(grouped(False), "mood", features).why == ""
    assert judge(grouped(True), "mood", ["classes", "girl"]).why == ""  # no group is named
    assert judge(grouped(True), "mood", features, wished=True).why == ""


@pytest.mark.parametrize(
    ("name", "values", "text", "why"),
    [
        ("TRTA", ["Drug 1", "Placebo"] * 60, "", "a part of the design"),
        ("given", ["active", "placebo"] * 60, "", "a part of the design"),
        ("colour", ["red", "blue"] * 60, "", ""),
    ],
)
def test_what_was_drawn_by_lot_is_no_outcome(
    name: str, values: list[str], text: str, why: str
) -> None:
    said = unfit(name, pd.Series(values), text)
    assert said.startswith(why) if why else said == ""


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("change in metro", True),
        ("lcriv - lcriv_1", True),
        ("lpris - lpris[n-1]", True),
        ("proportion in metro areas", False),
        ("change in weight after the diet, in kg", False),
    ],
)
def test_a_change_from_the_row_before_is_no_quantity(text: str, refused: bool) -> None:
    assert (number_unfit(draw(3), text) == "a change from another row") is refused


@pytest.mark.parametrize(
    ("name", "values", "text", "why"),
    [
        ("intnum", draw(1, 4, 9306), "1968 interview number", "an identifier"),
        ("y4", draw(1), "a numeric vector", "its name says nothing"),
        ("y4", draw(1), "yield of the fourth plot, in kg", ""),
        ("sex", pd.Series(["f", "m"] * 150), "", "it says who a row is of"),
        ("Tstart", draw(1), "", "a bound of a spell"),
        ("f", draw(1), "frequency.", "a bound of a spell, or the count of a cell"),
        ("dcode", draw(1, 1010, 83070), "district code", "an identifier"),
        ("income", draw(1), "", ""),
    ],
)
def test_what_nobody_asks_for_is_refused(name: str, values: Any, text: str, why: str) -> None:
    said = unfit(name, values, text)
    assert said.startswith(why) if why else said == ""


def test_a_coarser_form_of_the_target_is_no_feature() -> None:
    rng = random.Random(4)
    answer = [rng.choice(["no", "perhaps", "yes"]) for _ in range(ROWS)]
    frame = pd.DataFrame({"answer": answer, "other": [rng.choice("ab") for _ in range(ROWS)]})
    frame["said"] = frame["answer"].map(lambda a: "N" if a == "no" else "Y")
    assert set(judge(frame, "answer", ["said", "other"]).left_out) == {"said"}
    age = pd.DataFrame({"age": [rng.uniform(18, 90) for _ in range(ROWS)], "x": draw(5)})
    age["old"] = age["age"].map(lambda a: "old" if a > 50 else "young")
    assert set(judge(age, "age", ["old", "x"]).left_out) == {"old"}


def test_a_weight_of_the_sample_is_known_by_its_words() -> None:
    from data_gen.dare.targets import is_weight

    assert is_weight("w", "weight sample to size of population")
    assert is_weight("w", "inverse of the sampling probabilities")
    assert not is_weight("w", "weight of the car in pounds")
