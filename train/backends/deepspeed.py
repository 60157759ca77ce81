# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""Supervised fine-tuning of models too big for one device: DeepSpeed ZeRO-2 or 3. Needs the extra.

The same rows in the same order, the same masks and the same loss as `train.sft`: minus the mean
log-probability of all answer tokens of an optimiser step, over all devices. Every process takes its
share of a step's rows, one sequence at a time.

The processes of a node, one for each device, are started here and not by torchrun: it dies of USR1,
which is how a cluster says that time is running out.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist

from assay.console import DONE, status_of
from assay.files import write_text
from configs.loader import ConfigError, dump, locked_difference, to_dict
from configs.machine import ClusterConfig
from configs.schema import SftRunConfig, load_run
from rollouts.prompts import ChatTokenizer
from train.examples import Example, examples_of, training_rows
from train.memory import sft_report
from train.model.folder import save_module
from train.model.optim import decay_groups
from train.model.policy import learn_padding, merged, with_adapters
from train.model.source import resolve_model
from train.run.checkpoint import StopFlag, Stopped, require_disk
from train.run.data import AUTO, asked_for, with_folder
from train.run.log import RunLog
from train.run.record import hashes_of, refuse_other_inputs, write_run_record
from train.run.run import held, save_model, settled
from train.run.trained_on import trained_before
from train.sft import before, learn

ROWS = 1024  # positions whose float32 logits exist at the same time
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def zero_config(config: SftRunConfig, world: int) -> dict[str, Any]:
    """DeepSpeed's settings for this run. The three odd ones make our own AdamW acceptable."""
    stage = config.cluster.zero_stage
    offload = {"device": "cpu", "pin_memory": config.cluster.device == "cuda"}
    zero: dict[str, Any] = {"stage": stage, "stage3_gather_16bit_weights_on_model_save": True}
    if config.cluster.device == "cpu":
        # else every weight of a tiny model is small enough to be kept whole, and none is gathered
        zero["stage3_param_persistence_threshold"] = 0
    if config.cluster.offload:
        zero |= {"offload_optimizer": offload}
        zero |= {"offload_param": offload} if stage == 3 else {}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": config.sft.batch_size // world,
        "gradient_clipping": config.sft.grad_clip,
        "bf16": {"enabled": config.engine.dtype == "bfloat16"},
        # in bfloat16 the gradients of a step's later rows would be rounded away
        "data_types": {"grad_accum_dtype": "fp32"},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1_000_000_000,
        "wall_clock_breakdown": False,
    }


class ManyDevices:
    """The learner of `train.sft` in one process of a run: its engine, its share of every step, its
    checkpoints."""

    def __init__(self, config: SftRunConfig, source: Path, stop: StopFlag) -> None:
        deepspeed: Any = import_module("deepspeed")  # not this file
        self.config, self.source, self.stop = config, source, stop
        self.out = Path(config.out)
        self.folder = self.out / "checkpoints" / "sft"
        if config.cluster.device == "cpu":
            torch.set_num_threads(config.engine.threads or 1)
            # DeepSpeed would compile its shared-memory collectives here: that asks for a compiler,
            # and a build killed half-way leaves a lock on which every later run waits for ever
            deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed("gloo" if config.cluster.device == "cpu" else "nccl")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        if config.sft.batch_size % self.world:
            raise ConfigError(
                f"sft.batch_size={config.sft.batch_size} cannot be shared out evenly over "
                f"{self.world} processes; make it a multiple"
            )
        settings = zero_config(config, self.world)
        with _cut_while_read(settings, config.cluster.zero_stage):
            model = _model(config, source)
        wanted = [p for p in model.parameters() if p.requires_grad]
        optimiser = torch.optim.AdamW(
            decay_groups(wanted, config.sft.weight_decay),
            lr=config.sft.lr,
            betas=config.sft.betas,
            eps=1e-8,
            fused=True,
        )
        made = deepspeed.initialize(model=model, optimizer=optimiser, config=settings)
        self.engine: Any = made[0]

    def restore(self, last: int) -> int:
        if not (self.folder / "latest").is_file():
            return 0
        _, state = self.engine.load_checkpoint(str(self.folder))
        changed = locked_difference(state["config"], self.config)
        if changed:
            raise ConfigError(
                f"{self.folder}: cannot resume, because {', '.join(changed)} changed; put the old "
                "value back, or set another out="
            )
        return int(state["step"])

    def save(self, step: int) -> None:
        """All ranks together; `latest` is renamed into place last, then the oldest go."""
        state, name = {"step": step, "config": to_dict(self.config)}, f"step_{step:06d}"
        self.engine.save_checkpoint(
            str(self.folder), tag=name, client_state=state, save_latest=False
        )
        dist.barrier()
        if self.rank == 0:
            write_text(self.folder / "latest", name)
            kept = sorted(self.folder.glob("step_*"))[: -self.config.checkpoint.keep]
            for path in kept:
                shutil.rmtree(path, ignore_errors=True)

    def step(self, batch: Sequence[Example], lr: float) -> tuple[float, float]:
        tokens = sum(e.scored for e in batch)
        mine = share_of(batch, self.rank, self.world)
        for group in self.engine.optimizer.param_groups:
            group["lr"] = lr
        total = torch.zeros(1)
        for example in mine:
            nll = self._nll(example)
            total += nll.detach().float().cpu()
            # DeepSpeed averages over micro-batches and processes; the loss is a sum over both
            self.engine.backward(nll / tokens * len(batch))
            self.engine.step()
        total = total.to(self.engine.device)
        dist.all_reduce(total)
        return float(total) / tokens, float(self.engine.get_global_grad_norm() or 0.0)

    def _nll(self, example: Example) -> torch.Tensor:
        """Minus the sum of the answer's log-probabilities."""
        ids = torch.tensor(example.prompt + example.answer, device=self.engine.device)
        chosen = answer_logp(self.engine, ids, len(example.answer))
        if example.mask is not None:  # tool tokens are read, not learned
            chosen = chosen * torch.tensor(example.mask, device=chosen.device)
        return -chosen.sum()

    def after_step(self, step: int, last: int, every: int) -> None:
        flag = torch.tensor([float(self.stop())], device=self.engine.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)  # any process: all must save together
        asked = bool(flag) and step < last
        if asked or step % every == 0 or step == last:
            self.save(step)
        if asked:
            raise Stopped(step, self.stop.asked)

    def export(self, examples: Sequence[Example]) -> None:
        """An ordinary Hugging Face folder at `out/model`, with the record of what it was trained
        on; adapters are merged into the weights."""
        if self.config.cluster.zero_stage == 3:
            state = self.engine._zero3_consolidated_16bit_state_dict()
        else:
            state = self.engine.module.state_dict()
        if self.rank == 0:

            def write(folder: Path) -> None:
                _save(self.config, self.source, folder, self.engine.module, state)

            marks = (example.marks for example in examples)
            known = trained_before(self.source).after("sft", self.config.data, marks)
            arguments = self.config.model.chat_template_kwargs
            print(f"model: {save_model(self.out / 'model', write, arguments, known)}", flush=True)
            (self.out / "DONE").touch()
        dist.barrier()


def share_of(batch: Sequence[Example], rank: int, world: int) -> list[Example]:
    """The rows of one process, longest first. All processes take rows of about the same length at
    a time: under ZeRO-3 each waits for the slowest at every layer. Which rows a step has, and so
    its gradient, does not change."""
    return sorted(batch, key=lambda example: -example.tokens)[rank::world]


def answer_logp(model: Any, ids_T: torch.Tensor, count: int) -> torch.Tensor:
    """Log-probabilities (count,) of the last `count` ids. Only the logits that predict them are
    computed: the vocabulary is large, and a prompt can be long."""
    keep = torch.arange(len(ids_T) - count - 1, len(ids_T) - 1, device=ids_T.device)
    out = model(input_ids=ids_T[None], use_cache=False, logits_to_keep=keep)
    return picked(out.logits.squeeze(0), ids_T[-count:])


class _Picked(torch.autograd.Function):
    """Log-probabilities of one id a row. Float32 exists for `ROWS` rows at a time, and the
    gradient overwrites the logits: a second tensor of their size is never made. Nothing else may
    read the logits afterwards."""

    @staticmethod
    def forward(ctx: Any, logits_TV: torch.Tensor, ids_T: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(logits_TV, ids_T)
        pieces = zip(logits_TV.split(ROWS), ids_T.split(ROWS), strict=True)
        return torch.cat([v.float().log_softmax(-1).gather(1, i[:, None])[:, 0] for v, i in pieces])

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits_TV, ids_T = ctx.saved_tensors
        pieces = zip(logits_TV.split(ROWS), ids_T.split(ROWS), given[0].split(ROWS), strict=True)
        for logits, ids, grad in pieces:
            law = logits.float().softmax(-1).mul_(-grad[:, None])
            law.scatter_add_(1, ids[:, None], grad[:, None].to(law.dtype))
            logits.copy_(law)
        return logits_TV, None


def picked(logits_TV: torch.Tensor, ids_T: torch.Tensor) -> torch.Tensor:
    """Log-probabilities (T,) of `ids_T` in float32. The backward pass overwrites the logits."""
    return cast("torch.Tensor", _Picked.apply(logits_TV, ids_T))


@contextmanager
def _cut_while_read(settings: dict[str, Any], stage: int) -> Generator[None]:
    """Under stage 3 each process keeps its own part of a weight as soon as it is read. Otherwise
    every process of a node would first hold the whole model: eight times 64 GB for 32B."""
    if stage != 3:
        yield
        return
    from transformers.integrations.deepspeed import (
        HfDeepSpeedConfig,
        unset_hf_deepspeed_config,
    )

    told = HfDeepSpeedConfig(settings)  # transformers looks at it for as long as it lives
    try:
        yield
    finally:
        unset_hf_deepspeed_config()
        del told


def _model(config: SftRunConfig, source: Path) -> Any:
    from transformers import AutoModelForCausalLM

    dtype = DTYPES[config.engine.dtype]
    # torch's own flash attention; `cluster.attention` is verl's
    model: Any = AutoModelForCausalLM.from_pretrained(
        source, dtype=dtype, attn_implementation="sdpa"
    )
    learn_padding(model)
    recompute(model)
    return with_adapters(model, config.model) if config.model.lora_rank else model


def recompute(model: Any) -> None:
    """Layers keep their inputs only and run again in the backward pass. transformers does that in
    training mode alone, and loads in the other; dropout, which comes with it, stays off: a step
    must not depend on how often it was tried."""
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    part: Any
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
        elif hasattr(part, "attention_dropout"):
            part.attention_dropout = 0.0


def _save(
    config: SftRunConfig, source: Path, folder: Path, module: Any, state: dict[str, Any]
) -> None:
    """An ordinary folder of the weights in `state`, which one process has put together."""
    if config.model.lora_rank:
        plain = _model(config, source)
        plain.load_state_dict(state, strict=False)
        save_module(source, folder, merged(plain))
    else:
        save_module(source, folder, module, {k: v.cpu() for k, v in state.items()})


def train_rank(config: SftRunConfig, stop: StopFlag) -> None:
    """Body of one process, whose place the launcher put into the environment. Raises `Stopped`
    after saving when asked to stop."""
    if config.cluster.device == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    source = resolve_model(config.model.path)
    tokenizer = ChatTokenizer(source, config.tools.calls, config.model.chat_template_kwargs)
    rows = training_rows(config.data, asked_for(config), config.prompts)
    examples = examples_of(rows, tokenizer, Path(config.data).parent)
    learner = ManyDevices(config, source, stop)
    log = RunLog(learner.out, config.log, to_dict(config)) if learner.rank == 0 else None
    kept = learn(learner, examples, config.sft, config.seed, log)
    learner.export(kept)
    if log is not None:
        log.close()


# --- one process for each device of a node

GRACE_S = 30.0
ENDED_WELL = (0, 75, 130)  # done, or saved because it was asked to stop or interrupted


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def first_host(nodelist: str) -> str:
    """The first name of Slurm's list, such as `n[03-07,9],login1`: n03.

    Read here because `scontrol` is not inside a container.
    """
    depth, first = 0, ""
    for letter in nodelist:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and not depth:
            break
        first += letter
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first)


def threads_of(environ: Mapping[str, str], processes: int) -> int:
    """Threads that each of `processes` ranks may use: its share of the job's cores on this node."""
    cores = int(environ.get("SLURM_CPUS_PER_TASK") or len(os.sched_getaffinity(0)))
    return max(1, cores // processes)


def rendezvous(environ: Mapping[str, str]) -> tuple[int, int, str, int]:
    """(nodes, this node's number, address, port) of the meeting point, from Slurm if it is there.

    The port comes from the job's id and restart, so that all nodes agree without talking.
    """
    nodes = int(environ.get("SLURM_NNODES", "1"))
    if nodes == 1:
        return 1, 0, "127.0.0.1", free_port()
    restart = int(environ.get("SLURM_RESTART_COUNT", "0"))
    port = 20000 + (int(environ["SLURM_JOB_ID"]) * 7 + restart) % 10000
    return nodes, int(environ["SLURM_NODEID"]), first_host(environ["SLURM_JOB_NODELIST"]), port


def launch(words: Sequence[str], processes: int) -> int:
    """Run `python -m WORDS` as `processes` ranks on this node; the first failure's exit status.

    USR1 and TERM reach every rank; when one fails the others are ended (TERM, then KILL).
    """
    nodes, node, address, port = rendezvous(os.environ)
    threads = threads_of(os.environ, processes)
    ranks: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: object) -> None:
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(number)

    def wait_for_them(number: int, frame: object) -> None:
        """A terminal interrupts the ranks by itself; they save. Once more ends this process."""
        signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, pass_on)
    signal.signal(signal.SIGINT, wait_for_them)
    for local in range(processes):
        env = {
            **os.environ,
            "RANK": str(node * processes + local),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(nodes * processes),
            "LOCAL_WORLD_SIZE": str(processes),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
            # by itself each of them would start as many as the node has cores
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(threads),
        }
        ranks.append(subprocess.Popen([sys.executable, "-m", *words], env=env))
    codes: list[int] = []
    live = list(ranks)
    while live:
        time.sleep(0.2)
        for rank in [r for r in live if r.poll() is not None]:
            live.remove(rank)
            codes.append(int(rank.returncode))
            if rank.returncode not in ENDED_WELL:
                _end(live)
    bad = [code for code in codes if code not in ENDED_WELL]
    code = bad[0] if bad else max(codes)
    return code if code >= 0 else 128 - code


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """The others wait for a message that will not come: TERM, and KILL after a while."""
    for rank in ranks:
        rank.terminate()
    until = time.monotonic() + GRACE_S
    for rank in ranks:
        try:
            rank.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()


def require_devices(cluster: ClusterConfig) -> None:
    """Raises `ConfigError` where every rank would end with a traceback of its own."""
    if importlib.util.find_spec("deepspeed") is None:
        raise ConfigError(
            "--backend deepspeed: deepspeed is not installed; install the extra `deepspeed` "
            "(docs/clusters.md)"
        )
    if cluster.device == "cpu":
        return
    there = len(list(Path("/dev").glob("nvidia[0-9]*")))
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    have = there if shown is None else min(there, len([d for d in shown.split(",") if d.strip()]))
    if have < cluster.gpus_per_node:
        raise ConfigError(
            f"cluster.gpus_per_node={cluster.gpus_per_node} and this node has {have} GPU(s); set "
            "cluster.gpus_per_node, or try it on a tiny model with cluster.device=cpu"
        )


def on_devices(config: SftRunConfig) -> int:
    """`assay sft --backend deepspeed`: one process a device, on this node's share of the nodes."""
    if config.validation not in (None, AUTO):
        raise ConfigError("--backend deepspeed does not evaluate while it trains; leave validation")
    rows = training_rows(config.data, asked_for(config), config.prompts)
    config = with_folder(settled(replace(config, validation=None), config.cluster.device))
    config, said = before(config, rows, here=False)
    print(said, flush=True)
    if os.environ.get("SLURM_NODEID", "0") != "0":  # the first node's process holds the folder
        return _launched(config)
    with held(Path(config.out)):
        return _launched(config)


def _launched(config: SftRunConfig) -> int:
    require_devices(config.cluster)
    out = Path(config.out)
    require_disk(out, 1_000_000_000, "checkpoints of this run")
    print(sft_report(config), flush=True)
    (out / "DONE").unlink(missing_ok=True)
    node = os.environ.get("SLURM_NODEID", "0")
    if node == "0":
        inputs = {"data": Path(config.data), "model": Path(str(config.model.path))}
        inputs = hashes_of({name: path for name, path in inputs.items() if path.exists()})
        refuse_other_inputs(inputs, out)
        write_run_record(out, config, inputs)
    settings = out / f"deepspeed_node_{node}.yaml"  # every node starts its own ranks
    dump(config, settings)
    if config.cluster.device == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    return launch(["train.backends.deepspeed", str(settings)], config.cluster.gpus_per_node)


def main(path: str) -> int:
    """Body of one rank."""
    stop = StopFlag().listen()  # before DeepSpeed's long import: USR1 would end the process
    try:
        train_rank(load_run(SftRunConfig, path), stop)
    except Exception as error:
        code = status_of(error, "assay sft")
        if code is None:
            raise
        return code
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
