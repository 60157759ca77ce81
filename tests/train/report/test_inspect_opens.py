"""The logs of `assay report --inspect`, opened by the real inspect_ai."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("inspect_ai", reason="inspect_ai is not installed; `make test-interop`")

from evaluations import in_words, results
from inspect_ai.log import (
    list_eval_logs,
    read_eval_log,
    read_eval_log_sample,
    read_eval_log_sample_summaries,
    write_eval_log,
)

import assay

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`words/out` is an evaluation, `words.eval` its log."""
    place = tmp_path_factory.mktemp("inspect")
    run = in_words(place / "words")
    words = ["--inspect", str(place), "--family", str(place / "words" / "sums.py")]
    assert assay.main(["report", str(run), "--no-view", *words]) == 0
    (made,) = place.glob("out_*.eval")
    made.rename(place / "words.eval")
    return place


def test_every_sample_opens_with_both_scores_and_the_evaluations_numbers(folder: Path) -> None:
    log, found = read_eval_log(str(folder / "words.eval")), results(folder / "words" / "out")
    assert log.status == "success" and log.samples is not None and len(log.samples) == 20
    samples = {(s.id, s.epoch): s for s in log.samples}
    for row in found["rows"]:
        sample = samples[row["task_id"], row["sample"] + 1]
        assert sample.messages[-1].role == "assistant" and sample.target
        if row["outcome"] is None:
            assert sample.error is not None and "no ruler" in sample.error.message
            assert not sample.scores
            continue
        assert sample.scores is not None and list(sample.scores) == ["outcome", "reward"]
        values = [sample.scores[name].value for name in ("outcome", "reward")]
        assert values == [row["outcome"], row["reward"]]
        assert sample.output.completion == row["output"].replace("\ud83d", "?")
    cell = found["tables"]["overall"]
    assert log.results is not None and log.eval.config.epochs == 2
    outcome, reward = log.results.scores
    assert [outcome.metrics[n].value for n in ("mean", "low_95", "high_95")] == [
        *(cell["mean_outcome"], *cell["interval"])
    ]
    assert reward.metrics["mean"].value == cell["mean_reward"]
    assert log.eval.model == found["meta"]["model"] and log.eval.model_generate_config.seed == 7
    assert log.eval.revision is not None
    assert log.eval.revision.commit == found["meta"]["code"]["revision"]


def test_parts_of_a_log_are_read_alone_and_it_can_be_written_again(
    folder: Path, tmp_path: Path
) -> None:
    path = str(folder / "words.eval")
    assert len(list_eval_logs(str(folder))) == 1
    summaries = read_eval_log_sample_summaries(path)
    assert len(summaries) == 20 and {s.id for s in summaries} >= {"r0", "sums/3"}
    assert sum(s.error is not None for s in summaries) == 2
    assert read_eval_log_sample(path, "sums/3", 2).target == "6"
    assert read_eval_log(path, header_only=True).samples is None
    again = str(tmp_path / "again.eval")
    write_eval_log(read_eval_log(path), again)
    first, second = (read_eval_log(p).model_dump() for p in (path, again))
    assert first == second
