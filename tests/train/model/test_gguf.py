"""De-quantising: a GGUF written from a known model comes back as that model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from gguf import MODEL_ARCH, GGUFWriter, TokenType, get_tensor_name_map
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from train.model.source import convert_llama

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
HEADS, KV_HEADS, WIDTH = 4, 2, 32


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp keeps the two rotary halves of query and key interleaved."""
    split = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return split.swapaxes(1, 2).reshape(rows.shape)


def write_gguf(path: Path, model: LlamaForCausalLM, vocabulary: list[str]) -> None:
    writer = GGUFWriter(path, "llama")
    numbers = {"context_length": 64, "embedding_length": WIDTH, "block_count": 1, "pad_token_id": 2}
    numbers |= {"feed_forward_length": 48, "head_count": HEADS, "head_count_kv": KV_HEADS}
    numbers |= {"layer_norm_rms_eps": 1e-5, "rope_freq_base": 1e4, "bos_token_id": 1}
    numbers |= {"rope_dimension_count": WIDTH // HEADS, "vocab_size": len(vocabulary)}
    for name, number in (numbers | {"eos_token_id": 2}).items():
        getattr(writer, f"add_{name}")(number)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocabulary)
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(vocabulary) - 3))
    writer.add_token_merges(["1 2", "a b"])
    writer.add_chat_template("{{ messages[0]['content'] }}")
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, 1)
    for name, tensor in model.state_dict().items():
        data, part = tensor.numpy(), name.removesuffix(".weight")
        if part.endswith(("q_proj", "k_proj")):
            data = interleave(data, HEADS if part.endswith("q_proj") else KV_HEADS)
        if part != "lm_head":  # tied to the embedding
            writer.add_tensor(f"{names.get_name(part)}.weight", np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_the_converted_folder_is_the_model_that_was_written(tmp_path: Path) -> None:
    torch.manual_seed(0)
    vocabulary = [*SPECIAL, "1", "2", "12", "a", "b", "ab", "Ġ", "Ċ", "x", "y", "z", "q", "w"]
    config = LlamaConfig(
        **{"vocab_size": len(vocabulary), "hidden_size": WIDTH, "intermediate_size": 48},
        **{"num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS},
        **{"max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": True},
    )
    source = LlamaForCausalLM(config).eval()
    write_gguf(tmp_path / "tiny.gguf", source, vocabulary)
    out = tmp_path / "out"
    convert_llama(tmp_path / "tiny.gguf", out)
    model = AutoModelForCausalLM.from_pretrained(out)
    assert model.dtype == torch.bfloat16 and model.config.rms_norm_eps == 1e-5
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert getattr(model.config, "quantization_config", None) is None
    for name, tensor in source.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor.to(torch.bfloat16)), name
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert (tokenizer.eos_token, tokenizer.bos_token) == ("<|im_end|>", "<|im_start|>")
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == 2
    ids = tokenizer("ab 12<|im_end|>").input_ids
    assert ids == [8, 9, 3, 4, 2]  # "ab" is merged, digits never are, the special token is one
    assert tokenizer.decode(ids[:-1]) == "ab 12"
