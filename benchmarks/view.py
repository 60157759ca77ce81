"""How quickly a page of many rollouts opens, filters and searches, and how large it is.

    python -m benchmarks.view --rollouts 20000 --out /tmp/view-bench

Makes a training run of refinement tasks (8 rollouts a group, with tokens and both
log-probabilities), builds the page with `assay view`, and opens it in a headless Chromium through
playwright, where both are installed. Without them it prints the size and the building time alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from assay.family import score_answer
from assay.seeds import derive_seed
from assay.task import Task, write_jsonl
from rewards.gold import Step, execute
from rewards.parse import render
from rollouts.trajectory import Trajectory

ROOT = Path(__file__).resolve().parents[1]
GROUP, PROMPTS = 8, 100  # rollouts a prompt, prompts a step
SENTENCE = "the pump was checked before noon and its valve holds water under low pressure"
WORDS = SENTENCE.split()
DIRT = ("<b>new</b>", "tom@acme.io", "https://acme.io/a?b=1", "■", "(312) 555 0184")
MAPPERS = (
    "clean_html_mapper",
    "clean_email_mapper",
    "clean_links_mapper",
    "remove_specific_chars_mapper",
    "clean_phone_mapper",
)
CHROMIUM = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
]


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
    gold: dict[str, Any] = {"status": run.status, "text": run.text, "input_text": text}
    asked = f"Clean the text: {', '.join(s.operator for s in steps)}.\nText:\n{text}"
    return Task(
        id=f"bench-{number:05d}",
        family="refinement",
        track="bench",
        split="train",
        prompt=[{"role": "user", "content": asked}],
        gold={**gold, "recipe": recipe},
        meta={"domain": draw.choice(("docs", "mail", "wiki"))},
    )


def answer(task: Task, draw: random.Random) -> str:
    """Gold, or gold with one of the faults that models make."""
    status, text = task.gold["status"], task.gold["text"]
    fault = draw.random()
    if fault < 0.45:
        return render(status, text)
    if fault < 0.55:
        return render("DROP" if status == "KEEP" else "KEEP", text)
    if fault < 0.7:
        return render(status, task.gold["input_text"])
    if fault < 0.8:
        return "I cannot do that."
    words = text.split(" ")
    place = draw.randrange(len(words))
    words[place] = draw.choice((*DIRT, "", "then"))
    return render(status, " ".join(words))


def rollout(task: Task, sample: int, step: int, seed: int) -> dict[str, Any]:
    """A line as training writes it."""
    draw = random.Random(derive_seed(seed, task.id, sample, step))
    text = answer(task, draw)
    count = max(1, len(text) // 4)
    prompt = [draw.randrange(49_000) for _ in range(90)]
    full = [-draw.expovariate(4.0) for _ in range(count)]
    trajectory = Trajectory(
        task_id=task.id,
        sample=sample,
        ids=prompt + [draw.randrange(49_000) for _ in range(count)],
        loss_mask=[0] * 90 + [1] * count,
        logprobs=[0.0] * 90 + full,
        sampling_logprobs=[0.0] * 90 + [min(0.0, x + draw.gauss(0, 0.01)) for x in full],
        stop="eos",
        text=text,
        seed=draw.randrange(1 << 60),
        messages=[*task.prompt, {"role": "assistant", "content": text}],
    )
    return trajectory.to_json(score_answer(task, trajectory.answer()), task)


def make_run(folder: Path, rollouts: int, seed: int) -> None:
    """`tasks/train.jsonl` and `rollouts/step_*.jsonl`."""
    steps = -(-rollouts // (GROUP * PROMPTS))
    tasks = [task(number, seed) for number in range(steps * PROMPTS)]
    write_jsonl(folder / "tasks" / "train.jsonl", [t.to_json() for t in tasks])

    def lines(step: int) -> Iterator[dict[str, Any]]:
        for asked in tasks[step * PROMPTS : (step + 1) * PROMPTS]:
            for sample in range(GROUP):
                yield rollout(asked, sample, step, seed)

    left = rollouts
    for step in range(steps):
        rows = list(lines(step))[:left]
        left -= len(rows)
        write_jsonl(folder / "rollouts" / f"step_{step + 1:06d}.jsonl", rows)


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=20_000)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--times", type=int, default=5, help="how often the page is opened")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not (args.out / "rollouts").is_dir():
        make_run(args.out, args.rollouts, args.seed)
    page = args.out / "view.html"
    began = os.times()
    command = [sys.executable, "-m", "assay", "view", str(args.out), "--out", str(page)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    found: dict[str, float] = {
        "page MB": page.stat().st_size / 1e6,
        "building, processor s": os.times().children_user - began.children_user,
    }
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        if browser is None:
            raise ImportError("no chromium")
        shown = in_browser(page, browser, args.times)
        found |= {f"{name} ms": value for name, value in shown.items()}
    except ImportError as error:
        print(f"not opened in a browser: {error}", file=sys.stderr)
    if args.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name:<42} {value:10.1f}" for name, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
