"""`assay demo`: tasks, SFT, Dr.GRPO, evaluation and report, on this machine, in one run folder.

Every stage leaves a finished piece in the run folder and is skipped when it is already there, so
running the same command again resumes where the last one stopped. This file is the one place
where training meets task building (elsewhere they meet in files).
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from configs.loader import ConfigError, to_dict
from configs.schema import DemoConfig, TasksConfig
from rewards.task import Task, read_tasks
from train.run.resume import Checkpoints
from train.run.settings import load_run, weights_of

DEFAULT_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "demo.yaml"
Row = dict[str, Any]


def build_tasks(config: TasksConfig, seed: int, folder: Path) -> dict[str, list[Task]]:
    """The three splits, built once and then read back."""
    from data_gen.cli import write_demo
    from data_gen.corpora import read_corpus
    from data_gen.demo.settings import preset

    names = ("train_sft", "train_rl", "heldout")
    if not (folder / "certificate.json").is_file():  # written last
        corpus = read_corpus(config.corpus)
        for problem in corpus.problems[:5]:
            print(f"left out: {problem}", file=sys.stderr)
        if corpus.problems:
            print(f"{len(corpus.problems)} corpus rows left out", file=sys.stderr)
        write_demo(corpus, preset(config.difficulty, **config.changes()), seed, folder)
    return {name: read_tasks(folder / f"{name}.jsonl") for name in names}


class Demo:
    """One run: its folder, its settings, and what the stages share."""

    def __init__(self, config: DemoConfig, out: Path) -> None:
        from rollouts.prompts import ChatTokenizer
        from train.evaluation.rows import scorer
        from train.model.source import resolve_model
        from train.run.log import RunLog
        from train.run.setup import prepare

        self.config, self.out = config, out
        self.machine = prepare(config.engine)
        self.source = resolve_model(config.model.path)
        self.tasks = build_tasks(config.tasks, config.seed, out / "tasks")
        more = config.model.chat_template_kwargs
        self.tokenizer = ChatTokenizer(self.source, template=more)
        self.score = scorer(weights_of(config.reward))
        self.log = RunLog(
            out,
            wandb=config.log.wandb,
            project=config.log.project,
            config=to_dict(config),
            keep_rollouts=config.log.rollouts,
        )

    def policy(self, folder: Path, train: bool = False) -> Any:
        from train.run.setup import load_checked

        adapters = self.config.model if train else None
        return load_checked(folder, self.config.engine, self.machine, train, adapters)

    def checkpoints(self, stage: str) -> Checkpoints:
        keep = self.config.checkpoint.keep
        return Checkpoints(self.out / "checkpoints" / stage, self.config, keep)

    def finish(self, policy: Any, stage: str) -> Path:
        """Write the stage's model folder, whole or not at all."""
        from rollouts.prompts import keep_template
        from train.run.setup import publish

        work = self.out / f".tmp-{stage}"
        shutil.rmtree(work, ignore_errors=True)
        policy.save(work)
        keep_template(work, self.tokenizer.template)
        return publish(work, self.out / stage)

    def sft(self) -> Path:
        """SFT on gold answers; returns the model folder."""
        from train.sft import gold_examples, train_sft

        done = self.out / "sft"
        if done.is_dir():
            return done
        examples = gold_examples(self.tasks["train_sft"], self.tokenizer)
        policy = self.policy(self.source, train=True)
        train_sft(
            policy,
            examples,
            self.config.sft,
            seed=self.config.seed,
            micro_tokens=self.config.engine.micro_tokens,
            log=self.log,
            checkpoints=self.checkpoints("sft"),
            every=self.config.checkpoint.sft_every,
        )
        return self.finish(policy, "sft")

    def rl(self, start: Path) -> Path:
        """Dr.GRPO from the SFT model; returns the model folder."""
        from train.evaluation.results import figures
        from train.grpo import train_grpo

        record = self.out / "rl.json"
        steps = {"steps": self.config.rl.steps}
        if record.is_file() and json.loads(record.read_text()) == steps:
            return self.out / "rl"
        policy = self.policy(start, train=True)
        reference = self.policy(start) if self.config.rl.kl_coef else None
        held = self.tasks["heldout"][: self.config.eval.tasks]

        def on_eval(step: int) -> dict[str, float]:
            rows = self.evaluate(policy, held, f"evaluating step {step}")
            self.log.record("eval", step, figures(rows))
            return {}

        train_grpo(
            policy,
            self.tasks["train_rl"],
            self.tokenizer,
            self.score,
            self.config.rl,
            seed=self.config.seed,
            micro_tokens=self.config.engine.micro_tokens,
            slots=self.config.engine.slots,
            log=self.log,
            checkpoints=self.checkpoints("rl"),
            reference=reference,
            on_eval=on_eval,
            eval_every=self.config.eval.every,
            weights=weights_of(self.config.reward),
        )
        folder = self.finish(policy, "rl")
        record.write_text(json.dumps(steps))
        return folder

    def evaluate(self, policy: Any, tasks: Sequence[Task], what: str) -> list[Row]:
        from train.evaluation.evaluate import evaluate_tasks
        from train.run.progress import Bar

        engine = policy.engine(self.tokenizer.stop_ids, self.config.engine.slots)
        with Bar(what, len(tasks)) as bar:
            return evaluate_tasks(
                tasks,
                engine,
                self.tokenizer,
                self.score,
                max_new_tokens=self.config.eval.max_new_tokens,
                pass_k=self.config.eval.pass_k,
                seed=self.config.eval.seed,
                chunk=self.config.engine.slots,
                progress=bar,
            )

    def rows(self, name: str, folder: Path) -> list[Row]:
        """Evaluation rows of a model folder, kept beside the run so that they are made once."""
        kept = self.out / "eval" / f"{name}.json"
        key = [name, self.config.rl.steps if name == "rl" else 0, to_dict(self.config.eval)]
        if kept.is_file():
            found = json.loads(kept.read_text(encoding="utf-8"))
            if found["key"] == key:
                return found["rows"]
        held = self.tasks["heldout"][: self.config.eval.tasks]
        rows = self.evaluate(self.policy(folder), held, f"evaluating {name}")
        kept.parent.mkdir(exist_ok=True)
        work = kept.with_suffix(".tmp")
        work.write_text(json.dumps({"key": key, "rows": rows}), encoding="utf-8")
        work.replace(kept)
        return rows


def run_demo(config: DemoConfig) -> Path:
    """All stages; returns the report's path."""
    from train.evaluation.results import text_table
    from train.evaluation.rows import baseline_rows
    from train.report.write import write_report
    from train.run.checkpoint import require_disk
    from train.run.record import write_run_record
    from train.run.setup import give_back_memory, settled

    config, out = settled(config), Path(config.out)
    refuse_other_run(config, out)
    if not (out / "rl").is_dir():
        require_disk(out, 6_000_000_000, "checkpoints and models of this run")
    write_run_record(out, config)
    times: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        print(f"== {name}", flush=True)
        began = time.perf_counter()
        result = work()
        times[name] = round(time.perf_counter() - began, 1)
        gc.collect()  # optimisers hold themselves in a cycle, 2 GB of it
        give_back_memory()
        return result

    demo: Demo = timed("model and tasks", lambda: Demo(config, out))
    held = demo.tasks["heldout"][: config.eval.tasks]
    rows = baseline_rows(held, weights_of(config.reward))
    rows["untouched"] = timed("untouched model", lambda: demo.rows("untouched", demo.source))
    sft = timed("SFT", demo.sft)
    rows["sft"] = timed("SFT model", lambda: demo.rows("sft", sft))
    rl = timed("Dr.GRPO", lambda: demo.rl(sft))
    rows["rl"] = timed("RL model", lambda: demo.rows("rl", rl))
    demo.log.close()
    texts = {t.id: t for t in held}
    for row in (r for part in rows.values() for r in part):
        task = texts[row["task_id"]]
        row |= {"input_text": task.gold["input_text"], "gold_text": task.gold["text"]}
        row["prompt"] = task.prompt[-1]["content"]
    write_run_record(out, config, {"tasks": out / "tasks", "model": demo.source}, times=times)
    draw = {"bootstrap": config.eval.bootstrap, "bootstrap_seed": config.eval.seed}
    meta = {"seed": config.seed, "times": times, "tasks": len(held), **draw}
    data = {"rows": rows, "meta": meta}
    page = write_report(out, data)
    spent = ", ".join(f"{name} {seconds:.0f}s" for name, seconds in times.items())
    print(
        f"\n{text_table(data)}\n\ntime: {spent}; {sum(times.values()) / 60:.1f} minutes\n"
        f"report: {page}"
    )
    return page


def refuse_other_run(config: DemoConfig, out: Path) -> None:
    """Raise `ConfigError` naming the locked fields in which a run already there differs."""
    from configs.loader import locked_difference
    from train.run.record import read_run_record

    old = read_run_record(out).get("config")
    changed = locked_difference(old, config) if old else []
    if changed:
        raise ConfigError(
            f"{out} holds a run with other settings ({', '.join(changed)}); "
            "put them back to resume it, or give another --out"
        )


def main(argv: list[str]) -> int:
    """Exit status 0; 2 with one sentence for settings, a model or a corpus that cannot be used."""
    parser = argparse.ArgumentParser(prog="assay demo", description="The main job, end to end.")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="see configs/demo.yaml")
    parser.add_argument("--config", default=str(DEFAULT_CONFIG))
    parser.add_argument("--seed", type=int)
    parser.add_argument("--out")
    args = parser.parse_args(argv)
    overrides = list(args.settings)
    overrides += [f"seed={args.seed}"] if args.seed is not None else []
    overrides += [f"out={args.out}"] if args.out is not None else []
    from train.run.errors import say_known_errors

    with say_known_errors("assay demo") as status:
        run_demo(load_run(DemoConfig, args.config, overrides))
    return status.code
