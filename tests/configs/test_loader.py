"""Strict settings: what is wrong is named, what is right survives a round trip."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

import pytest
import yaml

from configs import loader, schema
from configs.fields import warmup_steps
from configs.loader import ConfigError, config_hash, dump, load, locked_difference, to_dict
from configs.schema import DemoConfig, GrpoConfig, GrpoRunConfig, SftConfig, SftRunConfig
from rewards.cdr.score import RefinementReward
from train.run.settings import load_run, weights_of

DEMO_YAML = Path(schema.__file__).parent / "demo.yaml"


def write(folder: Path, text: str) -> Path:
    path = folder / "c.yaml"
    path.write_text(text)
    return path


def test_demo_yaml_holds_every_setting_and_nothing_else() -> None:
    given = yaml.safe_load(DEMO_YAML.read_text())
    names = [n for n in loader.dotted_names(DemoConfig)]
    leaves = [n for n in names if not any(m.startswith(n + ".") for m in names)]
    for name in leaves:
        value = given
        for part in name.split("."):
            assert part in value, f"configs/demo.yaml lacks {name}"
            value = value[part]
    load(DemoConfig, DEMO_YAML)  # refuses unknown keys


def test_demo_yaml_marks_exactly_the_locked_fields() -> None:
    section, wrong = "", []
    for line in DEMO_YAML.read_text().splitlines():
        key, colon, rest = line.partition(":")
        if not colon or line.startswith("#"):
            continue
        if not line.startswith(" "):
            section = "" if rest.split("#")[0].strip() else key
        if section == key:
            continue
        cls = loader._hints(DemoConfig)[section] if section else DemoConfig
        if not is_dataclass(cls):  # the open section of rewards: every setting in it is locked
            assert ("(L)" in rest) == bool(rest.split("#")[0].strip()), line
            continue
        spec = next(f for f in fields(cls) if f.name == key.strip())
        if ("(L)" in rest) != bool(spec.metadata.get("locked")):
            wrong.append(line)
    assert wrong == []


def test_defaults_in_python_and_through_load_agree() -> None:
    assert load(DemoConfig) == DemoConfig()


def test_no_class_has_more_than_34_fields() -> None:
    kinds = [k for k in vars(schema).values() if isinstance(k, type) and k.__name__ != "ClassVar"]
    counts = {k.__name__: len(fields(k)) for k in kinds if hasattr(k, "__dataclass_fields__")}
    assert max(counts.values()) <= 34 and len(counts) >= 12


def test_dump_loads_back_to_the_same_config(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rl:\n  lerning_rate: 1\n", r"c.yaml: unknown key rl.lerning_rate; did you mean rl\."),
        ("rl:\n  step: 1\n", r"c.yaml: unknown key rl.step; did you mean rl.steps\?"),
        ("lr: 1\n", r"unknown key lr; did you mean sft.lr or rl.lr\?"),
        ("sedd: 1\n", r"unknown key sedd; did you mean seed\?"),
        ("1: 2\n", r"unknown key 1; did you mean "),
        ("seed: yes\n", r"c.yaml: seed=true is bool; wanted a whole number"),
        ("seed: 1.5\n", r"seed=1.5 is float; wanted a whole number"),
        ("rl: 3\n", r"rl is a section; set a key in it: rl.preset"),
        ("rl:\n  lr: fast\n", r"rl.lr='fast' is str; wanted a number"),
        ("rl:\n  lr: .nan\n", r"rl.lr=NaN is float; wanted a number"),
        ("rl:\n  lr: .inf\n", r"rl.lr=Infinity is float; wanted a number"),
        ("rl:\n  preset: grpo\n", r"rl.preset='grpo'; wanted one of dr_grpo, dare"),
        ("sft:\n  betas: [0.9]\n", r"sft.betas has 1 entries; wanted 2"),
        ("sft:\n  betas: [0.9, x]\n", r"sft.betas\[1\]='x' is str; wanted a number"),
        ("seed: 1\nseed: 2\n", r"c.yaml line 2: key 'seed' is given twice"),
        ("seed: [\n", r"c.yaml: not valid YAML"),
        ("[a]: 1\n", r"c.yaml: not valid YAML"),
        ("? [a]\n: 1\n", r"c.yaml: not valid YAML"),
        ("- 1\n", r"wanted `key: value` lines, got list"),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(DemoConfig, write(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(DemoConfig, tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "rl.rollouts_per_prompt=1",
            "command line: rl.rollouts_per_prompt=1: a group of one has no advantage; "
            "set 2 or more",
        ),
        ("rl.mini_batch=5", "rl.mini_batch=5 does not divide prompts_per_step=16"),
        ("rl.temperature=0", "greedy answers of one prompt are all the same"),
        ("rl.top_p=1.5", "rl.top_p=1.5 is not a share"),
        ("sft.batch_size=0", "sft.batch_size=0 is too small; set 1 or more"),
        ("tasks.heldout=10", "eval.tasks=400 is more than tasks.heldout=10"),
        ("tasks.mappers=[1, x]", r"tasks.mappers\[1\]='x' is str; wanted a number"),
        ("tasks.drop_share=2", "tasks.drop_share=2.0 is not a share"),
        ("seed", "'seed' is not a setting; write key=value"),
        ("seed=1=2", "seed='1=2' is str; wanted a whole number"),
        ("rl.stpes=3", "command line: unknown key rl.stpes; did you mean rl.steps?"),
        ("rl=3", "rl is a section"),
    ],
)
def test_a_bad_override_is_named(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(DemoConfig, None, [override])


def test_an_answer_must_leave_room_for_a_prompt() -> None:
    with pytest.raises(ConfigError, match="leaves no room for a prompt"):
        load(DemoConfig, None, ["rl.max_new_tokens=512", "rl.max_length=512"])


def test_auto_is_a_length_that_is_fitted_later() -> None:
    config = load(DemoConfig, DEMO_YAML, ["sft.max_length=auto", "rl.max_new_tokens=auto"])
    assert (config.sft.max_length, config.rl.max_new_tokens, config.rl.max_length) == (0, 0, 512)
    assert load(DemoConfig).sft.max_length == 0
    with pytest.raises(ConfigError, match=r"sft.max_length='long' is str"):
        load(DemoConfig, None, ["sft.max_length=long"])
    with pytest.raises(ConfigError, match=r"sft.batch_size='auto' is str"):
        load(DemoConfig, None, ["sft.batch_size=auto"])


def test_yaml_traps_are_read_as_meant(tmp_path: Path) -> None:
    config = load(DemoConfig, write(tmp_path, "rl:\n  lr: 1e-6\nlog:\n  wandb: off\n"))
    assert config.rl.lr == 1e-6 and config.log.wandb == "off"
    config = load(DemoConfig, None, ["log.wandb=off", "model.path=null", "out=007", "sft.lr=1"])
    assert (config.log.wandb, config.model.path, config.out, config.sft.lr) == (
        "off",
        None,
        "007",
        1.0,
    )
    assert load(DemoConfig, None, ["sft.betas=[0.5, 1e-1]"]).sft.betas == (0.5, 0.1)


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
SHIPPED = DEMO_YAML.parent
DARE_RL = sorted(SHIPPED.glob("dare_*.yaml"))
DARE_RL = [p for p in DARE_RL if "rl" in yaml.safe_load(p.read_text())]


@pytest.mark.parametrize("path", DARE_RL, ids=lambda p: p.stem)
def test_dare_runs_have_the_published_numbers(path: Path) -> None:
    rl = load(GrpoRunConfig, path).rl
    assert {name: getattr(rl, name) for name in TABLE_13} == TABLE_13
    assert rl.turns == 5 and rl.tool_seconds == 5 * 200  # 4.1: five turns, 200 s each


def test_the_dare_preset_alone_has_the_published_numbers() -> None:
    assert len(DARE_RL) >= 2
    rl = load(DemoConfig, DEMO_YAML, ["rl.preset=dare"]).rl
    assert {name: getattr(rl, name) for name in TABLE_13} == TABLE_13


QWEN3 = [p for p in sorted(SHIPPED.glob("*.yaml")) if "path: Qwen/Qwen3" in p.read_text()]


@pytest.mark.parametrize("path", QWEN3, ids=lambda p: p.stem)
def test_a_preset_of_qwen3_says_whether_it_thinks(path: Path) -> None:
    given = yaml.safe_load(path.read_text())
    thinks = given["model"]["chat_template_kwargs"]["enable_thinking"]
    assert isinstance(thinks, bool)
    if path.stem.startswith("cdr_"):  # CDR-Bench's runs have it off (App. B.1)
        assert not thinks


def test_dr_grpo_preset_has_no_spread_and_a_constant_length() -> None:
    rl = load(GrpoConfig, None, ["preset=dr_grpo"])
    assert (rl.divide_by_std, rl.normaliser, rl.kl_coef, rl.top_k) == (False, "constant", 0.0, 0)


def test_an_override_beside_a_preset_wins_in_either_order(tmp_path: Path) -> None:
    for texts in (["preset=dare", "lr=2e-5"], ["lr=2e-5", "preset=dare"]):
        rl = load(GrpoConfig, None, texts)
        assert (rl.lr, rl.top_k) == (2e-5, 50)
    rl = load(GrpoConfig, write(tmp_path, "top_k: 9\npreset: dare\n"))
    assert (rl.lr, rl.top_k) == (1e-6, 9)


@pytest.mark.parametrize(
    ("kind", "key", "meant"),
    [
        (schema.GrpoRunConfig, "rl.group_size", r"did you mean rl\.rollouts_per_prompt\?"),
        (schema.GrpoRunConfig, "num_generations", r"did you mean rl\.rollouts_per_prompt\?"),
        (schema.GrpoRunConfig, "rl.learning_rate", r"did you mean rl\.lr\?"),
        (schema.SftRunConfig, "learning_rate", r"did you mean sft\.lr\?"),
        (schema.SftRunConfig, "sft.steps", r"there is no sft\.steps; set sft\.epochs"),
        (schema.SftRunConfig, "max_steps", r"did you mean sft\.epochs\?"),
        (schema.SftRunConfig, "sft.epoch", r"did you mean sft\.epochs\?"),
        (DemoConfig, "rl.beta", r"did you mean rl\.kl_coef\?"),
    ],
)
def test_other_trainers_words_lead_to_our_settings(kind: type, key: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=meant):
        load(kind, None, [f"{key}=3"])


def test_every_offered_setting_exists() -> None:
    from configs.terms import TERMS

    runs = (DemoConfig, schema.SftRunConfig, schema.GrpoRunConfig)
    known = {name for run in runs for name in loader.dotted_names(run)}
    assert {n for names in TERMS.values() for n in names} <= known


def test_top_p_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rl\.top_p=0\.0 keeps no token"):
        load(DemoConfig, None, ["rl.top_p=0"])


def test_steps_are_locked_where_the_schedule_ends_at_them() -> None:
    for schedule, locked in (("cosine", ["rl.steps"]), ("linear", ["rl.steps"]), ("constant", [])):
        old, new = (
            load(DemoConfig, None, [f"rl.schedule={schedule}", f"rl.steps={n}"]) for n in (3, 4)
        )
        assert locked_difference(old, new) == locked


def test_locked_difference_names_only_locked_fields() -> None:
    old = to_dict(load(DemoConfig))
    new = load(
        DemoConfig, None, ["rl.lr=1e-5", "seed=3", "out=x", "rl.steps=99", "log.wandb=offline"]
    )
    assert locked_difference(old, new) == ["seed", "rl.lr"]
    assert locked_difference(old, load(DemoConfig)) == []
    del old["tasks"]["max_chars"]
    assert locked_difference(old, load(DemoConfig)) == ["tasks.max_chars"]


def test_task_settings_fit_the_task_builder() -> None:
    settings = pytest.importorskip("data_gen.demo.settings")
    texts = ["tasks.difficulty=hard", "tasks.mappers=[1, 2]", "tasks.steady=null"]
    tasks = load(DemoConfig, DEMO_YAML, texts).tasks
    built = settings.preset(tasks.difficulty, **tasks.changes())
    assert (built.difficulty, built.mappers, built.heldout) == ("hard", (1.0, 2.0), 420)
    assert {f.name for f in fields(built)} >= {f.name for f in fields(tasks)} - {"corpus"}


def test_reward_settings_are_a_section_per_family() -> None:
    config = load_run(DemoConfig, DEMO_YAML, ["reward.answer.subtasks=0.5"])
    weights = weights_of(config.reward)
    assert weights["refinement"] == RefinementReward(wrong_drop=0.3)
    assert weights["answer"].subtasks == 0.5
    assert load_run(DemoConfig, DEMO_YAML).reward["table"] == {"reading": "strict"}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("reward.answer.subtasks=1.0", r"reward\.answer\.subtasks=1\.0"),
        ("reward.refinement.success=0.5", r"format \+ status \+ progress \+ success = 1.1"),
        (
            "reward.refinement.sucess=0.5",
            "unknown key reward.refinement.sucess; did you mean success",
        ),
        ("reward.tabel.reading=strict", "reward.tabel: no such family; did you mean reward.table"),
        ("reward.table.reading=loose", "wanted one of release, strict"),
        ("reward.refinement=1", "reward.refinement is a value, not a section"),
    ],
)
def test_reward_settings_that_cannot_be_used_are_named(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_run(DemoConfig, DEMO_YAML, [override])


def test_a_changed_reward_is_a_locked_difference() -> None:
    old = to_dict(load_run(DemoConfig, DEMO_YAML))
    new = load_run(DemoConfig, DEMO_YAML, ["reward.refinement.wrong_drop=0"])
    assert locked_difference(old, new) == ["reward.refinement.wrong_drop"]


def test_warm_up_is_whole_steps_or_a_share_and_clipping_may_be_off() -> None:
    assert [warmup_steps(w, 50) for w in (0, 3, 0.1, 0.5)] == [0, 3, 5, 25]
    assert warmup_steps(SftConfig().warmup, 2) == 0  # two steps: the first has the peak
    assert load(SftRunConfig, None, ["sft.warmup=0.25", "sft.grad_clip=0"]).sft.warmup == 0.25
    for wrong in ("sft.warmup=2.5", "sft.warmup=-0.1", "rl.warmup=1.5", "rl.grad_clip=-1"):
        kind = SftRunConfig if wrong.startswith("sft") else GrpoRunConfig
        with pytest.raises(ConfigError, match="wanted"):
            load(kind, None, [wrong])
    # the share is of the steps, so a run that goes on may not raise them
    assert GrpoConfig(warmup=0.1).also_locked() == ("steps",) and not GrpoConfig().also_locked()
