"""A model folder, adapter folder or hub name as an engine on this machine."""

from __future__ import annotations

from typing import Any

from configs.schema import EngineConfig
from rollouts.prompts import ChatTokenizer
from train.model.source import resolve_model
from train.run.setup import load_checked, prepare


def load_local(args: Any) -> tuple[Any, ChatTokenizer]:
    """(engine, tokenizer). Raises one sentence for a model that cannot be loaded."""
    config = EngineConfig(threads=args.threads, device=args.device, dtype=args.dtype)
    machine = prepare(config)
    folder = resolve_model(args.model)
    tokenizer = ChatTokenizer(folder, args.calls)
    policy = load_checked(folder, config, machine, train=False)
    return policy.engine(tokenizer.stop_ids, config.slots), tokenizer
