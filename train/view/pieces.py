# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""The text of single tokens, read from a model folder's tokenizer.json without its library."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.task import TaskError
from rollouts.control_tokens import token_bytes

FILE = "tokenizer.json"


class Pieces:
    """Token id → its bytes; `of` gives the text of a sequence, token by token."""

    def __init__(self, path: Path) -> None:
        """Raises `TaskError` for a file that is no tokenizer."""
        try:
            data: Any = json.loads(path.read_text(encoding="utf-8"))
            vocab: Any = data["model"]["vocab"]
            if isinstance(vocab, list):  # Unigram: (token, score)
                vocab = {pair[0]: i for i, pair in enumerate(vocab)}
            by_bytes = "ByteLevel" in json.dumps([data.get("decoder"), data.get("pre_tokenizer")])
            self._bytes = {int(i): token_bytes(str(token), by_bytes) for token, i in vocab.items()}
            for added in data.get("added_tokens") or ():
                self._bytes[int(added["id"])] = str(added["content"]).encode()
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            said = f"{type(error).__name__}: {error}"[:120]
            raise TaskError(
                f"{path}: no tokenizer that can be read ({said}); give a model folder with --model"
            ) from None

    def of(self, ids: Sequence[int]) -> list[str]:
        """One text a token. A character of several tokens stands at the last of them."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        out: list[str] = []
        for i in ids:
            known = self._bytes.get(i)
            out.append(decoder.decode(known) if known is not None else f"⟨{i}⟩")
        return out


def find_tokenizer(place: Path, records: Iterable[Mapping[str, Any]]) -> Path | None:
    """The tokenizer of a run's own model, else of the model that its records name."""
    folder = place if place.is_dir() else place.parent
    near = [folder / name for name in ("model", "rl", "sft", ".")]
    for record in records:
        for held in (record.get("config"), record.get("settings"), record):
            model = held.get("model") if isinstance(held, Mapping) else None
            path = model.get("path") if isinstance(model, Mapping) else model
            near += [Path(path)] if isinstance(path, str) and path else []
    return next((f / FILE for f in near if (f / FILE).is_file()), None)
