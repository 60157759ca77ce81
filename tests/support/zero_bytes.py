# DeepSpeed ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingImports=false
"""`python zero_bytes.py true|false`: bytes a parameter that ZeRO-3 keeps, with offloading or not.

One process on the CPU, bfloat16, a few linear layers; every tensor that is alive after three
optimiser steps is counted. Buckets are made so small that they do not count.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from typing import Any


def alive() -> int:
    import torch

    gc.collect()
    found: dict[int, int] = {}
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter):
            storage = thing.untyped_storage()
            found[storage._cdata] = storage.nbytes()
    return sum(found.values())


def main(offload: str) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    os.environ |= {"DS_ACCELERATOR": "cpu", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    import deepspeed
    import torch

    from configs.loader import load
    from configs.schema import SftRunConfig
    from train.backends.deepspeed import zero_config

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    words = ["cluster.device=cpu", "cluster.gpus_per_node=1", "sft.batch_size=2"]
    words += ["engine.dtype=bfloat16", f"cluster.offload={offload}"]
    settings = zero_config(load(SftRunConfig, None, words), 1)
    settings["zero_optimization"]["reduce_bucket_size"] = 1000
    before = alive()
    layers = [torch.nn.Linear(512, 512, bias=False, dtype=torch.bfloat16) for _ in range(8)]
    model = torch.nn.Sequential(*layers)
    count = sum(weight.numel() for weight in model.parameters())
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    made = deepspeed.initialize(model=model, optimizer=optimiser, config=settings)
    engine: Any = made[0]
    for _ in range(6):  # two rows a step
        loss = engine(torch.randn(4, 512, dtype=torch.bfloat16)).float().pow(2).mean()
        engine.backward(loss)
        engine.step()
    del loss
    print(f"bytes a parameter: {(alive() - before) / count:.3f}")


if __name__ == "__main__":
    main(sys.argv[1])
