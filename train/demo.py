# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""`assay demo`: tasks, SFT, Dr.GRPO, evaluation and report, on this machine, in one run folder.

Every stage leaves a finished piece in the run folder and is skipped when it is already there, so
running the same command again resumes where the last one stopped. This file is the one place
where training meets task building (elsewhere they meet in files).
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from assay.console import Progress
from assay.task import Task, read_tasks
from configs.loader import to_dict
from configs.schema import DEMO_SIZES, DemoConfig, GrpoConfig, SftConfig, TasksConfig, weights_of
from data_gen.corpora import read_corpus
from data_gen.demo.cli import write
from data_gen.demo.refinements import DemoBuilder
from data_gen.demo.settings import preset
from rollouts.event_loop import asyncio_run
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Sampling
from train.evaluation.results import figures, text_table
from train.evaluation.rows import baseline_rows, evaluate_tasks
from train.evaluation.rows import scorer as answer_scorer
from train.examples import Example, of_tasks
from train.grpo import train_grpo
from train.lengths import fit_rl, fit_sft, measured, room_of
from train.memory import give_back_memory
from train.model.batch import scorer
from train.model.optim import backward
from train.model.order import drawn, fitting
from train.model.packing import Segment, pack
from train.model.policy import Policy, device_of
from train.model.source import resolve_model
from train.report.write import write_report
from train.run.data import audit_tasks
from train.run.log import duration
from train.run.record import read_run_record
from train.run.run import Run, Trainable, load_checked, prepare, settled
from train.run.trained_on import marks_from, trained_before
from train.sft import train_sft
from train.view.sources import PAGE

Row = dict[str, Any]
SPLITS = ("train_sft", "train_rl", "heldout")
FEW = 16  # held-out tasks of the first table
DISK = 6_000_000_000  # three models, and a checkpoint more than are kept


def run_demo(config: DemoConfig, speeds: Speeds | None = None) -> Path:
    """All stages; returns the report's path. `speeds`: of this machine, where they are known."""
    finished = (Path(config.out) / "rl").is_dir()
    with Run(config, disk=0 if finished else DISK) as run:
        config, out, times = run.config, run.out, dict[str, float]()
        weights = weights_of(config.reward)

        # 1. The model and three splits of tasks. Held-out tasks come from other documents.
        with timed("model and tasks", times):
            source = resolve_model(config.model.path)
            tokenizer = ChatTokenizer(source, template=config.model.chat_template_kwargs)
            tasks = build_tasks(config.tasks, config.seed, out / "tasks")
        run.bind({"tasks": out / "tasks", "model": source, "tokenizer": tokenizer.fingerprint})
        run.record()
        audit_tasks(config.rl.audit, tasks["train_rl"], out, config.seed, weights, out)
        examples = of_tasks(tasks["train_sft"], tokenizer)
        sft_settings, rl_settings = fitted(run, source, tokenizer, examples, tasks["train_rl"])
        known = trained_before(source).after("sft", "train_sft.jsonl", (e.marks for e in examples))
        held = tasks["heldout"][: config.eval.tasks]
        rows = baseline_rows(held, weights)
        if not (out / "eval" / "untouched.json").is_file():
            first_look(run, source, tokenizer, held, rows, speeds)
        with timed("untouched model", times):
            some = held[: config.eval.untouched or None]
            rows["untouched"] = evaluated(run, "untouched", source, tokenizer, some)
        run.between("the evaluation of the untouched model")

        # 2. SFT on gold answers.
        with timed("SFT", times):
            run.trained = known
            sft = run.saved("sft") or taught(run, source, examples, sft_settings)
        with timed("SFT model", times):
            rows["sft"] = evaluated(run, "sft", sft, tokenizer, held)
        run.between("SFT")

        # 3. Dr.GRPO from the SFT model, on other tasks.
        with timed("Dr.GRPO", times):
            asked = drawn(
                fitting(tasks["train_rl"], tokenizer, rl_settings), rl_settings, config.seed
            )
            run.trained = known.after("rl", "train_rl.jsonl", marks_from(asked, out / "tasks"))
            rl = reinforced(run, sft, tasks["train_rl"], held, tokenizer, rl_settings)
        with timed("RL model", times):
            rows["rl"] = evaluated(run, "rl", rl, tokenizer, held)

        # 4. The report.
        with_texts(rows, held)
        run.record(times=times)
        draw = {"bootstrap": config.eval.bootstrap, "bootstrap_seed": config.eval.seed}
        meta = {"seed": config.seed, "times": times, "tasks": len(held), **draw}
        data = {"rows": rows, "meta": meta}
        page = write_report(out, data, rollouts=True)
        spent = ", ".join(f"{name} {seconds:.0f}s" for name, seconds in times.items())
        print(
            f"\n{text_table(data)}\n\ntime: {spent}; {sum(times.values()) / 60:.1f} minutes\n"
            f"report: {page}, which links to the rollouts in {page.with_name(PAGE)}"
        )
        run.finish()
    return page


def in_minutes(config: DemoConfig, minutes: float) -> tuple[DemoConfig, Speeds | None]:
    """`config` with the sizes that take about `minutes` here, and the measured speeds; where a run
    has begun in its folder, the sizes of that run, and no speeds. Says the sizes."""
    fitted, speeds = begun_with(config), None
    if fitted is None:
        config = settled(config)
        device = prepare(config.engine)
        source = resolve_model(config.model.path)
        tokenizer = ChatTokenizer(source, template=config.model.chat_template_kwargs)
        policy = load_checked(source, config.engine, device, True, config.model)
        speeds = measured_speeds(policy, tokenizer, config.engine.slots)
        fitted = fitted_to(config, speeds, minutes)
    print(f"sizes: {sizes_of(fitted)}", flush=True)
    return fitted, speeds


def first_look(
    run: Run[DemoConfig],
    source: Path,
    tokenizer: ChatTokenizer,
    held: Sequence[Task],
    baselines: dict[str, list[Row]],
    speeds: Speeds | None,
) -> None:
    """How long all of it will take, and what the untouched model does with the first tasks: within
    a minute it can be seen whether the run is worth waiting for."""
    policy = run.load(source, train=True, adapters=run.config.model)
    speeds = speeds or measured_speeds(policy, tokenizer, run.config.engine.slots)
    print(expected_line(run.config, speeds), flush=True)
    few = held[:FEW]
    rows = {name: mine[: len(few)] for name, mine in baselines.items()}
    rows["untouched"] = answered(run, policy, few, tokenizer, "evaluating the first tasks")
    print(f"\n{text_table({'rows': rows, 'meta': {'bootstrap': 200}})}\n", flush=True)


@contextmanager
def timed(name: str, times: dict[str, float]) -> Generator[None]:
    """Announce a stage, note its seconds, and let its memory go."""
    print(f"== {name}", flush=True)
    began = time.perf_counter()
    yield
    times[name] = round(time.perf_counter() - began, 1)
    gc.collect()  # optimisers hold themselves in a cycle, 2 GB of it
    give_back_memory()


def build_tasks(config: TasksConfig, seed: int, folder: Path) -> dict[str, list[Task]]:
    """The three splits, built once and then read back."""
    if not (folder / "certificate.json").is_file():  # written last
        corpus = read_corpus(config.corpus)
        for problem in corpus.problems[:5]:
            print(f"left out: {problem}", file=sys.stderr)
        if corpus.problems:
            print(f"{len(corpus.problems)} corpus rows left out", file=sys.stderr)
        write(DemoBuilder(preset(config.difficulty, **config.changes()), seed), corpus, folder)
    return {name: read_tasks(folder / f"{name}.jsonl") for name in SPLITS}


def fitted(
    run: Run[DemoConfig],
    source: Path,
    tokenizer: ChatTokenizer,
    examples: list[Example],
    tasks: list[Task],
) -> tuple[SftConfig, GrpoConfig]:
    """The settings of both loops, with lengths where they are left to the data."""
    config = run.config
    room = room_of(source, config.engine, config.model)
    sft, why = fit_sft(config.sft, [e.tokens for e in examples], room)
    rl, also = fit_rl(config.rl, measured(tasks, tokenizer), room)
    for line in filter(None, (why, also)):
        print(line, flush=True)
    return sft, rl


def taught(
    run: Run[DemoConfig], source: Path, examples: list[Example], settings: SftConfig
) -> Path:
    """The model folder after SFT."""
    policy = run.load(source, train=True, adapters=run.config.model)
    train_sft(policy, examples, settings, run.loop("sft"))
    folder = run.save(policy, "sft")
    run.remove("checkpoints/sft")  # 1.6 GB that nothing goes on from
    return folder


def reinforced(
    run: Run[DemoConfig],
    start: Path,
    tasks: list[Task],
    held: list[Task],
    tokenizer: ChatTokenizer,
    settings: GrpoConfig,
) -> Path:
    """The model folder after Dr.GRPO from the model in `start`; made anew when rl.steps grew."""
    config, record = run.config, run.out / "rl.json"
    steps = {"steps": config.rl.steps}
    done = run.saved("rl")
    if done is not None and record.is_file() and json.loads(record.read_text()) == steps:
        return done
    policy = run.load(start, train=True, adapters=config.model)
    reference = run.load(start) if config.rl.kl_coef else None

    def validate(step: int, last: int) -> None:
        if config.eval.every and step % config.eval.every == 0:
            answers = answered(run, policy, held, tokenizer, f"evaluating step {step}")
            run.log.record("eval", step, figures(answers))

    score, loop = scorer(weights_of(config.reward)), run.loop("rl", validate)
    train_grpo(policy, tasks, tokenizer, score, settings, loop, reference=reference)
    folder = run.save(policy, "rl")
    loop.checkpoints.keep_newest()
    record.write_text(json.dumps(steps))
    return folder


def evaluated(
    run: Run[DemoConfig], name: str, folder: Path, tokenizer: ChatTokenizer, held: list[Task]
) -> list[Row]:
    """Evaluation rows of a model folder, kept beside the run so that they are made once."""
    config, kept = run.config, run.out / "eval" / f"{name}.json"
    key = [name, config.rl.steps if name == "rl" else 0, to_dict(config.eval)]
    if kept.is_file():
        found = json.loads(kept.read_text(encoding="utf-8"))
        if found["key"] == key:
            return found["rows"]
    rows = answered(run, run.load(folder), held, tokenizer, f"evaluating {name}")
    kept.parent.mkdir(exist_ok=True)
    work = kept.with_suffix(".tmp")
    work.write_text(json.dumps({"key": key, "rows": rows}), encoding="utf-8")
    work.replace(kept)
    return rows


def answered(
    run: Run[DemoConfig],
    policy: Trainable,
    tasks: Sequence[Task],
    tokenizer: ChatTokenizer,
    what: str,
) -> list[Row]:
    """One row per task: the model's greedy answer and its score."""
    config = run.config
    engine = policy.engine(tokenizer.stop_ids, config.engine.slots)
    with Progress(what, "tasks", len(tasks)) as bar:
        return evaluate_tasks(
            tasks,
            engine,
            tokenizer,
            answer_scorer(weights_of(config.reward)),
            max_new_tokens=config.eval.max_new_tokens,
            pass_k=config.eval.pass_k,
            seed=config.eval.seed,
            chunk=config.engine.slots,
            progress=bar,
        )


def with_texts(rows: dict[str, list[Row]], tasks: Sequence[Task]) -> None:
    """Add to every row what the report shows beside the answer: input, gold and prompt."""
    texts = {t.id: t for t in tasks}
    for row in (r for part in rows.values() for r in part):
        task = texts[row["task_id"]]
        row |= {"input_text": task.gold["input_text"], "gold_text": task.gold["text"]}
        row["prompt"] = task.prompt[-1]["content"]


# --- how long it takes, and the sizes that fit into a time ----------------------------------------

# A measurement of some seconds chooses sizes and nothing else. They are recorded as settings, so
# that a run can be made again without it, on any machine.
PROMPT, ANSWER = 113, 42  # tokens of the default demo's tasks and golds, on average
SHARED, BESIDE = 50, 6  # of a prompt's tokens all begin with; rows of SFT that share them
# what is computed of a group's tokens in RL: samples and flat groups share most (one run's means)
DRAWN, LEARNED = 0.6, 0.35
START_S = 30.0  # tasks, loading the model three times, the report
PROMPTS, ROWS, NEW = 4, 64, 12  # prompts, answers and tokens of the measurement
GPU_TEXTS = 8  # such texts at a time: a GPU takes about as long for one
LEAST = {"train_sft": 40, "steps": 2, "tasks": 48}


@dataclass(frozen=True)
class Speeds:
    """Tokens a second: of prompts read, of answers written side by side, and learned from."""

    prefill: float
    decode: float
    learn: float


def measured_speeds(policy: Policy, tokenizer: ChatTokenizer, slots: int) -> Speeds:
    """Some seconds of the engine's own work, and of a forward and backward pass over a text (on a
    GPU over a few). Draws from no random state that a run uses."""
    engine, device = policy.engine(tokenizer.stop_ids, slots), device_of(policy)
    prompts = [
        tokenizer.prompt([{"role": "user", "content": f"{name} " * PROMPT}])[:PROMPT]
        for name in ("one", "two", "six", "ten")[:PROMPTS]
    ]
    rows, texts = min(ROWS, slots), GPU_TEXTS if device.type == "cuda" else 1
    answer = prompts[1][:ANSWER] or [0]

    def answers(asked: list[list[int]], n: int, new: int) -> int:
        made = asyncio_run(engine.generate(asked, Sampling(new), n, list(range(len(asked)))))
        return sum(len(one.ids) for group in made for one in group)

    def learn() -> None:
        segments = [Segment(prompts[0], [answer], [row]) for row in range(texts)]
        logp_N, _ = policy.logp(pack(segments, device))
        backward(-logp_N.mean())
        for _, tensor in policy.named():
            tensor.grad = None

    answers(prompts[:1], rows, 1)  # the first call makes what all others use
    read = seconds_of(lambda: answers(prompts, 1, 1))
    start = seconds_of(lambda: answers(prompts[:1], rows, 1))
    tokens: list[int] = []
    whole = seconds_of(lambda: tokens.append(answers(prompts[:1], rows, NEW)))
    decode = max(tokens[0] - rows, 1) / max(whole - start, 1e-3)
    seconds_of(learn)
    learned = texts * (len(prompts[0]) + len(answer)) / seconds_of(learn)
    return Speeds(PROMPTS * PROMPT / read, decode, learned)


def seconds_of(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    if torch.cuda.is_initialized():  # its work goes on after the call
        torch.cuda.synchronize()
    return max(time.perf_counter() - began, 1e-6)


def stage_seconds(config: DemoConfig, speeds: Speeds) -> dict[str, float]:
    """Seconds of every stage."""
    rl, tasks, own = config.rl, config.eval.tasks, PROMPT - SHARED

    def answered(length: float, tasks: int = tasks) -> float:
        return tasks * (own / speeds.prefill + length / speeds.decode)

    group = rl.rollouts_per_prompt * ANSWER
    learned = LEARNED * (PROMPT + group) / speeds.learn
    prompt = own / speeds.prefill + DRAWN * group / speeds.decode + learned
    examples = config.tasks.train_sft * config.sft.epochs
    return {
        "start and report": START_S,
        "untouched model": answered(
            config.eval.max_new_tokens, min(tasks, config.eval.untouched or tasks)
        ),
        "SFT": examples * (own + SHARED / BESIDE + ANSWER) / speeds.learn,
        "SFT model": answered(ANSWER),
        "Dr.GRPO": rl.steps * rl.prompts_per_step * prompt,
        "RL model": answered(ANSWER),
    }


def expected_line(config: DemoConfig, speeds: Speeds) -> str:
    """How long it will take here, stage by stage."""
    stages = stage_seconds(config, speeds)
    parts = ", ".join(f"{name} {duration(seconds)}" for name, seconds in stages.items())
    return f"about {duration(sum(stages.values()))} on this machine: {parts}"


def fitted_to(config: DemoConfig, speeds: Speeds, minutes: float) -> DemoConfig:
    """`config` with sizes that take about `minutes`, but not less than `LEAST`.

    All sizes shrink together; where there is time left, RL gets it.
    """
    stages = stage_seconds(config, speeds)
    fixed = stages.pop("start and report")
    if 0 < config.eval.untouched < config.eval.tasks:  # of its own size
        fixed += stages.pop("untouched model")
    share = (60 * minutes - fixed) / sum(stages.values())
    if share >= 1:
        step = stages["Dr.GRPO"] / config.rl.steps
        more = int((60 * minutes - fixed - sum(stages.values())) / step)
        return replace(config, rl=replace(config.rl, steps=config.rl.steps + more))

    def less(size: int, name: str, by: int) -> int:
        return min(size, max(LEAST[name], round(size * share / by) * by))

    tasks = less(config.eval.tasks, "tasks", 12)
    train_sft = less(config.tasks.train_sft, "train_sft", 8)
    return _sized(config, train_sft, tasks, less(config.rl.steps, "steps", 1), tasks)


def _sized(config: DemoConfig, train_sft: int, heldout: int, steps: int, tasks: int) -> DemoConfig:
    """`config` with these sizes, in the order of `DEMO_SIZES`."""
    return replace(
        config,
        tasks=replace(config.tasks, train_sft=train_sft, heldout=heldout),
        rl=replace(config.rl, steps=steps),
        eval=replace(config.eval, tasks=tasks),
    )


def _sizes(config: Mapping[str, Any]) -> list[int]:
    """The sizes of settings as they are written down."""
    return [config[section][key] for section, key in (name.split(".") for name in DEMO_SIZES)]


def sizes_of(config: DemoConfig) -> str:
    """The sizes as settings: the same run without measuring."""
    values = _sizes(to_dict(config))
    return " ".join(f"{name}={value}" for name, value in zip(DEMO_SIZES, values, strict=True))


def begun_with(config: DemoConfig) -> DemoConfig | None:
    """`config` with the sizes of the run in its folder; None where none has begun."""
    old: Mapping[str, Any] = read_run_record(Path(config.out)).get("config") or {}
    return _sized(config, *_sizes(old)) if old else None
