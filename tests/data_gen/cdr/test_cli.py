"""`assay tasks cdr`, `assay tasks check` and `assay eval --tasks cdr:DIR` from end to end."""

from __future__ import annotations

import json
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from cdr_copies import read_track
from front import command
from small_corpus import write_corpus

from assay.task import Task, TaskError, read_tasks
from configs.cdr import CdrConfig
from configs.loader import load
from data_gen.cdr.domains import NOT_IN_PAPER, PAPER, chosen_operators
from data_gen.cdr.facts import filters_of, mappers_of
from data_gen.cdr.instruct import read_instruction
from data_gen.cdr.outcome import read_outcome
from data_gen.cdr.settle import Outcome
from rewards.cdr.release_files import RESULT_STYLES, check_row, find_tracks
from rewards.cdr.score import gold_answer, score_refinement
from rewards.gold import RECIPE_PARAMS, Step, execute

pytest.importorskip("duckdb", reason="needs the extra `build`")
main = command("tasks")

SMALL = (
    "workers=1",
    "instances.min_keep=2",
    "instances.min_drop=2",
    "instances.min_groups=2",
    "select.per_operator=0",
    "select.per_variant=0",
    "compose.per_domain=3",
    "compose.min_support=4",
    "instruct.all_prompts=true",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cdr")
    write_corpus(folder / "corpus")
    words = ["cdr", "--corpus", str(folder / "corpus"), "--out", str(folder / "out"), *SMALL]
    assert main(words) == 0
    return folder / "out"


def orders_of(outcome: Outcome) -> list[list[Step]]:
    """Every order of the steps that a description allows, of up to five steps."""
    asked = [Step(name, dict(RECIPE_PARAMS.get(name, {}))) for name in sorted(outcome.mappers)]
    if outcome.judged:
        asked.append(outcome.judged.step)
    found: list[list[Step]] = []
    for order in permutations(asked):
        names = [step.operator for step in order]
        if any(names.index(a) > names.index(b) for a, b in outcome.once | outcome.ahead):
            continue
        if outcome.judged and outcome.before != {*names[: names.index(outcome.judged.operator)]}:
            continue
        found.append(list(order))
    return found


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [row for path in find_tracks(folder).values() for row in read_track(path)]


def test_every_written_row_is_valid_and_follows_from_its_words(built: Path) -> None:
    rows = rows_of(built)
    assert set(find_tracks(built)) == {"atomic_m", "atomic_f", "agnostic_m", "order_m", "order_f"}
    assert len({r["instance_id"] for r in rows}) == len(rows)
    for row in rows:
        check_row(row, row["instance_id"])
        for variant in row["prompt_variants"]:
            if variant.get("wording") == "outcome":
                outcome, style = read_outcome(variant["user_requirement"])
                orders = orders_of(outcome)
            else:
                steps, style = read_instruction(variant["user_requirement"])
                orders = [steps]
            assert style == variant["style_id"]
            assert orders
            for steps in orders[:12]:
                run = execute(row["input_text"], steps)
                assert (run.status, run.text) == (row["reference_status"], row["reference_text"])
        assert score_refinement(row, gold_answer(row), "release").outcome == 1.0


def test_styles_about_the_result_describe_it_where_that_is_true(
    built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: Counter[tuple[str, str | None]] = Counter()
    for row in (json.loads(line) for t in find_tracks(built).values() for line in t.open()):
        for variant in row["prompt_variants"]:
            told[variant["style_id"], variant.get("wording")] += 1
    assert {style for style, wording in told if wording} == {*RESULT_STYLES}
    assert {style for style, wording in told if wording is None}.isdisjoint(RESULT_STYLES)
    counts = json.loads((built / "manifest.json").read_text())["counts"]
    rows = counts["wording of result styles"]
    assert rows["outcome"] > 0.5 * sum(rows.values())
    tasks = [t for s in ("train", "heldout") for t in read_tasks(built / f"{s}.jsonl")]
    assert {t.meta["wording"] for t in tasks if t.meta["style"] in RESULT_STYLES} >= {"outcome"}
    assert not [t for t in tasks if "wording" in t.meta and t.meta["style"] not in RESULT_STYLES]
    told_in = [t.meta["wording"] for t in tasks if t.split == "train" and "wording" in t.meta]
    assert counts["result styles of train"] == dict(Counter(told_in))


def test_order_groups_are_whole(built: Path) -> None:
    groups = Counter(
        (r["source_track"], r["order_group_instance_id"])
        for r in rows_of(built)
        if r["order_group_instance_id"]
    )
    assert {(track, n) for (track, _), n in groups.items()} == {("order_m", 2), ("order_f", 3)}


def test_tasks_are_split_by_document_and_by_recipe(built: Path) -> None:
    train, heldout = (read_tasks(built / f"{s}.jsonl") for s in ("train", "heldout"))
    assert train
    assert heldout
    assert not {t.meta["document"] for t in train} & {t.meta["document"] for t in heldout}
    proof = json.loads((built / "certificate.json").read_text())
    assert proof["shared"]["train and heldout"]["documents"] == 0
    assert {t.meta["template"] for t in heldout} - {t.meta["template"] for t in train}
    for task in (*train, *heldout):
        assert score_refinement(task.gold, gold_answer(task.gold)).reward == 1.0


def test_the_same_settings_give_the_same_bytes(built: Path, tmp_path: Path) -> None:
    corpus = built.parent / "corpus"
    assert main(["cdr", "--corpus", str(corpus), "--out", str(tmp_path), *SMALL]) == 0
    for path in sorted(built.rglob("*.json*")):
        assert path.read_bytes() == (tmp_path / path.relative_to(built)).read_bytes(), path.name


def test_check_finds_exact_and_near_copies(built: Path, tmp_path: Path) -> None:
    clean = tmp_path / "other.jsonl"
    row = rows_of(built)[0]
    long = " ".join(f"word{i}" for i in range(80))
    clean.write_text(
        json.dumps(
            row | {"input_text": long, "reference_text": long + " x", "source_record_id": "else"}
        )
        + "\n"
    )
    near = tmp_path / "near.jsonl"
    near.write_text(
        json.dumps(
            row
            | {"input_text": long + " ending", "reference_text": "zz", "source_record_id": "third"}
        )
        + "\n"
    )
    out = tmp_path / "certificate.json"
    assert main(["check", str(near), "--against", str(clean), "--out", str(out)]) == 1
    found = json.loads(out.read_text())
    assert (found["inputs"]["exact"], found["inputs"]["near"]) == (0, 1)
    assert main(["check", str(built / "tracks"), "--against", str(built / "tracks")]) == 1
    far = tmp_path / "far.jsonl"
    far.write_text(
        json.dumps(
            row
            | {
                "input_text": "quite another text of more than eight words",
                "reference_text": "and its own other answer in eight words",
                "source_record_id": "z",
            }
        )
        + "\n"
    )
    assert main(["check", str(far), "--against", str(clean)]) == 0


def test_check_names_a_file_it_cannot_read(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ('{"torn', "[1]", '{"gold": {}, "id": 5}', "[" * 99_999, ""):
        (tmp_path / "bad.jsonl").write_text(text)
        command = ["check", str(tmp_path / "bad.jsonl"), "--against", str(built / "tracks")]
        assert main(command) == 2
        assert "bad.jsonl" in capsys.readouterr().err


def test_gold_and_lazy_baselines_through_the_release_files(built: Path, tmp_path: Path) -> None:
    eval_main = command("eval")

    def run(name: str) -> dict[str, Any]:
        words = [
            "--model",
            name,
            "--tasks",
            f"cdr:{built}",
            "--out",
            str(tmp_path),
            "cdr.all_rows=true",
        ]
        for old in ("eval.json", "rows.jsonl"):
            (tmp_path / old).unlink(missing_ok=True)
        assert eval_main(words) == 0
        found = json.loads((tmp_path / "results.json").read_text())
        return found["benchmarks"]["cdr"]["paper_metrics"]

    gold = run("gold")
    assert {p["mean_rs@k"] for p in gold.values()} == {1.0}
    assert gold["order_f"]["ocs_at_k"] == gold["order_m"]["ocs_at_k"] == 1.0
    assert gold["order_f"]["rs_mid@k"] == 1.0
    assert run("empty")["atomic_m"]["mean_rs@k"] == 0.0
    home = tmp_path / "data" / "evaluation"
    score = home / "order_f" / "gold" / "score_direct_k3_seed0"
    assert {p.name for p in score.iterdir()} == {
        "summary.json",
        "paper_metrics.json",
        "instance_metrics.jsonl",
        "instance_metrics.csv",
        "scored_variant_predictions.jsonl",
        "scored_variant_predictions.csv",
    }
    ranking = json.loads((home / "reports" / "summary.json").read_text())["waterline_rows"]
    assert [row["rank"] for row in ranking if row["model"] == "gold"] == [1]
    assert {row["model"] for row in ranking} == {"gold", "empty"}


def test_all_eleven_wordings_can_be_asked(built: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = ["--model", "gold", "--no-baselines", "cdr.k=0", "--limit", "6"]
    place = f"cdr:{built}/tracks_all_prompts"
    assert command("eval")([*words, "--tasks", place, "--out", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "results.json").read_text())
    held = {task.id for task in read_tasks(built / "heldout.jsonl")}
    assert {row["instance"] for row in data["rows"]} <= held
    curves = data["benchmarks"]["cdr"]["figures"]["curve"].values()
    assert all([curve[str(k)] for k in range(1, 12)] == [1.0] * 11 for curve in curves)
    assert data["tables"]["overall"]["rs@k"]["k"] == 11


def test_eval_asks_only_the_rows_that_a_build_holds_out(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    eval_main = command("eval")

    def asked(name: str, tracks: str, *more: str) -> tuple[set[str], dict[str, Any], str]:
        out = tmp_path / name
        words = ["--model", "gold", "--tasks", tracks, "--out", str(out), "cdr.k=1"]
        assert eval_main([*words, *more]) == 0
        data = json.loads((out / "results.json").read_text())
        ids = {row["task_id"].partition("#")[0] for row in data["rows"]}
        assert ("held-out tasks" in (out / "report.html").read_text()) == data["meta"]["heldout"]
        return ids, data["meta"], capsys.readouterr().out

    rows = {row["instance_id"] for row in rows_of(built)}
    held = {task.id for task in read_tasks(built / "heldout.jsonl")}
    trained = {task.id for task in read_tasks(built / "train.jsonl")}
    assert held and trained and held < rows
    for name, tracks in (
        ("whole", f"cdr:{built}"),
        ("file", f"cdr:{built}/heldout.jsonl"),
        ("folder", f"cdr:{built}/tracks"),
    ):
        ids, meta, said = asked(name, tracks)
        assert (ids, meta["rows_left_out"]) == (held, len(rows - held))
        assert f"{len(rows - held)} rows are left out" in said
    ids, meta, said = asked("all", f"cdr:{built}", "cdr.all_rows=true")
    assert (ids, meta["heldout"]) == (rows, False) and "left out" not in said
    ids, meta, _ = asked("trained", f"cdr:{built}/train.jsonl")
    assert (ids, meta["heldout"]) == (trained, False)
    ids, _, _ = asked("few", f"cdr:{built}", "--limit", "1")
    assert ids < held


def test_a_build_without_held_out_rows_is_not_evaluated_on_its_training_rows(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    eval_main = command("eval")

    (tmp_path / "tracks").mkdir()
    row = rows_of(built)[0]
    (tmp_path / "tracks" / "atomic_m.jsonl").write_text(json.dumps(row) + "\n")
    words = ["--model", "gold", "--tasks", f"cdr:{tmp_path}", "--out"]
    assert eval_main([*words, str(tmp_path / "published")]) == 0  # no record of splits
    (tmp_path / "train.jsonl").write_text(json.dumps({"id": row["instance_id"]}) + "\n")
    assert eval_main([*words, str(tmp_path / "built")]) == 2
    said = capsys.readouterr().err
    assert "heldout.jsonl names no row of atomic_m" in said and "cdr.all_rows=true" in said


def test_failure_modes_name_what_went_wrong(built: Path) -> None:
    from rewards.cdr.errors import analyse, failure_mode

    row = next(r for r in rows_of(built) if r["source_track"] == "agnostic_m")
    gold = row["reference_text"]
    assert failure_mode(row, "DROP", gold) == "Instruction Misread"
    assert failure_mode(row, "KEEP", row["input_text"]) == "Missed Operator"
    assert failure_mode(row, "KEEP", gold.upper()) == "Formatting Drift"
    assert failure_mode(row, "KEEP", "other order", ["other order"]) == "Order Violation"
    assert failure_mode(row, "KEEP", gold[: len(gold) // 2]) == "Over-application"
    variant = {"predicted_status": "KEEP", "predicted_clean_text": row["input_text"]}
    found = analyse([row | {"variant_predictions": [variant]}])
    assert found["failure_modes"] == {"Missed Operator": 1}
    assert found["operator_progress"] < 1.0


def test_unusable_rows_are_named(built: Path, tmp_path: Path) -> None:
    row = rows_of(built)[0] | {"scoring_profile": "structured_json"}
    with pytest.raises(TaskError, match="has no gain"):
        check_row(row, "row")
    with pytest.raises(TaskError, match="no track 'order_x'"):
        find_tracks(built, ["order_x"])
    with pytest.raises(TaskError, match="field 'input_text' is missing"):
        check_row({k: v for k, v in row.items() if k != "input_text"}, "row")


def test_copies_of_a_document_are_never_split(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", 20)
    lines = (corpus / "rag.jsonl").read_text().splitlines()
    long = " ".join(f"Word{i} is here." for i in range(60))
    more = [json.loads(line) | {"id": f"again-{i}"} for i, line in enumerate(lines)]
    more += [
        json.loads(lines[0]) | {"id": f"near-{i}", "text": f"{long} One. One. {i} --"}
        for i in range(9)
    ]
    (corpus / "rag.jsonl").write_text("\n".join([*lines, *map(json.dumps, more)]))
    out = tmp_path / "out"
    assert main(["cdr", "--corpus", str(corpus), *SMALL, "--out", str(out)]) == 0
    proof = json.loads((out / "certificate.json").read_text())
    assert proof["ok"] is True
    train, heldout = (read_tasks(out / f"{s}.jsonl") for s in ("train", "heldout"))
    sides = {t.meta["document"]: t.split for t in (*train, *heldout)}
    for i in range(len(lines)):
        assert len({sides[n] for n in (f"rag-{i}", f"again-{i}") if n in sides}) <= 1
    assert len({side for name, side in sides.items() if name.startswith("near")}) == 1
    command = ["check", str(out / "train.jsonl"), "--against", str(out / "heldout.jsonl")]
    assert main(command) == 0


def test_a_config_may_name_its_corpus_from_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path / "corpus", 4)
    (tmp_path / "configs").mkdir()
    for where, name in (("configs", "../corpus"), ("configs", "corpus"), (".", "corpus")):
        config = tmp_path / where / "c.yaml"
        config.write_text(f"corpora: [{name}]\ntracks: false\nworkers: 1\n")
        monkeypatch.chdir("/")
        assert main(["cdr", "--config", str(config), "--out", str(tmp_path / "out")]) == 0
    config.write_text("corpora: [nowhere]\n")
    assert main(["cdr", "--config", str(config), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "nowhere" in said and "--corpus" in said


ODD: tuple[Any, ...] = (
    {"text": ""},
    {"text": " \r\n"},
    {"text": None},
    {"text": 5},
    {"text": ["x"]},
    [1],
    "x",
    None,
    {"id": "web-0", "text": "the same id"},
    {"text": "\ud800 ana@a.org from 10.0.0.1"},
    {"id": "s\ud800", "text": "one \udfff <b>x</b> http://a.org/c and /home/x/y.txt"},
    {"id": ["l"], "domain": 3, "language": ["en"], "text": "a@b.org  10.0.0.1"},
    {"id": "nul", "text": "\0" * 9 + "<b>x</b>\0 https://a.org/c"},
    {"id": "ends", "text": "<p>See https://a.org/x\r\nand\u2028<b>this</b>\r\r\n"},
    {"id": "marks", "text": "e\u0301" * 400 + " <b>x</b> http://a.org/c"},
    {"id": "braces", "text": "\\begin{figure}\\caption{" * 200},
    {"id": "long", "text": "http://" + "a(" * 100_000},
    {"id": "long2", "text": "<" * 200_000},
)


def test_an_odd_corpus_gives_verified_tasks_and_says_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_corpus(tmp_path / "corpus", 16)
    lines = b"\r\n".join(json.dumps(row).encode() for row in ODD)
    more = (
        b'\n{"id": "bytes", "text": "\xff\xfe <b>x</b> http://a.org/c"}\n{"torn\n\n' + b"[" * 9999
    )
    (folder / "web.jsonl").write_bytes(
        b"\xef\xbb\xbf" + (folder / "web.jsonl").read_bytes() + lines + more
    )
    out = tmp_path / "out"
    words = [*SMALL, "compose.per_domain=5", "instances.min_keep=1", "instances.min_drop=1"]
    assert main(["cdr", "--corpus", str(folder), "--out", str(out), *words]) == 0
    said = capsys.readouterr()
    assert "2 documents longer than 10000 characters left out" in said.err
    assert "no document activates" in said.out and "no recipe of domain latex" in said.out
    rows = rows_of(out)
    assert any("\ud800" in row["input_text"] for row in rows)
    for row in rows:
        assert score_refinement(row, gold_answer(row), "release").outcome == 1.0
    read_tasks(out / "train.jsonl")
    assert json.loads((out / "certificate.json").read_text())["ok"] is True


def test_task_rows_round_trip(built: Path) -> None:
    task = read_tasks(built / "train.jsonl")[0]
    assert Task.from_json(task.to_json()) == task


def test_tasks_of_chosen_operators_alone(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["cdr", "--corpus", str(built.parent / "corpus"), "--out"]
    only = ["clean_email_mapper", "clean_ip_mapper", "clean_path_mapper", "text_length_filter"]
    chosen = f"operators.only=[{','.join(only)}]"
    assert main([*words, str(tmp_path / "some"), *SMALL, chosen]) == 0
    used = {name for row in rows_of(tmp_path / "some") for name in row["operator_sequence"]}
    assert used == set(only)
    assert "no document activates" not in capsys.readouterr().out
    one = [f"operators.only=[{only[0]}]", "instances.min_active=1"]
    assert main([*words, str(tmp_path / "mappers"), *SMALL, *one]) == 0
    assert {row["operator"] for row in rows_of(tmp_path / "mappers")} == {only[0]}
    capsys.readouterr()
    assert main([*words, str(tmp_path / "none"), *SMALL, "operators.only=[clean_mail]"]) == 2
    assert "operators.only names 'clean_mail'" in capsys.readouterr().err


def test_the_paper_has_22_mappers_and_7_filters() -> None:
    assert Counter(name.rsplit("_", 1)[1] for name in PAPER) == {"mapper": 22, "filter": 7}
    config = load(CdrConfig, "configs/cdr_paper.yaml")
    assert {*mappers_of(config), *filters_of(config)} == PAPER
    assert chosen_operators(()) - PAPER == set(NOT_IN_PAPER)
