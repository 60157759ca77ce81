"""Dr.GRPO over many GPUs: verl's trainer with Assay's tasks, episodes, rewards and exact loss.

Importing this package imports neither verl nor ray; the modules that need them say so. Needs the
extra `cluster` (docs/clusters.md).
"""
