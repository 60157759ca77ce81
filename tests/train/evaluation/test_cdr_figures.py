"""The numbers behind the paper's figures, by hand; and as tables of the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cdr_copies import as_tracks, track_rows
from front import command

from assay.task import json_text, write_jsonl
from rewards.cdr.leaderboard import leaderboard
from rewards.cdr.release_files import score_file, write_scores
from train.evaluation.cdr_figures import TrackAnswers, figures
from train.evaluation.cdr_shown import main_results, tables_of
from train.evaluation.tables import Draw
from train.report.benchmark_tables import text_of
from train.report.page import render

DRAW = Draw(200)
Row = dict[str, Any]


def row(name: str, answers: Sequence[tuple[str, str]], **more: Any) -> Row:
    """A release row with an answer (status, text) to each of its wordings; an empty status is a
    request that failed."""
    made: Row = {
        "instance_id": name,
        "benchmark_track": "order_f",
        "benchmark_split": "single",
        "track_family": "core_rule",
        "source_track": "order_f",
        "source_record_id": f"doc-{name[0]}",
        "domain": "web",
        "input_text": "one two three",
        "reference_status": "KEEP",
        "reference_text": "one two",
        "operator_sequence": ["x_mapper", "y_filter"],
        "scoring_profile": "text_refinement",
        "output_format": "tagged_text",
        "reports_refinement_gain": True,
        "recipe_prompt_key": "k",
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


RIGHT, WRONG = ("KEEP", "one two"), ("KEEP", "else")
DROPPED, FAILED = ("DROP", "one two"), ("", "")


def found(rows: Mapping[str, Sequence[Row]], k: int = 3) -> Row:
    made = {t: TrackAnswers(mine, score_file(mine, k, 0, t, "m")) for t, mine in rows.items()}
    numbers = figures(made, DRAW)
    assert json.loads(json_text(numbers)) == json.loads(json.dumps(numbers, allow_nan=False))
    return numbers


def lines_of(numbers: Row, title: str) -> dict[str, list[str]]:
    table = next(t for t in tables_of({"figures": numbers}) if t.title == title)
    return {line[0]: list(line[1:]) for line in table.lines}


def test_rs_at_k_by_length_domain_and_steps() -> None:
    rows = [
        row("a", [RIGHT, WRONG, WRONG], input_text="x" * 400),
        row("b", [WRONG, WRONG, WRONG], input_text="x" * 6000, domain="pii"),
        row("c", [RIGHT, RIGHT, RIGHT], input_text="x" * 9000, operator_sequence=["x_mapper"]),
        row("d", [RIGHT, RIGHT, FAILED], input_text="x" * 400, domain="pii"),
    ]
    by = found({"order_f": rows})["by"]
    lengths = by["input characters"]["order_f"]
    assert list(lengths) == ["≤ 500", "≤ 8000", "> 8000"]
    assert (lengths["≤ 500"]["n"], lengths["≤ 500"]["rs@k"]) == (1, 1.0)  # d lacks an answer
    assert lengths["≤ 500"]["rs"] == pytest.approx((1 / 3 + 1) / 2)
    assert lengths["> 8000"]["rs@k"] == 1.0 and lengths["≤ 8000"]["rs@k"] == 0.0
    assert by["recipe length"]["order_f"]["1"]["n"] == 1
    lines = lines_of(found({"order_f": rows}), "CDR-Bench by domain")
    assert lines["best − worst"] == ["1.000 (web, pii)"]
    assert lines["web"][0].startswith("1.000 [") and lines["web"][0].endswith("(2)")


def test_intervals_are_clustered_by_document() -> None:
    rows = [row(f"{'ab'[n % 2]}{n}", [RIGHT if n % 2 else WRONG] * 3) for n in range(40)]
    wide = found({"order_f": rows})["by"]["domain"]["order_f"]["web"]
    lone = [r | {"source_record_id": f"doc {n}"} for n, r in enumerate(rows)]
    narrow = found({"order_f": lone})["by"]["domain"]["order_f"]["web"]
    assert wide["rs@k"] == narrow["rs@k"] == 0.5
    assert narrow["interval"][1] - narrow["interval"][0] < wide["interval"][1] - wide["interval"][0]


def test_the_curve_and_the_styles() -> None:
    rows = [
        row("a", [RIGHT, WRONG, WRONG]),
        row("b", [RIGHT, RIGHT, WRONG]),
        row("c", [WRONG, WRONG, WRONG]),
        row("d", [RIGHT, RIGHT, FAILED]),
    ]
    numbers = found({"order_f": rows})
    curve = numbers["curve"]["order_f"]
    assert curve["n"] == 3
    assert curve["1"] == pytest.approx((1 / 3 + 2 / 3) / 3)
    assert curve["2"] == pytest.approx((2 / 3 + 1) / 3)
    assert curve["3"] == pytest.approx(2 / 3)
    styles = numbers["style"]["order_f"]
    assert {name: (c["n"], c["rs"]) for name, c in styles.items()} == {
        **{"style 0": (4, 0.75), "style 1": (4, 0.5), "style 2": (3, 0.0)}
    }
    assert lines_of(numbers, "CDR-Bench RS@K")["instances"] == ["3", "3"]


def test_styles_about_the_result_stand_against_those_that_list_operations() -> None:
    def asked(name: str, outcomes: list[tuple[str, str]], told: str) -> Row:
        made = row(name, outcomes)
        styles = ("goal_oriented", "concise_brief", "recipe_narrative")
        for style, variant in zip(styles, made["variant_predictions"], strict=True):
            variant["prompt_style_id"] = style
        listed = [{"style_id": style} for style in styles]
        made["prompt_variants"] = [listed[0] | {"wording": told}, *listed[1:]] if told else listed
        return made

    rows = [
        asked("a", [WRONG, RIGHT, WRONG], "outcome"),
        asked("b", [WRONG, RIGHT, RIGHT], "steps"),
        asked("c", [RIGHT, WRONG, WRONG], ""),  # the release says nothing of it
    ]
    numbers = found({"order_f": rows})
    kinds = numbers["style_kind"]["order_f"]
    assert {name: (c["n"], c["rs"]) for name, c in kinds.items()} == {
        "enumerating": (4, 0.5),
        "outcome": (5, 0.4),
    }
    shown = lines_of(numbers, "CDR-Bench by style")
    assert shown["outcome"][0].endswith("(5)") and shown["enumerating"][0].endswith("(4)")


def test_rates_of_statuses_stopping_and_order() -> None:
    drop = {"reference_status": "DROP", "reference_text": "one two three"}
    full = {"reference_text_full_run": "one"}
    slots = [
        row("a", [RIGHT, DROPPED, RIGHT], order_slot="front"),
        row("b", [("DROP", "one two three")] * 2 + [("KEEP", "one")], order_slot="middle", **drop)
        | full,
        row("c", [("DROP", "one"), ("KEEP", "one"), FAILED], order_slot="end", **drop),
    ]
    pair = {"order_group_instance_id": "g", "source_track": "order_m", "operator_sequence": ["x"]}
    orders = [
        row("d", [RIGHT] * 2, order_slot="original", **pair),
        row("e", [("KEEP", "one two"), ("KEEP", "12345678")], order_slot="swap_0_1", **pair)
        | {"reference_text": "12345"},
    ]
    numbers = found({"order_f": slots, "order_m": orders})
    rates = numbers["rates"]["order_f"]
    assert rates["all"] == {
        "n": 8,
        "gold_drop": 5 / 8,
        "said_drop": 4 / 8,
        "false_drop": pytest.approx(1 / 3),
        "false_keep": pytest.approx(2 / 5),
    }
    assert rates["pre"]["said_drop"] == pytest.approx(1 / 3)
    assert list(numbers["stops"]) == ["mid"]  # of the others no full run differs
    mid = numbers["stops"]["mid"]
    assert (mid["n"], mid["stop"], mid["full"]) == (3, pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert mid["rs"] == pytest.approx(2 / 3)
    lines = lines_of(numbers, "CDR-Bench stopping at a rejecting filter")
    assert lines["mid"] == ["3", "0.667", "67%", "33%", "+33.3 pp"]
    assert numbers["orders"] == {"n": 2, "canonical": 0.5, "swapped": 0.5}
    lines = lines_of(numbers, "CDR-Bench errors on swapped orders")
    assert lines["all"] == ["2", "50.0 %", "50.0 %", "0.0 %"]
    assert lines_of(numbers, "CDR-Bench failure rates")["order_m"] == ["4", "50.0 %"]
    assert "order_f pre" in lines_of(numbers, "CDR-Bench statuses")
    assert list(lines_of(numbers, "CDR-Bench by filter place")) == [
        *("filter place", "pre", "mid", "post")
    ]


def test_recipe_length_is_shown_of_the_compositional_tracks() -> None:
    def of(track: str, *steps: int) -> list[Row]:
        names = (["x_mapper"] * count for count in steps)
        return [
            row(f"{track} {at}", [RIGHT if len(ops) < 3 else WRONG] * 3, operator_sequence=ops)
            | {"source_track": track}
            for at, ops in enumerate(names)
        ]

    tracks = {"atomic_m": of("atomic_m", 1), "order_m": of("order_m", 2, 2, 10)}
    numbers = found(tracks | {"agnostic_m": of("agnostic_m", 3, 10)})
    lines = lines_of(numbers, "CDR-Bench by recipe length")
    assert list(lines) == ["operators", "2", "3", "10"]
    assert lines["operators"] == ["agnostic_m", "order_m"]
    assert lines["2"][0] == "–" and lines["2"][1].endswith("(2)")
    assert lines["10"][1].startswith("0.000")


def test_domains_have_the_gap_from_atomic_to_compositional() -> None:
    alone = [
        row("a", [RIGHT] * 3, source_track="atomic_m"),
        row("b", [WRONG] * 3, source_track="atomic_m"),
        row("c", [RIGHT] * 3, source_track="atomic_m", domain="pii"),
    ]
    whole = [row("d", [WRONG] * 3), row("e", [RIGHT] * 3), row("f", [WRONG] * 3), row("g", [WRONG])]
    filters = [row("h", [RIGHT] * 3, source_track="atomic_f")]
    numbers = found({"atomic_m": alone, "atomic_f": filters, "order_f": whole})
    lines = lines_of(numbers, "CDR-Bench by domain, atomic and compositional")
    assert lines["web"][0].startswith("0.667") and lines["web"][0].endswith("(3)")
    assert lines["web"][1].startswith("0.333") and lines["web"][2] == "-33.3 pp"
    assert lines["pii"][1:] == ["–", "–"]
    curve = lines_of(numbers, "CDR-Bench RS@K")
    assert curve["wordings"][:2] == ["atomic", "compositional"]
    assert curve["instances"][:2] == ["4", "3"]


def test_the_main_results_stand_side_by_side() -> None:
    papers = {
        "direct": {"order_f": {"mean_rs@k": 0.5, "mean_rg": 1 / 3, "ocs_at_k": 0.0, "rs_mid@k": 1}},
        "plan_first": {"atomic_m": {"mean_rs@k": 0.25, "mean_rg": None}},
    }
    table = main_results(papers)
    assert list(table.lines[0]) == [
        *("model", "atomic_m RS@K", "RG", "order_f RS@K", "RG", "OCS@K", "RS@K mid")
    ]
    assert list(table.lines[1]) == ["direct", "–", "–", "50.00", "33.33", "0.00", "100.00"]
    assert list(table.lines[2]) == ["plan_first", "25.00", "–", "–", "–", "–", "–"]


def semantic(domain: str, split: str, name: str, answers: Sequence[str], **more: Any) -> Row:
    track = f"semantic_{domain}_{split}"
    made = row(name, [("KEEP", text) for text in answers])
    kind = {"track_family": "semantic_extension", "source_track": track, "benchmark_split": split}
    json_row = {"scoring_profile": "structured_json", "output_format": "json"}
    return made | kind | json_row | {"reports_refinement_gain": False} | more


def rubric() -> dict[str, list[Row]]:
    def alone(name: str, key: str, right: bool) -> Row:
        text = json.dumps({key: 3})
        more = {"semantic_operator": key, "reference_text": text}
        answers = ["{}", text if right else "{}", "no"]
        return semantic("rubric", "atomic", name, answers, **more)

    gold = {"helpfulness": 3, "verbosity": 1}
    whole = [{"helpfulness": 3, "verbosity": 2}, {"helpfulness": 1, "verbosity": 1}]
    return {
        "semantic_rubric_atomic": [
            alone("a", "helpfulness", True),
            alone("b", "helpfulness", False),
            alone("c", "verbosity", True),
        ],
        "semantic_rubric_compositional": [
            semantic(
                "rubric",
                "compositional",
                "d",
                [json.dumps(value) for value in whole] + ["none"],
                semantic_operator="all",
                reference_text=json.dumps(gold),
            )
        ],
    }


def test_subtasks_alone_and_within_the_whole() -> None:
    numbers = found(rubric(), 0)["subtasks"]
    assert list(numbers) == ["rubric"]
    mine = numbers["rubric"]
    assert {name: cell["rs@k"] for name, cell in mine["atomic"].items()} == {
        **{"helpfulness": 0.5, "verbosity": 1.0}
    }
    assert (mine["macro"], mine["compositional"]["rs@k"], mine["gap"]) == (0.75, 0.0, 0.75)
    assert mine["atomic"]["helpfulness"]["within"] == pytest.approx(1 / 3)
    lines = lines_of(found(rubric(), 0), "CDR-Bench rubric scoring")
    assert lines["gap"][0] == "+0.750" and lines["verbosity"][-1] == "33%"


def _rubric(summary: Row) -> list[float]:
    rows = summary["semantic_rows"]
    return [r["atomic_avg_rs_at_k"] for r in rows if r["domain"] == "semantic_rubric"]


def test_subtasks_of_all_models_stand_in_the_reports(tmp_path: Path) -> None:
    for model in ("m", "n"):
        for track, rows in rubric().items():
            home = tmp_path / track / model / "score_semantic_styles3"
            write_scores(home, score_file(rows[: 1 + (model == "m")], 0, 0, track, model))
    leaderboard([tmp_path], tmp_path / "reports")
    listed = (tmp_path / "reports" / "semantic_subtasks.csv").read_text().splitlines()
    assert listed[0] == "domain,subtask,model,instances,rs@k,rs,rg"
    assert [line.split(",")[2:5] for line in listed[1:]] == [["n", "1", "1.0"], ["m", "2", "0.5"]]
    summary = json.loads((tmp_path / "reports" / "summary.json").read_text())
    assert _rubric(summary) == [0.5, 1.0]


def test_rows_that_name_their_operator_alone_have_its_subtask(tmp_path: Path) -> None:
    def alone(at: int, operator: str) -> Row:
        answers = ['{"x": 3}' if operator == "detect_mapper" else "{}"] * 3
        more = {"operator": operator, "semantic_operator": None, "reference_text": '{"x": 3}'}
        return semantic("hallu", "atomic", f"{operator} {at}", answers, **more)

    counts = {"detect_mapper": 9, "spans_mapper": 3, "types_mapper": 3, "correct_mapper": 3}
    rows = [alone(at, name) for name, count in counts.items() for at in range(count)]
    track = "semantic_hallu_atomic"
    home = tmp_path / track / "m" / "score_semantic_styles3"
    write_scores(home, score_file(rows, 0, 0, track, "m"))
    leaderboard([tmp_path], tmp_path / "reports")
    summary = json.loads((tmp_path / "reports" / "summary.json").read_text())
    assert summary["semantic_rows"][1]["atomic_avg_rs_at_k"] == 0.25
    mine = found({track: rows}, 0)["subtasks"]["hallu"]
    assert mine["macro"] == 0.25 and set(mine["atomic"]) == set(counts)


def test_redaction_is_shown_by_the_number_of_steps() -> None:
    def whole(name: str, steps: int, right: bool) -> Row:
        made = row(name, [("KEEP", "[A_1]" if right else "x")] * 3)
        track = {"source_track": "semantic_pii_compositional", "reference_text": "[A_1]"}
        names = [f"redact_{n}" for n in range(steps)]
        return made | track | {"operator_sequence": names, "recipe_length": steps}

    rows = [whole("a", 2, True), whole("b", 2, False), whole("c", 4, False)]
    numbers = found({"semantic_pii_compositional": rows}, 0)["subtasks"]["pii"]
    assert {steps: cell["rs@k"] for steps, cell in numbers["steps"].items()} == {"2": 0.5, "4": 0.0}
    assert "gap" not in numbers


def test_results_without_figures_have_no_tables() -> None:
    assert tables_of({}) == () and tables_of({"paper_metrics": {}}) == ()
    assert text_of({"benchmarks": {"cdr": {}, "of another version": {"figures": 1}}}) == ""
    empty = found({"order_f": []})
    assert tables_of({"figures": empty}) == []


def test_an_evaluation_shows_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    tracks = tmp_path / "bench" / "tracks"
    tracks.mkdir(parents=True)
    wordings = [
        {"style_id": f"s{i}", "style_label": f"S{i}", "user_requirement": f"Way {i}."}
        for i in range(3)
    ]
    rows = [
        row(name, [], domain=domain, source_track="atomic_m", input_text=text, reference_text=text)
        | {"prompt_variants": wordings, "operator_kind": "mapper", "benchmark_track": "atomic_m"}
        for name, domain, text in (("a", "web", "same"), ("b", "pii", "x" * 700))
    ]
    write_jsonl(tracks / "atomic_m.jsonl", rows)
    words = ["--model", "cheat:copy", "--tasks", f"cdr:{tracks.parent}", "--no-baselines"]
    assert command("eval")([*words, "--out", str(tmp_path / "out")]) == 0
    data = json.loads((tmp_path / "out" / "results.json").read_text())
    assert data["benchmarks"]["cdr"]["figures"]["curve"]["atomic_m"]["3"] == 1.0
    assert data["meta"]["thinking"] is None
    page = (tmp_path / "out" / "report.html").read_text()
    assert "CDR-Bench by input characters" in page and "CDR-Bench RS@K" in page
    assert '<section id="rs-k">' in page and "RS@3 1.000" in page
    capsys.readouterr()
    assert command("report")([str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "CDR-Bench by domain" in said and "best − worst" in said and "≤ 1000" in said
    assert render("t", data | {"benchmarks": {}}, [], {})


def test_several_runs_have_one_main_table_and_a_leaderboard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    as_tracks(tmp_path / "bench", track_rows(("atomic_m", "order_f")))
    for name in ("gold", "empty"):
        words = ["--model", name, "--tasks", f"cdr:{tmp_path / 'bench'}", "--no-baselines"]
        assert command("eval")([*words, "--out", str(tmp_path / name)]) == 0
    runs = [str(tmp_path / "gold"), str(tmp_path / "empty")]
    capsys.readouterr()
    assert command("report")([*runs, "--no-view", "--base-model", "empty"]) == 0
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert ["gold", "100.00", "100.00", "100.00", "100.00"] in [line[:5] for line in lines]
    assert ["gold", "core_rule", "100.00", "1", "+0.00", "+100.00"] in lines
    water = (tmp_path / "cdr_reports" / "model_waterline.csv").read_text()
    assert water.splitlines()[2].endswith("empty,0.00,+100.00")
    assert command("report")([*runs, "--no-view", "--base-model", "other"]) == 2
    assert "--base-model other: no such line; there is empty, gold" in capsys.readouterr().err
