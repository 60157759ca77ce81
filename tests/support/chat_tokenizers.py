"""Small tokenizers of the kinds there are, and chat templates in the manner of the families.

Each is written to a folder as a model's would be. The words of the byte tokenizer were learned from
a few sentences, so that newlines, spaces and letters merge over the borders of a frame as they do
in large ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from places import tables

TOKENS: dict[str, Any] = tables("chat_tokens")
TEXT, SPECIAL, ADDED, ROLES, ENDS = TOKENS.values()
CHARACTERS = sorted(set(TEXT) | {chr(i) for i in range(33, 127)})
KINDS = ("bytes", "bytes, spaced", "first", "always", "never", "prepend", "unigram")
SPACED = "\u2581"

TEMPLATES: dict[str, str] = tables("chat_templates")
CHATML = TEMPLATES["yi"]
ODD = ("wants a system message", "lists its tools", "writes a channel")


def _core(kind: str) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    if kind.startswith("bytes"):
        core = Tokenizer(models.BPE())
        spaced = kind != "bytes"
        core.normalizer = None if spaced else normalizers.NFC()
        # as Llama 3's and Qwen's: newlines do not leave their last one to the next word
        cuts = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        byte = pre_tokenizers.ByteLevel(add_prefix_space=spaced, use_regex=spaced)
        split = pre_tokenizers.Split(Regex(cuts), "isolated")
        core.pre_tokenizer = byte if spaced else pre_tokenizers.Sequence([split, byte])
        core.decoder = decoders.ByteLevel()
        letters = pre_tokenizers.ByteLevel.alphabet()
        words: Any = {"vocab_size": 400, "initial_alphabet": letters, "show_progress": False}
        core.train_from_iterator([TEXT] * 3, trainers.BpeTrainer(**words))
        return core
    letters = [SPACED if c == " " else c for c in CHARACTERS]
    pairs = ["\n\n", SPACED * 2, f"{SPACED}a", f"{SPACED}t", "as", "er", "us"]
    byte = [f"<0x{i:02X}>" for i in range(256)]
    words = ["<unk>", "<s>", "</s>", *byte, *letters, *pairs]
    if kind == "unigram":
        scores = [0.0, 0.0, 0.0] + [-12.0] * 256 + [-6.0] * len(letters) + [-5.0] * len(pairs)
        listed = list(zip(words, scores, strict=True))
        core = Tokenizer(models.Unigram(listed, unk_id=0, byte_fallback=True))
    else:
        known: Any = ({word: i for i, word in enumerate(words)}, [tuple(pair) for pair in pairs])
        core = Tokenizer(models.BPE(*known, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    ends = [decoders.Strip(" ", 1, 0)]
    if kind == "prepend":
        parts = [normalizers.Prepend(SPACED), normalizers.Replace(" ", SPACED)]
        core.normalizer = normalizers.Sequence(parts)
    else:
        scheme = "always" if kind == "unigram" else kind
        core.pre_tokenizer = pre_tokenizers.Metaspace(SPACED, prepend_scheme=scheme, split=False)
        ends = ends if scheme != "never" else []
    first = [decoders.Replace(SPACED, " "), decoders.ByteFallback(), decoders.Fuse()]
    core.decoder = decoders.Sequence([*first, *ends])
    return core


def write_chat_tokenizer(
    folder: Path,
    kind: str,
    family: str,
    template: Any = None,
    strips: bool = False,
    words: Sequence[str] = (),
) -> Path:
    """The folder, filled. `strips`: control tokens swallow the blanks after them, as Phi-3's do.
    `words`: further added tokens.

    As in Gemma's, Phi-3's, Yi's and the first Llama 3's, the tokenizer's own end is another token
    than the one that ends a turn.
    """
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    core, special = _core(kind), [*SPECIAL, *(ROLES if family == "phi" else ())]
    how: Any = {"special": True, "normalized": False, "rstrip": strips}
    core.add_special_tokens([AddedToken(t, **how) for t in special])
    core.add_tokens([AddedToken(t, special=False, normalized=False) for t in (*ADDED, *words)])
    ends = "<|endoftext|>" if family in ENDS else "</s>"
    names = {"bos_token": "<s>", "eos_token": ends, "unk_token": "<unk>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=core, **names)
    fast.chat_template = TEMPLATES[family] if template is None else template
    folder.mkdir(parents=True, exist_ok=True)
    fast.save_pretrained(folder)
    return folder


def write_settings(folder: Path, **changes: Any) -> None:
    """Change what tokenizer_config.json says."""
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def by_template(chat: Any, messages: Sequence[Any], generate: bool, **more: Any) -> list[int]:
    """The whole conversation by transformers' own hand."""
    ids = chat._tokenizer.apply_chat_template(
        list(messages), tokenize=True, return_dict=False, add_generation_prompt=generate, **more
    )
    return [int(i) for i in ids]
