"""Training rows: styles, wordings, the balance of filtered tasks, splits, licences."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from front import command
from small_corpus import write_corpus

from assay.task import Task, read_tasks
from data_gen.cdr.instruct import STYLES, wordings_of
from data_gen.cdr.language import read_clauses
from rewards.cdr.release_files import sample_variants
from rewards.gold import Step, execute

pytest.importorskip("duckdb", reason="needs the extra `build`")
main = command("tasks")

SMALL = (
    "workers=1",
    "instances.min_keep=2",
    "instances.min_drop=2",
    "instances.min_groups=2",
    "select.per_operator=0",
    "select.per_variant=0",
    "split.heldout_documents=0.2",
    "split.validation_documents=0.2",
    "split.heldout_recipes=0.1",
)
SPLITS = ("train", "validation", "heldout")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("here") / "corpus")


def build(corpus: Path, out: Path, *more: str) -> Path:
    assert main(["cdr", "--corpus", str(corpus), "--out", str(out), *SMALL, *more]) == 0
    return out


@pytest.fixture(scope="module")
def built(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(corpus, tmp_path_factory.mktemp("cdr") / "out")


@pytest.fixture(scope="module")
def worded(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(corpus, tmp_path_factory.mktemp("cdr") / "worded", "instruct.variants_per_task=5")


def tasks_of(folder: Path) -> dict[str, list[Task]]:
    return {split: read_tasks(folder / f"{split}.jsonl") for split in SPLITS}


def filter_of(task: Task) -> str | None:
    names = [step["operator"] for step in task.gold["recipe"]]
    return next((name for name in names if name.endswith("_filter")), None)


@pytest.mark.parametrize("k", [0, 3])
def test_every_style_is_drawn_about_alike_often(k: int) -> None:
    drawn: Counter[int] = Counter()
    for number in range(4400):
        picked = sample_variants(11, k, 0, f"key {number % 7}", f"row {number}")
        (one,) = wordings_of(11, picked, 1, 0, f"key {number % 7}", f"row {number}")
        assert one in picked
        drawn[one] += 1
    assert set(drawn) == set(range(11))
    # 400 are expected of each, with a standard deviation of 19
    assert all(300 < count < 500 for count in drawn.values()), drawn


def test_more_wordings_than_a_row_has_variants_come_from_the_rest_of_the_pool() -> None:
    picked = sample_variants(11, 3, 0, "key", "row")
    five = wordings_of(11, picked, 5, 0, "key", "row")
    assert set(five[:3]) == set(picked) and len(set(five)) == 5
    assert wordings_of(11, picked, 3, 0, "key", "row") == five[:3]
    assert sorted(wordings_of(11, picked, 40, 0, "key", "row")) == list(range(11))


def test_training_rows_are_asked_in_all_styles(built: Path) -> None:
    styles = Counter(task.meta["style"] for task in read_tasks(built / "train.jsonl"))
    assert set(styles) == {style.id for style in STYLES}
    assert max(styles.values()) < 0.2 * styles.total()
    counts = json.loads((built / "manifest.json").read_text())["counts"]
    assert counts["styles of train"] == dict(styles)


def test_wordings_of_a_task_are_rows_of_one_group(built: Path, worded: Path) -> None:
    one, many = tasks_of(built), tasks_of(worded)
    ids = [task.id for tasks in many.values() for task in tasks]
    assert len(set(ids)) == len(ids)
    members: defaultdict[str, list[Task]] = defaultdict(list)
    for task in many["train"]:
        members[task.meta["instance"]].append(task)
    assert set(members) == {task.id for task in one["train"]}
    for name, tasks in members.items():
        assert len({task.meta["style"] for task in tasks}) == len(tasks) == 5
        assert len({task.group for task in tasks}) == 1 and tasks[0].group
        assert len({json.dumps(task.gold) for task in tasks}) == 1
        assert len({task.prompt[-1]["content"] for task in tasks}) == 5
        assert tasks[0].id == name and {task.meta["document"] for task in tasks}
    assert all(task.group is None for task in one["train"] if "order" not in task.track)
    for split in ("validation", "heldout"):
        assert (built / f"{split}.jsonl").read_bytes() == (worded / f"{split}.jsonl").read_bytes()


def test_filtered_training_tasks_keep_as_often_as_they_drop(
    corpus: Path, built: Path, tmp_path: Path
) -> None:
    for split in ("train", "validation"):
        cells: Counter[tuple[str, str | None, str]] = Counter()
        for task in read_tasks(built / f"{split}.jsonl"):
            cells[task.track, filter_of(task), task.gold["status"]] += 1
        for track, name in {key[:2] for key in cells if key[1]}:
            keep, drop = (cells[track, name, status] for status in ("KEEP", "DROP"))
            assert abs(keep - drop) <= 1, (split, track, name, keep, drop)
    whole = build(corpus, tmp_path / "whole", "select.balance_filtered=false")
    manifest, other = (json.loads((p / "manifest.json").read_text()) for p in (built, whole))
    left_out = manifest["left_out_of_splits"]["for the balance of KEEP and DROP"]
    assert left_out and not other["left_out_of_splits"]["for the balance of KEEP and DROP"]
    sizes = [sum(len(tasks_of(p)[s]) for s in SPLITS[:2]) for p in (built, whole)]
    assert sizes[0] == sizes[1] - left_out
    # what the benchmark and its conformance vectors hold does not depend on it
    for path in [*(built / "tracks").iterdir(), built / "pipeline.jsonl", built / "heldout.jsonl"]:
        assert path.read_bytes() == (whole / path.relative_to(built)).read_bytes()


def test_order_groups_of_training_are_whole(built: Path) -> None:
    groups = Counter(task.group for task in read_tasks(built / "train.jsonl") if task.group)
    assert set(groups.values()) <= {2, 3} and groups


def test_the_manifest_counts_filter_by_status(built: Path) -> None:
    counts = json.loads((built / "manifest.json").read_text())["counts"]
    for split, tasks in tasks_of(built).items():
        found: Counter[str] = Counter()
        for task in tasks:
            name, status = filter_of(task), task.gold["status"]
            assert task.meta["has_filter"] == (name is not None)
            for kind in ("any_filter", name) if name else ("no_filter",):
                found[f"{kind}:{status}"] += 1
        assert counts[f"filter and status of {split}"] == dict(found)


def test_three_splits_share_no_document_and_the_certificate_has_every_pair(built: Path) -> None:
    tasks = tasks_of(built)
    documents = {split: {t.meta["document"] for t in own} for split, own in tasks.items()}
    assert all(documents.values())
    proof = json.loads((built / "certificate.json").read_text())
    assert proof["ok"] is True
    for one, other in (("train", "validation"), ("train", "heldout"), ("validation", "heldout")):
        assert not documents[one] & documents[other]
        pair = proof["shared"][f"{one} and {other}"]
        assert len(pair) == 5 and not any(pair.values())


def test_recipes_that_are_held_out_are_in_no_other_split(corpus: Path, tmp_path: Path) -> None:
    tasks = tasks_of(build(corpus, tmp_path, "split.heldout_recipes=1"))
    assert {t.meta["recipe_length"] for t in tasks["train"] + tasks["validation"]} == {1}
    assert max(t.meta["recipe_length"] for t in tasks["heldout"]) > 1


def test_a_task_says_what_it_is(built: Path) -> None:
    styles = {style.id for style in STYLES}
    for tasks in tasks_of(built).values():
        for task in tasks:
            meta, text = task.meta, task.gold["input_text"]
            assert meta["licence"] == "CC0" and meta["source"] == "made up"
            assert meta["recipe_length"] == len(task.gold["recipe"])
            assert meta["length_bucket"] == "short" and len(text) <= 4000
            assert meta["difficulty"] in ("easy", "medium", "hard")
            assert meta["domain"] and meta["style"] in styles and task.files == {}
            run = execute(text, [Step(s["operator"], s["params"]) for s in task.gold["recipe"]])
            assert (run.status, run.text) == (task.gold["status"], task.gold["text"])


def test_a_build_does_not_depend_on_where_its_corpus_lies(
    corpus: Path, built: Path, tmp_path: Path
) -> None:
    shutil.copytree(corpus, tmp_path / "elsewhere" / "corpus")
    there = build(tmp_path / "elsewhere" / "corpus", tmp_path / "out")
    # the record names the corpus as the command did
    files = [p for p in built.rglob("*") if p.is_file() and p.name != "provenance.json"]
    assert {p.name for p in files} >= {"refused.jsonl", "validation.jsonl", "config.yaml"}
    for path in files:
        assert path.read_bytes() == (there / path.relative_to(built)).read_bytes(), path.name
        assert str(corpus.parent).encode() not in path.read_bytes()


def with_rows(folder: Path, rows: list[dict[str, Any]], name: str = "web.jsonl") -> Path:
    with open(folder / name, "a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


def test_documents_of_some_licences_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "<p>See https://a.org/{n} &amp; www.b.com/{n} now.</p> <b>Word</b> more text"
    rows = [
        {"id": f"own-{n}", "source": "firm", "licence": "Proprietary", "text": text.format(n=n)}
        for n in range(5)
    ]
    folder = with_rows(write_corpus(tmp_path / "corpus", 12), rows)
    out = build(folder, tmp_path / "out", "--licence", "cc*")
    assert {t.meta["licence"] for own in tasks_of(out).values() for t in own} == {"CC0"}
    assert "web / firm: refused, licence Proprietary: 5 a licence" in capsys.readouterr().err
    refused = [json.loads(line) for line in (out / "refused.jsonl").open()]
    assert {row["name"] for row in refused if row["licence"] == "Proprietary"} >= {"own-0", "own-4"}
    words = ["cdr", "--corpus", str(folder), "--out", str(tmp_path / "none"), "--licence", "MIT"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "no document has a licence of MIT" in said and "CC0 (36 documents)" in said
    assert not (tmp_path / "none").exists()


def test_every_document_that_is_not_used_is_named_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_corpus(tmp_path / "corpus", 8)
    with_rows(
        folder,
        [
            {"id": "long", "text": "x" * 10_001},
            {"id": "plain", "text": "nothing to do here"},
            {"id": "empty", "text": " "},
            {"id": "web-0", "text": "again"},
        ],
    )
    with open(folder / "rag.jsonl", "a", encoding="utf-8") as file:
        file.write("{torn\n")
    out = build(folder, tmp_path / "out")
    rows = [json.loads(line) for line in (out / "refused.jsonl").open()]
    why = {row["name"]: row["why"][0] for row in rows if not row["used"]}
    assert why["long"] == "10001 characters long; the limit is 10000"
    assert why["plain"] == "0 active mappers; 2 are wanted"
    assert why["corpus/web.jsonl row 11"] == "no text in text or content or raw_content"
    assert why["corpus/web.jsonl row 12"] == "id 'web-0' occurs twice"
    assert why["corpus/rag.jsonl line 9"].startswith("not valid JSON")
    said = capsys.readouterr().err.splitlines()
    assert any(line.startswith("rag / made up: used, ") for line in said)
    assert any("1 longer than 10000 characters" in line for line in said)
    assert said[-1].startswith("inputs: ")


def test_no_line_holds_a_character_that_ends_a_line_elsewhere(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "corpus", 12)
    mark = "\u0085 \u2028 \u2029"
    rows = [
        {
            "id": f"odd{n}{mark}",
            "source": mark,
            "text": f"<p>See https://a.org/x{n} {mark} &amp; www.b.com/{n} now.</p>\n<b>Word</b>",
        }
        for n in range(12)
    ]
    out = build(with_rows(folder, rows), tmp_path / "out", "instruct.all_prompts=true")
    files = list(out.rglob("*.jsonl"))
    assert len(files) > 8
    used = 0
    for path in files:
        data = path.read_bytes().decode("utf-8", "surrogatepass")
        assert data.splitlines() == data.split("\n")[:-1], path.name
        used += "\\u2028" in data
    assert used > 3


def test_rows_whose_words_do_not_say_what_happens_are_in_no_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = "The {a} gate is open. See https://a.org/{n} -- now. The {a} gate is open. It is {n}. "
    cut = "The {a} box weighs {n}.5 kg. See https://a.org/{n} -- now. The lid weighs {m}.5 kg. "
    words = ("umber", "grove", "ivory", "cedar", "hazel", "amber")
    rows = [
        {
            "id": f"{'kept' if n % 2 else 'cut'}-{n}",
            "domain": "rag",
            "text": (kept if n % 2 else cut).format(n=100 + n, m=300 + n, a=words[n % 6]) * 2,
        }
        for n in range(40)
    ]
    path = tmp_path / "rag.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    out = build(path, tmp_path / "out")
    operator = "remove_repeat_sentences_mapper"

    def repeats(folder: Path) -> Counter[str]:
        drawn = [task for tasks in tasks_of(folder).values() for task in tasks]
        asked = [t for t in drawn if operator in {s["operator"] for s in t.gold["recipe"]}]
        return Counter(task.meta["document"].partition("-")[0] for task in asked)

    assert set(repeats(out)) == {"kept"}
    assert capsys.readouterr().out.count(f"rows: {operator} takes out more") == 1
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["ok"]
    counted = certificate["cdr"]["words_say_another_thing"]
    assert counted[f"{operator} takes out more than its words say"] > 0
    refused = [json.loads(line) for line in (out / "refused.jsonl").open()]
    (row,) = [one for one in refused if one["name"] == operator]
    assert "first cut-" in row["why"][0]
    asked = build(path, tmp_path / "all", "instruct.as_said=false")
    assert repeats(asked)["cut"] > 0
    tracks = [(one / "tracks" / "atomic_m.jsonl").read_bytes() for one in (out, asked)]
    assert tracks[0] == tracks[1]


def test_a_task_is_asked_in_words_that_say_what_happens_to_its_text(tmp_path: Path) -> None:
    plain = "The {a} gate is open. It is -- {n}. The {a} gate is open. Bye from {m}.\n"
    lined = "Notes on {a}\nThe gate is -- {n}.\nNotes on {a}\nBye from {m}.\n"
    words = ("umber", "grove", "ivory", "cedar", "hazel", "amber")
    rows = [
        {
            "id": f"{'lined' if n % 2 else 'plain'}-{n}",
            "domain": "rag",
            "text": (lined if n % 2 else plain).format(n=100 + n, m=300 + n, a=words[n % 6]),
        }
        for n in range(40)
    ]
    path = tmp_path / "rag.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    out = build(path, tmp_path / "out", "instruct.variants_per_task=2")
    operator = "remove_repeat_sentences_mapper"

    def manners(text: str) -> set[int]:
        return {clause.manner for clause in read_clauses(text) if clause.step.operator == operator}

    found: defaultdict[str, set[int]] = defaultdict(set)
    for task in (task for tasks in tasks_of(out).values() for task in tasks):
        assert task.meta["requirement"] in task.prompt[-1]["content"]
        found[task.meta["document"].partition("-")[0]] |= manners(task.meta["requirement"])
    assert found == {"plain": {0}, "lined": {1}}
    for track in (out / "tracks").iterdir():
        for row in map(json.loads, track.open(encoding="utf-8")):
            for variant in row["prompt_variants"]:
                assert manners(variant["user_requirement"]) <= {0}
