"""Which architectures are taught, asked, saved and resumed right: a table of random tiny models.

    python -m experiments.architectures [--out architectures.md] [--only NAME …]
        [--transformers4 DIR]

For each: `load` (log-probabilities of our policy against transformers' own), `greedy` (ids of the
engine, many prompts at once, against transformers' full forward pass), `logprobs` (as sampled,
against the full pass), `sft` and `grpo` (commands in bfloat16 and float32; the weights move and are
finite), `save` (names of tensors against `save_pretrained`), `tf5` and `tf4` (the trained folder
read by transformers 5 and 4: the same log-probabilities), `resume` (GRPO stopped after a step and
gone on with against one that was not: the same bytes). A cell is `right`, or says what is wrong.

`--transformers4` is a folder with transformers 4 in it, made by
`pip install --no-deps --target DIR transformers==4.57.1 "huggingface_hub<1" "tokenizers<0.23"`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

import assay
from assay.task import Task, write_jsonl
from rollouts.engines.engine import ModelError
from rollouts.trajectory import Sampling
from train.model.packing import Segment, pack
from train.model.policy import load_policy

_READ = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
SMALL: dict[str, Any] = _READ["all"]  # settings of every model
KINDS: dict[str, dict[str, Any]] = _READ["kinds"]  # `model_type`, and settings of its own
SFT, RL = _READ["sft"].split(), _READ["rl"].split()  # settings of the runs
COLUMNS = ("load", "greedy", "logprobs", "sft", "grpo", "save", "tf5", "tf4", "resume")
NEAR = 1e-3
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FAMILY = """
from assay.family import Family, Score
def score(task, answer):
    share = sum(map(ord, answer.text)) % 7 / 6
    return Score(float(answer.text == task.gold["text"]), share, {}, "")
FAMILY = Family(name="letters", score=score, gold=lambda task: task.gold["text"])
"""
IDS = torch.randint(3, 250, (1, 30), generator=torch.Generator().manual_seed(1))
PROMPTS = [IDS[0, :5].tolist(), IDS[0, 5:22].tolist(), IDS[0, 20:27].tolist()]
READ = """
import json, sys, logging, warnings
warnings.filterwarnings("ignore"); logging.disable(logging.WARNING)
import torch, transformers
for folder in json.load(open(sys.argv[1])):
    try:
        model, found = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True)
        if found["missing_keys"]: raise ValueError("missing " + sorted(found["missing_keys"])[0])
        with torch.no_grad(): law = model.eval()(torch.load(sys.argv[2])).logits.log_softmax(-1)
        torch.save(law, folder + "/law.pt")
    except Exception as error:
        said = " ".join(str(error).split())[:160]
        open(folder + "/law.txt", "w").write(type(error).__name__ + ": " + said)
"""


class Wrong(Exception):
    """What is not right in a cell."""


def write_tokenizer(folder: Path) -> None:
    """A token a byte, and a chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    words = [*names, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)


def make(folder: Path, given: Mapping[str, Any]) -> Any:
    """A random model; its config.json is as a hub's folder has it, without transformers' own
    defaults, so that both versions add theirs."""
    from transformers import AutoConfig, AutoModelForCausalLM

    folder.mkdir(parents=True)
    write_tokenizer(folder)
    settings = {**SMALL, **given}
    (folder / "config.json").write_text(json.dumps(settings))  # stays where none can be made
    (folder / "model.safetensors").write_bytes(b"")
    config: Any = AutoConfig.for_model(**settings)
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config).float().eval()
    model.save_pretrained(folder)
    about = {"architectures": [type(model).__name__], **settings}
    text = json.dumps({**about, "torch_dtype": "float32"}, indent=2)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    # read again: some values are made of others
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.no_grad()
def law(model: Any, ids: Tensor) -> Tensor:
    return model(ids, use_cache=False).logits.float().log_softmax(-1)


def same(found: Tensor, wanted: Tensor) -> None:
    apart = float((found - wanted).abs().max())
    if not apart < NEAR:
        raise Wrong(f"differs by {apart:.1e}")


def check_load(policy: Any, model: Any) -> None:
    prompt, answer = IDS[0, :20].tolist(), IDS[0, 20:].tolist()
    with torch.no_grad():
        found = policy.logp(pack([Segment(prompt, [answer], [0])]))[0]
    same(found, law(model, IDS)[0, 19:-1].gather(1, IDS[0, 20:, None])[:, 0])


def check_greedy(engine: Any, model: Any) -> None:
    groups = engine.generate_now(PROMPTS, Sampling(10, 0.0), 1, [0, 1, 2])
    for prompt, (done,) in zip(PROMPTS, groups, strict=True):
        full = law(model, torch.tensor([prompt + done.ids]))[0, len(prompt) - 1 : -1]
        if full.argmax(-1).tolist() != done.ids:
            raise Wrong("other ids")


def check_logprobs(engine: Any, model: Any) -> None:
    groups = engine.generate_now(PROMPTS, Sampling(10, 1.0), 2, [0, 1, 2])
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for done in group:
            full = law(model, torch.tensor([prompt + done.ids]))[0, len(prompt) - 1 : -1]
            wanted = full.gather(1, torch.tensor(done.ids)[:, None])[:, 0]
            same(torch.tensor(done.logprobs), wanted)


def command(*words: object) -> None:
    """A command in this process. Raises `Wrong` with what it says last."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            status = assay.main([str(word) for word in words])
        except SystemExit as error:
            status = error.code
    if status:
        raise Wrong((said.getvalue().strip().splitlines() or [f"exit status {status}"])[-1])


def train(what: str, folder: Path, out: Path, *more: str) -> Path:
    command(
        what,
        f"data={folder.parents[1] / 'tasks.jsonl'}",
        f"families=[{folder.parents[1] / 'letters.py'}]",
        f"model.path={folder}",
        f"out={out}",
        "engine.device=cpu",
        "engine.threads=1",
        *more,
    )
    return out / "model"


def weights(before: Path, after: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The tensors of two folders, which have to have the same names."""
    one, other = (load_file(f / "model.safetensors") for f in (before, after))
    if one.keys() != other.keys():
        raise Wrong(f"other names: {sorted(one.keys() ^ other.keys())[0]}")
    return one, other


def check_moved(before: Path, after: Path) -> None:
    one, other = weights(before, after)
    if not all(bool(t.isfinite().all()) for t in other.values()):
        raise Wrong("weights that are no numbers")
    if all(torch.equal(one[k].float(), other[k].float()) for k in one):
        raise Wrong("no weight has moved")


def check_sft(folder: Path, work: Path) -> None:
    for dtype in ("float32", "bfloat16"):
        made = train("sft", folder, work / f"sft-{dtype}", *SFT, f"engine.dtype={dtype}")
        check_moved(folder, made)


def check_grpo(folder: Path, work: Path) -> None:
    for dtype, steps in (("float32", 2), ("bfloat16", 1)):
        words = (*RL, f"rl.steps={steps}", f"engine.dtype={dtype}")
        check_moved(folder, train("grpo", folder, work / f"rl-{dtype}", *words))


def check_save(folder: Path, policy: Any, work: Path) -> None:
    policy.save(work / "saved")
    one, other = weights(folder, work / "saved")
    if not all(torch.equal(one[k], other[k]) for k in one):
        raise Wrong("other values")


def check_resume(folder: Path, work: Path) -> None:
    cut = work / "cut"
    for steps in (1, 2):
        train("grpo", folder, cut, *RL, f"rl.steps={steps}", "engine.dtype=float32")
    files = [f / "model" / "model.safetensors" for f in (cut, work / "rl-float32")]
    if files[0].read_bytes() != files[1].read_bytes():
        raise Wrong("other bytes")


def check_tf5(trained: Path) -> None:
    from transformers import AutoModelForCausalLM

    ours, theirs = load_policy(trained, "float32"), AutoModelForCausalLM
    check_load(ours, theirs.from_pretrained(trained, dtype=torch.float32).eval())


def cell(work: Callable[[], Any]) -> str:
    try:
        work()
    except Exception as error:  # the table says what it was
        said = " ".join(str(error).split()).replace("|", "/")
        return said if isinstance(error, Wrong | ModelError) else f"{type(error).__name__}: {said}"
    return "right"


def row_of(name: str, top: Path) -> tuple[dict[str, str], Path]:
    """The cells of an architecture, and the folder that was trained."""
    place = top / name.translate(str.maketrans(", ()", "____"))
    folder, work, made = place / "base", place, ""
    model: Any = None
    try:
        model = make(folder, KINDS[name])
    except Exception as error:
        made = f"cannot be made ({type(error).__name__}: {' '.join(str(error).split())[:80]})"
    holder: dict[str, Any] = {}
    with contextlib.redirect_stderr(io.StringIO()):
        refused = cell(lambda: holder.update(policy=load_policy(folder, "float32")))
        if refused != "right" or model is None:
            why = refused.replace(f"{folder}: ", "").replace(f"{folder}/", "")
            return dict.fromkeys(COLUMNS, made if refused == "right" else f"refused: {why}"), folder
        policy = holder["policy"]
        engine = policy.engine([2], 8)
    checks: dict[str, Callable[[], None]] = {
        "load": lambda: check_load(policy, model),
        "greedy": lambda: check_greedy(engine, model),
        "logprobs": lambda: check_logprobs(engine, model),
        "sft": lambda: check_sft(folder, work),
        "grpo": lambda: check_grpo(folder, work),
        "save": lambda: check_save(folder, policy, work),
        "resume": lambda: check_resume(folder, work),
        "tf5": lambda: check_tf5(work / "rl-float32" / "model"),
    }
    found = dict.fromkeys(COLUMNS, "") | {column: cell(check) for column, check in checks.items()}
    if getattr(engine, "together", "padded") != "padded":
        found["greedy"] += f" ({engine.together})"
    return found, work / "rl-float32" / "model"


def read_by_4(rows: dict[str, tuple[dict[str, str], Path]], place: str, top: Path) -> None:
    """The column of transformers 4, by a process with that version."""
    folders = {n: str(f) for n, (c, f) in rows.items() if c["load"] == "right" and f.is_dir()}
    (top / "folders.json").write_text(json.dumps(list(folders.values())))
    torch.save(IDS, top / "ids.pt")
    env = {**os.environ, "PYTHONPATH": place}
    words = [sys.executable, "-c", READ, str(top / "folders.json"), str(top / "ids.pt")]
    subprocess.run(words, env=env, check=True, capture_output=True)
    from transformers import AutoModelForCausalLM

    for name, folder in folders.items():
        bad = Path(folder) / "law.txt"
        if bad.is_file():
            rows[name][0]["tf4"] = bad.read_text()
            continue
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        read = torch.load(Path(folder) / "law.pt")
        rows[name][0]["tf4"] = cell(lambda r=read, m=model: same(r, law(m, IDS)))


ABOUT = """# Architectures

`python -m experiments.architectures` makes this table of random models of a few thousand
weights. `right` means: the same numbers as transformers' own full forward pass. Models
with our own decoder are `llama`, `mistral`, `qwen2` and `qwen3`; all others run through
transformers, many prompts side by side; `(equal)` means prompts of one length only,
`(alone)` one prompt at a time, because transformers mixes the rows of that architecture.

torch {torch}, transformers {transformers}. `tf4` and `tf5`: the
trained folder read by transformers 4 and 5.
"""


def table(rows: dict[str, tuple[dict[str, str], Path]]) -> str:
    import transformers

    about = ABOUT.format(torch=torch.__version__, transformers=transformers.__version__)
    lines = [about, "| architecture | " + " | ".join(COLUMNS) + " |"]
    lines.append("|---" * (len(COLUMNS) + 1) + "|")
    for name, (found, _) in rows.items():
        cells = [found[column] for column in COLUMNS]
        if len(set(cells)) == 1 and cells[0] != "right":
            cells[1:] = ["refused"] * (len(COLUMNS) - 1)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", help="a Markdown file; without, the table is printed")
    parser.add_argument("--only", nargs="*", choices=tuple(KINDS), default=tuple(KINDS))
    parser.add_argument("--transformers4", help="folder with transformers 4")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    began, rows = time.perf_counter(), dict[str, tuple[dict[str, str], Path]]()
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        (top / "letters.py").write_text(FAMILY)
        prompt = [{"role": "user", "content": "ab"}]
        tasks = [Task(f"t{i}", "letters", "all", "train", prompt, {"text": "ab"}) for i in range(4)]
        write_jsonl(top / "tasks.jsonl", [task.to_json() for task in tasks])
        for name in args.only:
            rows[name] = row_of(name, top)
            wrong = {k: v for k, v in rows[name][0].items() if v not in ("right", "")}
            print(
                f"{time.perf_counter() - began:6.0f} s  {name}: {wrong or 'right'}", file=sys.stderr
            )
        if args.transformers4:
            read_by_4(rows, args.transformers4, top)
        for found, _ in rows.values():
            found["tf4"] = found["tf4"] or "not run"
        text = table(rows)
    if args.out:
        Path(args.out).write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
