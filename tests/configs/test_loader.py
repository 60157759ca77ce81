"""Strict settings: what is wrong is named, what is right survives a round trip."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import yaml
from places import tables

from configs import loader, schema
from configs.cdr import CdrConfig
from configs.loader import TERMS, ConfigError, config_hash, dump, load, locked_difference, to_dict
from configs.schema import (
    DemoConfig,
    GrpoConfig,
    GrpoRunConfig,
    SftConfig,
    SftRunConfig,
    load_run,
    warmup_steps,
    weights_of,
)
from data_gen.demo.settings import preset
from rewards.weights import RefinementReward

DEMO_YAML = Path(schema.__file__).parent / "demo.yaml"


def test_demo_yaml_holds_every_setting() -> None:
    given = yaml.safe_load(DEMO_YAML.read_text())
    names = [n for n in loader.dotted_names(DemoConfig)]
    for name in (n for n in names if not any(m.startswith(n + ".") for m in names)):
        value = given
        for part in name.split("."):
            assert part in value, f"configs/demo.yaml lacks {name}"
            value = value[part]
    load(DemoConfig, DEMO_YAML)  # refuses unknown keys


def test_dump_loads_back_to_the_same_config(tmp_path: Path) -> None:
    assert load(DemoConfig) == DemoConfig()
    config = load(DemoConfig, DEMO_YAML, ["rl.lr=3e-6", "model.path=/m", "seed=7"])
    dump(config, tmp_path / "resolved.yaml")
    again = load(DemoConfig, tmp_path / "resolved.yaml")
    assert again == config and config_hash(again) == config_hash(config)
    assert config_hash(config) != config_hash(load(DemoConfig, DEMO_YAML))


@dataclass(frozen=True)
class Kept:
    wandb: str = "off"
    project: str = "assay"
    rollouts: bool = True


def test_the_hash_never_moves() -> None:
    assert config_hash(Kept()) == "e09c2216aae260d9"


REFUSED = tables("configs")  # with what is said, as a regular expression


def test_what_is_wrong_is_named_with_its_key(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    with pytest.raises(ConfigError, match="cannot be read"):
        load(DemoConfig, file)
    for text, said in REFUSED["settings files that are refused"].items():
        file.write_text(text)
        with pytest.raises(ConfigError, match=said):
            load(DemoConfig, file)


@pytest.mark.parametrize(("words", "said"), REFUSED["settings that are refused"].items())
def test_a_bad_word_is_named(words: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_run(DemoConfig, DEMO_YAML if words.startswith("reward") else None, words.split())


def test_shares_of_documents_are_not_more_than_all() -> None:
    for shares, fits in (((0.7, 0.3), True), ((0.7, 0.4), False), ((1.5, 0.0), False)):
        names = ("heldout_documents", "validation_documents")
        words = [f"split.{name}={share}" for name, share in zip(names, shares, strict=True)]
        with nullcontext() if fits else pytest.raises(ConfigError, match="documents"):
            load(CdrConfig, None, words)


def test_every_offered_setting_exists() -> None:
    runs = (DemoConfig, SftRunConfig, GrpoRunConfig)
    known = {name for run in runs for name in loader.dotted_names(run)}
    assert {n for names in TERMS.values() for n in names} <= known
    for kind, key, meant in (
        (GrpoRunConfig, "rl.learning_rate", r"did you mean rl\.lr\?"),
        (SftRunConfig, "learning_rate", r"did you mean sft\.lr\?"),
        (SftRunConfig, "sft.epoch", r"did you mean sft\.epochs\?"),
    ):
        with pytest.raises(ConfigError, match=meant):
            load(kind, None, [f"{key}=3"])


def test_values_are_read_as_meant(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("rl:\n  lr: 1e-6\nlog:\n  wandb: off\n")
    config = load(DemoConfig, tmp_path / "c.yaml")
    assert config.rl.lr == 1e-6 and config.log.wandb == "off"
    config = load(DemoConfig, None, ["log.wandb=off", "model.path=null", "out=007", "sft.lr=1"])
    found = (config.log.wandb, config.model.path, config.out, config.sft.lr)
    assert found == ("off", None, "007", 1.0)
    assert load(DemoConfig, None, ["sft.betas=[0.5, 1e-1]"]).sft.betas == (0.5, 0.1)
    config = load(DemoConfig, DEMO_YAML, ["sft.max_length=auto", "rl.max_new_tokens=auto"])
    assert (config.sft.max_length, config.rl.max_new_tokens, config.rl.max_length) == (0, 0, 512)
    assert load(DemoConfig).sft.max_length == 0
    assert [warmup_steps(w, 50) for w in (0, 3, 0.1, 0.5)] == [0, 3, 5, 25]
    locked = [GrpoConfig(schedule="constant", warmup=w).also_locked() for w in (0, 1, 0.1)]
    assert locked == [(), (), ("steps",)] and GrpoConfig(schedule="cosine").also_locked()
    assert warmup_steps(SftConfig().warmup, 2) == 0  # two steps: the first has the peak
    assert load(SftRunConfig, None, ["sft.warmup=0.25", "sft.grad_clip=0"]).sft.warmup == 0.25


# DARE-bench's Table 13, by the settings' names. Its rollout backend is SGLang, which is what verl
# rolls out with here (tests/train/backends/verl).
TABLE_13 = {
    "normaliser": "sequence_mean",
    "divide_by_std": False,
    "lr": 1e-6,
    "mini_batch": 64,
    "kl_coef": 0.0,
    "prompts_per_step": 64,
    "rollouts_per_prompt": 8,
    "temperature": 1.0,
    "top_p": 0.95,
    "top_k": 50,
    "max_length": 32768,
}
SHIPPED = sorted(DEMO_YAML.parent.glob("*.yaml"))


def test_presets_have_the_published_numbers(tmp_path: Path) -> None:
    dare = [p for p in SHIPPED if p.stem.startswith("dare_") and "\nrl:" in p.read_text()]
    assert len(dare) >= 2
    for path in dare:
        rl = load(GrpoRunConfig, path).rl
        assert {name: getattr(rl, name) for name in TABLE_13} == TABLE_13
        assert rl.turns == 5 and rl.tool_seconds == 5 * 200  # 4.1: five turns, 200 s each
    rl = load(DemoConfig, DEMO_YAML, ["rl.preset=dare"]).rl
    assert {name: getattr(rl, name) for name in TABLE_13} == TABLE_13
    rl = load(GrpoConfig, None, ["preset=dr_grpo"])
    assert (rl.divide_by_std, rl.normaliser, rl.kl_coef, rl.top_k) == (False, "constant", 0.0, 0)
    for texts in (["preset=dare", "lr=2e-5"], ["lr=2e-5", "preset=dare"]):
        rl = load(GrpoConfig, None, texts)
        assert (rl.lr, rl.top_k) == (2e-5, 50)
    (tmp_path / "c.yaml").write_text("top_k: 9\npreset: dare\n")
    rl = load(GrpoConfig, tmp_path / "c.yaml")
    assert (rl.lr, rl.top_k) == (1e-6, 9)
    for path in SHIPPED:
        if "path: Qwen/Qwen3" in path.read_text():
            model = yaml.safe_load(path.read_text())["model"]
            thinks = model["chat_template_kwargs"]["enable_thinking"]
            # CDR-Bench's runs have it off (App. B.1)
            assert thinks is False if path.stem.startswith("cdr_") else isinstance(thinks, bool)


def test_only_locked_fields_hold_a_run_that_has_begun() -> None:
    old = to_dict(load(DemoConfig))
    words = ["rl.lr=1e-5", "seed=3", "out=x", "rl.steps=99", "log.wandb=offline"]
    assert locked_difference(old, load(DemoConfig, None, words)) == ["seed", "rl.lr"]
    assert locked_difference(old, load(DemoConfig)) == []
    del old["tasks"]["max_chars"]
    assert locked_difference(old, load(DemoConfig)) == ["tasks.max_chars"]
    old = to_dict(load_run(DemoConfig, DEMO_YAML))
    new = load_run(DemoConfig, DEMO_YAML, ["reward.refinement.wrong_drop=0"])
    assert locked_difference(old, new) == ["reward.refinement.wrong_drop"]
    # where the schedule or the warm-up ends at the last step, more steps are another run
    ends = {"schedule=cosine", "schedule=linear", "warmup=0.1"}
    for word in (*ends, "schedule=constant"):
        some = [load(DemoConfig, None, [f"rl.{word}", f"rl.steps={n}"]) for n in (3, 4)]
        assert locked_difference(*some) == (["rl.steps"] if word in ends else [])


def test_sections_reach_what_they_are_for() -> None:
    texts = ["tasks.difficulty=hard", "tasks.mappers=[1, 2]", "tasks.steady=null"]
    tasks = load(DemoConfig, DEMO_YAML, texts).tasks
    built = preset(tasks.difficulty, **tasks.changes())
    assert (built.difficulty, built.mappers, built.heldout) == ("hard", (1.0, 2.0), 420)
    assert {f.name for f in fields(built)} >= {f.name for f in fields(tasks)} - {"corpus"}
    config = load_run(DemoConfig, DEMO_YAML, ["reward.answer.subtasks=0.5"])
    weights = weights_of(config.reward)
    assert weights["refinement"] == RefinementReward(wrong_drop=0.3)
    assert weights["answer"].subtasks == 0.5
    assert load_run(DemoConfig, DEMO_YAML).reward["table"] == {"reading": "strict"}
