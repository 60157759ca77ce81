"""verl's rollout side on a CPU: our embedded engine behind verl's server interface. Needs verl."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import ray
import torch
import torch.distributed as dist
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from rollouts.engines.torch.engine import TransformersEngine
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Sampling


async def _nothing(self: Any, *args: Any, **more: Any) -> None:
    return None


def sampling_of(asked: dict[str, Any], room: int) -> Sampling:
    """verl's sampling parameters as ours; `room`: tokens that the model can still read."""
    return Sampling(
        max_new_tokens=max(0, min(int(asked.get("max_new_tokens", room)), room)),
        temperature=float(asked.get("temperature", 1.0)),
        top_k=max(0, int(asked.get("top_k", 0))),
        top_p=float(asked.get("top_p", 1.0)),
    )


class Server:
    """A Ray actor: a transformers module and our sampler. Token ids in, token ids out.

    A request with a `seed` draws from it alone, so a run's rollouts can be made again.
    """

    # what frees a GPU's memory, or measures it
    sleep = wake_up = clear_kv_cache = release_kv_cache = resume_kv_cache = _nothing
    start_profile = stop_profile = _nothing

    def __init__(self, folder: str, max_model_len: int) -> None:
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.module: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.engine = TransformersEngine(self.module, ChatTokenizer(Path(folder)).stop_ids)
        self.max_model_len, self.global_steps = max_model_len, 0
        self.lock, self.open = asyncio.Lock(), asyncio.Event()
        self.open.set()

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **unused: Any
    ) -> TokenOutput:
        drawn = sampling_of(sampling_params, self.max_model_len - len(prompt_ids))
        if drawn.max_new_tokens == 0:
            extra = {"global_steps": self.global_steps}
            return TokenOutput(token_ids=[], log_probs=[], extra_fields=extra)
        seed = int(sampling_params.get("seed", 0))
        await self.open.wait()
        async with self.lock:  # weights do not change in the middle of an answer
            ((done,),) = await self.engine.generate([prompt_ids], drawn, 1, [seed])
            extra = {"global_steps": self.global_steps}
        await asyncio.sleep(0)
        # Log-probabilities before top-k and top-p, as SGLang gives them.
        return TokenOutput(
            token_ids=done.ids, log_probs=done.logprobs, stop_reason="completed", extra_fields=extra
        )

    async def update_weights(self, named: dict[str, torch.Tensor], global_steps: int) -> None:
        """Take over one part of the trainer's weights; unknown names are an error."""
        async with self.lock:
            own = dict(self.module.named_parameters())
            with torch.no_grad():
                for name, tensor in named.items():
                    if name in own:
                        own[name].copy_(tensor)
                    elif name != "lm_head.weight":  # tied to the embedding
                        raise KeyError(f"the trainer sent {name}, which the model does not have")
            self.global_steps = global_steps

    async def set_global_steps(self, global_steps: int, **unused: Any) -> None:
        self.global_steps = global_steps

    async def abort_all_requests(self, **unused: Any) -> None:
        """An answer that is being drawn is ended; the others wait for `resume_generation`."""
        self.open.clear()
        async with self.lock:
            return

    async def resume_generation(self) -> None:
        self.open.set()


class CpuReplica(RolloutReplica):
    """One server actor for each rollout replica."""

    async def launch_servers(self) -> None:
        name = server_name(self.replica_rank) + self.name_suffix
        folder = str(getattr(self.model_config, "local_path", None) or self.model_config.path)
        given = (folder, int(self.config.max_model_len or 1 << 30))
        # requests that wait must not keep a call for new weights out
        actor: Any = ray.remote(num_cpus=0, max_concurrency=self.max_concurrency)(Server)
        self._server_handle = actor.options(name=name).remote(*given)
        await self._server_handle.set_global_steps.remote(0)  # so that it is up
        self.servers = [self._server_handle]
        self._server_address = name


def server_name(rank: int) -> str:
    """Of the actor of a replica, which stands beside the training rank of the same number."""
    return f"assay_cpu_server_{rank}"


class CpuRollout(BaseRollout):
    """Lives in the training worker and hands the weights over."""

    resume = release = _nothing

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.replica_rank = int(more.get("replica_rank", -1))

    async def update_weights(
        self, weights: Any, wire_format: str = "named_tensors", **more: Any
    ) -> None:
        """Every rank drains the generator (it gathers shards); each sends to its own server."""
        if wire_format != "named_tensors":
            raise ValueError(f"wire_format={wire_format}: the CPU device takes whole tensors")
        named = {name: tensor.detach().float().cpu().clone() for name, tensor in weights}
        server = ray.get_actor(server_name(dist.get_rank() if dist.is_initialized() else 0))
        await server.update_weights.remote(named, int(more.get("global_steps") or 0))
