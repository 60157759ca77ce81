"""A small training run and evaluations of it, written as the trainer writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from assay.family import score_answer
from assay.task import Task, json_line, write_jsonl
from rewards.gold import Step, execute
from rewards.parse import render
from rollouts.trajectory import Trajectory
from train.evaluation.rows import row_of

EVIL = '</script><script>document.title = "owned"</script><img src=x onerror="alert(1)">'
INPUT = "Ask <b>tom</b> at tom@acme.io or at ann@acme.io now."
STEPS = (Step("clean_html_mapper"), Step("clean_email_mapper"), Step("words_num_filter"))


def refinement(number: int, text: str = INPUT, least: int = 3) -> Task:
    """A task with the recipe html, e-mail, at least `least` words."""
    steps = [*STEPS[:2], Step("words_num_filter", {"min_num": least})]
    run = execute(text, steps)
    recipe = [{"operator": s.operator, "params": s.params} for s in steps]
    gold = {"status": run.status, "text": run.text, "input_text": text, "recipe": recipe}
    prompt = [{"role": "user", "content": f"Clean {number}: {text}"}]
    meta = {"domain": "mail" if number % 2 else "docs"}
    return Task(f"t/{number}", "refinement", "demo", "train", prompt, gold, meta=meta)


def trajectory(task: Task, sample: int, text: str, **more: Any) -> Trajectory:
    values: dict[str, Any] = {"ids": [5, 6, 7, 8], "loss_mask": [0, 0, 1, 1], "stop": "eos"}
    values |= {"logprobs": [0.0, 0.0, -0.25, -2.5], "sampling_logprobs": [0.0, 0.0, -0.2, -2.5]}
    values |= {"messages": [*task.prompt, {"role": "assistant", "content": text}], "seed": 1}
    return Trajectory(task_id=task.id, sample=sample, text=text, **(values | more))


def line(task: Task, sample: int, text: str, **more: Any) -> dict[str, Any]:
    run = trajectory(task, sample, text, **more)
    return run.to_json(score_answer(task, run.answer()), task)


def answers(task: Task) -> list[str]:
    """Right, e-mails left in, status wrong, and hostile text without a form."""
    gold = task.gold
    other = "DROP" if gold["status"] == "KEEP" else "KEEP"
    left = gold["input_text"].replace("<b>", "").replace("</b>", "")
    right, wrong = render(gold["status"], gold["text"]), render(other, gold["text"])
    return [right, render(gold["status"], left), wrong, EVIL]


def make_run(folder: Path, steps: int = 3, tasks: int = 4) -> list[Task]:
    """`steps` steps with all tasks, four rollouts each."""
    made = [refinement(n) for n in range(tasks)]
    write_jsonl(folder / "tasks" / "train.jsonl", [t.to_json() for t in made])
    for step in range(1, steps + 1):
        rows = [line(t, j, a) for t in made for j, a in enumerate(answers(t))]
        write_jsonl(folder / "rollouts" / f"step_{step:06d}.jsonl", rows)
    metric: dict[str, Any] = {"stage": "rl", "outcome/mean": 0.2}
    metrics = [{**metric, "step": s, "reward/mean": 0.1 * s} for s in range(1, steps + 2)]
    write_jsonl(folder / "metrics.jsonl", metrics)
    return made


def evaluation_rows(tasks: list[Task], which: int = 1) -> list[dict[str, Any]]:
    runs = ((task, trajectory(task, 0, answers(task)[which])) for task in tasks)
    return [row_of(task, run, score_answer(task, run.answer())) for task, run in runs]


def make_evaluation(folder: Path, tasks: list[Task], which: int = 1) -> None:
    """`rows.jsonl` and `eval.json`, as an evaluation that goes on has them."""
    folder.mkdir(parents=True)
    rows = evaluation_rows(tasks, which)
    (folder / "rows.jsonl").write_bytes(b"".join(map(json_line, rows)))
    (folder / "eval.json").write_text(json.dumps({"settings": {}, "tasks": "", "count": 1}))
