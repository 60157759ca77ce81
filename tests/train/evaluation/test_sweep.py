"""`python -m benchmarks.sweep`: one evaluation under several settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chat_server import serving
from mixed_tasks import refinement

from assay.task import Task, write_jsonl
from benchmarks.sweep import PRESETS, line, main, short, table
from configs.answers import EvaluationConfig
from train.cli.eval import parser
from train.cli.model_options import settle
from train.evaluation.answering import environment_factory
from train.evaluation.contract import budget_of


def tasks(folder: Path) -> Path:
    gold = {"answer_type": "numeric_exact", "answer": 3}
    prompt = [{"role": "user", "content": "Two and one?"}]
    made = [Task(f"t{n}", "answer", f"track{n % 2}", "heldout", prompt, gold) for n in range(4)]
    write_jsonl(folder / "t.jsonl", [task.to_json() for task in made])
    return folder / "t.jsonl"


def test_a_sweep_runs_every_setting_and_compares_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    replies = [{"match": "Two", "replies": ["<answer>3</answer>"]}]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, replies)), "utf-8")
    command = ["--out", str(tmp_path / "s"), "--setting", "--seed 1", "--setting", "--seed 2"]
    command += ["--", "--tasks", str(tasks(tmp_path)), "--model", f"canned:{tmp_path}/c.jsonl"]
    assert main(command) == 0
    data = json.loads((tmp_path / "s" / "sweep.json").read_text("utf-8"))
    first, second = data["settings"]
    assert (first["setting"], first["overall"], first["difference"]) == ("seed 1", 1.0, None)
    assert second["tracks"] == {"track0": 1.0, "track1": 1.0}
    assert second["difference"]["difference"] == 0.0
    assert "| seed 2 | 100.00 | 100.00 | 100.00 | +0.000" in capfd.readouterr().out
    assert (tmp_path / "s" / "seed-1" / "results.json").is_file()
    assert main(command) == 0  # again: nothing is asked anew


def track(folder: Path) -> Path:
    """Two rows of a published track, three wordings each."""
    rows: list[dict[str, Any]] = []
    for name in ("one", "two"):
        asked = [{"style_id": s, "style_label": s, "user_requirement": f"{s}: cut."} for s in "abc"]
        row = refinement(1, "KEEP", 0).gold | {"instance_id": name, "source_track": "atomic_m"}
        row |= {"reference_status": "KEEP", "reference_text": name, "input_text": f"{name} x"}
        row |= {"track_family": "core_rule", "scoring_profile": "text_refinement"}
        row |= {"output_format": "tagged_text", "operator_kind": "mapper", "domain": "pii"}
        row |= {
            "benchmark_track": "atomic_m",
            "benchmark_split": "single",
            "recipe_prompt_key": "k",
        }
        rows.append(row | {"reports_refinement_gain": True, "prompt_variants": asked})
    (folder / "tracks").mkdir()
    write_jsonl(folder / "tracks" / "atomic_m.jsonl", rows)
    return folder


def test_thinking_off_and_on_are_compared_by_track(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """CDR-Bench's Figure 5 at an endpoint without a parser of thoughts."""

    def reply(body: dict[str, Any]) -> str:
        thinks = body["chat_template_kwargs"]["enable_thinking"]
        text = "two" if thinks and "two x" in body["messages"][-1]["content"] else "one"
        said = f"<status>KEEP</status><clean_text>{text}</clean_text>"
        return f"<think>Not <status>DROP</status>.</think>\n\n{said}" if thinks else said

    with serving(reply) as (url, _):
        words = ["--tasks", f"cdr:{track(tmp_path)}", "--model", url, "server.model=m"]
        assert main(["--out", str(tmp_path / "s"), "--preset", "cdr-thinking", "--", *words]) == 0
    data = json.loads((tmp_path / "s" / "sweep.json").read_text("utf-8"))
    off, on = data["release"]
    assert (off["track"], off["rs"], off["rs@k"], off["ocs@k"]) == ("atomic_m", 0.5, 0.5, None)
    assert (on["rs"], on["rs@k"], on["difference"]["difference"]) == (1.0, 1.0, 0.5)
    shown = capfd.readouterr().out
    assert "| atomic_m | enable thinking true | 100.00 | 100" in shown
    for folder, thought in (("false", False), ("true", True)):
        place = tmp_path / "s" / f"model.chat_template_kwargs.enable_thinking-{folder}"
        assert json.loads((place / "results.json").read_text())["meta"]["thinking"] is thought


def test_what_is_shared_is_not_in_a_name() -> None:
    assert short(PRESETS["dare-budget"])[:2] == ["turns 3, run s 300", "turns 5, run s 200"]
    assert short(PRESETS["krama-rows"])[-1] == "snippet rows 150"
    assert short(PRESETS["krama-tries"]) == ["tries 5", "tries 10", "tries 15", "tries 20"]
    assert short(["tools.turns=3"]) == ["turns 3"]


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_options_of_assay_eval(preset: str) -> None:
    for setting in PRESETS[preset]:
        words = ["--model", "m", "--tasks", "t", "--out", "o", *setting.split()]
        settle(parser().parse_args(words), EvaluationConfig, answers=False, temperature=0.0)


def test_the_model_is_told_the_turns_and_seconds_of_a_setting() -> None:
    """DARE-bench's Table 4 varies both; a model knows them by the tool's description alone."""
    seen: list[tuple[int, float]] = []
    for setting in PRESETS["dare-budget"]:
        args = parser().parse_args(["--model", "m", "--tasks", "t", "--out", "o", *setting.split()])
        settle(args, EvaluationConfig, answers=False, temperature=0.0)
        told = environment_factory(args).settings
        seen.append((told.uses, told.run_s))
        assert budget_of(args).turns == told.uses
        assert budget_of(args).seconds == told.uses * told.run_s
    assert seen == [(3, 300.0), (5, 200.0), (6, 180.0), (8, 120.0), (10, 100.0), (15, 100.0)]


def test_answers_without_an_outcome_are_in_no_mean() -> None:
    row = {"task_id": "a", "track": "x", "turns": 2, "tokens_in": 30, "tokens_out": 10}
    rows = [{**row, "outcome": 1.0, "seconds": 60.0}, {**row, "outcome": None, "seconds": 0.0}]
    found = line("s", rows, None)
    assert (found["overall"], found["no outcome"], found["tokens of a turn"]) == (1.0, 1, 20.0)
    assert "| s | 100.00 | 100.00 | - | 40 | 2.00 | 20 | 0.500 | 1 |" in table([found])
    assert table([line("s", [], None)]).endswith("| s | - | - | 0 | 0.00 | 0 | 0.000 | 0 |\n")


@pytest.mark.parametrize("words", [[], ["--setting", "--seed 1"], ["--", "--model", "m"]])
def test_an_incomplete_command_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--out", "x", *words])
    assert stop.value.code == 2
    assert "give" in capsys.readouterr().err
