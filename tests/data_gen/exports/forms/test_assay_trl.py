"""The exported TRL file: rewards are `assay score`'s, and the real trainer takes a step on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tool_model import ANSWERS, calling
from tool_model import tasks as write_tasks
from travelling import FIGS, adapter, demo_tasks, exported, own_tasks, tasks_file, texts, tool_tasks

from assay.task import Task, read_tasks, write_jsonl
from rewards.score import main as score_command

RUNS = calling("run_python", code="print(6 * 7)")
HANDS = tuple(calling("hand_in", answer=answer) for answer in ANSWERS)
DONE = "Done."


def write_model(
    folder: Path,
    template: str,
    prompt: Sequence[dict[str, str]],
    tools: Sequence[Callable[..., str]],
) -> Path:
    """A random Llama, taught on one prompt to run Python or to hand in one of four answers, one as
    often as the other; to hand in when it has seen output; and to stop when an answer was taken."""
    from tiny_model import small_llama, teach_endings, write_tiny_tokenizer
    from transformers import AutoTokenizer

    write_tiny_tokenizer(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    words = {"tools": list(tools), "add_generation_prompt": True, "tokenize": False}
    first = tokenizer.apply_chat_template(list(prompt), **words)
    # the tokenizer knows bytes: one token for the description of the tools keeps prompts short
    described = first.partition("<|im_start|>system\n")[2].partition("<|im_end|>")[0]
    tokenizer.add_tokens([RUNS, *HANDS, DONE, described])
    tokenizer.save_pretrained(folder)
    model: Any = small_llama(len(tokenizer))

    def after(call: str, output: str) -> str:
        said = f"<|im_end|>\n<|im_start|>user\n<tool_response>\n{output}\n</tool_response>"
        return f"{first}{call}{said}<|im_end|>\n<|im_start|>assistant\n"

    def shown(step: int) -> Iterator[list[int]]:
        hand = HANDS[step % 4]
        pairs = [(first, RUNS if step % 5 == 4 else hand), (after(RUNS, "42\n"), hand)]
        pairs.append((after(hand, "The answer was taken."), DONE))
        for before, answer in pairs:
            yield tokenizer(f"{before}{answer}<|im_end|>", add_special_tokens=False)["input_ids"]

    teach_endings(model, map(shown, range(80)))
    model.save_pretrained(folder)
    return folder


def scored(folder: Path, tasks: list[Task], said: Iterable[tuple[str, str, Any]]) -> list[float]:
    """The rewards of `assay score` for (task, answer, …)."""
    outputs, scores = folder / "outputs.jsonl", folder / "scores.jsonl"
    write_jsonl(outputs, [{"id": name, "output": answer} for name, answer, _ in said])
    words = ["--tasks", str(tasks_file(folder, tasks)), "--out", str(scores), "--workers", "1"]
    assert score_command([str(outputs), *words]) == 0
    return [json.loads(line)["reward"] for line in scores.read_text().splitlines()]


def test_rewards_are_those_of_assay_score(tmp_path: Path) -> None:
    tasks = [*demo_tasks(12), *own_tasks(8)]
    file = adapter(exported("trl", tmp_path, tasks), "assay_trl")
    by_id = {task.id: task for task in tasks}
    pairs: list[tuple[str, str, Any]] = []
    for i, row in enumerate(file.rows()):
        name = json.loads(row["task"])["id"]
        pairs += [(name, text, row["task"]) for text in texts(by_id[name], tasks[i - 1])]
    ours, rows = scored(tmp_path, tasks, pairs), [row for _, _, row in pairs]
    said = [[{"role": "assistant", "content": text}] for _, text, _ in pairs]
    assert file.reward(said, rows) == ours == file.reward([text for _, text, _ in pairs], rows)
    assert {0.0, 1.0} < set(ours)


def test_a_workbench_pays_the_answer_that_was_handed_in_last(tmp_path: Path) -> None:
    folder = exported("trl", tmp_path, demo_tasks(6))
    file = adapter(folder, "assay_trl")
    row = file.rows()[0]
    bench = file.Workbench()
    assert bench.reset(**row).startswith("\n\nCall hand_in")
    assert bench.get_reward() == 0.0
    bench.hand_in(row["gold"])
    assert bench.get_reward() == 1.0
    bench.hand_in("no")
    assert bench.get_reward() == 0.0
    assert bench.run_python("print(6 * 7)").strip() == "42"
    bench.reset(**row)
    assert bench.get_reward() == 0.0  # nothing is left of the episode before


def test_a_workbench_has_the_tools_of_its_tasks(tmp_path: Path) -> None:
    file = adapter(exported("trl", tmp_path, tool_tasks(6)), "assay_trl")
    bench = file.Workbench()
    for row in file.rows():
        bench.reset(**row)
        assert "CREATE TABLE stock" in bench.tables()
        assert bench.query(sql="DELETE FROM stock") == "[]"  # gone in the next episode
        bench.reset(**row)
        assert bench.query(sq="x") == "error: argument 'sql' is missing"
        bench.hand_in(bench.query(**FIGS).strip("[]"))
        assert bench.get_reward() == 1.0
        assert bench.query(**FIGS) == "error: the episode is over"


def test_a_workbench_s_tools_have_schemas_that_trl_reads(tmp_path: Path) -> None:
    from transformers.utils.chat_template_utils import get_json_schema

    bench = adapter(exported("trl", tmp_path, tool_tasks(2)), "assay_trl").Workbench()
    said = get_json_schema(bench.query)["function"]
    assert (said["name"], said["parameters"]["required"]) == ("query", ["sql"])
    assert said["description"] == "Run a SELECT statement; the first 20 rows come back."
    assert get_json_schema(bench.tables)["function"]["parameters"]["properties"] == {}


STEPS = 10
Handed = list[tuple[str, str, float | None]]


def watched(file: Any, handed: Handed, ran: list[str]) -> type:
    """The exported workbench; it keeps a list of the calls that it gets."""

    class Watched(file.Workbench):
        def get_reward(self) -> float | None:
            made = super().get_reward()
            handed.append((self._task.id, self._answer, made))
            return made

        def run_python(self, code: str) -> str:
            """
            Run a Python program.

            Args:
                code: The program.

            Returns:
                What it printed.
            """
            ran.append(super().run_python(code))
            return ran[-1]

    return Watched


def model_for(bench: Any, row: dict[str, Any], folder: Path) -> Path:
    """A tiny model that was taught on the workbench's first message and calls its two tools."""
    trl = pytest.importorskip("trl")
    seen = [*row["prompt"][:-1], dict(row["prompt"][-1])]
    seen[-1]["content"] += bench.reset(**row)
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3_instruct_2507.jinja"
    tools = [bench.hand_in, bench.run_python]
    return write_model(folder, template.read_text(encoding="utf-8"), seen, tools)


def test_the_real_trainer_calls_both_tools_and_learns_what_pays(tmp_path: Path) -> None:
    """Rewards of its episodes are those of `assay score`."""
    trl = pytest.importorskip("trl", reason="trl is not installed; `make test-interop`")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tasks = read_tasks(write_tasks(8, tmp_path / "made.jsonl", tools=False))
    file = adapter(exported("trl", tmp_path, tasks), "assay_trl")
    handed: Handed = []
    ran: list[str] = []
    bench = watched(file, handed, ran)
    folder = model_for(bench(), file.rows()[0], tmp_path / "model")
    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path / "run"),
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=400,
        max_steps=STEPS,
        max_tool_calling_iterations=3,
        learning_rate=1e-2,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        seed=0,
    )
    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        environment_factory=bench,
        args=arguments,
        train_dataset=file.dataset(),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    trainer.train()
    logged = [row for row in trainer.state.log_history if "reward" in row]
    assert len(handed) == 8 * STEPS and len(logged) == STEPS
    assert ran and set(ran) == {"42\n"}  # in the sandbox
    assert logged[0]["tools/call_frequency"] > 0
    assert all(row["tools/failure_frequency"] == 0 for row in logged)
    assert [reward for _, _, reward in handed] == scored(tmp_path, tasks, handed)
    right = [float(answer == ANSWERS[0]) for _, answer, _ in handed]
    assert sum(right[-16:]) / 16 > sum(right[:16]) / 16 + 0.3
