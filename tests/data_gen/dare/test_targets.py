"""Which columns are asked for, and why others are not."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from data_gen.dare.database import Settings  # noqa: E402
from data_gen.dare.sources import Listed  # noqa: E402
from data_gen.dare.tabular import RATIOS, propose  # noqa: E402
from data_gen.dare.targets import (  # noqa: E402
    Looked,
    clean,
    derived_one,
    judge,
    narrowed,
    plans,
    refusals,
)
from data_gen.dare.wishes import Wish  # noqa: E402

ROWS = 300
SETTINGS = Settings(Path(), 0, False, frozenset())
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


def people() -> Any:
    """A table with a column of each kind."""
    rng = random.Random(3)
    size = [rng.gauss(50, 9) for _ in range(ROWS)]
    return pd.DataFrame(
        {
            "person": [f"p{i}" for i in range(ROWS)],
            "nr": range(ROWS),
            "sex": [rng.choice("fm") for _ in range(ROWS)],
            "day": [rng.choice(["Mon", "Tue", "Sun"]) for _ in range(ROWS)],
            "same": ["x"] * ROWS,
            "mood": [rng.randint(1, 5) for _ in range(ROWS)],
            "treatment": [rng.choice(["drug", "placebo"]) for _ in range(ROWS)],
            "v1": [rng.gauss(0, 1) for _ in range(ROWS)],
            "remark": [f"a text of several words {i} " * 4 for i in range(ROWS)],
            "time": [rng.randint(7, 22) * 100 + rng.randint(0, 59) for _ in range(ROWS)],
            "size": size,
            "verdict": ["big" if s + rng.gauss(0, 5) > 50 else "small" for s in size],
            "grade": [rng.choice("ab") for _ in range(ROWS - 6)] + ["c"] * 3 + ["d"] * 3,
        }
    )


def test_every_column_is_a_target_or_says_why_not() -> None:
    looked = clean(people(), 0)
    assert looked is not None
    found = refusals(looked)
    assert {n for n, why in found.items() if why is None} == {"size", "verdict"}
    codes = {n: why.code for n, why in found.items() if why is not None}
    assert codes == {
        "person": "name",
        "nr": "id",
        "sex": "who",
        "day": "calendar",
        "same": "constant",
        "mood": "unfit",
        "treatment": "design",
        "v1": "unsaid",
        "remark": "text",
        "time": "clock",
        "grade": "unfit",
    }
    assert all(why.where == n for n, why in found.items() if why is not None)


def test_a_column_called_class_keeps_no_other_reason_back() -> None:
    looked = clean(people().rename(columns={"verdict": "class"}), 0)
    assert looked is not None
    made, refused = plans(looked, Wish(), SETTINGS, 0)
    assert {why.where for why in refused} == set(people().columns) - {"size", "verdict"}
    assert {p.targets[0] for p in made} == {"size", "class"}
    assert made[0].targets[0] == "class"  # what is called so is asked for first


def test_what_the_list_of_packages_says_is_asked_and_nothing_else() -> None:
    looked = clean(people(), 0, listed=True)
    assert looked is not None
    asked = [Listed("mood", "reg", frozenset({"size", "nr"})), Listed("gone", "reg")]
    made, refused = plans(looked, Wish(), SETTINGS, 0, asked)
    assert not refused and [(p.family, p.targets) for p in made] == [("reg", ("mood",))]
    bare, why = narrowed(looked, made[0], Wish(), listed=True)
    assert bare is not None and not why
    assert not {"size", "nr"} & set(bare.kinds) and "mood" in bare.kinds


@pytest.mark.parametrize("rows", [95, 120, 178, 210])
def test_whether_a_table_fits_hangs_on_no_seed(rows: int) -> None:
    rng = random.Random(4)
    frame = pd.DataFrame({n: [rng.gauss(0, 1) for _ in range(rows)] for n in "abc"})
    frame["y"] = ["u" if i % 5 else "v" for i in range(rows)]
    looked = Looked(frame, {**dict.fromkeys("abc", "numerical"), "y": "categorical"})
    drafts = [propose(looked, "class", ["y"], random.Random(s), mini=False) for s in range(30)]
    assert all(drafts) is any(drafts) is (rows >= 100)
    ratios = {d.recipe["train_test_ratio"] for d in drafts if d is not None}
    assert ratios <= set(RATIOS) and (rows < 200 or len(ratios) > 1)


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


def test_of_columns_that_give_each_other_the_derived_one_is_known() -> None:
    assert derived_one(["lwage", "wage"], ["lwage", "wage"]) == "wage"  # no mark: the later
    assert derived_one(["log_wage", "wage"], ["log_wage", "wage"]) == "log_wage"
    assert derived_one(["a", "total_b", "c"], ["total_b", "a", "c"]) == "total_b"


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


def test_a_coarser_form_of_the_target_is_no_feature() -> None:
    rng = random.Random(4)
    answer = [rng.choice(["no", "perhaps", "yes"]) for _ in range(ROWS)]
    frame = pd.DataFrame({"answer": answer, "other": [rng.choice("ab") for _ in range(ROWS)]})
    frame["said"] = frame["answer"].map(lambda a: "N" if a == "no" else "Y")
    assert set(judge(frame, "answer", ["said", "other"]).left_out) == {"said"}
    age = pd.DataFrame({"age": [rng.uniform(18, 90) for _ in range(ROWS)], "x": draw(5)})
    age["old"] = age["age"].map(lambda a: "old" if a > 50 else "young")
    assert set(judge(age, "age", ["old", "x"]).left_out) == {"old"}
