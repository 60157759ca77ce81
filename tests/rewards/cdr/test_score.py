import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.task import TaskError
from rewards.cdr.score import (
    always_drop,
    copy_input,
    gold_answer,
    progress,
    refinement_metrics,
    score_refinement,
)
from rewards.parse import normalise, render
from rewards.weights import RefinementReward

TEXT = st.text("ab c.\n<", max_size=40)
GOLD = st.builds(
    lambda source, status, text: {"input_text": source, "status": status, "text": text},
    TEXT,
    st.sampled_from(["KEEP", "DROP"]),
    TEXT,
)
KEEP = {"input_text": "mail a@b.co now", "status": "KEEP", "text": "mail  now"}
DROP = KEEP | {"status": "DROP"}


@given(GOLD, st.sampled_from(["KEEP", "DROP"]), TEXT)
def test_an_answer_earns_one_only_by_success_and_the_parts_add_up(gold, status, text):
    score = score_refinement(gold, render(status, text))
    assert 0.0 <= score.reward <= 1.0
    assert (score.reward == 1.0) == (score.outcome == 1.0)
    if score.outcome == 0.0 and status == gold["status"]:
        assert score.reward == pytest.approx(0.4 + 0.2 * score.parts["progress"])
    if status != gold["status"]:
        assert score.reward == pytest.approx(0.1)


def test_more_of_the_way_earns_more_and_an_empty_answer_no_gain():
    gold = {"input_text": "x" * 96 + "gold", "status": "KEEP", "text": "gold"}
    score = score_refinement(gold, render("KEEP", ""))
    assert score.parts["rg"] == pytest.approx(0.9583, abs=1e-3)  # the published gain
    assert score.reward == pytest.approx(0.4)
    said = [copy_input(KEEP), render("KEEP", "mail a@b now"), render("KEEP", "mail o now")]
    copied, far, near = (score_refinement(KEEP, one).reward for one in said)
    assert copied == pytest.approx(0.4) and copied < far < near < 1.0


def test_weights_change_the_shape_but_not_what_gold_earns():
    weights = RefinementReward(0.1, 0.0, 0.2, 0.7, wrong_drop=0.05, drop_progress=False)
    assert score_refinement(DROP, gold_answer(DROP), weights=weights).reward == 1.0
    assert score_refinement(KEEP, always_drop(KEEP), weights=weights).reward == pytest.approx(0.05)
    near = render("DROP", "mail o now")
    assert score_refinement(DROP, near, weights=weights).reward == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"input_text": None}, "input_text"), ({"status": "MAYBE"}, "MAYBE"), ({"text": 3}, "int")],
)
def test_a_task_without_gold_is_our_error_not_a_wrong_answer(change, message):
    with pytest.raises(TaskError, match=message):
        score_refinement(KEEP | change, "x")


@given(TEXT, TEXT, TEXT)
def test_gain_and_progress_stay_between_zero_and_one(source, gold, text):
    metrics = refinement_metrics(source, "KEEP", gold, "KEEP", text)
    assert 0.0 <= progress(metrics, len(gold)) <= max(metrics.rg, metrics.rs)
    assert 0.0 <= metrics.rg <= 1.0
    assert 0.0 <= metrics.edit_calibration <= 1.0
    assert metrics.rs == (normalise(text) == normalise(gold))
