"""The smoke device: verl's trainer on a machine without a GPU.

Everything runs for real (Ray, TransferQueue, FSDP2 over gloo, agent loops, sandbox, checkpoints)
except what only a GPU has: SGLang's server is replaced by our embedded engine in a Ray actor.
For tests and for trying settings on a tiny model; not for training anything of use.
"""
