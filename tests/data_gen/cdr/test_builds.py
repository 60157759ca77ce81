"""What `assay tasks cdr` writes: rows that follow from their words, splits, wordings, refusals."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest
from cdr_copies import orders_allowed, read_track
from front import command
from small_corpus import write_corpus

from assay.task import Task, TaskError, read_tasks
from configs.cdr import CdrConfig
from configs.loader import load
from data_gen.cdr.documents import NOT_IN_PAPER, PAPER, chosen_operators, filters_of, mappers_of
from data_gen.cdr.instruct import STYLES, read_clauses, read_instruction
from data_gen.cdr.merge import STATISTICS
from data_gen.cdr.outcome import Outcome, read_outcome
from rewards.cdr.release_files import RESULT_STYLES, check_row, find_tracks
from rewards.cdr.score import gold_answer, score_refinement
from rewards.gold import RECIPE_PARAMS, Step, execute
from rollouts.words.cdr import KIND, alike
from rollouts.words.templates import ours

pytest.importorskip("duckdb", reason="needs the extra `build`")
main = command("tasks")
LOW = ("workers=1", "instances.min_keep=2", "instances.min_drop=2", "instances.min_groups=2")
SMALL = (
    *LOW,
    *("select.per_operator=0", "select.per_variant=0", "compose.per_domain=3"),
    *("compose.min_support=4", "split.validation_documents=0.2"),
)
FEW = ("instances.per_variant=4", "instances.per_operator=4")
SPLITS = ("train", "validation", "heldout")
Says = Callable[[], str]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("here") / "corpus", 28)


def build(corpus: Path, out: Path, *more: str) -> Path:
    assert main(["cdr", "--corpus", str(corpus), "--out", str(out), *SMALL, *more]) == 0
    return out


@pytest.fixture(scope="module")
def built(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(corpus, tmp_path_factory.mktemp("cdr") / "out", "instruct.all_prompts=true")


@pytest.fixture(scope="module")
def shown(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = ("instruct.mode=few_shot", "instruct.shots=3", "instruct.shot_chars=150")
    return build(corpus, tmp_path_factory.mktemp("cdr") / "shown", *FEW, *more)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Says:
    return lambda: "".join(capsys.readouterr())


def tasks_of(folder: Path) -> dict[str, list[Task]]:
    return {split: read_tasks(folder / f"{split}.jsonl") for split in SPLITS}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [row for path in find_tracks(folder).values() for row in read_track(path)]


def filter_of(task: Task) -> str | None:
    names = [step["operator"] for step in task.gold["recipe"]]
    return next((name for name in names if name.endswith("_filter")), None)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def asked_in(outcome: Outcome) -> list[Step]:
    """The steps that a description speaks of."""
    asked = [Step(name, dict(RECIPE_PARAMS.get(name, {}))) for name in sorted(outcome.mappers)]
    return [*asked, *([outcome.judged.step] if outcome.judged else [])]


def test_every_row_is_valid_and_follows_from_its_words(built: Path) -> None:
    rows = rows_of(built)
    tracks = {"atomic_m", "atomic_f", "agnostic_m", "order_m", "order_f"}
    assert {row["source_track"] for row in rows} == tracks
    assert len({r["instance_id"] for r in rows}) == len(rows)
    told: Counter[tuple[bool, str | None]] = Counter()
    for row in rows:
        check_row(row, row["instance_id"])
        for variant in row["prompt_variants"]:
            wording = variant.get("wording")
            told[variant["style_id"] in RESULT_STYLES, wording] += 1
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
    assert told.keys() <= {(False, None), (True, "outcome"), (True, "steps")}
    counts = read_json(built / "manifest.json")["counts"]["wording of result styles"]
    assert counts["outcome"] > 0.5 * sum(counts.values())
    groups = Counter(
        (r["source_track"], r["order_group_instance_id"])
        for r in rows
        if r["order_group_instance_id"]
    )
    assert {(track, n) for (track, _), n in groups.items()} == {("order_m", 2), ("order_f", 3)}


def test_the_paper_s_tables_count_the_rows(built: Path) -> None:
    rows, found = rows_of(built), read_json(built / "manifest.json")["statistics"]
    characters = [len(row["input_text"]) for row in rows]
    said = [v["user_requirement"].split() for row in rows for v in row["prompt_variants"]]
    asked = [(r["domain"], name) for r in rows for name in {*r["operator_sequence"]}]
    wanted = {
        "tasks": len(rows),
        "order_m": sum(row["source_track"] == "order_m" for row in rows),
        "mean_characters": pytest.approx(mean(characters), abs=0.01),
        "median_characters": median(characters),
        "most_characters": max(characters),
        "mean_words": pytest.approx(mean(map(len, said)), abs=0.01),
        "median_words": median(map(len, said)),
        "mean_recipe_length": pytest.approx(mean(r["recipe_length"] for r in rows), abs=0.01),
        "median_pool": 11,
        "operators": len({name for _, name in asked}),
        "sequences": len({tuple(row["operator_sequence"]) for row in rows}),
        "recipes": len({row["recipe_id"] for row in rows} - {None}),
    }
    assert {key: found[key] for key in wanted} == wanted
    counted = Counter(f"{domain}/{name}" for domain, name in asked)
    assert found["operator_tasks"] == dict(counted)
    for domain, own in found["domains"].items():
        sizes = sum(own[size] for size in ("short", "medium", "long"))
        assert own["tasks"] == sizes == sum(row["domain"] == domain for row in rows)
        assert own["anchors"] <= own["recipes"]
    lines = (built / STATISTICS).read_text().splitlines()
    assert f"| Total tasks | {len(rows):,} | 3,462 |" in lines
    shown = {n.split()[1]: n.endswith("yes |") for n in lines if n.endswith(("yes |", "no |"))}
    assert shown == {name: name in PAPER for _, name in asked}


def test_splits_share_no_document_and_tasks_say_what_they_are(built: Path) -> None:
    tasks = tasks_of(built)
    documents = {split: {t.meta["document"] for t in own} for split, own in tasks.items()}
    proof = read_json(built / "certificate.json")
    assert proof["ok"] is True
    for one, other in (("train", "validation"), ("train", "heldout"), ("validation", "heldout")):
        assert documents[one] and documents[other] and not documents[one] & documents[other]
        pair = proof["shared"][f"{one} and {other}"]
        assert len(pair) == 5 and not any(pair.values())
    known = {t.meta["template"] for split in SPLITS[:2] for t in tasks[split]}
    assert {t.meta["template"] for t in tasks["heldout"]} - known
    counts = read_json(built / "manifest.json")["counts"]
    styles = {style.id for style in STYLES}
    for split, own in tasks.items():
        statuses: Counter[str] = Counter()
        for task in own:
            meta, gold, name = task.meta, task.gold, filter_of(task)
            assert Task.from_json(task.to_json()) == task
            assert (meta["licence"], meta["source"]) == ("CC0", "made up")
            assert meta["recipe_length"] == len(gold["recipe"]) and meta["style"] in styles
            assert ("wording" in meta) == (meta["style"] in RESULT_STYLES)
            assert meta["has_filter"] == (name is not None)
            assert meta["requirement"] in task.prompt[-1]["content"]
            run = execute(gold["input_text"], [Step(**step) for step in gold["recipe"]])
            assert (run.status, run.text) == (gold["status"], gold["text"])
            for kind in ("any_filter", name) if name else ("no_filter",):
                statuses[f"{kind}:{gold['status']}"] += 1
        assert counts[f"filter and status of {split}"] == dict(statuses)
        assert counts[f"styles of {split}"] == dict(Counter(t.meta["style"] for t in own))
    drawn = Counter(task.meta["style"] for task in tasks["train"])
    assert set(drawn) == styles and max(drawn.values()) < 0.2 * drawn.total()
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
    stale = tmp_path / "tracks_all_prompts" / "atomic_m.jsonl"  # of an older build
    stale.parent.mkdir()
    for path in (stale, tmp_path / "mine.txt"):
        path.write_text("old")
    whole = build(corpus, tmp_path, "select.balance_filtered=false", "instruct.variants_per_task=5")
    assert not stale.exists() and (whole / "mine.txt").read_text() == "old"
    left, none = (
        read_json(p / "manifest.json")["left_out_of_splits"]["for the balance of KEEP and DROP"]
        for p in (built, whole)
    )
    one, many = tasks_of(built), tasks_of(whole)
    members: defaultdict[str, list[Task]] = defaultdict(list)
    for task in many["train"]:
        members[task.meta["instance"]].append(task)
    both = len(members) + len(many["validation"])
    assert left and not none and len(one["train"] + one["validation"]) == both - left
    # what the benchmark and its vectors hold depends on neither
    for path in [*(built / "tracks").iterdir(), built / "pipeline.jsonl", built / "heldout.jsonl"]:
        assert path.read_bytes() == (whole / path.relative_to(built)).read_bytes()
    for name, tasks in members.items():  # wordings of a task are rows of one group
        assert len({task.meta["style"] for task in tasks}) == len(tasks) == 5
        assert len({task.id for task in tasks}) == 5 and tasks[0].id == name
        assert len({task.group for task in tasks}) == 1 and tasks[0].group
        assert len({task.prompt[-1]["content"] for task in tasks}) == 5


def test_recipes_and_operators_can_be_held_out_and_chosen(
    corpus: Path, tmp_path: Path, said: Says
) -> None:
    only = ["clean_email_mapper", "clean_ip_mapper", "clean_path_mapper", "text_length_filter"]
    words = (f"operators.only=[{','.join(only)}]", "split.heldout_recipes=1")
    tasks = tasks_of(build(corpus, tmp_path / "some", *words))
    assert {t.meta["recipe_length"] for t in tasks["train"] + tasks["validation"]} == {1}
    assert max(t.meta["recipe_length"] for t in tasks["heldout"]) > 1
    used = {name for row in rows_of(tmp_path / "some") for name in row["operator_sequence"]}
    assert used == set(only) and "no document activates" not in said()
    assert Counter(name.rsplit("_", 1)[1] for name in PAPER) == {"mapper": 22, "filter": 7}
    config = load(CdrConfig, "configs/cdr_paper.yaml")
    assert {*mappers_of(config), *filters_of(config)} == PAPER
    assert chosen_operators(()) - PAPER == set(NOT_IN_PAPER)


def test_copies_of_a_document_are_never_split_and_some_licences_are_used_alone(
    tmp_path: Path, said: Says
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
    refused = [json.loads(line) for line in (out / "refused.jsonl").open()]
    assert {row["name"] for row in refused if row["licence"] == "Proprietary"} >= {"own-0", "own-4"}
    words = ["cdr", "--corpus", str(corpus), "--out", str(tmp_path / "none"), "--licence", "MIT"]
    said()
    assert main(words) == 2
    assert "CC0 (65 documents)" in said() and not (tmp_path / "none").exists()


# --- documents that are not used


ODD: tuple[Any, ...] = (
    *({"text": ""}, {"text": None}, {"text": ["x"]}, [1], "x", None),
    {"id": "web-0", "text": "the same id"},
    {"text": "\ud800 ana@a.org from 10.0.0.1"},
    {"id": "s\ud800", "text": "one \udfff <b>x</b> http://a.org/c and /home/x/y.txt"},
    {"id": ["l"], "domain": 3, "language": ["en"], "text": "a@b.org  10.0.0.1"},
    {"id": "nul", "text": "\0" * 9 + "<b>x</b>\0 https://a.org/c"},
    {"id": "ends", "text": "<p>See https://a.org/x\r\nand\u2028<b>this</b>\r\r\n"},
    {"id": '", "split": "', "text": '"split": "" <b>x</b> http://a.org/c'},
    {"id": "marks", "text": "e\u0301" * 400 + " <b>x</b> http://a.org/c"},
    {"id": "braces", "text": "\\begin{figure}\\caption{" * 200},
    {"id": "long", "text": "http://" + "a(" * 100_000},
    {"id": "plain", "text": "nothing to do here"},
)


def test_an_odd_corpus_gives_verified_tasks_and_names_what_it_left_out(
    tmp_path: Path, said: Says
) -> None:
    folder = write_corpus(tmp_path / "corpus", 16)
    lines = b"\r\n".join(json.dumps(row).encode() for row in ODD)
    more = b'\n{"id": "bytes", "text": "\xff\xfe <b>x</b>"}\n{"torn\n\n' + b"[" * 9999
    web = folder / "web.jsonl"
    web.write_bytes(b"\xef\xbb\xbf" + web.read_bytes() + lines + more)
    words = ("compose.per_domain=5", "instances.min_keep=1", "instances.min_drop=1")
    out = build(folder, tmp_path / "out", *words, *FEW)
    text = said()
    assert "web / unknown" in text and "no recipe of domain latex" in text
    rows = rows_of(out)
    assert any("\ud800" in row["input_text"] for row in rows)
    for row in rows:
        assert score_refinement(row, gold_answer(row), "release").outcome == 1.0
    tasks_of(out)
    assert read_json(out / "certificate.json")["ok"] is True
    listed = [json.loads(line) for line in (out / "refused.jsonl").open()]
    why = {row["name"]: row["why"][0] for row in listed if not row["used"]}
    for name, part in (("long", "200007 characters"), ("plain", "0 active mappers")):
        assert part in why[name]
    assert "occurs twice" in why["corpus/web.jsonl row 23"]
    for number in range(17, 23):
        assert why[f"corpus/web.jsonl row {number}"].startswith("no text in")
    assert sum(" line " in name for name in why) == 3  # torn ones


REPEATS = "remove_repeat_sentences_mapper"
RAG = {
    "cut": "The {a} box weighs 2.5 kg, {n}. The lid weighs 3.5 kg, {n}. -- Bye from {m}.\n" * 2,
    "plain": "The {a} gate is open. It is -- {n}. The {a} gate is open. Bye from {m}.\n",
    "lined": "Notes on {a}\nThe gate is -- {n}.\nNotes on {a}\nBye from {m}.\n",
}


def test_words_say_what_happens_to_a_text_or_its_row_is_in_no_split(
    tmp_path: Path, said: Says
) -> None:
    """Of texts whose sentences are cut within a number, are plain, or end with their lines."""
    path, words = tmp_path / "rag.jsonl", ("umber", "grove", "ivory", "cedar", "hazel", "amber")
    rows: list[str] = []
    for n in range(48):
        kind = [*RAG][n % 3]
        text = RAG[kind].format(n=100 + n, m=300 + n, a=words[n // 3 % 6])
        rows.append(json.dumps({"id": f"{kind}-{n}", "domain": "rag", "text": text}))
    path.write_text("\n".join(rows), encoding="utf-8")
    more = ("instruct.variants_per_task=2", "compose.per_domain=0")
    out = build(path, tmp_path / "out", *more)
    every = build(path, tmp_path / "all", *more, "instruct.as_said=false")

    def manners(text: str) -> set[int]:
        return {clause.manner for clause in read_clauses(text) if clause.step.operator == REPEATS}

    def asked(folder: Path) -> dict[str, set[int]]:
        found: defaultdict[str, set[int]] = defaultdict(set)
        for task in (task for tasks in tasks_of(folder).values() for task in tasks):
            if REPEATS in {step["operator"] for step in task.gold["recipe"]}:
                kind = task.meta["document"].partition("-")[0]
                found[kind] |= manners(task.meta["requirement"])
        return found

    assert asked(out) == {"plain": {0}, "lined": {1}}
    assert asked(every) == {"plain": {0}, "lined": {0}, "cut": {0}}
    shown = [v["user_requirement"] for row in rows_of(out) for v in row["prompt_variants"]]
    assert all(manners(text) <= {0} for text in shown)
    assert f"rows: {REPEATS} takes out more" in said()
    certificate = read_json(out / "certificate.json")
    assert certificate["ok"] and certificate["cdr"]["words_say_another_thing"]
    refused = [json.loads(line) for line in (out / "refused.jsonl").open()]
    (row,) = [one for one in refused if one["name"] == REPEATS]
    assert "first cut-" in row["why"][0]
    tracks = [(one / "tracks" / "atomic_m.jsonl").read_bytes() for one in (out, every)]
    assert tracks[0] == tracks[1]


def test_a_config_may_name_its_corpus_from_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Says
) -> None:
    write_corpus(tmp_path / "corpus", 4)
    (tmp_path / "configs").mkdir()
    monkeypatch.chdir("/")
    for where, name in (("configs", "../corpus"), ("configs", "corpus")):
        config = tmp_path / where / "c.yaml"
        config.write_text(f"corpora: [{name}]\ntracks: false\nworkers: 1\n")
        assert main(["cdr", "--config", str(config), "--out", str(tmp_path / "out")]) == 0
    config.write_text("corpora: [nowhere]\n")
    said()
    assert main(["cdr", "--config", str(config), "--out", str(tmp_path / "out")]) == 2
    assert "nowhere" in said()


# --- examples of the mode few_shot


def before(task: Task) -> str:
    return task.prompt[-1]["content"].partition("Now the task itself.")[0]


def test_examples_are_training_tasks_of_the_track_and_no_copies(shown: Path) -> None:
    tasks = tasks_of(shown)
    train = {task.id: task for task in tasks["train"]}
    found = re.compile(r"<input>\n(.*?)\n</input>", re.DOTALL)
    own, without, drawn = found.findall(ours(KIND)["examples"]), 0, 0
    for task in (task for mine in tasks.values() for task in mine):
        names = task.meta.get("examples", [])
        for example in (train[name] for name in names):
            assert len(example.gold["input_text"] + example.gold["text"]) <= 150
            assert example.track == task.track
            assert example.meta["document"] != task.meta["document"]
            assert not alike(example.gold["input_text"], task.gold["input_text"])
            assert example.meta["requirement"] in before(task)
            assert f"<clean_text>{example.gold['text']}</clean_text>" in before(task)
        inputs = found.findall(task.prompt[-1]["content"])
        assert inputs[-1] == task.gold["input_text"] and (inputs[:-1] == own) == (not names)
        without, drawn = without + (not names), drawn + len(names)
        statuses = re.findall(r"<status>(\w+)</status>", before(task))
        if task.track == "order_f" and len(names) == 3:
            assert set(statuses) == {"DROP", "KEEP"}
    counted = read_json(shown / "manifest.json")["few_shot"]
    assert drawn > without and counted["shots"] == 3
    assert sum(counted["fixed"].values()) == without


def test_an_evaluation_draws_examples_from_the_training_tasks_beside_the_tracks(
    shown: Path, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    train = tasks_of(shown)["train"]
    found = re.compile(r"<input>\n(.*?)\n</input>", re.DOTALL)
    fixed = found.findall(ours(KIND)["examples"])

    def inputs(out: str, *more: str) -> list[tuple[str, list[str]]]:
        words = ["--model", "gold", "--no-baselines", "cdr.mode=few_shot", "cdr.k=1"]
        assert command("eval")([*words, "--out", str(tmp_path / out), *more]) == 0
        rows = map(json.loads, (tmp_path / out / "rows.jsonl").read_text("utf-8").splitlines())
        return [(r["track"], found.findall(r["messages"][1]["content"])[:-1]) for r in rows]

    asked = inputs("own", "--tasks", f"cdr:{shown}", "--limit", "30")
    assert any(own != fixed for _, own in asked)
    for track, own in asked:
        assert own == fixed or set(own) <= {t.gold["input_text"] for t in train if t.track == track}
    given = (f"cdr.examples={shown / 'train.jsonl'}", "cdr.shots=1", "cdr.shot_chars=400")
    more = ("--tasks", f"cdr:{shown / 'tracks'}", "--limit", "3", "cdr.all_rows=true")
    assert all(len(own) == 1 for _, own in inputs("given", *more, *given))


# --- what others do with a build


def test_an_evaluation_asks_the_rows_that_a_build_holds_out(
    built: Path, tmp_path: Path, said: Says
) -> None:
    pytest.importorskip("torch")
    held = {task.id for task in read_tasks(built / "heldout.jsonl")}
    for name, place, *more in (
        ("file", "heldout.jsonl", "cdr.k=1"),
        ("eleven", "tracks_all_prompts", "cdr.k=0", "--limit", "6"),  # all eleven wordings
    ):
        words = ["--model", "gold", "--no-baselines", "--tasks", f"cdr:{built / place}", *more]
        assert command("eval")([*words, "--out", str(tmp_path / name)]) == 0
        data = read_json(tmp_path / name / "results.json")
        ids = {row["task_id"].partition("#")[0] for row in data["rows"]}
        assert ids == held if name == "file" else ids <= held
    shown = {table["title"]: table for table in data["benchmarks"]["cdr"]["shown"]}
    curves = shown["CDR-Bench RS@K"]["curves"]
    assert curves and all(line == [[k, 1.0] for k in range(1, 12)] for _, line in curves)
    # a build without held-out rows is not evaluated on its training rows
    row = rows_of(built)[0]
    (tmp_path / "tracks").mkdir()
    (tmp_path / "tracks" / "atomic_m.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "train.jsonl").write_text(json.dumps({"id": row["instance_id"]}) + "\n")
    said()
    words = ["--model", "gold", "--tasks", f"cdr:{tmp_path}", "--out", str(tmp_path / "no")]
    assert command("eval")(words) == 2
    assert "heldout.jsonl names no row of atomic_m" in said()


def test_failure_modes_name_what_went_wrong(built: Path) -> None:
    from rewards.cdr.errors import analyse, failure_mode

    row = next(r for r in rows_of(built) if r["source_track"] == "agnostic_m")
    gold = row["reference_text"]
    assert failure_mode(row, "DROP", gold) == "Instruction Misread"
    assert failure_mode(row, "KEEP", row["input_text"]) == "Missed Operator"
    steps = [Step(name, dict(RECIPE_PARAMS.get(name, {}))) for name in row["operator_sequence"]]
    without = execute(row["input_text"], steps[:-1]).text
    assert without not in (gold, row["input_text"])  # its last step left out
    assert failure_mode(row, "KEEP", without) == "Missed Operator"
    assert failure_mode(row, "KEEP", gold.upper()) == "Formatting Drift"
    assert failure_mode(row, "KEEP", "other order", ["other order"]) == "Order Violation"
    assert failure_mode(row, "KEEP", gold[: len(gold) // 2]) == "Over-application"
    variant = {"predicted_status": "KEEP", "predicted_clean_text": row["input_text"]}
    found = analyse([row | {"variant_predictions": [variant]}])
    assert found["failure_modes"] == {"Missed Operator": 1} and found["operator_progress"] < 1.0


def test_unusable_rows_are_named(built: Path) -> None:
    row = rows_of(built)[0]
    with pytest.raises(TaskError, match="has no gain"):
        check_row(row | {"scoring_profile": "structured_json"}, "row")
    with pytest.raises(TaskError, match="no track 'order_x'"):
        find_tracks(built, ["order_x"])
    with pytest.raises(TaskError, match="field 'input_text' is missing"):
        check_row({k: v for k, v in row.items() if k != "input_text"}, "row")


# --- an older build in the same folder
