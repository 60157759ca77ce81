"""`cdr:PLACE` takes the release and its copies in every layout, as far as they go."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cdr_copies import as_tracks, as_view, release_row, track_rows, write_arrow
from front import command
from hub_server import SHA, environment, hub_server
from places import ROOT

from assay.task import TaskError, write_jsonl
from rewards.cdr.release_files import CORE, SEMANTIC
from train.evaluation.cdr_layout import parse_tracks, pick_rows

evaluate = command("eval")
EVERY = (*CORE, *SEMANTIC)


def names_of(place: object, *tracks: str) -> dict[str, list[str]]:
    rest = f"{place}:{','.join(tracks)}" if tracks else str(place)
    picked = pick_rows(rest)
    return {t: [row["instance_id"] for row in rows] for t, rows in picked.tracks.items()}


WANTED = {track: [f"{track}-0", f"{track}-1"] for track in EVERY}


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
        *("all", "all/benchmark_v3_all.jsonl"),
        *("saved/test/data-00000-of-00001.arrow",),
    )
    for place in places:
        picked = pick_rows(str(tmp_path / place))
        assert list(picked.tracks) == list(EVERY), place
        assert names_of(tmp_path / place) == WANTED, place
        assert picked.official and picked.heldout and not picked.left_out, place
        assert names_of(tmp_path / place, "order_f", "atomic_m") == {
            name: WANTED[name] for name in ("order_f", "atomic_m")
        }, place
    core = {name: WANTED[name] for name in CORE}
    for place in ("view/data/main", "parquet/data/main", "view/data/main/test.jsonl"):
        assert names_of(tmp_path / place) == core, place
    one = tmp_path / "root/data/benchmark_v3/tracks/order_m.jsonl"
    assert names_of(one) == {"order_m": WANTED["order_m"]}
    with pytest.raises(TaskError, match="no track 'order_x'; there is atomic_m"):
        pick_rows(f"{tmp_path / 'view'}:order_x")


def test_a_copy_is_used_as_far_as_it_goes_and_says_what_lacks(tmp_path: Path) -> None:
    rows = track_rows()
    del rows["order_f"], rows["semantic_pii_atomic"]
    home = as_tracks(tmp_path, rows)
    (home / "tracks/order_m.jsonl").write_text("version https://git-lfs.github.com/spec/v1\n")
    with open(home / "tracks/agnostic_m.jsonl", "a") as file:
        file.write('{"instance_id": "cut o')
    picked = pick_rows(str(home))
    left = set(EVERY) - {"order_f", "order_m", "semantic_pii_atomic"}
    assert set(picked.tracks) == left and len(picked.tracks["agnostic_m"]) == 2
    said = "\n".join(picked.lacks)
    for name in ("order_f", "order_m", "semantic_pii_atomic"):
        assert f"track {name} is not there and is left out" in said
    assert "agnostic_m.jsonl line 3: " in said and "what stands before it is used" in said
    assert "atomic_m has 2 of the release's 132 rows" in said
    with pytest.raises(TaskError, match=r"order_m\.jsonl line 1: not valid JSON"):
        pick_rows(f"{home}:order_m")


def test_one_suite_alone_lacks_nothing(tmp_path: Path) -> None:
    home = as_tracks(tmp_path, track_rows(SEMANTIC))
    assert pick_rows(str(home)).lacks == []


def test_rows_of_a_build_without_its_lists_are_not_the_release(tmp_path: Path) -> None:
    rows = {"order_f": [release_row("order_f", 0, doc_id="d")]}
    picked = pick_rows(str(as_tracks(tmp_path, rows)))
    assert not picked.official and picked.lacks == []


def test_nothing_to_ask_is_said_without_advice_for_builds(tmp_path: Path) -> None:
    (tmp_path / "tracks").mkdir()
    (tmp_path / "tracks/order_f.jsonl").write_text("")
    with pytest.raises(TaskError, match=r"no row of a track is in .*no rows in it") as caught:
        pick_rows(str(tmp_path))
    assert "held-out" not in str(caught.value)
    with pytest.raises(TaskError, match="no such file or folder"):
        pick_rows(str(tmp_path / "none" / "here" / "at all"))


@pytest.mark.parametrize(
    ("rest", "place", "names"),
    [
        ("D", "D", []),
        ("D:a, b", "D", ["a", "b"]),
        ("own/Bench@v1", "own/Bench@v1", []),
        ("hf://datasets/own/B", "hf://datasets/own/B", []),
        ("hf://datasets/own/B@v1/data:a", "hf://datasets/own/B@v1/data", ["a"]),
    ],
)
def test_a_place_and_its_tracks(rest: str, place: str, names: list[str]) -> None:
    assert parse_tracks(rest) == (place, names)


def test_an_evaluation_says_what_was_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    as_view(tmp_path / "view", track_rows(("atomic_m", "order_f")))
    words = ["--model", "gold", "--tasks", f"cdr:{tmp_path / 'view'}", "--no-baselines"]
    assert evaluate([*words, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "12 wordings of 4 test tasks of the release" in said and "held-out" not in said
    assert "track order_m is not there and is left out" in said
    heads = [line.split() for line in said.splitlines()]
    assert ["slice", "wordings", "gold", "gold", "RS@3"] in heads
    assert ["model", "instances", "wordings"] in [words[:3] for words in heads]
    page = (tmp_path / "out/report.html").read_text()
    assert "12 wordings of 4 test tasks of the release" in page
    data = json.loads((tmp_path / "out/results.json").read_text())
    assert data["meta"]["tasks_are"] == "test tasks of the release"
    assert evaluate([*words, "--strict", "--out", str(tmp_path / "strict")]) == 2
    assert "left out (and 4 more); get the whole release" in capsys.readouterr().err


@pytest.mark.parametrize("layout", [as_tracks, as_view])
def test_the_release_by_its_name_on_the_hub(layout: object, tmp_path: Path) -> None:
    assert callable(layout)
    layout(tmp_path / "bench", track_rows(("atomic_m", "order_f")))
    with hub_server({"own/CDR": tmp_path / "bench"}) as (url, fetched):
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "assay", "eval", "--model", "gold", "--no-baselines"),
                *("--tasks", "cdr:own/CDR:order_f", "--out", "out"),
            ],
            cwd=tmp_path,
            env={**environment(url, tmp_path / "cache"), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert ran.returncode == 0, ran.stderr
    assert f"own/CDR: revision {SHA} of the hub" in ran.stderr
    found = json.loads((tmp_path / "out/results.json").read_text())
    assert {row["track"] for row in found["rows"]} == {"order_f"}
    if layout is as_tracks:
        assert fetched == ["tracks/order_f.jsonl"]
