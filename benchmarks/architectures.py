"""Which architectures are taught, asked, saved and resumed right: a table of random tiny models.

    python -m benchmarks.architectures [--out docs/architectures.md] [--only NAME …]
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
from collections.abc import Callable
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

SMALL: dict[str, Any] = {
    "vocab_size": 260,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "eos_token_id": 2,
    "bos_token_id": 1,
    "pad_token_id": 2,
    "initializer_range": 0.2,
}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT: dict[str, Any] = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 2,
    "num_experts_per_tok": 4,
    "first_k_dense_replace": 1,
    "head_dim": 8,
}
GPT: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"rope_theta": 5e5}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, MLP biases": ("llama", {"mlp_bias": True}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral, window": ("mistral", {"sliding_window": 8}),
    "ministral": ("ministral", {"sliding_window": 8, "head_dim": 8}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "smollm3": ("smollm3", {}),
    "gemma": ("gemma", {"head_dim": 8}),
    "gemma2": ("gemma2", {"head_dim": 8, "sliding_window": 8}),
    "gemma3_text": ("gemma3_text", {"head_dim": 8, "sliding_window": 8}),
    "phi": ("phi", {}),
    "phi3": ("phi3", {}),
    "olmo": ("olmo", {}),
    "olmo2": ("olmo2", {}),
    "granite": ("granite", {"logits_scaling": 8.0, "residual_multiplier": 0.2}),
    "cohere": ("cohere", {"rope_theta": 1e4}),  # versions differ in what they add
    "cohere2": ("cohere2", {"sliding_window": 8}),
    "glm": ("glm", {"head_dim": 8}),
    "glm4": ("glm4", {"head_dim": 8}),
    "stablelm": ("stablelm", {}),
    "starcoder2": ("starcoder2", {}),
    "nemotron": ("nemotron", {}),
    "helium": ("helium", {"head_dim": 8}),
    "exaone4": ("exaone4", {"sliding_window": 8}),
    "gpt2": ("gpt2", GPT),
    "gpt_neo": (
        "gpt_neo",
        {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
    ),
    "gptj": (
        "gptj",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512, "rotary_dim": 4},
    ),
    "gpt_neox": ("gpt_neox", {}),
    "gpt_neox, tied": ("gpt_neox", {"tie_word_embeddings": True}),
    "gpt_bigcode": ("gpt_bigcode", GPT),
    "opt": ("opt", {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    "bloom": ("bloom", {"n_layer": 2, "n_head": 4}),
    "mpt": ("mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 512}),
    "falcon": ("falcon", {"new_decoder_architecture": False, "multi_query": True}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": (
        "qwen2_moe",
        {**EXPERTS, "shared_expert_intermediate_size": 32, "decoder_sparse_step": 1},
    ),
    "qwen3_moe": ("qwen3_moe", {**EXPERTS, "decoder_sparse_step": 1, "head_dim": 16}),
    "qwen3_next": (
        "qwen3_next",
        {
            **EXPERTS,
            "num_hidden_layers": 4,
            "shared_expert_intermediate_size": 32,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "head_dim": 16,
        },
    ),
    "olmoe": ("olmoe", {"num_experts": 4, "num_experts_per_tok": 2}),
    "granitemoe": ("granitemoe", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "gpt_oss": ("gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}),
    "deepseek_v3": ("deepseek_v3", LATENT),
    "lfm2": ("lfm2", {"layer_types": ["conv", "full_attention"]}),
    "mamba": ("mamba", {"state_size": 8}),
    "rwkv": ("rwkv", {}),
    "xglm": ("xglm", {"d_model": 32, "ffn_dim": 64, "num_layers": 2, "attention_heads": 4}),
    "t5 (no causal model)": ("t5", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2}),
}
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
USER, GOLD = {"role": "user"}, {"text": "ab"}
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


def make(folder: Path, kind: str, more: dict[str, Any]) -> Any:
    """A random model; its config.json is as a hub's folder has it, without transformers' own
    defaults, so that both versions add theirs."""
    from transformers import AutoConfig, AutoModelForCausalLM

    folder.mkdir(parents=True)
    write_tokenizer(folder)
    settings: dict[str, Any] = {**SMALL, **more}
    config: Any = AutoConfig.for_model(kind, **settings)
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config).float().eval()
    model.save_pretrained(folder)
    about = {"model_type": kind, "architectures": [type(model).__name__], **settings}
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


SFT = ("sft.epochs=1", "sft.batch_size=4", "sft.lr=1e-3")
RL = (
    "rl.prompts_per_step=2",
    "rl.mini_batch=2",
    "rl.rollouts_per_prompt=3",
    "rl.max_new_tokens=6",
    "rl.lr=1e-3",
    "rl.save_every=1",
    "rl.audit=off",
)


def check_moved(before: Path, after: Path) -> None:
    one, other = (load_file(f / "model.safetensors") for f in (before, after))
    if one.keys() != other.keys():
        raise Wrong(f"other names: {sorted(one.keys() ^ other.keys())[0]}")
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
    one, other = (load_file(f / "model.safetensors") for f in (folder, work / "saved"))
    if one.keys() != other.keys():
        raise Wrong(f"other names: {sorted(one.keys() ^ other.keys())[0]}")
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
    kind, more = KINDS[name]
    place = top / name.translate(str.maketrans(", ()", "____"))
    place.mkdir()
    folder, found = place / "base", {column: "" for column in COLUMNS}
    made = ""
    try:
        model = make(folder, kind, more)
    except Exception as error:
        model = None
        if not (folder / "config.json").is_file():
            about = {"model_type": kind, **SMALL, **more}
            (folder / "config.json").write_text(json.dumps(about))
            (folder / "model.safetensors").write_bytes(b"")
        made = f"cannot be made ({type(error).__name__}: {' '.join(str(error).split())[:80]})"
    holder: dict[str, Any] = {}
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        found["load"] = cell(lambda: holder.update(policy=load_policy(folder, "float32")))
    if found["load"] != "right":
        why = found["load"].replace(f"{folder}: ", "").replace(f"{folder}/", "")
        return dict.fromkeys(COLUMNS, f"refused: {why}"), folder
    if model is None:
        return dict.fromkeys(COLUMNS, made), folder
    policy = holder["policy"]
    found["load"] = cell(lambda: check_load(policy, model))
    with contextlib.redirect_stderr(said):
        engine = policy.engine([2], 8)
    found["greedy"] = cell(lambda: check_greedy(engine, model))
    found["logprobs"] = cell(lambda: check_logprobs(engine, model))
    found["sft"] = cell(lambda: check_sft(folder, place))
    found["grpo"] = cell(lambda: check_grpo(folder, place))
    found["save"] = cell(lambda: check_save(folder, policy, place))
    found["resume"] = cell(lambda: check_resume(folder, place))
    trained = place / "rl-float32" / "model"
    found["tf5"] = cell(lambda: check_tf5(trained))
    if getattr(engine, "together", "padded") != "padded":
        found["greedy"] += f" ({engine.together})"
    return found, trained


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


def table(rows: dict[str, tuple[dict[str, str], Path]]) -> str:
    import transformers

    lines = [
        "# Architectures",
        "",
        "`python -m benchmarks.architectures` makes this table of random models of a few thousand",
        "weights. `right` means: the same numbers as transformers' own full forward pass. Models",
        "with our own decoder are `llama`, `mistral`, `qwen2` and `qwen3`; all others run through",
        "transformers, many prompts side by side; `(equal)` means prompts of one length only,",
        "`(alone)` one prompt at a time, because transformers mixes the rows of that architecture.",
        "",
        f"torch {torch.__version__}, transformers {transformers.__version__}. `tf4` and `tf5`: the",
        "trained folder read by transformers 4 and 5.",
        "",
        "| architecture | " + " | ".join(COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for name, (found, _) in rows.items():
        if len(set(found.values())) == 1 and found["load"] != "right":
            cells = [found["load"], *["refused"] * (len(COLUMNS) - 1)]
        else:
            cells = [found[column] for column in COLUMNS]
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
        tasks = [
            Task(
                f"t{i}",
                "letters",
                "all",
                "train",
                [{"role": "user", "content": f"{i} ab"}],
                {"text": "ab"},
            )
            for i in range(4)
        ]
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
