"""What a page of rollouts holds: every text whole, harmless, and the same for the same files."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from small_run import EVIL, evaluation_rows, line, make_evaluation, make_run, refinement, trajectory
from view_pages import elements, index_of, items_of, unpacked

import assay
from assay.family import score_answer
from assay.task import TaskError, json_line, write_jsonl
from train.report.write import write_report
from train.view.book import advantages, bind, open_runs
from train.view.links import fragment
from train.view.page import CHUNK, MOST, starts, whole_page
from train.view.pieces import Pieces


def page_of(*places: Path, **more: Any) -> str:
    runs = open_runs(places, **more)
    for run in runs:
        run.refresh()
    return whole_page(bind(runs, "test"))


def test_a_training_run_has_its_groups_advantages_and_steps(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    page = page_of(tmp_path / "run")
    index, bodies, tasks = index_of(page), items_of(page, "body"), items_of(page, "task")
    rows = index["rows"]
    assert len(bodies) == len(rows["task"]) == 3 * 4 * 4
    assert sorted(set(rows["step"])) == [1, 2, 3]
    assert index["tasks"]["id"] == ["t/0", "t/1", "t/2", "t/3"]
    assert index["tasks"]["slices"]["domain"]["values"] == ["docs", "mail"]
    first = rows["reward"][:4]
    mean = sum(first) / 4
    assert rows["advantage"][:4] == pytest.approx([r - mean for r in first], abs=1e-4)
    assert index["names"]["wrong"] == ["", "clean_email_mapper", "words_num_filter"]
    assert [index["names"]["wrong"][w] for w in rows["wrong"][:4]] == [
        "",
        "clean_email_mapper",
        "words_num_filter",
        "",
    ]
    assert index["metrics"][-1] == {"run": 0, "set": 0, "step": 4, "reward": 0.4, "outcome": 0.2}
    assert bodies[1]["finding"]["wrong"] == [1] and "text" in bodies[1]
    assert tasks[0]["work"]["input"].startswith("Ask <b>tom</b>")
    assert tasks[0]["prompt"][0]["content"].startswith("Clean 0")
    assert bodies[0]["where"] == "rollouts/step_000001.jsonl line 1"


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_run(tmp_path / name / "run")
    assert page_of(tmp_path / "a" / "run") == page_of(tmp_path / "b" / "run")
    for name in ("a", "b"):
        out = ["--out", str(tmp_path / name / "site")]
        assert assay.main(["view", str(tmp_path / name / "run"), *out]) == 0
    files = [p.relative_to(tmp_path / "a/site") for p in (tmp_path / "a/site").rglob("*.[hj]*")]
    files = [p for p in files if p.name != "provenance.json"]
    assert len(files) == 4
    for file in files:
        assert (tmp_path / "a/site" / file).read_bytes() == (
            tmp_path / "b/site" / file
        ).read_bytes()


def test_texts_of_models_are_never_markup(tmp_path: Path) -> None:
    task = refinement(0, text=f"{EVIL} <!-- ]]> \u2028 \ud800 &lt;")
    row = line(task, 0, EVIL) | {"why": EVIL, "stop": EVIL, "track": EVIL, "parts": {EVIL: 1.0}}
    odd = line(task, 1, "\udc00 \ud800 \x00 \x1b")
    write_jsonl(tmp_path / "evil.jsonl", [row, odd])
    write_jsonl(tmp_path / "tasks" / "t.jsonl", [task.to_json()])
    page = page_of(tmp_path / "evil.jsonl")
    page.encode("utf-8")
    found = elements(page)
    assert not [tag for tag, _ in found if tag in ("img", "iframe", "object", "link")]
    kinds = [a.get("type") for tag, a in found if tag == "script"]
    assert kinds == ["application/json", None, *["text/plain"] * 3]
    assert not [a for _, a in found if any(name.startswith("on") for name in a)]
    assert items_of(page, "body")[0]["text"] == EVIL
    assert items_of(page, "body")[1]["text"] == "\udc00 \ud800 \x00 \x1b"


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    page = page_of(tmp_path / "run")
    policy = next(str(a["content"]) for _, a in elements(page) if a.get("http-equiv") is not None)
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert not [a for _, a in elements(page) if a.get("src") or a.get("href")]


def test_a_torn_last_line_is_left_for_later_and_the_file_as_it_is(tmp_path: Path) -> None:
    task = refinement(0)
    whole = [json_line(line(task, j, "x")) for j in range(3)]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(whole[0] + whole[1][:40])
    runs = open_runs([tmp_path])
    assert runs[0].refresh() and len(bind(runs, "t").rollouts) == 1
    assert path.read_bytes() == whole[0] + whole[1][:40]
    assert not runs[0].refresh()
    path.write_bytes(whole[0] + whole[1] + whole[2].rstrip(b"\n"))
    runs[0].refresh()
    assert [r.sample for r in bind(runs, "t").rollouts] == [0, 1, 2]
    with open(path, "ab") as file:
        file.write(b"\n" + json_line(line(task, 3, "x")))
    runs[0].refresh()
    book = bind(runs, "t")
    assert [r.sample for r in book.rollouts] == [0, 1, 2, 3]
    assert json.loads(book.rollouts[3].body)["where"] == "rows.jsonl line 4"


def test_a_file_that_is_written_anew_takes_the_place_of_the_old_rows(tmp_path: Path) -> None:
    task = refinement(0)
    rows = [line(task, j, "x") for j in (2, 0, 1)]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    runs = open_runs([tmp_path])
    runs[0].refresh()
    write_jsonl(tmp_path / "rows.jsonl", sorted(rows, key=lambda r: r["sample"]))
    assert runs[0].refresh()
    assert [r.sample for r in bind(runs, "t").rollouts] == [0, 1, 2]


def test_steps_that_a_resumed_run_makes_again_are_forgotten(tmp_path: Path) -> None:
    make_run(tmp_path)
    runs = open_runs([tmp_path])
    runs[0].refresh()
    (tmp_path / "rollouts" / "step_000003.jsonl").unlink()
    assert runs[0].refresh()
    assert {r.step for r in bind(runs, "t").rollouts} == {1, 2}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"task_id": "a"}\n', "rows.jsonl line 1: no rollout, for it lacks text or output"),
        (b'{"task_id": "a", "text": "b", "outcome": 1}\nnonsense\n', "line 2: not valid JSON"),
        (b"[1]\n", "line 1: wanted a JSON object"),
    ],
)
def test_a_line_that_is_no_rollout_is_named_again_and_again(
    tmp_path: Path, text: bytes, said: str
) -> None:
    (tmp_path / "rows.jsonl").write_bytes(text)
    runs = open_runs([tmp_path])
    for _ in range(2):
        with pytest.raises(TaskError, match=said):
            runs[0].refresh()


def test_what_holds_no_rollouts_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert assay.main(["view", str(tmp_path)]) == 2
    assert "give a run directory" in capsys.readouterr().err
    assert assay.main(["view", str(tmp_path / "none.jsonl")]) == 2
    (tmp_path / "run.json").write_text("{}")
    assert assay.main(["view", str(tmp_path)]) == 2
    assert "no rollouts yet" in capsys.readouterr().err
    assert not (tmp_path / "view.html").exists()


def test_odd_values_in_a_row_are_shown_and_break_nothing(tmp_path: Path) -> None:
    row: dict[str, Any] = {"task_id": 7, "text": "x", "outcome": "high", "reward": True}
    row |= {"parts": [1], "messages": "no list", "tool_calls": {"a": 1}, "slices": 5, "ids": [1]}
    row |= {"logprobs": [None], "loss_mask": [1], "sample": None, "tokens": "many", "why": None}
    (tmp_path / "a.jsonl").write_text(
        json.dumps(row) + "\n" + '{"task_id": "b", "output": "y", "outcome": NaN}'
    )
    page = page_of(tmp_path / "a.jsonl")
    index = index_of(page)
    assert index["rows"]["outcome"] == [None, None] and index["tasks"]["id"] == ["7", "b"]
    assert [b["text"] for b in items_of(page, "body")] == ["x", "y"]


def test_numbers_that_json_does_not_have_leave_the_page_readable(tmp_path: Path) -> None:
    """Python reads and writes NaN; a browser reads no chunk that holds one."""
    row = line(refinement(0), 0, "x") | {"notes": {"a": [float("nan")]}, "seconds": float("inf")}
    row |= {"logprobs": [0.0, 0.0, float("nan"), -1.0], "reward": float("nan")}
    row |= {"tool_calls": [{"name": "t", "arguments": {"x": float("-inf")}}]}
    metrics = '{"stage": "rl", "step": NaN}\n{"stage": "rl", "step": 1, "reward/mean": Infinity}\n'
    (tmp_path / "metrics.jsonl").write_text(metrics)
    write_jsonl(tmp_path / "rollouts" / "step_000001.jsonl", [row])

    def refuse(name: str) -> None:
        raise AssertionError(name)

    page = page_of(tmp_path)
    chunks = re.findall(r'<script type="text/plain" id="\w+-\d+">(.*?)</script>', page)
    for chunk in chunks:
        json.loads(gzip.decompress(base64.b64decode(chunk)), parse_constant=refuse)
    found = re.search(r'id="index">(.*?)</script>', page, re.DOTALL)
    assert found is not None and len(chunks) == 3
    index = json.loads(found[1], parse_constant=refuse)
    assert index["metrics"] == [{"run": 0, "set": 0, "step": 1, "reward": None, "outcome": None}]
    assert items_of(page, "token")[0]["l"] == [None, -1.0]
    assert items_of(page, "body")[0]["notes"] == {"a": ["nan"]}


def test_gold_of_another_build_is_not_taken(tmp_path: Path) -> None:
    """Task ids say the number of a task, and two seeds give other tasks of the same number."""
    make_run(tmp_path / "run", steps=1, tasks=1)
    other = refinement(0, text="Other text of tom@acme.io and more.")
    write_jsonl(tmp_path / "run" / "tasks" / "train.jsonl", [other.to_json()])
    task = items_of(page_of(tmp_path / "run"), "task")[0]
    assert "gold" not in task and "work" not in task
    asked = tmp_path / "own.jsonl"
    write_jsonl(asked, [refinement(0).to_json()])
    task = items_of(page_of(tmp_path / "run", tasks=[asked]), "task")[0]
    assert task["work"]["label"] == "KEEP"


def test_results_of_several_models_and_their_own_gold(tmp_path: Path) -> None:
    tasks = [refinement(n) for n in range(2)]
    rows = evaluation_rows(tasks)
    for row, task in zip(rows, tasks, strict=True):
        row |= {"input_text": task.gold["input_text"], "gold_text": task.gold["text"]}
    write_report(tmp_path, {"rows": {"sft": rows, "rl": rows}, "meta": {"bootstrap": 50}})
    page = page_of(tmp_path)
    index = index_of(page)
    assert [s["key"] for s in index["sets"]] == ["sft", "rl"]
    body, task = items_of(page, "body")[0], items_of(page, "task")[0]
    assert "--tasks" in task["work"]["unknown"] and body["finding"]["wrong"] == []
    assert body["finding"]["segments"]


def test_two_runs_keep_apart_and_share_their_tasks(tmp_path: Path) -> None:
    tasks = make_run(tmp_path / "a" / "run", steps=1)
    make_evaluation(tmp_path / "b" / "run", tasks, which=0)
    page = page_of(tmp_path / "a" / "run", tmp_path / "b" / "run")
    index = index_of(page)
    assert index["runs"] == ["a/run", "b/run"]
    assert [s["key"] for s in index["sets"]] == ["a/run:training", "b/run:evaluation"]
    assert len(index["tasks"]["id"]) == len(tasks)
    assert "work" in items_of(page, "task")[0]


def test_tool_calls_keep_code_output_errors_and_time(tmp_path: Path) -> None:
    task = refinement(0)
    call = {"name": "python_executor", "arguments": {"code": "print(1)"}, "answer": "1\n"}
    calls = [call | {"kind": "ok", "seconds": 0.5, "turn": 0}]
    messages = [
        *task.prompt,
        {"role": "assistant", "content": "<tool_call>…</tool_call>"},
        {"role": "tool", "content": "1\n"},
        {"role": "assistant", "content": "done"},
    ]
    run = trajectory(task, 0, "done", messages=messages, tool_calls=calls, wall_s=2.0)
    row = run.to_json(score_answer(task, run.answer()), task)
    write_jsonl(tmp_path / "r.jsonl", [row | {"tool_calls": calls, "errors": {"bad_call": 1}}])
    page = page_of(tmp_path / "r.jsonl")
    body = items_of(page, "body")[0]
    assert body["calls"] == calls and body["errors"] == {"bad_call": 1}
    assert [m["role"] for m in body["messages"]] == ["assistant", "tool", "assistant"]
    assert index_of(page)["rows"]["calls"] == [1]


def test_thoughts_stand_apart_from_what_was_said(tmp_path: Path) -> None:
    """Marked in the text, told apart by an endpoint, or kept by an evaluation without messages."""
    task = refinement(0)
    said = str(task.gold["text"])
    inline = f"<think>\nhm\n</think>\n\n{said}"
    told = [*task.prompt, {"role": "assistant", "reasoning_content": "hm", "content": said}]
    rows = [
        line(task, 0, inline),
        line(task, 1, said, messages=told),
        {k: v for k, v in line(task, 2, said).items() if k != "messages"} | {"thought": "hm"},
        line(task, 3, said),
        line(task, 4, "<think>hm"),
    ]
    write_jsonl(tmp_path / "r.jsonl", rows)
    bodies = items_of(page_of(tmp_path / "r.jsonl"), "body")
    shown = [body["messages"][-1] for body in bodies if "messages" in body]
    assert [m["thought"] for m in shown] == ["hm"] * 4
    assert [m["content"] for m in shown] == [said, said, said, ""]
    assert bodies[0]["answer"] == said and bodies[0]["text"] == inline
    assert bodies[4]["answer"] == "" and "messages" not in bodies[3]


def tokenizer(folder: Path) -> None:
    data = {
        "model": {"vocab": {"Ġhe": 7, "Ã": 8, "©": 9}},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": [{"id": 2, "content": "<end>"}],
    }
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(json.dumps(data))


def test_tokens_have_their_texts_and_both_log_probabilities(tmp_path: Path) -> None:
    make_run(tmp_path / "run", steps=1, tasks=1)
    tokens = items_of(page_of(tmp_path / "run"), "token")[0]
    assert tokens == {"p": ["⟨7⟩", "⟨8⟩"], "l": [-0.25, -2.5], "s": [-0.2, -2.5], "unknown": True}
    tokenizer(tmp_path / "run" / "model")
    tokens = items_of(page_of(tmp_path / "run"), "token")[0]
    assert tokens["p"] == [" he", ""] and "unknown" not in tokens
    pieces = Pieces(tmp_path / "run" / "model" / "tokenizer.json")
    assert pieces.of([7, 8, 9, 2, 5]) == [" he", "", "é", "<end>", "⟨5⟩"]


def test_a_folder_without_a_tokenizer_is_refused_when_it_is_asked_for(tmp_path: Path) -> None:
    make_run(tmp_path / "run", steps=1, tasks=1)
    with pytest.raises(TaskError, match=r"tokenizer\.json: no tokenizer that can be read"):
        open_runs([tmp_path / "run"], model=tmp_path)


def test_advantages_are_the_trainers() -> None:
    torch = pytest.importorskip("torch")
    from train.model.loss import centre, spread

    rewards = [0.1, 0.5, None, 0.4]
    valid = torch.tensor([[r is not None for r in rewards]])
    row = torch.tensor([[r or 0.0 for r in rewards]])
    ours = advantages(rewards, by_std=False)
    assert ours[2] is None
    want = centre(row, valid)[0].tolist()
    assert [a or 0.0 for a in ours] == pytest.approx(want, abs=1e-6)
    scaled = (centre(row, valid) / (spread(row, valid) + 1e-6))[0].tolist()
    assert [a or 0.0 for a in advantages(rewards, by_std=True)] == pytest.approx(scaled, abs=1e-5)
    assert advantages([0.1] * 8, by_std=True) == [0.0] * 8
    assert advantages([None, None], by_std=False) == [None, None]
    assert advantages([0.5], by_std=False) == [None]  # a group of one says nothing


def test_chunks_are_bounded_and_keep_long_items_whole() -> None:
    assert starts([]) == []
    assert starts(["x"] * (2 * MOST + 1)) == [0, MOST, 2 * MOST]
    assert starts(["x", "y" * 2 * CHUNK, "z"]) == [0, 1, 2]


def test_a_long_answer_is_kept_whole(tmp_path: Path) -> None:
    text = "word " * 100_000
    write_jsonl(tmp_path / "r.jsonl", [line(refinement(0), 0, text)])
    assert items_of(page_of(tmp_path / "r.jsonl"), "body")[0]["text"] == text


def test_a_folder_has_its_chunks_beside_it(tmp_path: Path) -> None:
    make_run(tmp_path / "run", steps=1)
    (tmp_path / "site" / "chunks").mkdir(parents=True)
    (tmp_path / "site" / "chunks" / "body-9.js").write_text("of an older page")
    assert assay.main(["view", str(tmp_path / "run"), "--out", str(tmp_path / "site")]) == 0
    names = sorted(p.name for p in (tmp_path / "site" / "chunks").iterdir())
    assert names == ["body-0.js", "task-0.js", "token-0.js"]
    text = (tmp_path / "site" / "chunks" / "body-0.js").read_text()
    packed = text.removeprefix('assayChunk("body",0,"').removesuffix('");\n')
    assert len(unpacked(packed)) == 16


def test_the_report_links_its_examples_to_a_page_beside_it(tmp_path: Path) -> None:
    tasks = [refinement(n) for n in range(2)]
    data = {"rows": {"rl": evaluation_rows(tasks)}, "meta": {"bootstrap": 50}}
    write_report(tmp_path, data)
    assert "view.html" not in (tmp_path / "report.html").read_text("utf-8")
    assert assay.main(["view", str(tmp_path)]) == 0
    write_report(tmp_path, data)
    link = fragment("rl", None, "t/0", 0)
    assert link == "/rl/-/t%2F0/0"
    assert f'href="view.html#{link}"' in (tmp_path / "report.html").read_text("utf-8")


def test_a_family_from_outside_names_its_own_steps(tmp_path: Path) -> None:
    file = tmp_path / "own_steps.py"
    file.write_text(
        "from train.view.explain import Explanation, Finding, Step, Work, align, plain_spine\n"
        "from assay.family import Family, Score\n"
        "def explain(task, answer):\n"
        "    work = Work('', 'b', '', (Step('find', 'search'),))\n"
        "    segments = align(plain_spine('', 'b'), '', 'b', answer.text)\n"
        "    return Explanation(work, Finding(answer.text, '', segments, (0,), 'find is wrong'))\n"
        "FAMILY = Family('own_steps', lambda t, a: Score.of(a.text == 'b'), lambda t: 'b',\n"
        "                explain=explain)\n"
    )
    task = {"id": "o", "family": "own_steps", "track": "t", "split": "train", "gold": {}}
    task |= {"prompt": [{"role": "user", "content": "?"}]}
    write_jsonl(tmp_path / "tasks.jsonl", [task])
    row = {"task_id": "o", "text": "c", "outcome": 0.0, "reward": 0.0, "family": "own_steps"}
    write_jsonl(tmp_path / "r.jsonl", [row])
    words = ["--family", str(file), "--tasks", str(tmp_path / "tasks.jsonl")]
    assert assay.main(["view", str(tmp_path / "r.jsonl"), *words]) == 0
    page = (tmp_path / "r.view.html").read_text("utf-8")
    assert index_of(page)["names"]["wrong"] == ["find"]
    assert items_of(page, "body")[0]["finding"]["said"] == "find is wrong"
