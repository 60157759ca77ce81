"""CDR-Bench: rows in every layout, asked in every mode, the release's files, and the paper's tables
by hand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cdr_copies import as_tracks, as_view, release_row, track_rows, write_arrow
from chat_server import Body, serving
from front import command
from hub_server import SHA, environment, hub_server
from places import ROOT
from releases import Asked, imported, write_release

from assay.rows import read_rows
from assay.task import TaskError, write_jsonl
from rewards.cdr.leaderboard import leaderboard
from rewards.cdr.release_files import CORE, SEMANTIC
from rewards.cdr.release_scores import score_file, write_scores
from rollouts.words.cdr import MODES
from train.evaluation.cdr import parse_tracks, pick_rows
from train.evaluation.cdr_tables import TrackAnswers, main_results, tables_of
from train.evaluation.tables import Draw

Row = dict[str, Any]
Tracks = Mapping[str, Sequence[Row]]
evaluate, report = command("eval"), command("report")


def results(out: Path) -> dict[str, Any]:
    return json.loads((out / "results.json").read_text())


# --- the paper's tables --------------------------------------------------------------------------

RIGHT, WRONG = ("KEEP", "one two"), ("KEEP", "else")
DROPPED, FAILED = ("DROP", "one two"), ("", "")


def row(name: str, answers: Sequence[tuple[str, str]], **more: Any) -> Row:
    """A release row with an answer (status, text) to each of its wordings; an empty status is a
    request that failed."""
    made = release_row("order_f", 0) | {
        "instance_id": name,
        "source_record_id": f"doc-{name[0]}",
        "domain": "web",
        "difficulty_label": None,
        "input_text": "one two three",
        "reference_text": "one two",
        "operator_sequence": ["x_mapper", "y_filter"],
        "prompt_variants": [],
        **more,
    }
    made["variant_predictions"] = [
        {
            "prompt_variant_index": i,
            "prompt_style_id": f"style {i}",
            "predicted_status": status,
            "predicted_clean_text": text,
            "valid_prediction": bool(status),
        }
        for i, (status, text) in enumerate(answers)
    ]
    return made


def shown(rows: Tracks, k: int = 3) -> dict[str, dict[str, list[str]]]:
    """Title → first cell of a line → its other cells."""
    scored = {t: TrackAnswers(mine, score_file(mine, k, 0, t, "m")) for t, mine in rows.items()}
    papers = {track: found.scored.paper for track, found in scored.items()}
    found = tables_of(papers, scored, Draw(200))
    return {t.title.removeprefix("CDR-Bench "): {n: c for n, *c in t.lines} for t in found}


def styled(name: str, outcomes: list[tuple[str, str]], told: str) -> Row:
    made = row(name, outcomes)
    styles = ("goal_oriented", "concise_brief", "recipe_narrative")
    for style, variant in zip(styles, made["variant_predictions"], strict=True):
        variant["prompt_style_id"] = style
    listed = [{"style_id": style} for style in styles]
    made["prompt_variants"] = [listed[0] | {"wording": told}, *listed[1:]] if told else listed
    return made


DROP = {"reference_status": "DROP", "reference_text": "one two three"}
PAIR = {"order_group_instance_id": "g", "source_track": "order_m", "operator_sequence": ["x"]}


def steps(track: str, *counts: int) -> list[Row]:
    return [
        row(
            f"{track} {at}",
            [RIGHT if count < 3 else WRONG] * 3,
            operator_sequence=["x_mapper"] * count,
            source_track=track,
        )
        for at, count in enumerate(counts)
    ]


def semantic(domain: str, split: str, name: str, answers: Sequence[str], **more: Any) -> Row:
    kind = {"track_family": "semantic_extension", "benchmark_split": split}
    kind |= {"source_track": f"semantic_{domain}_{split}", "reports_refinement_gain": False}
    kind |= {"scoring_profile": "structured_json", "output_format": "json"}
    return row(name, [("KEEP", text) for text in answers]) | kind | more


def alone(domain: str, name: str, right: bool, **more: Any) -> Row:
    answers = ["{}", '{"x": 3}' if right else "{}", "no"]
    return semantic(domain, "atomic", name, answers, reference_text='{"x": 3}', **more)


WHOLE = [{"helpfulness": 3, "verbosity": 2}, {"helpfulness": 1, "verbosity": 1}]
RUBRIC: Tracks = {
    "semantic_rubric_atomic": [
        alone("rubric", "a", True, semantic_operator="helpfulness"),
        alone("rubric", "b", False, semantic_operator="helpfulness"),
        alone("rubric", "c", True, semantic_operator="verbosity"),
    ],
    "semantic_rubric_compositional": [
        semantic(
            "rubric",
            "compositional",
            "d",
            [*map(json.dumps, WHOLE), "none"],
            semantic_operator="all",
            reference_text=json.dumps({"helpfulness": 3, "verbosity": 1}),
        )
    ],
}
HALLU = [
    alone("hallu", f"{operator} {at}", operator == "detect_mapper", operator=operator)
    | {"semantic_operator": None}
    for operator, count in (("detect_mapper", 9), ("spans_mapper", 3), ("types_mapper", 3))
    for at in range(count)
]
PII = [
    row(name, [("KEEP", "[A_1]" if right else "x")] * 3, reference_text="[A_1]")
    | {"source_track": "semantic_pii_compositional", "operator_sequence": ["r"] * count}
    for name, count, right in (("a", 2, True), ("b", 2, False), ("c", 4, False))
]
FOUR = [
    row("a", [RIGHT, WRONG, WRONG]),
    row("b", [RIGHT, RIGHT, WRONG]),
    row("c", [WRONG, WRONG, WRONG]),
    row("d", [RIGHT, RIGHT, FAILED]),
]
# rows by track; of the tables they make: title | first cell of a line | its cells without intervals
BY_HAND: dict[str, tuple[Tracks, str]] = {
    "lengths, domains": (  # d lacks an answer
        {
            "order_f": [
                row("a", [RIGHT, WRONG, WRONG], input_text="x" * 400),
                row("b", [WRONG] * 3, input_text="x" * 6000, domain="pii"),
                row("c", [RIGHT] * 3, input_text="x" * 9000, operator_sequence=["x_mapper"]),
                row("d", [RIGHT, RIGHT, FAILED], input_text="x" * 400, domain="pii"),
            ]
        },
        """
        by input characters | ≤ 500 | 1.000 (1)
        by input characters | ≤ 8000 | 0.000 (1)
        by input characters | > 8000 | 1.000 (1)
        by domain | web | 1.000 (2)
        by domain | best − worst | 1.000 (web, pii)
        by recipe length | 1 | 1.000 (1)
        by recipe length | 2 | 0.500 (2)""",
    ),
    "curve, styles": (
        {"order_f": FOUR},
        """
        RS@K | 1 | 0.333 | 0.333
        RS@K | 2 | 0.556 | 0.556
        RS@K | 3 | 0.667 | 0.667
        RS@K | instances | 3 | 3
        by style | style 0 | 0.750 (4)
        by style | style 1 | 0.500 (4)
        by style | style 2 | 0.000 (3)""",
    ),
    "kinds of style": (  # the release says nothing of the third
        {
            "order_f": [
                styled("a", [WRONG, RIGHT, WRONG], "outcome"),
                styled("b", [WRONG, RIGHT, RIGHT], "steps"),
                styled("c", [RIGHT, WRONG, WRONG], ""),
            ]
        },
        """
        by style | enumerating | 0.500 (4)
        by style | outcome | 0.400 (5)""",
    ),
    "statuses, stops, orders": (
        {
            "order_f": [
                row("a", [RIGHT, DROPPED, RIGHT], order_slot="front"),
                row("b", [("DROP", "one two three")] * 2 + [("KEEP", "one")], order_slot="middle")
                | {**DROP, "reference_text_full_run": "one"},
                row("c", [("DROP", "one"), ("KEEP", "one"), FAILED], order_slot="end", **DROP),
            ],
            "order_m": [
                row("d", [RIGHT] * 2, order_slot="original", **PAIR),
                row("e", [("KEEP", "one two"), ("KEEP", "12345678")], order_slot="swap_0_1", **PAIR)
                | {"reference_text": "12345"},
            ],
        },
        # of the others no full run differs
        """
        statuses | order_f | 8 | 62% | 50% | 33% | 40%
        statuses | order_f pre | 3 | 0% | 33% | 33% | –
        stopping at a rejecting filter | mid | 3 | 0.667 | 67% | 33% | +33.3 pp
        errors on swapped orders | all | 2 | 50.0 % | 50.0 % | 0.0 %
        failure rates | order_m | 4 | 50.0 %
        by filter place | pre | 1.000 (1)
        by filter place | mid | 1.000 (1)
        by filter place | post | –""",
    ),
    "recipe length of compositional tracks": (
        {
            "atomic_m": steps("atomic_m", 1),
            "order_m": steps("order_m", 2, 2, 10),
            "agnostic_m": steps("agnostic_m", 3, 10),
        },
        """
        by recipe length | operators | agnostic_m | order_m
        by recipe length | 2 | – | 1.000 (2)
        by recipe length | 3 | 0.000 (1) | –
        by recipe length | 10 | 0.000 (1) | 0.000 (1)""",
    ),
    "atomic and compositional": (
        {
            "atomic_m": [
                *(row("a", [RIGHT] * 3), row("b", [WRONG] * 3)),
                row("c", [RIGHT] * 3, domain="pii"),
            ],
            "atomic_f": [row("h", [RIGHT] * 3)],
            "order_f": [row("d", [WRONG] * 3), row("e", [RIGHT] * 3), row("f", [WRONG] * 3)],
        },
        """
        by domain, atomic and compositional | web | 0.667 (3) | 0.333 (3) | -33.3 pp
        by domain, atomic and compositional | pii | 1.000 (1) | – | –""",
    ),
    "rubric": (
        RUBRIC,
        """
        rubric scoring | mean of subtasks | 0.750 | – | – | –
        rubric scoring | gap | +0.750 | – | – | –
        rubric scoring | helpfulness | 0.500 (2) | 0.167 | – | 33%
        rubric scoring | verbosity | 1.000 (1) | 0.333 | – | 33%
        rubric scoring | all at once | 0.000 (1) | 0.000 | – | –""",
    ),
    "subtasks by operator": (
        {"semantic_hallu_atomic": HALLU},
        "hallucination processing | mean of subtasks | 0.333 | – | – | –",
    ),
    "redaction by steps": (
        {"semantic_pii_compositional": PII},
        """
        PII redaction | all at once, 2 steps | 0.500 (2) | 0.500 | 0.808 | –
        PII redaction | all at once, 4 steps | 0.000 (1) | 0.000 | 0.615 | –""",
    ),
}


@pytest.mark.parametrize("scene", BY_HAND)
def test_the_papers_tables_by_hand(scene: str) -> None:
    rows, wanted = BY_HAND[scene]
    found = shown(rows, 0 if any(name.startswith("semantic") for name in rows) else 3)
    for line in wanted.strip().splitlines():
        title, name, *cells = (part.strip() for part in line.split("|"))
        assert [re.sub(r" \[.*?\]", "", cell) for cell in found[title][name]] == cells, line
    assert shown({"order_f": []}).keys() <= {"main results"}


def test_intervals_are_clustered_by_document() -> None:
    rows = [row(f"{'ab'[n % 2]}{n}", [RIGHT if n % 2 else WRONG] * 3) for n in range(40)]
    lone = [r | {"source_record_id": f"doc {n}"} for n, r in enumerate(rows)]
    widths: list[float] = []
    for mine in (rows, lone):
        line = shown({"order_f": mine})["by domain, atomic and compositional"]["web"][0]
        value, low, high = map(float, re.findall(r"[\d.]+", line)[:3])
        assert value == 0.5
        widths.append(high - low)
    assert widths[0] > widths[1]


def test_the_main_results_stand_side_by_side() -> None:
    papers = {
        "direct": {"order_f": {"mean_rs@k": 0.5, "mean_rg": 1 / 3, "ocs_at_k": 0.0, "rs_mid@k": 1}},
        "plan_first": {"atomic_m": {"mean_rs@k": 0.25, "mean_rg": None}},
    }
    heads, one, other = map(list, main_results(papers).lines)
    assert heads == ["model", "atomic_m RS@K", "RG", "order_f RS@K", "RG", "OCS@K", "RS@K mid"]
    assert one == ["direct", "–", "–", "50.00", "33.33", "0.00", "100.00"]
    assert other == ["plan_first", "25.00", "–", "–", "–", "–", "–"]


def test_subtasks_of_all_models_stand_in_the_reports(tmp_path: Path) -> None:
    for model in ("m", "n"):
        for track, rows in RUBRIC.items():
            home = tmp_path / track / model / "score_semantic_styles3"
            write_scores(home, score_file(rows[: 1 + (model == "m")], 0, 0, track, model))
    leaderboard([tmp_path], tmp_path / "reports")
    listed = (tmp_path / "reports" / "semantic_subtasks.csv").read_text().splitlines()
    assert listed[0] == "domain,subtask,model,instances,rs@k,rs,rg"
    assert [line.split(",")[2:5] for line in listed[1:]] == [["n", "1", "1.0"], ["m", "2", "0.5"]]


def test_several_runs_have_one_main_table_and_a_leaderboard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    as_tracks(tmp_path / "bench", track_rows(("atomic_m", "order_f")))
    for name in ("gold", "empty"):
        words = ["--model", name, "--tasks", f"cdr:{tmp_path / 'bench'}", "--no-baselines"]
        assert evaluate([*words, "--out", str(tmp_path / name)]) == 0
    page = (tmp_path / "gold" / "report.html").read_text()
    assert "CDR-Bench by input characters" not in page  # one value alone says nothing
    assert "CDR-Bench RS@K" in page and '<section id="rs-k">' in page
    runs = [str(tmp_path / "gold"), str(tmp_path / "empty")]
    capsys.readouterr()
    assert report([*runs, "--no-view", "--base-model", "empty"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["gold", "100.00", "100.00", "100.00", "100.00"] in [line[:5] for line in lines]
    assert ["gold", "core_rule", "100.00", "1", "+0.00", "+100.00"] in lines
    water = (tmp_path / "cdr_reports" / "model_waterline.csv").read_text()
    assert water.splitlines()[2].endswith("empty,0.00,+100.00")
    errors = json.loads((tmp_path / "empty" / "errors.json").read_text())
    assert errors["all"]["failures"] == errors["all"]["predictions"] == 12
    assert report([*runs, "--no-view", "--base-model", "other"]) == 2
    assert "there is empty, gold" in capsys.readouterr().err


# --- an endpoint ---------------------------------------------------------------------------------

TEXTS = {"one": "Mail ana@acme.io today.", "two": "See  x@y.org and go."}
GOLD = {"one": "Mail  today.", "two": "See   and go."}
SAFE = {"reference_text": '{"prompt_label": "safe"}', "input_text": TEXTS["one"]}


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """Two texts and a judgement, each in three wordings."""
    texts = [
        release_row("atomic_m", 0, instance_id=name, input_text=TEXTS[name])
        | {"reference_text": GOLD[name], "domain": "pii"}
        for name in TEXTS
    ]
    judged = [release_row("semantic_safety_atomic", 0, instance_id="j", **SAFE)]
    rows = {"atomic_m": texts, "semantic_safety_atomic": judged}
    return as_tracks(tmp_path / "bench", rows)


def gold(body: Body) -> str:
    said = body["messages"][-1]["content"]
    if "required JSON" in said:
        return 'Here: {"prompt_label": " SAFE "}'
    name = next(n for n, text in TEXTS.items() if text in said)
    return f"<analyze>x</analyze><status>KEEP</status><clean_text>{GOLD[name]}</clean_text>"


def run(url: str, bench: Path, out: Path, *more: str) -> int:
    words = ["--model", url, "server.model=lab/m1", "--tasks", f"cdr:{bench}", "--out", str(out)]
    return evaluate([*words, "server.in_flight=2", *more])


def paper(out: Path, track: str, suffix: str) -> dict[str, Any]:
    path = out / "data/evaluation" / track / "m1" / f"score_{suffix}" / "paper_metrics.json"
    return json.loads(path.read_text())


WORDS = {
    "direct": "Task:",
    "few_shot": "Example 2",
    "plan_first": "ordered list of steps",
    "state_aware": "S0 is the input",
}


@pytest.mark.parametrize("mode", MODES)
def test_an_endpoint_is_asked_in_every_mode(mode: str, bench: Path, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    out = tmp_path / "out"
    with serving(gold) as (url, seen):
        assert run(url, bench, out, f"cdr.mode={mode}") == 0
    assert len(seen) == 9
    texts = [b["messages"][-1]["content"] for b in seen if "no code fences and" not in str(b)]
    assert len(texts) == 6 and all(WORDS[mode] in text for text in texts)
    core = paper(out, "atomic_m", f"{mode}_k3_seed0")
    assert (core["mean_rs@k"], core["mean_rs"], core["mean_rg"]) == (1.0, 1.0, 1.0)
    assert paper(out, "semantic_safety_atomic", "semantic_styles3")["mean_rs"] == 1.0
    strict = float(mode in ("plan_first", "state_aware"))  # whose words allow an analysis
    rows = results(out)["rows"]
    assert {r["outcome"] for r in rows if r["family"] == "refinement"} == {strict}
    kept = [row["messages"][:-1] for _, row in read_rows(out / "rows.jsonl")]
    assert sorted(map(str, kept)) == sorted(str(b["messages"]) for b in seen)  # for `assay view`


def test_an_endpoint_is_asked_in_the_words_of_a_release(
    bench: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("aiohttp")
    mode = "few_shot"
    release = write_release(tmp_path / "release", "refinement")
    runner: Any = imported(release / "src/cdrbench_v3/run_inference.py")
    words, out = (f"cdr.mode={mode}", f"prompts=release:{release}"), tmp_path / "out"
    with serving(lambda body: "<status>KEEP</status><clean_text>x</clean_text>") as (url, seen):
        assert run(url, bench, out, *words) == 0
        assert run(url, bench, out, *words) == 0  # it goes on, and asks nothing
        assert len(seen) == 9
        capfd.readouterr()
        assert run(url, bench, out, words[0]) == 2  # in other words it does not
        assert "words" in capfd.readouterr().err
        assert run(url, bench, tmp_path / "o", words[1], "--strict") == 2
    sent: list[str] = []
    for path in sorted(bench.rglob("*.jsonl")):
        for _, one in read_rows(path):
            for index in range(3):
                end = Asked()
                runner._infer_one(end, one, index, prompt_mode=mode, candidate_rows=[])
                sent.append(str(end.messages))
    assert sorted(str(b["messages"]) for b in seen) == sorted(sent)
    (said,) = results(out)["meta"]["words"].values()
    assert (said["source"], said["known"]) == ("release", "")


def test_failed_requests_count_nowhere_and_are_asked_again(bench: Path, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    broken, out = [True], tmp_path / "out"

    def reply(body: Body) -> str | int:
        text = body["messages"][-1]["content"]
        lost = broken[0] and "imperative_checklist" in text and TEXTS["two"] in text
        return 400 if lost else gold(body)

    with serving(reply) as (url, seen):
        assert run(f"{url}/", bench, out) == 3
        before = paper(out, "atomic_m", "direct_k3_seed0")
        assert (before["mean_rs"], before["mean_rg"]) == (1.0, 1.0)
        home = out / "data/evaluation/atomic_m/m1"
        scores = read_rows(home / "score_direct_k3_seed0/instance_metrics.jsonl")
        rows = {r["instance_id"]: r for _, r in scores}
        assert (rows["two"]["rs_at_k"], rows["two"]["num_scorable_variants"]) == (None, 2)
        predictions = [r for _, r in read_rows(home / "predictions_direct_k3_seed0.jsonl")]
        lost = predictions[1]["variant_predictions"][1]
        assert not lost["valid_prediction"] and "HTTP 400" in lost["prediction_error"]
        assert [r["outcome"] for r in results(out)["rows"]].count(None) == 1
        broken[0], asked = False, len(seen)
        assert run(f"{url}/", bench, out) == 0
        assert len(seen) == asked + 1
    assert paper(out, "atomic_m", "direct_k3_seed0")["mean_rs@k"] == 1.0


# --- where rows lie ------------------------------------------------------------------------------

EVERY = (*CORE, *SEMANTIC)
WANTED = {track: [f"{track}-0", f"{track}-1"] for track in EVERY}


def names_of(place: object, *tracks: str) -> dict[str, list[str]]:
    picked = pick_rows(f"{place}:{','.join(tracks)}" if tracks else str(place))
    return {t: [row["instance_id"] for row in rows] for t, rows in picked.tracks.items()}


def test_every_layout_gives_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = track_rows()
    flat = [row for mine in rows.values() for row in mine]
    as_tracks(tmp_path / "root/data/benchmark_v3", rows)
    as_view(tmp_path / "view", rows)
    as_view(tmp_path / "parquet", rows, "parquet")
    (tmp_path / "all").mkdir()
    write_jsonl(tmp_path / "all/benchmark_v3_all.jsonl", flat)
    write_arrow(tmp_path / "saved/test/data-00000-of-00001.arrow", flat)
    places = (
        *("root", "root/data/benchmark_v3", "root/data/benchmark_v3/tracks"),
        *("view", "view/data", "parquet", "saved", "saved/test"),
        *("all", "all/benchmark_v3_all.jsonl", "saved/test/data-00000-of-00001.arrow"),
    )
    some = ("order_f", "atomic_m")
    for place in places:
        picked = pick_rows(str(tmp_path / place))
        assert list(picked.tracks) == list(EVERY) and names_of(tmp_path / place) == WANTED, place
        assert picked.official and picked.heldout and not picked.left_out, place
        assert names_of(tmp_path / place, *some) == {name: WANTED[name] for name in some}, place
    core = {name: WANTED[name] for name in CORE}
    for place in ("view/data/main", "parquet/data/main", "view/data/main/test.jsonl"):
        assert names_of(tmp_path / place) == core, place
    one = tmp_path / "root/data/benchmark_v3/tracks/order_m.jsonl"
    assert names_of(one) == {"order_m": WANTED["order_m"]}
    with pytest.raises(TaskError, match="order_x"):
        pick_rows(f"{tmp_path / 'view'}:order_x")


def test_a_copy_is_used_as_far_as_it_goes_and_says_what_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = track_rows()
    del rows["order_f"], rows["semantic_pii_atomic"]
    home = as_tracks(tmp_path / "bench", rows)
    (home / "tracks/order_m.jsonl").write_text("version https://git-lfs.github.com/spec/v1\n")
    with open(home / "tracks/agnostic_m.jsonl", "a") as file:
        file.write('{"instance_id": "cut o')
    picked = pick_rows(str(home))
    lost = {"order_f", "order_m", "semantic_pii_atomic"}
    assert set(picked.tracks) == set(EVERY) - lost and len(picked.tracks["agnostic_m"]) == 2
    said = "\n".join(picked.lacks)
    assert all(f"track {name} is not there" in said for name in lost)
    assert "agnostic_m.jsonl line 3: " in said and "atomic_m has 2 of the release's 132" in said
    with pytest.raises(TaskError, match=r"order_m\.jsonl line 1"):
        pick_rows(f"{home}:order_m")
    words = ["--model", "gold", "--tasks", f"cdr:{home}", "--no-baselines"]
    assert evaluate([*words, "--strict", "--out", str(tmp_path / "strict")]) == 2
    assert "get the whole release" in capsys.readouterr().err
    assert pick_rows(str(as_tracks(tmp_path / "one", track_rows(SEMANTIC)))).lacks == []


def test_what_is_no_release_and_what_holds_nothing(tmp_path: Path) -> None:
    rows = {"order_f": [release_row("order_f", 0, doc_id="d")]}  # a build without its lists
    picked = pick_rows(str(as_tracks(tmp_path / "build", rows)))
    assert not picked.official and picked.lacks == []
    as_tracks(tmp_path / "empty", {"order_f": []})
    for place in ("empty", "none/here"):
        with pytest.raises(TaskError, match=r"no row of a track|no such file or folder"):
            pick_rows(str(tmp_path / place))
    for rest, wanted in (
        ("D", ("D", [])),
        ("D:a, b", ("D", ["a", "b"])),
        ("own/Bench@v1", ("own/Bench@v1", [])),
        ("hf://datasets/own/B@v1/data:a", ("hf://datasets/own/B@v1/data", ["a"])),
    ):
        assert parse_tracks(rest) == wanted


def test_the_release_by_its_name_on_the_hub(tmp_path: Path) -> None:
    as_tracks(tmp_path / "bench", track_rows(("atomic_m", "order_f")))
    words = ["--model", "gold", "--no-baselines", "--tasks", "cdr:own/CDR:order_f", "--out", "out"]
    with hub_server({"own/CDR": tmp_path / "bench"}) as (url, fetched):
        ran = subprocess.run(
            [sys.executable, "-m", "assay", "eval", *words],
            cwd=tmp_path,
            env={**environment(url, tmp_path / "cache"), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert ran.returncode == 0, ran.stderr
    assert f"own/CDR: revision {SHA} of the hub" in ran.stderr
    assert {row["track"] for row in results(tmp_path / "out")["rows"]} == {"order_f"}
    assert fetched == ["tracks/order_f.jsonl"]


# --- builds --------------------------------------------------------------------------------------


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """Twelve rows, of which heldout.jsonl names the last eight."""
    rows = [
        release_row("order_f", i, instance_id=f"i{i}", order_slot="pre" if i < 8 else "")
        | {"reference_status": "DROP" if i < 8 and i % 2 else "KEEP"}
        | {"operator_sequence": ["text_length_filter", "x"] if i < 8 else ["clean_email_mapper"]}
        | {"difficulty_label": "hard" if i % 3 else "easy"}
        for i in range(12)
    ]
    folder = as_tracks(tmp_path / "build", {"order_f": rows})
    for name, numbers in (("train", range(4)), ("heldout", range(4, 12))):
        write_jsonl(folder / f"{name}.jsonl", [{"id": f"i{n}"} for n in numbers])
    return folder


def test_held_out_rows_are_asked_and_cut_by_slices_or_all_rows_on_demand(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tasks", f"cdr:{build}", "--model", "cheat:drop", "cdr.k=1", "--out"]
    assert evaluate([*words, str(tmp_path / "o")]) == 0
    found = results(tmp_path / "o")
    asked = {r["task_id"].partition("#")[0] for r in found["rows"]}
    assert asked == {f"i{n}" for n in range(4, 12)}
    assert found["meta"]["heldout"] and found["meta"]["rows_left_out"] == 4
    said = capsys.readouterr().out
    assert f"the held-out split of {build} (8 rows)" in said
    assert "not comparable with published" in said  # Assay's words
    slices = found["tables"]["by_slice"]["refinement"]
    assert {name: sorted(slices[name]) for name in ("recipe steps", "filter place", "domain")} == {
        "recipe steps": ["1", "2"],
        "filter place": ["before the mappers"],
        "domain": ["pii", "web"],
    }
    shortcut = found["baselines"]["cheat:filter means drop"]["by_slice"]["refinement"]["filter"]
    assert shortcut["with a filter"]["mean_outcome"] == 0.5
    assert evaluate([*words, str(tmp_path / "p"), "--no-baselines", "cdr.all_rows=true"]) == 0
    found = results(tmp_path / "p")
    assert len(found["rows"]) == 12 and not found["meta"]["heldout"]
    page = (tmp_path / "p" / "report.html").read_text()
    assert "<h2>Results</h2>" in page and "training rows among them" in page
