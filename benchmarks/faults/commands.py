"""The commands that faults are injected into: tiny inputs, made on the fly, and what they write."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

ENDPOINT = "ENDPOINT"  # in words: the URL of the case's own endpoint
_TINY = "engine.device=cpu engine.threads=1 engine.dtype=float32 log.rollouts=false"
_DEMO = "train_sft=6 train_rl=4 heldout=6 validation=2 difficulty=easy"
_CDR = (
    "instances.min_keep=2 instances.min_drop=2 instances.min_groups=2 select.per_operator=0 "
    "select.per_variant=0 compose.per_domain=2 compose.min_support=4 instruct.all_prompts=true"
)
_DRAW = "sampling.n=2 sampling.temperature=1 --seed 3"
_HERE = "engine.device=cpu engine.dtype=float32 engine.threads=1"
_LOCAL = f"--model in/model {_DRAW} engine.slots=4 sampling.max_new_tokens=6 {_HERE}"


@dataclass(frozen=True)
class Command:
    """`text` runs in a folder with `in/`, and writes to `out/`.

    `inputs`: the files of `in/` that are damaged. `saves`: how it goes on after being stopped: ""
    anew, "rows" from its journal, "steps" from its checkpoints. `state`: patterns of files that a
    second start reads. `needs`: "torch", "sandbox" or "endpoint". `workers`: it has processes to
    kill. `changing`: files that no two runs have alike, since they hold times or hashes of such.
    `few`: a run takes seconds, so fewer moments. `older`: makes an older build in the same folder.
    """

    name: str
    text: str
    inputs: tuple[str, ...] = ()
    saves: str = ""
    state: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    workers: bool = False
    changing: tuple[str, ...] = ()
    few: bool = False
    older: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.text.split())


_RUN_FILES = ("out/run.json", "out/provenance.json")
_ROWS_FILES = ("out/provenance.json", "out/results.json", "out/report.html", "out/view.html")
_SIDE = ("out/r.jsonl.provenance.json",)

COMMANDS: tuple[Command, ...] = (
    Command(
        "tasks demo",
        f"tasks demo --out out --seed 1 {_DEMO}",
        older=f"tasks demo --out out --seed 2 {_DEMO}",
    ),
    Command(
        "tasks dare",
        "tasks dare --tables in/tables --databases 1 --workers 1 --out out",
        ("tables/flowers.csv",),
        needs=("sandbox",),
        few=True,
        older="tasks dare --tables in/tables --databases 1 --workers 1 --out out --seed 5",
    ),
    Command(
        "tasks lake",
        "tasks lake --lakes in/lake --heldout in/other --count 3 --out out",
        ("lake/things.csv",),
        few=True,
        older="tasks lake --lakes in/lake --heldout in/other --count 2 --out out --seed 5",
    ),
    Command(
        "tasks cdr",
        f"tasks cdr --corpus in/corpus --out out --workers 1 {_CDR}",
        ("corpus/web.jsonl",),
        state=("out/.work/**/*.json", "out/.work/**/*.facts", "out/.work/**/*.traces"),
        few=True,
        older=f"tasks cdr --corpus in/corpus --out out --workers 1 {_CDR} instruct.seed=5",
    ),
    Command(
        "execute",
        "execute in/recipes.jsonl.gz out/gold.jsonl --workers 2",
        ("recipes.jsonl.gz",),
        workers=True,
    ),
    Command(
        "score",
        "score --tasks in/tasks.jsonl in/outputs.jsonl --out out/scores.jsonl --workers 2",
        ("tasks.jsonl", "outputs.jsonl"),
        workers=True,
    ),
    Command(
        "score tables",
        "score --tasks in/tables.jsonl in/predictions.jsonl --out out/s.jsonl.gz",
        ("predictions.jsonl",),
    ),
    Command(
        "rollout model",
        f"rollout --tasks in/tasks.jsonl --out out/r.jsonl {_LOCAL}",
        ("tasks.jsonl", "model/model.safetensors", "model/tokenizer.json"),
        saves="rows",
        state=("out/r.jsonl", "out/r.jsonl.settings.json"),
        needs=("torch",),
    ),
    Command(
        "rollout endpoint",
        f"rollout --tasks in/tasks.jsonl --model {ENDPOINT} server.model=m --out out/r.jsonl "
        f"{_DRAW} server.in_flight=2 server.patience=2",
        ("tasks.jsonl",),
        saves="rows",
        state=("out/r.jsonl", "out/r.jsonl.settings.json"),
        needs=("endpoint",),
        changing=_SIDE,
    ),
    Command(
        "rollout tools",
        "rollout --tasks in/lakes/train.jsonl --solver reference --limit 2 --out out/r.jsonl "
        "sampling.n=1 server.in_flight=1",
        ("lakes/train.jsonl",),
        saves="rows",
        state=("out/r.jsonl",),
        needs=("sandbox",),
        changing=_SIDE,
        few=True,
    ),
    Command(
        "select",
        "select --rollouts in/rollouts.jsonl --strategy av --valid 0 --out out/s.parquet",
        ("rollouts.jsonl",),
    ),
    Command(
        "sft",
        f"sft data=in/tasks.jsonl model.path=in/model out=out {_TINY} sft.epochs=2 "
        "sft.batch_size=4 sft.save_every=2",
        ("tasks.jsonl", "model/model.safetensors", "model/config.json"),
        saves="steps",
        state=("out/checkpoints/sft/*/*", "out/metrics.jsonl", "out/run.json"),
        needs=("torch",),
        changing=_RUN_FILES,
    ),
    Command(
        "grpo",
        f"grpo data=in/tasks.jsonl model.path=in/model out=out {_TINY} rl.steps=3 rl.lr=3e-4 "
        "rl.prompts_per_step=2 rl.mini_batch=2 rl.rollouts_per_prompt=2 rl.max_new_tokens=6 "
        "rl.save_every=1",
        ("tasks.jsonl", "model/model.safetensors"),
        saves="steps",
        state=("out/checkpoints/rl/*/*", "out/metrics.jsonl", "out/run.json"),
        needs=("torch",),
        changing=_RUN_FILES,
    ),
    Command(
        "eval model",
        "eval --tasks in/tasks.jsonl --model in/model --out out sampling.max_new_tokens=6 "
        f"engine.slots=2 {_HERE}",
        ("tasks.jsonl", "model/model.safetensors"),
        saves="rows",
        state=("out/rows.jsonl", "out/eval.json"),
        needs=("torch",),
        changing=_ROWS_FILES,
    ),
    Command(
        "eval endpoint",
        f"eval --tasks in/tasks.jsonl --model {ENDPOINT} --out out server.in_flight=2 "
        "server.patience=2",
        ("tasks.jsonl",),
        saves="rows",
        state=("out/rows.jsonl", "out/eval.json"),
        needs=("endpoint",),
        changing=_ROWS_FILES,
    ),
    Command("report", "report out"),
    Command(
        "slurm shard",
        "slurm shard out=out --input in/recipes.jsonl --shards 2 --index 1 -- "
        "execute {in} {out} --workers 1",
        ("recipes.jsonl",),
        state=("out/shard-00001.json", "out/shard-00001.jsonl"),
    ),
    Command(
        "slurm rollouts",
        "slurm shard out=out --input in/tasks.jsonl --shards 2 --index 0 --align 2 -- "
        f"rollout --tasks {{in}} --out {{out}} {_LOCAL}",
        ("tasks.jsonl",),
        state=("out/.work-00000/out.jsonl", "out/shard-00000.json"),
        needs=("torch",),
    ),
    Command(
        "slurm merge",
        "slurm merge out=in/shards --input in/recipes.jsonl --shards 2 --to out/merged.jsonl",
        ("shards/shard-00000.jsonl", "shards/shard-00001.json"),
    ),
)

Run = Callable[[tuple[str, ...], Path], None]


def make_inputs(home: Path, run: Run, torch: bool) -> None:
    """Everything that the commands read, in `home/in`. `run` runs a command in a folder."""
    from small_corpus import write_corpus
    from small_lake import make_lake

    from assay.task import write_jsonl

    place = home / "in"
    place.mkdir(parents=True)
    tasks = [_refinement(i) for i in range(8)]
    write_jsonl(place / "tasks.jsonl", tasks)
    outputs = [_said(i) for i in range(8)] * 300
    write_jsonl(place / "outputs.jsonl", outputs)
    recipes = [_recipe(i) for i in range(200)]
    write_jsonl(place / "recipes.jsonl", recipes)
    write_jsonl(place / "tables.jsonl", [_table_task(i) for i in range(4)])
    write_jsonl(place / "predictions.jsonl", [_prediction(i) for i in range(12)])
    import gzip

    data = (place / "recipes.jsonl").read_bytes()
    (place / "recipes.jsonl.gz").write_bytes(gzip.compress(data, mtime=0))
    write_corpus(place / "corpus", 12)
    make_lake(place / "lake", settled=True)
    make_lake(place / "other", settled=True)
    (place / "lake" / "things.csv").write_text(_table(300, 5))
    (place / "other" / "others.csv").write_text(_table(280, 31))
    (place / "tables").mkdir()
    (place / "tables" / "flowers.csv").write_text(_table(240, 9))
    if torch:
        _tiny_model(place / "model")
    run(("rollout", "--tasks", "in/tasks.jsonl", "--solver", "gold", "--out", "in/g.jsonl"), home)
    shutil.move(place / "g.jsonl", place / "rollouts.jsonl")
    for left in place.glob("g.jsonl*"):
        left.unlink()
    words = ("tasks", "lake", "--lakes", "in/lake", "--count", "3", "--out", "in/lakes")
    run(words, home)
    for index in "01":
        cut = ("slurm", "shard", "out=in/shards", "--input", "in/recipes.jsonl", "--shards", "2")
        run((*cut, "--index", index, "--", "execute", "{in}", "{out}", "--workers", "1"), home)


def begin(command: Command, home: Path, folder: Path) -> None:
    """A folder for one case: the inputs, and an empty `out`."""
    shutil.copytree(home / "in", folder / "in")
    (folder / "out").mkdir()
    if command.name == "report":
        shutil.copytree(home / "evaluated", folder / "out", dirs_exist_ok=True)


def _refinement(number: int) -> Mapping[str, object]:
    text = f"Mail x{number}@a.org now."
    gold = {"input_text": text, "status": "KEEP", "text": text.replace("@a.org", "")}
    prompt = [{"role": "user", "content": f"<{number}> {text}"}]
    meta = {"document": f"doc{number}", "domain": "pii"}
    base = {"id": f"r{number}", "family": "refinement", "track": "atomic", "split": "train"}
    return {**base, "prompt": prompt, "gold": gold, "meta": meta}


def said(number: int) -> str:
    """Every second answer is right."""
    right = f"Mail x{number} now."
    return f"<status>KEEP</status><clean_text>{right if number % 2 else 'no'}</clean_text>"


def _said(number: int) -> Mapping[str, object]:
    return {"id": f"r{number}", "output": said(number)}


def _recipe(number: int) -> Mapping[str, object]:
    text = f"Mail ana{number}@acme.io from 10.0.0.{number}.\n" * (1 + number % 5)
    recipe = [{"operator": "clean_email_mapper"}, {"operator": "clean_ip_mapper"}]
    return {"id": f"e{number}", "input_text": text, "recipe": recipe}


def _truth(number: int) -> str:
    rows = [f"{i},{'ab'[(i * 7 + number) % 3 % 2]}" for i in range(2000)]
    return "row_id,kind\n" + "\n".join(rows) + "\n"


def _table_task(number: int) -> Mapping[str, object]:
    gold = {
        "task_type": "class-MM",
        "truth_csv": _truth(number),
        "key_columns": ["row_id"],
        "targets": ["kind"],
    }
    prompt = [{"role": "user", "content": f"Predict the kind ({number})."}]
    base = {"id": f"t{number}", "family": "table", "track": "class-MM", "split": "heldout"}
    return {**base, "prompt": prompt, "gold": gold}


def _prediction(number: int) -> Mapping[str, object]:
    return {"id": f"t{number % 4}", "prediction_csv": _truth(number % 4 if number < 8 else 7)}


def _table(rows: int, shift: int) -> str:
    lines = ["Name,Kind,Area,Year,Height,Weight"]
    one, two = 3 + shift / 100, 7 + shift / 100  # other quantities, not another draw of the same
    for i in range(rows):
        lines.append(
            f"n{i},{'abcde'[i * 7 % 5]},{'xyz'[i % 3]},{1990 + i % 25},"
            f"{10 + (i * 37 + shift) % 101 / one:.3f},{5 + (i * i * 13 + shift) % 97 / two:.3f}"
        )
    return "\n".join(lines) + "\n"


def _tiny_model(folder: Path) -> None:
    import torch
    from tiny_model import tiny_config, write_tiny_tokenizer
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    vocab = write_tiny_tokenizer(folder)
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = tiny_config(vocab, **small, num_attention_heads=2, num_key_value_heads=1)
    AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
    json.loads((folder / "config.json").read_text())
