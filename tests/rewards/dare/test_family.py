"""What the audit's searches score without precautions scores the same with them."""

from __future__ import annotations

import pytest

pytest.importorskip("pandas")

from assay.family import BUILT_IN, Answer, Task, as_answer

TRUTH = "row_id,y\n1,a\n2,b\n3,a\n"
GOLD = {"task_type": "class-MM", "truth_csv": TRUTH, "key_columns": ["row_id"], "targets": ["y"]}
TASK = Task("t", "table", "class-MM", "train", [{"role": "user", "content": "Predict."}], GOLD)


@pytest.mark.parametrize("text", ["a", "", "0", 'a "b", c', "x\ny", "1e999", "é\u2028"])
def test_a_trusted_file_scores_as_any_other(text: str) -> None:
    family = BUILT_IN["table"]
    audit = family.audited
    assert audit.trusted is not None
    answer = as_answer(audit.forms["every target"](TASK, text))
    assert audit.trusted(TASK, answer, family.weights()) == family.score(
        TASK, answer, family.weights()
    )


def test_every_target_is_an_honest_constant() -> None:
    family = BUILT_IN["table"]
    said = as_answer(family.audited.forms["every target"](TASK, "a"))
    assert said.files["prediction.csv"].decode().splitlines()[1:] == ["1,a", "2,a", "3,a"]
    assert family.score(TASK, said, family.weights()).outcome == pytest.approx(0.4)
    assert family.score(TASK, Answer(), family.weights()).reward == 0.0
