"""A tokenizer and a model's settings so small that a test can afford them.

Not in conftest.py: folders below have one of their own, and `import conftest` gets either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIZES: dict[str, Any] = {
    **{"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3, "eos_token_id": 2},
    **{"num_attention_heads": 6, "num_key_value_heads": 2, "initializer_range": 0.2},
}


def write_tiny_tokenizer(folder: Path) -> int:
    """A byte-level tokenizer with a chat template; returns its vocabulary size."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocab = {token: i for i, token in enumerate([*special, *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in special])
    names = {"eos_token": "<|im_end|>", "pad_token": "<|im_end|>", "chat_template": CHAT_TEMPLATE}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return len(vocab)


def tiny_config(vocab: int = 259, **changes: Any) -> Any:
    from transformers import LlamaConfig

    values = {**SIZES, "vocab_size": vocab, "tie_word_embeddings": True, "bos_token_id": 1}
    values |= {"pad_token_id": 2, "max_position_embeddings": 2048}
    return LlamaConfig(**(values | changes))


def random_model(kind: str, **changes: Any) -> Any:
    """A float32 model of an architecture of transformers, the same one each time. Its biases and
    norms are random too: as transformers makes them, they would be 0 and 1, and leaving them out
    would change nothing."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(1)
    sizes = {"vocab_size": 259, "max_position_embeddings": 256, "pad_token_id": None}
    torch.manual_seed(0)
    config: Any = AutoConfig.for_model(kind, **(SIZES | sizes | changes))
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def small_llama(vocab: int, **changes: Any) -> Any:
    """A random Llama of two layers in float32, the same one each time."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "max_position_embeddings": 4096}
    return AutoModelForCausalLM.from_config(tiny_config(vocab, **(sizes | changes))).float()


def teach_endings(model: Any, batches: Iterable[Iterable[Sequence[int]]]) -> None:
    """One AdamW step a batch, on the last two tokens of each of its sequences."""
    import torch

    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for batch in batches:
        for ids in batch:
            logits = model(torch.tensor([ids[:-1]])).logits[0, -2:]
            torch.nn.functional.cross_entropy(logits, torch.tensor(ids[-2:])).backward()
        optimiser.step()
        optimiser.zero_grad()
