"""SFT on two ranks of the CPU device: verl's own trainer has the embedded loop's losses.

Assay's SFT of models too big for one device is DeepSpeed's (test_deepspeed.py). This holds the
CPU device, its process groups and FSDP2 over two ranks to the same definition.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

pytest.importorskip("verl", reason="the extra `cluster` is not installed")
pytest.importorskip("torch")
from sft_runs import finish, losses, sft, toy_tasks, words

from assay.task import read_tasks
from rewards.cdr.score import gold_answer

pytestmark = pytest.mark.slow
ROWS, STEPS = 24, 4
# without a newline behind an answer, which verl would train on and the embedded loop does not
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def verl_sft(folder: Path, out: Path, ranks: int) -> list[float]:
    """Losses of the steps that this start made."""
    log = out.with_name(f"{out.name}-{len(list(out.parent.glob('*.jsonl')))}.jsonl")
    settings = f"""data.train_files={folder / "messages.parquet"} data.train_batch_size={ROWS}
        data.max_length=512 data.num_workers=0 data.max_token_len_per_gpu=2048
        model.path={folder / "m"} model.use_remove_padding=true
        model.enable_gradient_checkpointing=false
        +model.override_config.attn_implementation=sdpa +model.override_config.pad_token_id=null
        engine.strategy=fsdp2 engine.model_dtype=fp32 engine.use_torch_compile=false
        +engine.mixed_precision.param_dtype=fp32 +engine.mixed_precision.reduce_dtype=fp32
        optim.lr=1e-3 optim.lr_scheduler_type=cosine optim.betas=[0.9,0.98] optim.weight_decay=0
        optim.clip_grad=1.0 trainer.total_epochs={STEPS} trainer.save_freq=2 trainer.logger=[file]
        trainer.device=cpu trainer.default_local_dir={out}
        trainer.n_gpus_per_node={ranks}""".split()
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}",
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "verl_cpu",
        "VERL_FILE_LOGGER_PATH": str(log),
    }
    words = f"-m torch.distributed.run --standalone --nproc_per_node={ranks}".split()
    words += ["-m", "verl.trainer.sft_trainer", *settings]
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    rows = [json.loads(line)["data"] for line in log.read_text().splitlines()]
    return [row["train/loss"] for row in rows if "train/loss" in row]


def test_two_ranks_are_the_embedded_loop_and_go_on_after_a_stop(
    tiny_folder: Path, tmp_path: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from transformers import AutoTokenizer

    shutil.copytree(tiny_folder, tmp_path / "m")
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "m")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path / "m")
    data = toy_tasks(tmp_path / "t.jsonl")
    tasks = read_tasks(data)
    assert len(tasks) == ROWS  # a step is all of it: the two orders of rows do not matter
    rows = [
        {"messages": [*task.prompt, {"role": "assistant", "content": gold_answer(task.gold)}]}
        for task in tasks
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "messages.parquet")
    ours = ["sft.warmup=0", f"sft.batch_size={ROWS}", f"sft.epochs={STEPS}"]
    finish(sft(*words(data, tmp_path / "m", tmp_path / "whole", *ours)))
    wanted = losses(tmp_path / "whole")
    assert wanted[-1] < wanted[0]
    out = tmp_path / "two"
    assert verl_sft(tmp_path, out, 2) == pytest.approx(wanted, rel=1e-4)
    assert len(list((out / "global_step_2").glob("model_world_size_2_rank_*.pt"))) == 2
    shutil.rmtree(out / "global_step_4")  # as if it had been killed before
    (out / "latest_checkpointed_iteration.txt").write_text("2")
    # at the end of an epoch, as here, it resumes into an epoch of no steps: one is missing
    assert verl_sft(tmp_path, out, 2) == pytest.approx(wanted[2:3], rel=1e-4)
