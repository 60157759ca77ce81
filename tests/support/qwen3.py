"""A tiny random model with what Qwen3's folders have: its shape, its chat template, its added
tokens, and two ids that end an answer.

The template has the published one's features (thinking, tools, answers of tools). It was not
compared with the published file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

TEMPLATE = (Path(__file__).parents[1] / "data" / "qwen3.jinja").read_text("utf-8")
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# single ids that are ordinary text: decoding with special tokens left out keeps them
ADDED = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
ADDED += ("<think>", "</think>")


def write_qwen3(folder: Path, **changes: Any) -> Path:
    """The folder, filled; `changes` of the model's configuration. `<|im_end|>` is the tokenizer's
    end, and generation_config.json names `<|endoftext|>` beside it."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    core.add_tokens([AddedToken(t, special=False, normalized=False) for t in ADDED])
    names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=core, chat_template=TEMPLATE, **names)
    fast.save_pretrained(folder)
    end, stop = core.token_to_id("<|im_end|>"), core.token_to_id("<|endoftext|>")
    values: dict[str, Any] = {
        # a little more than the tokenizer has, as the published ones have it
        "vocab_size": len(letters) + len(SPECIAL) + len(ADDED) + 7,
        **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True},
        **{"initializer_range": 0.2, "max_position_embeddings": 4096},
        **{"bos_token_id": stop, "eos_token_id": end},
    }
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model: Any = AutoModelForCausalLM.from_config(Qwen3Config(**(values | changes))).float()
    model.generation_config.update(eos_token_id=[end, stop], pad_token_id=stop)
    model.save_pretrained(folder)
    return folder
