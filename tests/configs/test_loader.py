"""Strict settings: what is wrong is named, what is right survives a round trip."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from places import tables

from configs import loader, schema
from configs.loader import TERMS, ConfigError, config_hash, dump, load, locked_difference, to_dict
from configs.schema import (
    DemoConfig,
    GrpoConfig,
    GrpoRunConfig,
    SftRunConfig,
    load_run,
    warmup_steps,
    weights_of,
)
from data_gen.demo.settings import preset
from rewards.weights import RefinementReward

DEMO_YAML = Path(schema.__file__).parent / "demo.yaml"


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


TABLES = tables("configs")  # with what is said, as a regular expression


def test_what_is_wrong_is_named_with_its_key(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    with pytest.raises(ConfigError, match="cannot be read"):
        load(DemoConfig, file)
    for text, said in TABLES["settings files that are refused"].items():
        file.write_text(text)
        with pytest.raises(ConfigError, match=said):
            load(DemoConfig, file)


@pytest.mark.parametrize(("words", "said"), TABLES["settings that are refused"].items())
def test_a_bad_word_is_named(words: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_run(DemoConfig, DEMO_YAML if words.startswith("reward") else None, words.split())


def test_every_offered_setting_exists() -> None:
    runs = (DemoConfig, SftRunConfig, GrpoRunConfig)
    known = {name for run in runs for name in loader.dotted_names(run)}
    assert {n for names in TERMS.values() for n in names} <= known


def test_values_are_read_as_meant(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("rl:\n  lr: 1e-6\nlog:\n  wandb: off\n")
    config = load(DemoConfig, tmp_path / "c.yaml", ["model.path=null", "out=007", "sft.lr=1"])
    found = (config.rl.lr, config.log.wandb, config.model.path, config.out, config.sft.lr)
    assert found == (1e-6, "off", None, "007", 1.0)
    assert load(DemoConfig, None, ["sft.betas=[0.5, 1e-1]"]).sft.betas == (0.5, 0.1)
    config = load(DemoConfig, DEMO_YAML, ["sft.max_length=auto", "rl.max_new_tokens=auto"])
    assert (config.sft.max_length, config.rl.max_new_tokens, config.rl.max_length) == (0, 0, 512)
    assert [warmup_steps(w, 50) for w in (0, 3, 0.1, 0.5)] == [0, 3, 5, 25]
    locked = [GrpoConfig(schedule="constant", warmup=w).also_locked() for w in (0, 1, 0.1)]
    assert locked == [(), (), ("steps",)] and GrpoConfig(schedule="cosine").also_locked()


# DARE-bench's Table 13, by the settings' names. Its rollout backend is SGLang, which is what verl
# rolls out with here (tests/train/backends/verl).
TABLE_13 = TABLES["DARE-bench, Table 13"]
SHIPPED = sorted(DEMO_YAML.parent.glob("*.yaml"))


def test_presets_have_the_published_numbers() -> None:
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


def test_only_locked_fields_hold_a_run_that_has_begun() -> None:
    old = to_dict(load(DemoConfig))
    words = ["rl.lr=1e-5", "seed=3", "out=x", "rl.steps=99", "log.wandb=offline"]
    assert locked_difference(old, load(DemoConfig, None, words)) == ["seed", "rl.lr"]
    del old["tasks"]["max_chars"]
    assert locked_difference(old, load(DemoConfig)) == ["tasks.max_chars"]
    old = to_dict(load_run(DemoConfig, DEMO_YAML))
    new = load_run(DemoConfig, DEMO_YAML, ["reward.refinement.wrong_drop=0"])
    assert locked_difference(old, new) == ["reward.refinement.wrong_drop"]
    # where the schedule or the warm-up ends at the last step, more steps are another run
    for word, locked in (("schedule=linear", 1), ("warmup=0.1", 1), ("schedule=constant", 0)):
        some = [load(DemoConfig, None, [f"rl.{word}", f"rl.steps={n}"]) for n in (3, 4)]
        assert locked_difference(*some) == ["rl.steps"] * locked


def test_sections_reach_what_they_are_for() -> None:
    tasks = load(DemoConfig, DEMO_YAML, ["tasks.difficulty=hard", "tasks.mappers=[1, 2]"]).tasks
    built = preset(tasks.difficulty, **tasks.changes())
    assert (built.difficulty, built.mappers, built.heldout) == ("hard", (1.0, 2.0), 420)
    config = load_run(DemoConfig, DEMO_YAML, ["reward.answer.subtasks=0.5"])
    weights = weights_of(config.reward)
    assert weights["refinement"] == RefinementReward(wrong_drop=0.3)
    assert weights["answer"].subtasks == 0.5
