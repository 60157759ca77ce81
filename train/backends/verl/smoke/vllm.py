# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
# pyright: reportUntypedBaseClass=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""verl's rollout side over HTTP: an actor in front of a vLLM server of another process. Needs verl.

Token ids go there and come back. After an update the training worker writes its weights as
safetensors, and the server reads them into the model that it has (vLLM's `reload_weights`); it is
not started again.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import ray
import torch
from verl.workers.rollout.replica import TokenOutput

from assay.http_client import Patience, open_session, post_json
from rollouts.engines.dialects import DIALECTS
from rollouts.prompts import ChatTokenizer
from train.backends.verl.smoke.rollout import (
    CpuReplica,
    CpuRollout,
    nothing_drawn,
    rank,
    sampling_of,
    server_name,
    without_memory,
)
from train.backends.verl.smoke.servers import (
    ADDRESSES,
    EMBED,
    HEAD,
    MODEL,
    NAME,
    WEIGHTS,
    names_of,
)
from train.model.policy import save_folder

TIMEOUT_S = 1800.0


@without_memory
class HttpServer:
    """A Ray actor: verl's calls as requests to one vLLM server."""

    def __init__(self, address: str, folder: str, max_model_len: int) -> None:
        self.address, self.max_model_len, self.global_steps = address, max_model_len, 0
        self.stops = ChatTokenizer(Path(folder)).stop_ids
        self.open = asyncio.Event()
        self.open.set()

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **unused: Any
    ) -> TokenOutput:
        drawn = sampling_of(sampling_params, self.max_model_len - len(prompt_ids))
        if drawn.max_new_tokens == 0:
            return nothing_drawn(self.global_steps)
        await self.open.wait()
        words, steps = DIALECTS["vllm"], self.global_steps
        seed = int(sampling_params.get("seed", 0))
        body = words.ask(NAME, prompt_ids, drawn, seed, self.stops)
        return output_of(await self._post(words.path, body), steps)

    async def update_weights(self, folder: str, global_steps: int) -> None:
        """Answers that are being drawn are handed back as they are, to be gone on with."""
        await self._post("/pause?mode=abort")
        reload = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        await self._post("/collective_rpc", reload)
        await self._post("/reset_prefix_cache")  # keys and values of the old weights
        self.global_steps = global_steps
        await self._post("/resume")

    async def set_global_steps(self, global_steps: int, **unused: Any) -> None:
        self.global_steps = global_steps

    async def abort_all_requests(self, **unused: Any) -> None:
        """vLLM hands back what was drawn so far; new requests wait for `resume_generation`."""
        self.open.clear()
        await self._post("/pause?mode=abort")

    async def resume_generation(self) -> None:
        await self._post("/resume")
        self.open.set()

    async def _post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        async with open_session("", TIMEOUT_S) as session:
            return await post_json(session, self.address + path, body or {}, Patience(), dict)


def output_of(row: Any, global_steps: int) -> TokenOutput:
    """vLLM's answer in verl's words. Its log-probabilities are those before top-k and top-p."""
    (choice,) = row["choices"]
    ids, told = choice["token_ids"], (choice["logprobs"] or {}).get("token_logprobs") or []
    if len(told) != len(ids):
        raise ValueError(f"vLLM told {len(told)} log-probabilities of {len(ids)} tokens")
    reason = "aborted" if choice["finish_reason"] == "abort" else "completed"
    return TokenOutput(
        token_ids=ids,
        log_probs=told,
        stop_reason=reason,
        extra_fields={"global_steps": global_steps},
    )


class VllmReplica(CpuReplica):
    """An actor in front of the server that the driver started for this replica."""

    def make(self, folder: str, length: int) -> tuple[type, tuple[Any, ...]]:
        address = os.environ[ADDRESSES].split(",")[self.replica_rank]
        return HttpServer, (address, folder, length)


class VllmRollout(CpuRollout):
    """Lives in the training worker; hands the weights over as a folder."""

    async def hand_over(self, named: dict[str, torch.Tensor], global_steps: int) -> None:
        base, folder = Path(os.environ[MODEL]), Path(os.environ[WEIGHTS]) / f"rank_{rank()}"
        save_folder(base, folder, checked(named, names_of(base)))
        server = ray.get_actor(server_name(rank()))
        await server.update_weights.remote(str(folder), global_steps)


def checked(named: dict[str, torch.Tensor], wanted: set[str]) -> dict[str, torch.Tensor]:
    """The weights as the server has them: a tied output layer is the embedding. vLLM only warns of
    names that are missing; here each one has to be there, and no other."""
    tied = {HEAD: named[EMBED].clone()} if EMBED in named and HEAD not in named else {}
    made = {name: weight for name, weight in (named | tied).items() if name in wanted}
    lost = sorted(wanted - made.keys())
    more = sorted(set(named) - wanted - {HEAD})
    if lost or more:
        raise KeyError(
            f"the trainer sent {len(named)} weights: {', '.join(lost) or 'none'} missing, "
            f"{', '.join(more) or 'none'} unknown to the model"
        )
    return made
