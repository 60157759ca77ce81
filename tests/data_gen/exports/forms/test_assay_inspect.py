"""The exported inspect task, evaluated by the real inspect_ai with its mock model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from travelling import (
    FIGS,
    adapter,
    demo_tasks,
    exported,
    own_tasks,
    texts,
    tool_tasks,
)

pytest.importorskip("inspect_ai", reason="inspect_ai is not installed; `make test-interop`")

from inspect_ai import eval as evaluate
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from rewards.adapters import load, score_text


def said(text: str, stop: str = "stop") -> ModelOutput:
    made = ModelOutput.from_content("mockllm/model", text)
    made.choices[0].stop_reason = stop  # pyright: ignore[reportAttributeAccessIssue]
    made.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return made


@pytest.mark.parametrize("family", ["demo", "own"])
def test_accuracy_is_what_assay_scores_also_of_answers_cut_off(tmp_path: Path, family: str) -> None:
    tasks = demo_tasks(60) if family == "demo" else own_tasks(60)
    folder = exported("inspect", tmp_path, tasks)
    words = load(folder)
    answers = [
        texts(w.task, words[i - 1].task)[i % 13 if i % 3 else 0] for i, w in enumerate(words)
    ]
    stops = ["max_tokens" if i % 10 == 9 else "stop" for i in range(len(answers))]
    ours = [
        score_text(w.task, text, truncated=stop != "stop")
        for w, text, stop in zip(words, answers, stops, strict=True)
    ]
    model = get_model("mockllm/model", custom_outputs=list(map(said, answers, stops)))
    (log,) = evaluate(
        adapter(folder, "assay_inspect").assay(),
        model=model,
        display="none",
        log_dir=str(tmp_path / "logs"),
        max_connections=1,
        max_samples=1,
    )
    assert log.status == "success" and log.samples is not None and log.results is not None
    theirs = {str(s.id): (s.scores or {})["assay"] for s in log.samples}
    for w, score in zip(words, ours, strict=True):
        assert theirs[w.task.id].value == score.outcome
        assert (theirs[w.task.id].metadata or {})["reward"] == score.reward
    mean = sum(s.outcome or 0.0 for s in ours) / len(ours)
    assert 0.2 < mean < 1
    accuracy = log.results.scores[0].metrics["mean"].value
    assert accuracy == pytest.approx(mean, abs=1e-12)


@pytest.mark.parametrize("way", ["tool", "guess"])
def test_tools_of_one_s_own_are_offered_and_find_gold(tmp_path: Path, way: str) -> None:
    def counted(output: ModelOutput) -> ModelOutput:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output

    def answered(messages: Any, tools: Any, choice: Any, config: Any) -> ModelOutput:
        assert [tool.name for tool in tools] == ["tables", "query"]
        told = [message for message in messages if message.role == "tool"]
        if way == "tool" and not told:
            return counted(ModelOutput.for_tool_call("mockllm/model", "query", FIGS))
        return said(told[-1].text.strip("[]") if told else "none")

    folder = exported("inspect", tmp_path, tool_tasks(6))
    (log,) = evaluate(
        adapter(folder, "assay_inspect").assay(),
        model=get_model("mockllm/model", custom_outputs=answered),
        display="none",
        log_dir=str(tmp_path / "logs"),
    )
    assert log.status == "success" and log.samples is not None
    scores = [(s.scores or {})["assay"].value for s in log.samples]
    assert scores == [float(way == "tool")] * 6
