"""What `assay tasks cdr` writes: rows that follow from their words, splits, wordings, refusals."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from cdr_copies import orders_allowed, read_track
from front import command
from places import tables
from small_corpus import write_corpus

from assay.task import Task, read_tasks, write_jsonl
from data_gen.cdr.instruct import STYLES, read_clauses, read_instruction
from data_gen.cdr.outcome import Outcome, read_outcome
from rewards.cdr.errors import analyse, failure_mode
from rewards.cdr.release_files import RESULT_STYLES, check_row, find_tracks
from rewards.cdr.score import gold_answer, score_refinement
from rewards.gold import RECIPE_PARAMS, Step, execute
from rollouts.words.cdr import KIND, alike
from rollouts.words.templates import ours

pytest.importorskip("duckdb", reason="needs the extra `build`")
main = command("tasks")
SMALL = (
    *("workers=1", "instances.min_keep=2", "instances.min_drop=2", "instances.min_groups=2"),
    *("select.per_operator=0", "select.per_variant=0", "compose.per_domain=3"),
    *("compose.min_support=4", "split.validation_documents=0.2"),
)
FEW = ("instances.per_variant=4", "instances.per_operator=4")
INPUT = re.compile(r"<input>\n(.*?)\n</input>", re.DOTALL)
OWN = INPUT.findall(ours(KIND)["examples"])
SPLITS = ("train", "validation", "heldout")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("here") / "corpus", 28)


def build(corpus: Path, out: Path, *more: str) -> Path:
    assert main(["cdr", "--corpus", str(corpus), "--out", str(out), *SMALL, *more]) == 0
    return out


@pytest.fixture(scope="module")
def built(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cdr") / "out"
    more = ("instruct.mode=few_shot", "instruct.shots=3", "instruct.shot_chars=150")
    return build(corpus, out, "instruct.all_prompts=true", *more)


def tasks_of(folder: Path) -> dict[str, list[Task]]:
    return {split: read_tasks(folder / f"{split}.jsonl") for split in SPLITS}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [row for path in find_tracks(folder).values() for row in read_track(path)]


def filter_of(task: Task) -> str | None:
    names = [step["operator"] for step in task.gold["recipe"]]
    return next((name for name in names if name.endswith("_filter")), None)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def refused_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "refused.jsonl").open()]


def asked_in(outcome: Outcome) -> list[Step]:
    """The steps that a description speaks of."""
    asked = [Step(name, dict(RECIPE_PARAMS.get(name, {}))) for name in sorted(outcome.mappers)]
    return [*asked, *([outcome.judged.step] if outcome.judged else [])]


def test_every_row_is_valid_and_follows_from_its_words(built: Path) -> None:
    rows = rows_of(built)
    tracks = {"atomic_m", "atomic_f", "agnostic_m", "order_m", "order_f"}
    assert {row["source_track"] for row in rows} == tracks
    assert len({r["instance_id"] for r in rows}) == len(rows)
    told: Counter[str | None] = Counter()
    for row in rows:
        check_row(row, row["instance_id"])
        for variant in row["prompt_variants"]:
            wording = variant.get("wording")
            told[wording] += 1
            assert (wording is not None) == (variant["style_id"] in RESULT_STYLES)
            if wording == "outcome":
                outcome, style = read_outcome(variant["user_requirement"])
                orders = orders_allowed(outcome, asked_in(outcome))
            else:
                steps, style = read_instruction(variant["user_requirement"])
                orders = [steps]
            assert orders and style == variant["style_id"]
            for steps in orders[:12]:
                run = execute(row["input_text"], steps)
                assert (run.status, run.text) == (row["reference_status"], row["reference_text"])
        assert score_refinement(row, gold_answer(row), "release").outcome == 1.0
    assert told["outcome"] > told["steps"]
    statistics = read_json(built / "manifest.json")["statistics"]
    asked = Counter(f"{r['domain']}/{name}" for r in rows for name in {*r["operator_sequence"]})
    assert (statistics["tasks"], statistics["operator_tasks"]) == (len(rows), dict(asked))
    groups = Counter((r["source_track"], r["order_group_instance_id"]) for r in rows)
    assert {(t, n) for (t, name), n in groups.items() if name} == {("order_m", 2), ("order_f", 3)}


def test_splits_share_no_document_and_tasks_say_what_they_are(built: Path) -> None:
    tasks = tasks_of(built)
    documents = {split: {t.meta["document"] for t in own} for split, own in tasks.items()}
    proof = read_json(built / "certificate.json")
    assert proof["ok"] is True
    for one, other in combinations(SPLITS, 2):
        assert documents[one] and documents[other] and not documents[one] & documents[other]
        pair = proof["shared"][f"{one} and {other}"]
        assert len(pair) == 5 and not any(pair.values())
    known = {t.meta["template"] for split in SPLITS[:2] for t in tasks[split]}
    assert {t.meta["template"] for t in tasks["heldout"]} - known
    for task in (task for own in tasks.values() for task in own):
        meta, gold = task.meta, task.gold
        assert (meta["licence"], meta["source"]) == ("CC0", "made up")
        assert meta["recipe_length"] == len(gold["recipe"])
        assert meta["has_filter"] == (filter_of(task) is not None)
        assert meta["requirement"] in task.prompt[-1]["content"]
        run = execute(gold["input_text"], [Step(**step) for step in gold["recipe"]])
        assert (run.status, run.text) == (gold["status"], gold["text"])
    drawn = Counter(task.meta["style"] for task in tasks["train"])
    assert len(drawn) == len(STYLES) and max(drawn.values()) < 0.2 * drawn.total()
    sizes = Counter(t.group for t in tasks["train"] if t.group)
    assert sizes and set(sizes.values()) <= {2, 3}  # order groups are whole


def test_filtered_training_tasks_keep_as_often_as_they_drop(
    corpus: Path, built: Path, tmp_path: Path
) -> None:
    for split in ("train", "validation"):
        excess: Counter[tuple[str, str]] = Counter()
        for task in read_tasks(built / f"{split}.jsonl"):
            if name := filter_of(task):
                excess[task.track, name] += 1 if task.gold["status"] == "KEEP" else -1
        assert excess and all(abs(n) <= 1 for n in excess.values())
    more = ("select.balance_filtered=false", "instruct.variants_per_task=5")
    whole = build(corpus, tmp_path, *more)
    one, many = tasks_of(built), tasks_of(whole)
    members: defaultdict[str, list[Task]] = defaultdict(list)
    for task in many["train"]:
        members[task.meta["instance"]].append(task)
    assert len(one["train"]) < len(members)
    # what the benchmark and its vectors hold depends on neither, nor what is held out
    for path in [*(built / "tracks").iterdir(), built / "pipeline.jsonl"]:
        assert path.read_bytes() == (whole / path.relative_to(built)).read_bytes()
    held = [{t.id: t.gold["text"] for t in found["heldout"]} for found in (one, many)]
    assert held[0] == held[1]
    for name, tasks in members.items():  # wordings of a task are rows of one group
        assert len({task.prompt[-1]["content"] for task in tasks}) == len(tasks) == 5
        assert len({task.id for task in tasks}) == 5 and tasks[0].id == name
        assert len({task.group for task in tasks}) == 1 and tasks[0].group


def test_recipes_and_operators_can_be_held_out_and_chosen(corpus: Path, tmp_path: Path) -> None:
    """In a config, which names its corpus from where it lies."""
    only = ["clean_email_mapper", "clean_ip_mapper", "clean_path_mapper", "text_length_filter"]
    config = corpus.parent / "configs" / "some.yaml"
    config.parent.mkdir()
    words = f"operators: {{only: {json.dumps(only)}}}\nsplit: {{heldout_recipes: 1}}\n"
    config.write_text(f"corpora: [../{corpus.name}]\n{words}")
    assert main(["cdr", "--config", str(config), "--out", str(tmp_path), *SMALL]) == 0
    tasks = tasks_of(tmp_path)
    assert {t.meta["recipe_length"] for t in tasks["train"] + tasks["validation"]} == {1}
    assert max(t.meta["recipe_length"] for t in tasks["heldout"]) > 1
    assert {name for row in rows_of(tmp_path) for name in row["operator_sequence"]} == set(only)


def test_copies_of_a_document_are_never_split_and_some_licences_are_used_alone(
    tmp_path: Path,
) -> None:
    corpus = write_corpus(tmp_path / "corpus", 14)
    text = "<p>See https://a.org/{n} &amp; www.b.com/{n} now.</p> <b>Word</b> more text"
    with open(corpus / "web.jsonl", "a") as file:
        for n in range(5):
            row = {"id": f"own-{n}", "licence": "Proprietary", "text": text.format(n=n)}
            file.write(json.dumps(row) + "\n")
    lines = (corpus / "rag.jsonl").read_text().splitlines()
    long = " ".join(f"Word{i} is here." for i in range(60))
    more = [json.loads(line) | {"id": f"again-{i}"} for i, line in enumerate(lines)]
    more += [
        json.loads(lines[0]) | {"id": f"near-{i}", "text": f"{long} One. One. {i} --"}
        for i in range(9)
    ]
    (corpus / "rag.jsonl").write_text("\n".join([*lines, *map(json.dumps, more)]))
    out = build(corpus, tmp_path / "out", *FEW, "--licence", "cc*")
    side = {t.meta["document"]: split for split, own in tasks_of(out).items() for t in own}
    assert len({side[name] for name in side if name.startswith("near-")}) == 1
    for name in (n for n in side if n.startswith("again-")):
        assert side.get(name.replace("again", "rag"), side[name]) == side[name]
    assert read_json(out / "certificate.json")["ok"]
    assert {t.meta["licence"] for own in tasks_of(out).values() for t in own} == {"CC0"}
    refused = {row["name"] for row in refused_in(out) if row["licence"] == "Proprietary"}
    assert refused >= {"own-0", "own-4"}


# --- documents that are not used


def test_an_odd_corpus_gives_verified_tasks_and_names_what_it_left_out(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "corpus", 16)
    lines = b"\r\n".join(json.dumps(row).encode() for row in tables("cdr_build")["an_odd_corpus"])
    more = b'\n{"id": "bytes", "text": "\xff\xfe <b>x</b>"}\n{"torn\n\n' + b"[" * 9999
    web = folder / "web.jsonl"
    web.write_bytes(b"\xef\xbb\xbf" + web.read_bytes() + lines + more)
    words = ("compose.per_domain=5", "instances.min_keep=1", "instances.min_drop=1")
    out = build(folder, tmp_path / "out", *words, *FEW)
    rows = rows_of(out)
    assert any("\ud800" in row["input_text"] for row in rows)
    for row in rows:
        assert score_refinement(row, gold_answer(row), "release").outcome == 1.0
    assert read_json(out / "certificate.json")["ok"] is True
    why = {row["name"]: row["why"][0] for row in refused_in(out) if not row["used"]}
    assert {"long", "plain"} <= why.keys() and "occurs twice" in why["corpus/web.jsonl row 23"]
    for number in range(17, 23):
        assert why[f"corpus/web.jsonl row {number}"].startswith("no text in")
    assert sum(" line " in name for name in why) == 3  # torn ones


REPEATS = "remove_repeat_sentences_mapper"
RAG = {
    "cut": "The {a} box weighs 2.5 kg, {n}. The lid weighs 3.5 kg, {n}. -- Bye from {m}.\n" * 2,
    "plain": "The {a} gate is open. It is -- {n}. The {a} gate is open. Bye from {m}.\n",
    "lined": "Notes on {a}\nThe gate is -- {n}.\nNotes on {a}\nBye from {m}.\n",
}


def test_words_say_what_happens_to_a_text_or_its_row_is_in_no_split(tmp_path: Path) -> None:
    """Of texts whose sentences are cut within a number, are plain, or end with their lines."""
    path, words = tmp_path / "rag.jsonl", ("umber", "grove", "ivory", "cedar", "hazel", "amber")
    rows: list[dict[str, Any]] = []
    for n in range(48):
        kind = [*RAG][n % 3]
        text = RAG[kind].format(n=100 + n, m=300 + n, a=words[n // 3 % 6])
        rows.append({"id": f"{kind}-{n}", "domain": "rag", "text": text})
    write_jsonl(path, rows)
    out = build(path, tmp_path / "out", "instruct.variants_per_task=2", "compose.per_domain=0")
    asked: defaultdict[str, set[int]] = defaultdict(set)
    for task in (task for tasks in tasks_of(out).values() for task in tasks):
        if REPEATS in {step["operator"] for step in task.gold["recipe"]}:
            said = read_clauses(task.meta["requirement"])
            kind = task.meta["document"].partition("-")[0]
            asked[kind] |= {one.manner for one in said if one.step.operator == REPEATS}
    assert asked == {"plain": {0}, "lined": {1}}
    (row,) = [one for one in refused_in(out) if one["name"] == REPEATS]
    assert "first cut-" in row["why"][0]


def test_examples_are_training_tasks_of_the_track_and_no_copies(built: Path) -> None:
    tasks = tasks_of(built)
    train = {task.id: task for task in tasks["train"]}
    counts = Counter[int]()
    for task in (task for mine in tasks.values() for task in mine):
        names = task.meta.get("examples", [])
        before = task.prompt[-1]["content"].partition("Now the task itself.")[0]
        for example in (train[name] for name in names):
            assert len(example.gold["input_text"] + example.gold["text"]) <= 150
            assert example.track == task.track
            assert example.meta["document"] != task.meta["document"]
            assert not alike(example.gold["input_text"], task.gold["input_text"])
            assert example.meta["requirement"] in before
            assert f"<clean_text>{example.gold['text']}</clean_text>" in before
        inputs = INPUT.findall(task.prompt[-1]["content"])
        assert inputs[-1] == task.gold["input_text"] and (inputs[:-1] == OWN) == (not names)
        counts[len(names)] += 1
    assert counts[3] > counts[0]


# --- what others do with a build


def test_an_evaluation_asks_what_is_held_out_with_training_tasks_as_examples(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    words = ["--model", "gold", "--no-baselines", "--limit", "30", "cdr.mode=few_shot", "cdr.k=1"]
    words += ["--out", str(tmp_path / "E")]
    assert command("eval")([*words, "--tasks", f"cdr:{built}"]) == 0
    tasks, drawn = tasks_of(built), 0
    for row in map(json.loads, (tmp_path / "E" / "rows.jsonl").open()):
        assert row["task_id"].partition("#")[0] in {task.id for task in tasks["heldout"]}
        shown = {*INPUT.findall(row["messages"][1]["content"])[:-1]} - {*OWN}
        track = {t.gold["input_text"] for t in tasks["train"] if t.track == row["track"]}
        assert shown <= track
        drawn += len(shown)
    assert drawn
    # a build without held-out rows is not evaluated on its training rows
    row = rows_of(built)[0]
    (tmp_path / "tracks").mkdir()
    write_jsonl(tmp_path / "tracks" / "atomic_m.jsonl", [row])
    write_jsonl(tmp_path / "train.jsonl", [{"id": row["instance_id"]}])
    assert command("eval")([*words, "--tasks", f"cdr:{tmp_path}"]) == 2
    assert "heldout.jsonl names no row of atomic_m" in capsys.readouterr().err


def test_failure_modes_name_what_went_wrong(built: Path) -> None:
    row = next(r for r in rows_of(built) if r["source_track"] == "agnostic_m")
    gold, text = row["reference_text"], row["input_text"]
    steps = [Step(name, dict(RECIPE_PARAMS.get(name, {}))) for name in row["operator_sequence"]]
    without = execute(text, steps[:-1]).text
    assert without not in (gold, text)  # its last step left out
    for mode, status, said in (
        ("Instruction Misread", "DROP", gold),
        ("Missed Operator", "KEEP", without),
        ("Formatting Drift", "KEEP", gold.upper()),
        ("Order Violation", "KEEP", "other order"),
        ("Over-application", "KEEP", gold[: len(gold) // 2]),
    ):
        assert failure_mode(row, status, said, ["other order"]) == mode
    variant = {"predicted_status": "KEEP", "predicted_clean_text": text}
    found = analyse([row | {"variant_predictions": [variant]}])
    assert found["failure_modes"] == {"Missed Operator": 1} and found["operator_progress"] < 1.0
