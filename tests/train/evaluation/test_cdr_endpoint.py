"""`assay eval --tasks cdr:DIR --model URL`: every prompt mode over real HTTP; requests that fail
are no wrong answers, and are asked again."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from chat_server import Body, serving

pytest.importorskip("aiohttp")
pytest.importorskip("torch")

from front import command
from releases import imported, write_release

from assay.http_client import GIVE_UP
from assay.journal import read_journal
from assay.rows import read_rows
from rollouts.cdr.prompts import MODES

eval_main = command("eval")

TEXTS = {"one": "Mail ana@acme.io today.", "two": "See  x@y.org and go."}
GOLD = {"one": "Mail  today.", "two": "See   and go."}


def row(name: str, **more: Any) -> dict[str, Any]:
    return {
        "instance_id": name,
        "benchmark_track": "atomic_m",
        "benchmark_split": "single",
        "track_family": "core_rule",
        "source_track": "atomic_m",
        "domain": "pii",
        "scoring_profile": "text_refinement",
        "output_format": "tagged_text",
        "reports_refinement_gain": True,
        "input_text": TEXTS[name],
        "reference_status": "KEEP",
        "reference_text": GOLD[name],
        "recipe_prompt_key": "k",
        "operator_kind": "mapper",
        "prompt_variants": [
            {"style_id": f"s{i}", "style_label": f"S{i}", "user_requirement": f"Way {i}: no mail."}
            for i in range(3)
        ],
    } | more


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    folder = tmp_path / "bench" / "tracks"
    folder.mkdir(parents=True)
    (folder / "atomic_m.jsonl").write_text("".join(json.dumps(row(n)) + "\n" for n in TEXTS))
    safe = row(
        "one",
        instance_id="j",
        track_family="semantic_extension",
        source_track="semantic_safety_atomic",
        benchmark_track="semantic_safety",
        benchmark_split="atomic",
        scoring_profile="structured_json",
        output_format="json",
        reports_refinement_gain=False,
        reference_text='{"prompt_label": "safe"}',
    )
    (folder / "semantic_safety_atomic.jsonl").write_text(json.dumps(safe) + "\n")
    return folder.parent


def gold(body: Body) -> str:
    said = body["messages"][-1]["content"]
    if "required JSON" in said:
        return 'Here: {"prompt_label": " SAFE "}'
    name = next(n for n, text in TEXTS.items() if text in said)
    return f"<analyze>x</analyze><status>KEEP</status><clean_text>{GOLD[name]}</clean_text>"


class Ended:
    """Where a request of a runner ends."""

    messages: Any = None

    def _call_once(self, messages: Any) -> str:
        self.messages = messages
        return ""


def run(url: str, bench: Path, out: Path, *more: str) -> int:
    return eval_main(
        [
            "--model",
            url,
            "server.model=lab/m1",
            "--tasks",
            f"cdr:{bench}",
            "--out",
            str(out),
            "server.in_flight=2",
            *more,
        ]
    )


def paper(out: Path, track: str, suffix: str) -> dict[str, Any]:
    path = out / "data/evaluation" / track / "m1" / f"score_{suffix}" / "paper_metrics.json"
    return json.loads(path.read_text())


@pytest.mark.parametrize("mode", MODES)
def test_an_endpoint_is_asked_in_every_mode(
    mode: str, bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_KEY", "abc")
    with serving(gold) as (url, seen):
        more = (
            f"cdr.mode={mode}",
            "server.key_env=LAB_KEY",
            'server.request={"seed": null, "x": 1}',
        )
        assert run(url, bench, tmp_path / "out", *more) == 0
    assert len(seen) == 9
    words = {
        "direct": "Task:",
        "few_shot": "Example 2",
        "plan_first": "ordered list of steps",
        "state_aware": "S0 is the input",
    }
    texts = [b["messages"][-1]["content"] for b in seen if "no code fences and" not in str(b)]
    assert len(texts) == 6
    assert all(words[mode] in text for text in texts)
    assert {(b["key"], b["model"], b["temperature"], b["x"]) for b in seen} == {
        ("Bearer abc", "lab/m1", 0.0, 1)
    }
    assert all("seed" not in b and "max_tokens" not in b for b in seen)
    core = paper(tmp_path / "out", "atomic_m", f"{mode}_k3_seed0")
    assert (core["mean_rs@k"], core["mean_rs"], core["mean_rg"]) == (1.0, 1.0, 1.0)
    assert paper(tmp_path / "out", "semantic_safety_atomic", "semantic_styles3")["mean_rs"] == 1.0
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert {r["outcome"] for r in rows if r["family"] == "refinement"} == {
        1.0 if mode in ("plan_first", "state_aware") else 0.0
    }
    kept = [row["messages"][:-1] for _, row in read_rows(tmp_path / "out" / "rows.jsonl")]
    assert sorted(map(str, kept)) == sorted(str(b["messages"]) for b in seen)  # for `assay view`


@pytest.mark.parametrize("mode", ["direct", "few_shot"])
def test_an_endpoint_is_asked_in_the_words_of_a_release(
    mode: str, bench: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    release = write_release(tmp_path / "release", "refinement")
    runner: Any = imported(release / "src/cdrbench_v3/run_inference.py")
    prompts = f"prompts=release:{release}"
    out = tmp_path / "out"
    with serving(lambda body: "<status>KEEP</status><clean_text>x</clean_text>") as (url, seen):
        assert run(url, bench, out, f"cdr.mode={mode}", prompts) == 0
        assert "one that Assay does not know" in capfd.readouterr().out
        assert (
            run(url, bench, out, f"cdr.mode={mode}", prompts) == 0
        )  # it goes on, and asks nothing
        assert len(seen) == 9
        assert run(url, bench, out, f"cdr.mode={mode}") == 2  # in other words it does not
        assert "words" in capfd.readouterr().err
        assert run(url, bench, tmp_path / "o", prompts, "--strict") == 2
    sent: list[str] = []
    for path in sorted(bench.rglob("*.jsonl")):
        for _, one in read_rows(path):
            for index in range(3):
                end = Ended()
                runner._infer_one(end, one, index, prompt_mode=mode, candidate_rows=[])
                sent.append(str(end.messages))
    assert sorted(str(b["messages"]) for b in seen) == sorted(sent)
    meta = json.loads((out / "results.json").read_text())["meta"]
    (words,) = meta["words"].values()
    assert (words["source"], words["known"]) == ("release", "")


def test_ours_is_said_under_the_tables(
    bench: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", "gold", "--tasks", f"cdr:{bench}", "--out", str(tmp_path / "o")]
    assert eval_main(words) == 0
    assert "asked in Assay's words: not comparable with published" in capfd.readouterr().out
    meta = json.loads((tmp_path / "o" / "results.json").read_text())["meta"]
    assert meta["words"]["refinement"]["source"] == "ours"


def test_failed_requests_count_nowhere_and_are_asked_again(bench: Path, tmp_path: Path) -> None:
    broken = [True]

    def reply(body: Body) -> str | int:
        text = body["messages"][-1]["content"]
        return 400 if broken[0] and "Way 1" in text and TEXTS["two"] in text else gold(body)

    out = tmp_path / "out"
    with serving(reply) as (url, seen):
        assert run(f"{url}/", bench, out) == 3
        before = paper(out, "atomic_m", "direct_k3_seed0")
        assert (before["mean_rs"], before["mean_rg"]) == (1.0, 1.0)
        home = out / "data/evaluation/atomic_m/m1"
        rows = {
            r["instance_id"]: r
            for _, r in read_rows(home / "score_direct_k3_seed0/instance_metrics.jsonl")
        }
        assert (rows["two"]["rs_at_k"], rows["two"]["num_scorable_variants"]) == (None, 2)
        predictions = [r for _, r in read_rows(home / "predictions_direct_k3_seed0.jsonl")]
        lost = predictions[1]["variant_predictions"][1]
        assert not lost["valid_prediction"] and "HTTP 400" in lost["prediction_error"]
        outcomes = [r["outcome"] for r in json.loads((out / "results.json").read_text())["rows"]]
        assert outcomes.count(None) == 1
        broken[0] = False
        asked = len(seen)
        assert run(f"{url}/", bench, out) == 0
        assert len(seen) == asked + 1
    assert paper(out, "atomic_m", "direct_k3_seed0")["mean_rs@k"] == 1.0


def test_a_run_that_was_killed_goes_on_where_it_was(bench: Path, tmp_path: Path) -> None:
    alive, asked_so_far = [4], count(1)  # a counter's next is one step; requests come side by side
    answered: list[str] = []

    def reply(body: Body) -> str | int:
        if next(asked_so_far) > alive[0]:
            return 401
        answered.append(gold(body))
        return answered[-1]

    out = tmp_path / "out"
    many = bench / "tracks" / "atomic_m.jsonl"
    rows = [row("one", instance_id=f"r{i}") for i in range(GIVE_UP)]
    many.write_text("".join(json.dumps(r) + "\n" for r in rows))
    with serving(reply) as (url, _):
        assert run(url, bench, out) == 2  # an endpoint that is gone is said, not scored
        assert not list((out / "data").rglob("predictions_*.jsonl"))
        journal = out / "rows.jsonl"
        kept, before = len(read_journal(journal)), len(answered)
        assert kept <= before == 4  # an answer that was under way when the run gave up is lost
        with open(journal, "a") as file:
            file.write('{"task_id": "torn')
        alive[0] = 1000
        assert run(url, bench, out) == 0
        more = len(answered) - before - (3 * GIVE_UP + 3 - kept)
        assert 0 <= more <= 2  # what is there is not asked again; two of the first run come late
    assert len(read_journal(out / "rows.jsonl")) == 3 * GIVE_UP + 3
    other = {"prompt_variants": [{"style_id": "s0", "user_requirement": "Other words."}]}
    many.write_text("".join(json.dumps(r | other) + "\n" for r in rows))
    with serving(reply) as (url, _):
        assert run(url, bench, out) == 2  # answers to other words are not taken for these


@pytest.mark.parametrize(
    "more", ["server.request=[1]", "server.request={", "server.in_flight=0", "server.model="]
)
def test_settings_that_cannot_be_used_are_named(
    more: str, bench: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("http://127.0.0.1:9/v1", bench, tmp_path / "out", more) == 2
    assert more[0] in capsys.readouterr().err


def test_json_tracks_alone_have_a_report_too(bench: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tracks = f"cdr:{bench}:semantic_safety_atomic"
    assert eval_main(["--model", "gold", "--tasks", tracks, "--out", str(out)]) == 0
    rows = json.loads((out / "results.json").read_text())["rows"]
    assert [r["outcome"] for r in rows] == [1.0, 1.0, 1.0]


def test_a_local_checkpoint_answers_the_same_files(
    bench: Path, tmp_path: Path, tiny_folder: Path
) -> None:
    out = tmp_path / "out"
    words = ["--model", str(tiny_folder), "--name", "tiny", "--tasks", f"cdr:{bench}:atomic_m"]
    more = ["cdr.k=1", "sampling.max_new_tokens=4", "--out", str(out)]
    assert eval_main([*words, *more]) == 0
    target = out / "data/evaluation/atomic_m/tiny/predictions_direct_k1_seed0.jsonl"
    first = target.read_bytes()
    assert all(r["variant_predictions"][0]["valid_prediction"] for _, r in read_rows(target))
    assert eval_main([*words, *more]) == 0
    assert target.read_bytes() == first
