"""Will it fit: memory, disk and lengths of every shipped configuration, and what is refused."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from places import ROOT

import assay
from configs.loader import ConfigError, load
from configs.schema import GrpoRunConfig, SftRunConfig
from train.backends.estimate import checkpoint_bytes, grpo_report, sft_report
from train.backends.gpu_memory import GB, Memory, grpo_memory, sft_memory
from train.backends.host_memory import grpo_host_memory, sft_host_memory
from train.backends.launch import require_devices
from train.backends.local_estimate import local_memory, local_report
from train.backends.ranges import Range, known
from train.backends.times import FLOPS, FLOPS_SHARE, grpo_time, sft_time
from train.backends.verl.compose import require_attention
from train.model.shape import shape_of

CONFIGS = ROOT / "configs"
GRPO = [p for p in sorted(CONFIGS.glob("*qwen3*.yaml")) if "sft" not in p.name]
SFT = sorted(CONFIGS.glob("*sft*qwen3*.yaml"))
DARE, BIG = CONFIGS / "dare_qwen3_4b.yaml", CONFIGS / "sft_qwen3_32b_zero3.yaml"


def dare(*settings: str) -> GrpoRunConfig:
    return load(GrpoRunConfig, DARE, list(settings))


def big(*settings: str) -> SftRunConfig:
    return load(SftRunConfig, BIG, list(settings))


@pytest.mark.parametrize("path", GRPO + SFT, ids=lambda p: p.name)
def test_every_shipped_configuration_has_a_dry_run_that_fits(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    kind, backend = ("sft", "deepspeed") if path in SFT else ("grpo", "verl")
    status = assay.main([kind, "--backend", backend, "--config", str(path), "--dry-run"])
    done = capsys.readouterr()
    assert status == 0, done.err
    for said in ("memory on each GPU", "layers' inputs", "GB a checkpoint", "time (estimate"):
        assert said in done.out
    assert done.out.count("  assumed: ") >= 4 and "may not fit" not in done.out
    if kind == "grpo":
        assert "cache of keys and values" in done.out
        assert "verl" in done.out  # its configuration, or that it is not installed


def test_dare_on_one_node_by_hand() -> None:
    """Qwen3-4B, 4.02e9 parameters, eight GPUs of 80 GB, sequences of 32,768 over four of them."""
    parts = grpo_memory(dare(), shape_of("Qwen/Qwen3-4B")).parts
    count = 36 * (2 * 2560 * 4096 + 2 * 2560 * 1024 + 3 * 2560 * 9728 + 2 * 2560) + 151936 * 2560
    by_hand = {
        "weights (float32, cut)": 4 * count / 8,
        "gradients and moments (cut)": 12 * count / 8,
        "server: weights (bf16)": 2 * count,
        "server: cache of keys and values": 0.55 * 80e9 - 2 * count,
    }
    for name, value in by_hand.items():
        assert parts[name].low == parts[name].high == pytest.approx(value, rel=1e-3), name
    norm = 6 * 8192 * 2560
    assert parts["logits"] == Range(2 * 8192 * 151936 + norm, 6 * 8192 * 151936 + norm)
    assert parts["layers' inputs"].low == 2 * 8192 * 36 * 2560


def test_a_node_of_dare_by_hand() -> None:
    """Embeddings are tied, so each of eight ranks reads 4.02e9 parameters in float32; later every
    server keeps a bf16 copy of its weights on the host."""
    shape = shape_of("Qwen/Qwen3-4B")
    host, count = grpo_host_memory(dare(), shape), shape.parameters
    assert host.parts["the model while it is read (float32)"] == pytest.approx(8 * 4 * count)
    assert host.parts["servers: copy of their weights (bf16)"] == pytest.approx(8 * 2 * count)
    size, why = host.most()
    assert why == "while the model is read" and size == pytest.approx(32 * count + 20e9 + 24 * 2e9)
    untied = grpo_host_memory(dare(), shape_of("Qwen/Qwen3-8B"))
    assert untied.most()[1] == "during the run"
    assert "64 jails at their limit" in " ".join(host.lines())
    assert "memory of each node itself (estimate): 197 GB" in grpo_report(dare())


def test_32b_with_zero_3_by_hand() -> None:
    shape = shape_of("Qwen/Qwen3-32B")
    count = shape.parameters
    here = sft_memory(big("cluster.offload=false"), shape).parts
    assert here["weights (bf16)"].low == pytest.approx(2 * count / 16)
    assert here["gradients (float32, cut)"].low == pytest.approx(4 * count / 16)
    assert here["masters and moments (float32, cut)"].low == pytest.approx(12 * count / 16)
    # bf16 logits, their inputs, three float32 copies of 1,024 positions, the last norm
    logits = 2 * 16384 * (151936 + 5120) + 12 * 1024 * 151936 + 6 * 16384 * 5120
    assert here["logits"].high == logits and here["logits"].low < logits / 2
    away = sft_memory(big(), shape).parts
    for name in (
        "weights (bf16)",
        "gradients (float32, cut)",
        "masters and moments (float32, cut)",
    ):
        assert away[name] == known(0)
    assert sft_host_memory(big(), shape).most()[0] == pytest.approx(22 * count / 2)
    two = big("cluster.offload=false", "cluster.zero_stage=2")
    assert sft_host_memory(two, shape).most()[0] == pytest.approx(
        8 * 2 * count
    )  # every process reads it all


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            [
                "cluster.gpus_per_node=1",
                "cluster.sequence_parallel=1",
                "cluster.micro_tokens=32768",
            ],
            "needs at least",
        ),
        # verl asserts it in the middle of the first update
        (["cluster.sequence_parallel=2"], "is less than one answer of rl.max_length=32768"),
        (["rl.max_length=1000000", "cluster.micro_tokens=250000"], "made for 40960 positions"),
        (
            ["cluster.gpus_per_node=12", "cluster.sequence_parallel=12"],
            "does not divide the model's",
        ),
        (["cluster.server_memory=0.05"], "the server's weights alone are 8 GB"),
        (["cluster.server_memory=0.11"], "keys and values of one answer of rl.max_length=32768"),
        (["cluster.gpu_memory_gb=20"], "does not fit"),
        (["cluster.host_memory_gb=128"], "each node needs about 197 GB of its own memory"),
    ],
)
def test_what_cannot_run_is_refused_in_one_sentence(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        grpo_report(dare(*settings))
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["cluster.nodes=1", "cluster.offload=false"], "most of it is masters and moments"),
        (["cluster.zero_stage=2"], "does not fit"),
        (["sft.max_length=50000"], "made for 40960 positions"),
        (["sft.batch_size=40"], "cannot be shared out evenly over 16"),
        (["cluster.host_memory_gb=256"], "each node needs about 360 GB of its own memory"),
    ],
)
def test_sft_that_cannot_run_is_refused_too(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        sft_report(big(*settings))
    assert said in str(error.value)


def test_adapters_need_a_fraction() -> None:
    shape = shape_of("Qwen/Qwen3-32B")
    full, lora = (
        sft_memory(big("cluster.offload=false", f"model.lora_rank={rank}"), shape)
        for rank in (0, 16)
    )
    name = "masters and moments (float32, cut)"
    assert lora.parts[name].high < full.parts[name].low / 200


def test_a_step_without_offloading_fits_two_nodes() -> None:
    """Float32 logits exist for 1,024 positions only, and their gradient overwrites them."""
    assert "may not fit" not in sft_report(big("cluster.offload=false"))


def test_both_ends_are_printed_and_what_they_assume() -> None:
    memory = Memory({"a": Range(1e9, 2e9), "b": known(70e9)}, {"training": ("a", "b")}, ("c",))
    said = "\n".join(memory.lines(dare().cluster))
    assert "1.00–2.00 GB" in said and "71.00–72.00 GB of 80" in said and "assumed: c" in said
    assert "may not fit" not in said
    memory.refuse(dare().cluster, "x")
    tight = Memory({"a": Range(1e9, 5e9), "b": known(70e9)}, {"training": ("a", "b")})
    assert "may not fit: training takes up to 75 GB, and 72 of 80 GB" in "\n".join(
        tight.lines(dare().cluster)
    )
    tight.refuse(dare().cluster, "x")  # the low end fits
    with pytest.raises(ConfigError, match=r"training needs at least 81 GB on each GPU.*most of it"):
        Memory({"a": known(81e9)}, {"training": ("a",)}).refuse(dare().cluster, "x")


def test_the_time_of_a_step_has_a_tail() -> None:
    """The longest answer is waited for; at the high end it is the whole sequence."""
    shape = shape_of("Qwen/Qwen3-4B")
    found = grpo_time(dare(), shape, 36e9)
    step = found.step()
    assert 60 < step.low < step.high and step.high > 3 * step.low
    longer = grpo_time(dare("rl.max_length=36000"), shape, 36e9)
    assert longer.parts["rollouts"].high > found.parts["rollouts"].high
    text = " ".join(found.assumed)
    assert "2048–8192 tokens on average, the longest of a step 8192–32767" in text
    more = grpo_time(dare("rl.kl_coef=0.01"), shape, 36e9).parts["update"]
    assert more.low > found.parts["update"].low


def test_the_time_of_sft_by_hand() -> None:
    """64 full rows over 16 GPUs; eight operations a weight and token, less the last product that
    is not computed again, and nine products of queries and keys, halved by the mask."""
    shape = shape_of("Qwen/Qwen3-32B")
    time = sft_time(big(), shape).parts["computing"]
    tokens, layer = 16384, 2 * 5120 * 8192 + 2 * 5120 * 1024 + 3 * 5120 * 25600
    flops = 64 * (8 * layer - 2 * 5120 * 25600) * tokens * 4
    flops += 9 * 64 * tokens**2 * 8192 * 4 + 6 * tokens * 151936 * 5120 * 4
    assert time.high == pytest.approx(flops / (FLOPS * FLOPS_SHARE.low), rel=1e-6)
    assert time.low < time.high / 4


def test_a_verl_checkpoint_holds_adapters_alone() -> None:
    shape = shape_of("Qwen/Qwen3-4B")
    full, lora = (dare(f"model.lora_rank={rank}") for rank in (0, 16))
    assert checkpoint_bytes(full, shape) == 12 * shape.parameters
    assert checkpoint_bytes(lora, shape) == 12 * shape.adapters(16)
    copied = "copy of the base model (float32, adapters)"
    assert grpo_host_memory(full, shape).parts[copied] == 0
    assert grpo_host_memory(lora, shape).parts[copied] == pytest.approx(4 * shape.parameters)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen3-4B", 4.02),
        ("Qwen/Qwen3-8B", 8.19),
        ("Qwen/Qwen3-32B", 32.76),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 0.1345),
    ],
)
def test_parameters_are_counted_as_their_makers_do(name: str, billions: float) -> None:
    assert shape_of(name).parameters / 1e9 == pytest.approx(billions, rel=5e-3)


def test_a_folder_tells_its_own_shape(tiny_folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    count = sum(t.numel() for t in load_file(str(tiny_folder / "model.safetensors")).values())
    assert shape_of(str(tiny_folder)).parameters == pytest.approx(count, rel=1e-3)
    with pytest.raises(ConfigError, match="an estimate needs the model's shape"):
        shape_of("somebody/else")
    config = json.loads((tiny_folder / "config.json").read_text())
    stretched = {"original_max_position_embeddings": 1000, "factor": 4.0, "rope_type": "yarn"}
    (tmp_path / "config.json").write_text(json.dumps(config | {"rope_scaling": stretched}))
    assert shape_of(str(tmp_path)).positions == max(4000, config["max_position_embeddings"])
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(ConfigError, match="not the configuration of a decoder"):
        shape_of(str(tmp_path))


def test_one_device_is_estimated_and_points_to_the_backend() -> None:
    shape = shape_of("HuggingFaceTB/SmolLM2-135M-Instruct")
    small = local_memory(load(GrpoRunConfig, None), shape)
    again = local_memory(load(GrpoRunConfig, None, ["engine.gradient_checkpointing=true"]), shape)
    activations = "activations of a micro-batch"
    assert again[activations] < small[activations] / 8
    assert small["gradients, masters, moments"] == pytest.approx(18 * 134.5e6, rel=5e-3)
    assert 2 * GB < sum(small.values()) < 30 * GB
    assert "--backend verl" in local_report(dare("engine.slots=512"))
    assert "--backend deepspeed" in local_report(big())
    assert local_report(dare("model.path=not/there")).startswith("memory: not estimated")


def test_attention_that_would_be_wrong_or_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Outside flash attention verl's sequence parallelism is silently wrong."""
    for setting in ("cluster.attention=sdpa", "cluster.device=cpu"):
        with pytest.raises(ConfigError, match="inside flash attention alone"):
            dare(setting)
    place = tmp_path / "site"
    monkeypatch.syspath_prepend(str(place))

    def install(name: str, version: str) -> None:
        info = place / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    (place / "flash_attn" / "cute").mkdir(parents=True)
    install("flash_attn_4", "4.0.0")  # SGLang's: `import flash_attn` succeeds
    assert importlib.util.find_spec("flash_attn") is not None
    with pytest.raises(ConfigError, match="flash-attn 2 is not installed; pip install"):
        require_attention(dare().cluster)
    require_attention(dare("cluster.attention=sdpa", "cluster.sequence_parallel=1").cluster)
    install("flash_attn", "2.8.3")
    require_attention(dare().cluster)
    (place / "flash_attn-2.8.3.dist-info" / "METADATA").write_text(
        "Name: flash_attn\nVersion: 1.0.9\n"
    )
    with pytest.raises(ConfigError, match=r"is not installed \(flash-attn 1.0.9 is\)"):
        require_attention(dare().cluster)


def test_devices_that_are_not_there_are_said_before_the_ranks_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = big("cluster.gpus_per_node=64", "sft.batch_size=128").cluster
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="deepspeed is not installed; install the extra"):
        require_devices(two)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(ConfigError, match=r"gpus_per_node=64 and this node has \d GPU"):
        require_devices(two)
    require_devices(big("cluster.device=cpu").cluster)
