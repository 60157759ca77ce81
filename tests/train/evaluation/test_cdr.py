"""CDR-Bench: rows in every layout, asked in every mode, the release's files, and the paper's tables
by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cdr_copies import as_tracks, as_view, release_row, track_rows, write_arrow
from chat_server import Body, serving
from front import command, results
from places import tables

pytest.importorskip("aiohttp")

from assay.rows import read_rows
from assay.task import TaskError, write_jsonl
from rewards.cdr.release_files import CORE, SEMANTIC
from rewards.cdr.release_scores import score_file
from train.evaluation.cdr import pick_rows
from train.evaluation.cdr_tables import TrackAnswers, tables_of
from train.evaluation.tables import Draw

Row = dict[str, Any]
Tracks = Mapping[str, Sequence[Row]]
evaluate, report = command("eval"), command("report")


# --- the paper's tables --------------------------------------------------------------------------

SCENES = tables("cdr_tables")
SAID = {
    "right": ("KEEP", "one two"),
    "wrong": ("KEEP", "else"),
    "dropped": ("DROP", "one two"),
    "lost": ("", ""),
}


def row(track: str, name: str, answers: Sequence[Any], characters: int = 0, **more: Any) -> Row:
    """A release row with an answer to each of its wordings, as tests/data/cdr_tables.yaml says."""
    made = release_row(track, 0) | {
        "instance_id": name,
        "source_record_id": f"doc-{name[0]}",
        "domain": "web",
        "difficulty_label": None,
        "input_text": "x" * characters or "one two three",
        "reference_text": "one two",
        "operator_sequence": ["x_mapper", "y_filter"],
        "prompt_variants": [{"style_id": f"style {i}"} for i in range(3)],
        **more,
    }
    said = [SAID.get(one, ("KEEP", one)) if isinstance(one, str) else one for one in answers]
    made["variant_predictions"] = [
        {
            "prompt_variant_index": i,
            "prompt_style_id": made["prompt_variants"][i]["style_id"],
            "predicted_status": status,
            "predicted_clean_text": text,
            "valid_prediction": bool(status),
        }
        for i, (status, text) in enumerate(said)
    ]
    return made


def shown(rows: Tracks) -> dict[str, dict[str, list[str]]]:
    """Title → first cell of a line → its other cells."""
    k = {track: 0 if track.startswith("semantic") else 3 for track in rows}
    scored = {t: TrackAnswers(mine, score_file(mine, k[t], 0, t, "m")) for t, mine in rows.items()}
    papers = {track: found.scored.paper for track, found in scored.items()}
    found = tables_of(papers, scored, Draw(200))
    return {t.title.removeprefix("CDR-Bench "): {n: c for n, *c in t.lines} for t in found}


@pytest.mark.parametrize("scene", SCENES)
def test_the_papers_tables_by_hand(scene: str) -> None:
    made = {t: [row(t, **one) for one in mine] for t, mine in SCENES[scene]["rows"].items()}
    found = shown(made)
    for line in SCENES[scene]["tables"].splitlines():
        title, name, *cells = (part.strip() for part in line.split("|"))
        assert [re.sub(r" \[.*?\]", "", cell) for cell in found[title][name]] == cells, line


def test_intervals_are_clustered_by_document() -> None:
    rows = [row("order_f", f"a{n}", [("wrong", "right")[n % 2]] * 3) for n in range(4)]
    lone = [one | {"source_record_id": f"doc {n}"} for n, one in enumerate(rows)]
    title = "by domain, atomic and compositional"
    cells = [shown({"order_f": mine})[title]["web"][0] for mine in (rows, lone)]
    assert cells == ["0.500 (4)", "0.500 [0.150, 0.850] (4)"]  # one document has no interval


def test_several_runs_have_one_main_table_and_a_leaderboard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    as_tracks(tmp_path / "bench", track_rows(("atomic_m", "order_f")))
    for name in ("gold", "empty"):
        words = ["--model", name, "--tasks", f"cdr:{tmp_path / 'bench'}", "--no-baselines"]
        assert evaluate([*words, "--out", str(tmp_path / name)]) == 0
    assert "CDR-Bench RS@K" in (tmp_path / "gold" / "report.html").read_text()
    runs = [str(tmp_path / "gold"), str(tmp_path / "empty"), "--no-view", "--base-model"]
    assert report([*runs, "other"]) == 2
    assert "there is empty, gold" in capsys.readouterr().err
    assert report([*runs, "empty"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["gold", "100.00", "100.00", "100.00", "100.00"] in [line[:5] for line in lines]
    assert ["gold", "core_rule", "100.00", "1", "+0.00", "+100.00"] in lines
    errors = json.loads((tmp_path / "empty" / "errors.json").read_text())
    assert errors["all"]["failures"] == errors["all"]["predictions"] == 12


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


def papers(out: Path) -> dict[str, Any]:
    return results(out)["benchmarks"]["cdr"]["paper_metrics"]


def test_an_endpoint_is_asked_in_a_mode(bench: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with serving(gold) as (url, seen):
        assert run(url, bench, out, "cdr.mode=state_aware") == 0
    assert sum("S0 is the input" in str(b["messages"]) for b in seen) == 6 and len(seen) == 9
    core, safety = papers(out).values()
    assert (core["mean_rs@k"], core["mean_rs"], core["mean_rg"]) == (1.0, 1.0, 1.0)
    assert safety["mean_rs"] == 1.0
    # its words allow an analysis
    assert {r["outcome"] for r in results(out)["rows"] if r["family"] == "refinement"} == {1.0}
    kept = [row["messages"][:-1] for _, row in read_rows(out / "rows.jsonl")]
    assert sorted(map(str, kept)) == sorted(str(b["messages"]) for b in seen)  # for `assay view`


def test_failed_requests_count_nowhere_and_are_asked_again(bench: Path, tmp_path: Path) -> None:
    broken, out = [True], tmp_path / "out"

    def reply(body: Body) -> str | int:
        text = body["messages"][-1]["content"]
        lost = broken[0] and "imperative_checklist" in text and TEXTS["two"] in text
        return 400 if lost else gold(body)

    with serving(reply) as (url, seen):
        assert run(f"{url}/", bench, out) == 3
        home = out / "data/evaluation/atomic_m/m1"
        scores = read_rows(home / "score_direct_k3_seed0/instance_metrics.jsonl")
        assert [r["rs_at_k"] for _, r in scores] == [1, None]
        (_, one) = [r for _, r in read_rows(home / "predictions_direct_k3_seed0.jsonl")]
        assert "HTTP 400" in one["variant_predictions"][1]["prediction_error"]
        assert [r["outcome"] for r in results(out)["rows"]].count(None) == 1
        broken[0], asked = False, len(seen)
        assert run(f"{url}/", bench, out) == 0 and len(seen) == asked + 1
    assert papers(out)["atomic_m"]["mean_rs@k"] == 1.0
    # rows are read strictly, and these words allow no analysis
    assert {r["outcome"] for r in results(out)["rows"] if r["family"] == "refinement"} == {0.0}


# --- where rows lie ------------------------------------------------------------------------------

EVERY = (*CORE, *SEMANTIC)
WANTED = {track: [f"{track}-0", f"{track}-1"] for track in EVERY}
# place of a copy → the tracks that lie there
LAYOUTS = {
    **dict.fromkeys(("root", "root/data/benchmark_v3", "root/data/benchmark_v3/tracks"), EVERY),
    **dict.fromkeys(("view", "view/data", "parquet", "saved", "saved/test"), EVERY),
    **dict.fromkeys(("all", "all/benchmark_v3_all.jsonl"), EVERY),
    "saved/test/data-00000-of-00001.arrow": EVERY,
    **dict.fromkeys(("view/data/main", "parquet/data/main", "view/data/main/test.jsonl"), CORE),
    "root/data/benchmark_v3/tracks/order_m.jsonl": ("order_m",),
    "view:order_f,atomic_m": ("order_f", "atomic_m"),
    "saved:order_f, atomic_m": ("order_f", "atomic_m"),
}


def test_every_layout_gives_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = track_rows()
    flat = [row for mine in rows.values() for row in mine]
    as_tracks(tmp_path / "root/data/benchmark_v3", rows)
    as_view(tmp_path / "view", rows)
    as_view(tmp_path / "parquet", rows, "parquet")
    write_jsonl(tmp_path / "all/benchmark_v3_all.jsonl", flat)
    write_arrow(tmp_path / "saved/test/data-00000-of-00001.arrow", flat)
    for place, tracks in LAYOUTS.items():
        picked = pick_rows(f"{tmp_path}/{place}")
        found = {t: [row["instance_id"] for row in mine] for t, mine in picked.tracks.items()}
        assert list(found) == list(tracks) and found.items() <= WANTED.items(), place
        assert picked.official and picked.heldout and not picked.left_out, place
    for place in ("view:order_x", "none/here"):
        with pytest.raises(TaskError, match=r"no track 'order_x'|no such file or folder"):
            pick_rows(f"{tmp_path}/{place}")


def test_a_copy_is_used_as_far_as_it_goes_and_says_what_lacks(tmp_path: Path) -> None:
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
    words = ["--model", "gold", "--tasks", f"cdr:{home}", "--strict", "--out"]
    assert evaluate([*words, str(tmp_path / "strict")]) == 2
    assert pick_rows(str(as_tracks(tmp_path / "one", track_rows(SEMANTIC)))).lacks == []


# --- builds --------------------------------------------------------------------------------------


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """Twelve rows, of which heldout.jsonl names the last eight."""
    rows = [
        release_row("order_f", i, instance_id=f"i{i}", order_slot="pre" if i < 8 else "")
        | {"reference_status": "DROP" if i < 8 and i % 2 else "KEEP"}
        | {"operator_sequence": ["text_length_filter", "x"] if i < 8 else ["clean_email_mapper"]}
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
    assert "not comparable with published" in capsys.readouterr().out  # Assay's words
    slices = found["tables"]["by_slice"]["refinement"]
    assert [*slices["recipe steps"]] == ["1", "2"] and [*slices["domain"]] == ["pii", "web"]
    shortcut = found["baselines"]["cheat:filter means drop"]["by_slice"]["refinement"]["filter"]
    assert shortcut["with a filter"]["mean_outcome"] == 0.5
    trained = pick_rows(f"{build}/train.jsonl")
    assert not trained.heldout and len(trained.tracks["order_f"]) == 4
    assert evaluate([*words, str(tmp_path / "p"), "--no-baselines", "cdr.all_rows=true"]) == 0
    found = results(tmp_path / "p")
    assert len(found["rows"]) == 12 and not found["meta"]["heldout"]
    assert "training rows among them" in (tmp_path / "p" / "report.html").read_text()
