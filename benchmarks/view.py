"""How quickly a page of many rollouts opens, filters and searches, and how large it is.

    python -m benchmarks.view --rollouts 20000 --out /tmp/view-bench

Makes a training run of refinement tasks (8 rollouts a group, with tokens and both
log-probabilities), builds the page with `assay view`, and opens it in a headless Chromium through
playwright, where both are installed. Without them it prints the size and the building time alone.
"""

from __future__ import annotations

import argparse
import random
import shutil
from pathlib import Path
from statistics import median
from typing import Any

from assay.family import score_answer
from assay.task import Task, derive_seed, write_jsonl
from benchmarks.runner import command, machine
from rewards.gold import Step, execute
from rewards.parse import render
from rollouts.trajectory import Trajectory

GROUP, PROMPTS = 8, 100  # rollouts a prompt, prompts a step
SENTENCE = "the pump was checked before noon and its valve holds water under low pressure"
WORDS = SENTENCE.split()
DIRT = ("<b>new</b>", "tom@acme.io", "https://acme.io/a?b=1", "■", "(312) 555 0184")
MAPPERS = ("clean_html_mapper", "clean_email_mapper", "clean_links_mapper", "clean_phone_mapper")
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def task(number: int, seed: int) -> Task:
    """A refinement task whose gold is executed here."""
    draw = random.Random(derive_seed(seed, "task", number))
    words = [draw.choice(WORDS) for _ in range(draw.randint(25, 60))]
    for _ in range(draw.randint(1, 5)):
        words.insert(draw.randrange(len(words)), draw.choice(DIRT))
    text = " ".join(words)
    steps = [Step(name) for name in draw.sample(MAPPERS, draw.randint(2, 4))]
    steps.append(Step("words_num_filter", {"min_num": draw.choice((10, 40))}))
    run = execute(text, steps)
    recipe = [{"operator": s.operator, "params": s.params} for s in steps]
    gold = {"status": run.status, "text": run.text, "input_text": text, "recipe": recipe}
    asked = f"Clean the text: {', '.join(s.operator for s in steps)}.\nText:\n{text}"
    prompt = [{"role": "user", "content": asked}]
    meta = {"domain": draw.choice(("docs", "mail", "wiki"))}
    return Task(f"b-{number:05d}", "refinement", "bench", "train", prompt, gold, meta=meta)


def answer(task: Task, draw: random.Random) -> str:
    """Gold, or gold with one of the faults that models make."""
    status, text = task.gold["status"], task.gold["text"]
    words = text.split(" ")
    words[draw.randrange(len(words))] = draw.choice((*DIRT, "", "then"))
    answers = (
        render(status, text),
        render("DROP" if status == "KEEP" else "KEEP", text),
        render(status, task.gold["input_text"]),
        "I cannot do that.",
        render(status, " ".join(words)),
    )
    return draw.choices(answers, (45, 10, 15, 10, 20))[0]


def rollout(task: Task, sample: int, step: int, seed: int) -> dict[str, Any]:
    """A line as training writes it."""
    draw = random.Random(derive_seed(seed, task.id, sample, step))
    text = answer(task, draw)
    count = max(1, len(text) // 4)
    full = [-draw.expovariate(4.0) for _ in range(count)]
    trajectory = Trajectory(
        task_id=task.id,
        sample=sample,
        ids=[draw.randrange(49_000) for _ in range(90 + count)],
        loss_mask=[0] * 90 + [1] * count,
        logprobs=[0.0] * 90 + full,
        sampling_logprobs=[0.0] * 90 + [min(0.0, x + draw.gauss(0, 0.01)) for x in full],
        stop="eos",
        text=text,
        seed=draw.randrange(1 << 60),
        messages=[*task.prompt, {"role": "assistant", "content": text}],
    )
    return trajectory.to_json(score_answer(task, trajectory.answer()), task)


def make_run(folder: Path, rollouts: int, seed: int = 0) -> None:
    """`tasks/train.jsonl` and `rollouts/step_*.jsonl`."""
    steps = -(-rollouts // (GROUP * PROMPTS))
    tasks = [task(number, seed) for number in range(steps * PROMPTS)]
    write_jsonl(folder / "tasks" / "train.jsonl", [t.to_json() for t in tasks])
    for step in range(steps):
        asked = tasks[step * PROMPTS : (step + 1) * PROMPTS]
        rows = [rollout(one, sample, step, seed) for one in asked for sample in range(GROUP)]
        left = rollouts - step * GROUP * PROMPTS
        write_jsonl(folder / "rollouts" / f"step_{step + 1:06d}.jsonl", rows[:left])


TIMINGS = """async () => {
  const app = globalThis.assayView, time = (change) => {
    const began = performance.now();
    change();
    app.refilter();
    return performance.now() - began;
  };
  const value = (name, k) => app.ix.names[name][k];
  const found = { "filter by why": time(() => { app.filter.pick.why = value("why", 0); }) };
  found["filter by part"] = time(() => { app.filter.part = "rg"; app.filter.partIs = "low"; });
  found["no filter"] = time(() => { app.filter.pick = {}; app.filter.part = ""; });
  found["sort by advantage"] = time(() => { app.sort = "advantage"; });
  found["groups"] = time(() => { app.mode = "groups"; });
  app.mode = "rollouts";
  const began = performance.now();
  app.filter.text = "valve holds then";
  app.readTexts();
  await app.reading;
  found["first search, with reading all texts"] = performance.now() - began;
  found["search"] = time(() => { app.filter.text = "tom@acme.io valve"; });
  return found;
}"""


def in_browser(page: Path, browser: str, times: int) -> dict[str, float]:
    """Medians in milliseconds. Raises `ImportError` without playwright."""
    from playwright.sync_api import sync_playwright

    found: dict[str, list[float]] = {}
    with sync_playwright() as library:
        started = library.chromium.launch(executable_path=browser, args=CHROMIUM)
        for _ in range(times):
            context = started.new_context()
            tab = context.new_page()
            tab.goto(page.resolve().as_uri())
            tab.wait_for_selector(".line")
            first = tab.evaluate("performance.getEntriesByName('first-row')[0].startTime")
            for name, value in {"first row": first, **tab.evaluate(TIMINGS)}.items():
                found.setdefault(name, []).append(value)
            context.close()
        started.close()
    return {name: median(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=20_000)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--times", type=int, default=5, help="how often the page is opened")
    args = parser.parse_args()
    print(machine())
    out: Path = args.out.resolve()
    if not (out / "rollouts").is_dir():
        make_run(out, args.rollouts)
    page = out / "view.html"
    took = command("view", out, "--out", page)
    found = {"page MB": page.stat().st_size / 1e6, "building, processor s": took.cpu}
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        if browser is None:
            raise ImportError("no chromium")
        shown = in_browser(page, browser, args.times)
        found |= {f"{name} ms": value for name, value in shown.items()}
    except ImportError as error:
        print(f"not opened in a browser: {error}")
    print("\n".join(f"{name:<42} {value:10.1f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
