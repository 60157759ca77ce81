"""`assay select`: FV, AV, BV and DV by the numbers of the paper's appendix, over files of any size,
as a training set that says what was said."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from front import command
from places import tables

from data_gen.selection import PICK, Row, Rules, pick
from rollouts.chats import chat_of, tools_of
from train.examples import training_rows

main = command("select")
pq = pytest.importorskip("pyarrow.parquet")

TABLES = tables("selection")
TRACKS = ("class-IF", "class-MM", "time-CF", "own")


SEARCH, UPDATE = TABLES["schemas_come_back_as_they_were"][1]
CALLS = TABLES["calls_reach_the_training_set"]


def row(task: str, sample: int, outcome: float | None, track: str = "own", **more: Any) -> Row:
    return {
        "task_id": task,
        "sample": sample,
        "outcome": outcome,
        "reward": outcome or 0.0,
        "track": track,
        "tokens": 10 + sample,
        "wall_s": 1.0,
        "tools": [SEARCH],
        "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
        **more,
    }


def write(path: Path, rows: list[Row]) -> str:
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    if path.suffix == ".zst":
        data = pytest.importorskip("zstandard").ZstdCompressor().compress(data)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def selected(folder: Path, sources: list[Row] | list[str], *words: str) -> list[dict[str, Any]]:
    if not isinstance(sources[0], str):
        sources = [write(folder / "r.jsonl", sources)]  # type: ignore[arg-type]
    given = words if "--strategy" in words else ("--strategy", "av", *words)
    out = ("--out", str(folder / "s.parquet"))
    assert main(["--rollouts", *map(str, sources), *given, *out]) == 0
    return pq.read_table(folder / "s.parquet").to_pylist()


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "s.parquet.manifest.json").read_text())


def names(rows: list[Row]) -> list[tuple[str, int]]:
    return [(str(row["task_id"]), int(row["sample"])) for row in rows]


# --- the strategies


def kept(rows: list[Row], strategy: str, **rules: Any) -> list[tuple[str, int]]:
    """What a strategy keeps of rollouts in memory, by task and rank."""
    tasks = sorted({str(row["task_id"]) for row in rows})
    dropped = Counter[str]()
    found: list[Row] = []
    for task in tasks:
        own = [r for r in rows if r["task_id"] == task]
        found += pick(own, strategy, Rules(**rules), dropped)
    assert len(found) + dropped.total() == len(rows)
    return names(found)


def scores(
    track: str, outcomes: list[float | None], seconds: list[float] | None = None
) -> list[Row]:
    walls = seconds or [1.0] * len(outcomes)
    return [row("t", i, v, track, wall_s=walls[i]) for i, v in enumerate(outcomes)]


@pytest.mark.parametrize("case", TABLES["what_a_strategy_keeps"])
def test_what_a_strategy_keeps(case: Any) -> None:
    track, outcomes, seconds, strategy, rules, wanted = case
    found = kept(scores(track, outcomes, seconds), strategy, **rules)
    assert [sample for _, sample in found] == wanted


@pytest.mark.parametrize(("track", "least", "spread"), TABLES["thresholds_of_the_tracks"])
def test_thresholds_of_the_tracks(track: str, least: float, spread: float | None) -> None:
    assert kept(scores(track, [least]), "fv") == [("t", 0)]
    assert kept(scores(track, [least - 1e-6]), "fv") == []
    for more in (1e-4, -1e-4) if spread else ():
        rows = scores(track, [1.0, 1.0 - 2 * (spread + more) ** 0.5])
        assert all(len(kept(rows, name)) == (more > 0) for name in ("bv", "dv"))


# --- files


def drawn(count: int, tasks: int = 20) -> list[Row]:
    rng = random.Random(0)
    found: list[Row] = []
    for number in range(count):
        task = rng.randrange(tasks)
        more = {
            "family": "table" if task % 2 else "answer",
            "licence": ("CC0", "CC-BY-4.0", "MIT")[task % 3],
            "tokens": rng.randrange(100),
            "wall_s": rng.randrange(5) / 4,
            "tool_calls": [{}] * rng.randrange(3),
            "messages": [
                {"role": "user", "content": f"question {task}\u2028"},
                {"role": "assistant", "content": f"answer {rng.randrange(4)}"},
            ],
            "ids": list(range(rng.randrange(9))),
            "loss_mask": [1],
        }
        outcome = rng.choice((None, 0.0, 0.4, 0.9, 1.0, 1.0))
        found.append(row(f"t{task}", number, outcome, TRACKS[task % len(TRACKS)], **more))
    return found


@pytest.mark.parametrize("strategy", sorted(PICK))
def test_the_store_chooses_what_the_strategy_chooses_in_memory(
    strategy: str, tmp_path: Path
) -> None:
    rows = drawn(400)
    found = selected(tmp_path, rows, "--strategy", strategy)
    assert names(found) == kept(rows, strategy) != []
    by_name = dict(zip(names(rows), rows, strict=True))
    for one in found:
        given = by_name[one["task_id"], one["sample"]]
        assert one["messages"] == given["messages"] and one["ids"] == given["ids"]


def test_any_form_of_the_same_files_gives_the_same_bytes(tmp_path: Path) -> None:
    rows, out = drawn(300), tmp_path / "s.parquet"
    parts = [rows[at : at + 100] for at in (0, 100, 200)]
    for i, own in enumerate(parts):
        write(tmp_path / f"part-{i}.jsonl", own)
    packed = [
        write(tmp_path / f"{i}.jsonl.{ending}", own)
        for i, (ending, own) in enumerate(zip(("gz", "zst", "gz"), parts, strict=True))
    ]
    found = selected(tmp_path, [str(tmp_path / "part-*.jsonl")])
    data = out.read_bytes()
    selected(tmp_path, packed)
    assert out.read_bytes() == data and manifest(tmp_path)["kept"]["rows"] == len(found)


def test_licences_families_and_caps(tmp_path: Path) -> None:
    rows = drawn(600)
    everything = selected(tmp_path, rows)
    licences = {r["task_id"]: r["licence"] for r in rows}
    some = selected(tmp_path, rows, "--licence", "cc-by*", "--licence", "MIT")
    assert {licences[r["task_id"]] for r in some} == {"CC-BY-4.0", "MIT"}
    mine = selected(tmp_path, rows, "--only-family", "table", "--track", "class-MM")
    assert {r["track"] for r in mine} == {"class-MM"}
    two = Counter(r["task_id"] for r in selected(tmp_path, rows, "--per-task", "2"))
    assert set(two.values()) == {2}
    few = selected(tmp_path, rows, "--per-track", "7")
    assert Counter(r["track"] for r in few) == dict.fromkeys(TRACKS, 7)
    assert names(few) == [n for n in names(everything) if n in set(names(few))]
    assert few == selected(tmp_path, rows[::-1], "--per-track", "7")  # in any order
    again = [*rows, {**rows[0], "task_id": "zz", "sample": 0, "outcome": 1.0}]
    alike = [json.dumps(r["messages"]) for r in selected(tmp_path, again, "--deduplicate")]
    made = manifest(tmp_path)
    assert len(alike) == len(set(alike)) == made["kept"]["rows"]
    assert sum(made["dropped"].values()) + made["kept"]["rows"] == len(again)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [("--track own", "c"), ("--valid 0.5 --track own", "ac"), ("--valid class-MM=0.5", "bc")],
)
def test_thresholds_can_be_given(tmp_path: Path, words: str, wanted: str) -> None:
    rows = [row("a", 0, 0.6), row("b", 0, 0.6, "class-MM"), row("c", 0, 1.0)]
    assert "".join(r["task_id"] for r in selected(tmp_path, rows, *words.split())) == wanted


def test_runs_are_put_together_and_samples_renumbered(tmp_path: Path) -> None:
    first = write(tmp_path / "a", [row("t", i, 1.0, run_seed=0) for i in (0, 2)])
    second = write(tmp_path / "b", [row("t", 0, 1.0, run_seed=s) for s in (5, 6)])
    found = selected(tmp_path, [first, second])
    assert names(found) == [("t", 0), ("t", 2), ("t", 3), ("t", 4)]


# --- the training set


def called(number: int = 0, arguments: str = '{"topic": "a"}', **more: Any) -> Row:
    """A rollout with a call."""
    messages = deepcopy(CALLS["given"])
    messages[1]["tool_calls"][0]["function"]["arguments"] = arguments
    return row("t", number, 1.0, **{"messages": messages, "tools": [SEARCH, UPDATE]} | more)


def test_calls_reach_the_training_set_as_they_were_made(tmp_path: Path) -> None:
    older = called(1, messages=CALLS["older"])
    rows = [called(0, ids=[1, 2], loss_mask=[0, 1], tokenizer="abc"), older]
    found = selected(tmp_path, rows)
    assert [(r["ids"], r["loss_mask"], r["tokenizer"]) for r in found] == [
        *(([1, 2], [0, 1], "abc"), ([], [], ""))
    ]
    (where, first), (_, second) = training_rows(str(tmp_path / "s.parquet"))
    assert first["messages"] == CALLS["kept"]
    for kept in (first, second):
        turns = chat_of(kept, where).turns
        assert [turn.role for turn in turns] == ["user", "assistant", "tool", "assistant"]
        assert [(c.name, c.arguments) for c in turns[1].calls] == [("search", {"topic": "a"})]
    plain = selected(tmp_path, [row("p", 0, 1.0)])[0]
    assert plain["messages"] == row("p", 0, 1.0)["messages"]  # no columns of what nobody has


@pytest.mark.parametrize("tools", TABLES["schemas_come_back_as_they_were"])
def test_schemas_come_back_as_they_were(tmp_path: Path, tools: list[dict[str, Any]]) -> None:
    kept = selected(tmp_path, [called(tools=tools)])[0]["tools"]
    assert (json.loads(kept) if isinstance(kept, str) else kept) == tools
    (where, again), *_ = training_rows(str(tmp_path / "s.parquet"))
    assert [spec.schema()["function"]["name"] for spec in tools_of(again["tools"], where)] == [
        one["function"]["name"] for one in tools
    ]


def test_rollouts_that_differ_in_calls_alone_are_two(tmp_path: Path) -> None:
    said = ('{"topic": "a"}', '{ "topic":"a" }', '{"topic": "b"}')
    rows = [called(n, text) for n, text in enumerate(said)]
    assert names(selected(tmp_path, rows, "--deduplicate")) == [("t", 0), ("t", 2)]


def test_rollouts_that_teach_no_word_are_refused_or_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = [{"role": "user", "content": "q"}, {"role": "assistant", "content": " "}]
    with pytest.raises(AssertionError):
        selected(tmp_path, [called(0), called(1, messages=silent)])
    assert "r.jsonl: task t sample 1 has outcome 1 and says nothing" in capsys.readouterr().err
    # a wrong one is no more than one that is not kept
    wrong = {**called(1, messages=silent), "outcome": 0.0}
    rows = [called(0), wrong, called(2, '{"topic": ')]
    assert names(selected(tmp_path, rows, "--allow-invalid")) == [("t", 0)]
    dropped = manifest(tmp_path)["dropped"]
    assert dropped["says nothing"] == dropped["has a tool call that cannot be read"] == 1
