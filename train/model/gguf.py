# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false
"""De-quantise a Llama-shaped GGUF into an ordinary Hugging Face folder.

transformers reads the tensors (it knows the row order of query and key), but a model it loaded
from GGUF refuses `save_pretrained`, and the tokenizer it builds from GGUF is wrong for SmolLM2:
it takes `<|im_start|>` for the end of a turn and leaves out the digit splitting. So the state is
copied into a fresh model, and the tokenizer is built here from the vocabulary and the merges.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CONTROL_TOKEN = 3  # GGUF's token type for special tokens


def convert_llama(gguf: Path, out: Path) -> None:
    """Write config, bf16 weights, generation config and tokenizer of `gguf` into `out`.

    bf16 because the published weights are bf16 too: half the disk, and its rounding (2^-9) is
    small beside that of 4-bit weights. Raises ValueError when the file is not a tied Llama.
    """
    loaded = LlamaForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    if not loaded.config.tie_word_embeddings:
        raise ValueError(f"{gguf.name}: the head is not tied to the embedding; SmolLM2's is")
    model = LlamaForCausalLM(_clean_config(loaded.config)).bfloat16()
    missing = model.load_state_dict(loaded.state_dict(), strict=True)
    assert not missing.missing_keys and not missing.unexpected_keys
    model.tie_weights()
    tokenizer = _tokenizer(gguf)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _clean_config(old: LlamaConfig) -> LlamaConfig:
    """A config without the marks of quantisation, and with the end of a turn as eos."""
    keep = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "hidden_act",
        "max_position_embeddings",
        "rope_parameters",
        "attention_bias",
        "mlp_bias",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "tie_word_embeddings",
    )
    values = {name: getattr(old, name) for name in keep}
    # GGUF stores 1e-5 as a float32, which prints as 9.999999747378752e-06.
    return LlamaConfig(**values, rms_norm_eps=float(f"{old.rms_norm_eps:.6g}"), dtype="bfloat16")


def _tokenizer(gguf: Path) -> PreTrainedTokenizerFast:
    """SmolLM2's byte-level BPE: single digits, no prefix space, 17 special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    fields = _fields(gguf)
    vocabulary: list[str] = fields["tokenizer.ggml.tokens"]
    kinds: list[int] = fields["tokenizer.ggml.token_type"]
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"]]
    bpe = models.BPE(vocab={token: i for i, token in enumerate(vocabulary)}, merges=merges)
    backend = Tokenizer(bpe)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(vocabulary, kinds, strict=True) if kind == CONTROL_TOKEN]
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        chat_template=fields["tokenizer.chat_template"],
        model_max_length=fields["llama.context_length"],
        clean_up_tokenization_spaces=False,
    )


def _fields(gguf: Path) -> dict[str, Any]:
    from gguf import GGUFReader

    wanted = (
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges",
        "tokenizer.chat_template",
        "llama.context_length",
    )
    reader = GGUFReader(gguf)
    return {name: reader.fields[name].contents() for name in wanted}
