"""The studies ask for settings that exist, share tasks out once, and pair what belongs together."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.task import write_jsonl
from configs.schema import GrpoRunConfig, SftRunConfig
from data_gen.builder_settings import given_values
from data_gen.demo.order import OrderSettings
from data_gen.demo.settings import DemoTaskSettings
from data_gen.queries.lake_build import options as lake_options
from experiments import (
    demo_search,
    lake_training,
    one_model,
    order,
    study,
    table_training,
    tool_training,
    tracks,
)
from experiments.study import Answer, Place, Table
from train.run.settings import load_run

SFT = {
    "demo": demo_search.SFT,
    "order": (*order.SHARED, *order.SFT),
    "tables": table_training.SFT,
    "tables again": table_training.AGAIN,
    "tools": tool_training.SFT,
    "lakes": lake_training.SFT,
    "one model": (*one_model.SHARED, *one_model.SFT),
    "tracks": (*tracks.SHARED, *tracks.SFT),
}
RL = {
    **{f"demo {n}": (*demo_search.RL, *arm.rl) for n, arm in demo_search.ARMS.items()},
    **{f"order {n}": (*order.SHARED, *order.RL, *arm.rl) for n, arm in order.ARMS.items()},
    "tables": table_training.RL,
    "tables even": table_training.EVEN,
    "tools": tool_training.RL,
    "lakes": (*lake_training.RL, "reward.answer.subtasks=0.5"),
    "one model": (*one_model.SHARED, *one_model.RL),
    "tracks": (*tracks.SHARED, *tracks.RL),
}


def test_every_run_of_every_study_has_settings_that_exist() -> None:
    for words in SFT.values():
        load_run(SftRunConfig, None, [study.ROUNDING, *words])
    for words in RL.values():
        load_run(GrpoRunConfig, None, [study.ROUNDING, *words])
    for arm in demo_search.ARMS.values():
        given_values(DemoTaskSettings, [*arm.tasks, *demo_search.SPLITS])
    for form in order.FORMS.values():
        OrderSettings(**given_values(OrderSettings, [*order.TASKS, form]))
    words = [*lake_training.TASKS, *lake_training.SHARES, "--out", "x"]
    assert lake_options().parse_args(words).obscured


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that a study would run; each takes a minute."""
    commands: list[tuple[str, ...]] = []

    def assay(*words: object, note: Path | None = None) -> None:
        commands.append(tuple(map(str, words)))
        if note is not None:
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(json.dumps({"seconds": 60, "done": True}))

    monkeypatch.setattr(study, "assay", assay)
    return commands


def test_a_command_is_given_no_setting_of_another(
    tmp_path: Path, said: list[tuple[str, ...]]
) -> None:
    extra = ("rl.steps=24", "engine.rounding=spread", "sft.lr=1e-4", "reward.answer.subtasks=0.5")
    place = Place(tmp_path, 0, "MODEL", extra)
    place.train("sft", "sft", tmp_path, "MODEL", ())
    place.train("rl", "grpo", tmp_path, place.trained("sft"), ())
    place.train("rl", "grpo", tmp_path, "a finished run", ())
    sft, rl = said
    assert set(extra) & set(sft) == {"engine.rounding=spread", "sft.lr=1e-4"}
    assert set(extra) - set(rl) == {"sft.lr=1e-4"}
    assert f"model.path={tmp_path}/seed0/sft/model" in rl


def test_controls_take_the_time_of_what_they_are_held_against(
    tmp_path: Path, said: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_training, "gold", lambda place, tasks: tasks)
    write_jsonl(tmp_path / "tasks/train.jsonl", [{"id": f"q{n}"} for n in range(128 + 32)])
    (tmp_path / "tasks/certificate.json").write_text("{}")
    place = Place(tmp_path, 0, "untouched")
    first, rest = lake_training.halves(tmp_path / "tasks")
    ids = [[json.loads(line)["id"] for line in part.open()] for part in (first, rest)]
    assert [len(part) for part in ids] == [128, 32] and len({*ids[0], *ids[1]}) == 160
    asked = [{"task_id": name} for name in ids[1]]
    write_jsonl(place.folder / "rl/rollouts/1.jsonl", asked)
    for name in ("sft_more", "gold_more"):
        lake_training.train_arm(place, name)
    found = {}
    for command, *words in said:
        named = dict(word.split("=", 1) for word in words if "=" in word)
        count = len(Path(named["data"]).read_text().splitlines())
        start = Path(named["model.path"].removesuffix("/model")).name
        found[Path(named["out"]).name] = (command, start, count, named.get("sft.epochs"))
    # 60 s are an epoch of 128 examples; of 160 an epoch is 75 s: two minutes are 1.6 of these
    assert found == {
        "sft": ("sft", "untouched", 128, "1"),
        "rl": ("grpo", "sft", 32, None),
        "sft_more": ("sft", "untouched", 128, "2"),
        "rl_credit": ("grpo", "sft", 32, None),
        "all_gold": ("sft", "untouched", 160, "2"),
        "gold_rl": ("grpo", "all_gold", 32, None),
        "gold_more": ("sft", "untouched", 160, "2"),
    }


def test_a_draw_takes_whole_groups_and_none_twice() -> None:
    tasks = [
        {"id": f"{track} {n}", "track": track, "group": f"{track} {n // 2}" if group else None}
        for track, group in zip(tracks.TRACKS, (False, False, False, True, True), strict=True)
        for n in range(20)
    ]
    first = tracks.drawn(tasks, 5, 0, frozenset())
    second = tracks.drawn(tasks, 5, 0, frozenset(str(t["group"] or t["id"]) for t in first))
    for some in (first, second):
        counts = Counter(task["track"] for task in some)
        assert counts == {"atomic_m": 5, "atomic_f": 5, "agnostic_m": 5, "order_m": 6, "order_f": 6}
        assert set(Counter(task["group"] for task in some if task["group"]).values()) == {2}
    assert not {task["id"] for task in first} & {task["id"] for task in second}


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_kinds_take_turns_in_proportion(counts: list[int]) -> None:
    columns = [[{"kind": k, "n": n} for n in range(count)] for k, count in enumerate(counts)]
    rows = one_model.in_turns(columns)
    for kind, column in enumerate(columns):
        assert [row for row in rows if row["kind"] == kind] == column
        for cut in range(len(rows) + 1):  # after any share of all, about that share of each kind
            seen = sum(row["kind"] == kind for row in rows[:cut])
            assert abs(seen - len(column) * cut / max(1, len(rows))) <= len(counts)


def test_order_groups_count_when_every_task_is_right() -> None:
    def task(n: int, group: str, sensitive: bool = True) -> dict[str, Any]:
        meta = {"sensitive": sensitive}
        return {"id": f"t{n}", "group": group, "track": "order_m", "meta": meta}

    tasks = [task(0, "a"), task(1, "a"), task(2, "b"), task(3, "b"), task(4, "c", False)]
    rows = [{"task_id": f"t{n}", "outcome": right} for n, right in enumerate((1, 1, 1, None, 1))]
    found = {a.key: a.values for a in order.items(tasks, rows)}
    assert found["order_m a"]["OCS"] == 1 and found["order_m b"]["OCS order_m"] == 0
    assert found["t4"] == {"RS": 1.0, "RS kept by a filter": 1.0} and len(found) == 7


def test_arms_are_paired_by_item_and_seed(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(("RS", "balanced"), [("a", "b")], ["balanced"])
    for seed in (0, 1):
        for arm, right in (("a", (0.0, 0.0, 0.0, 1.0)), ("b", (1.0, 1.0, 0.0, 1.0))):
            answers = [
                Answer(f"q{n}", f"s{n}", {"RS": value, "balanced": value}, "DROP" if n else "KEEP")
                for n, value in enumerate(right)
            ]
            table.add(arm, seed, answers if arm == "a" else answers[::-1], 90.0)
    table.show()
    shown = capsys.readouterr().out
    assert "| a | 0 | 0.250 [" in shown and "| 0.167 [" in shown and "| 1.5 |" in shown
    assert "| a → b | 0 1 | +0.500 [" in shown and "| +0.667 [" in shown
    assert "| b | all | 0.750 [" in shown
