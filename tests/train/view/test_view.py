"""What a page of rollouts holds: every text whole, harmless, and the same for the same files; and
the server that follows a run that goes on."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_run import EVIL, evaluation_rows, line, make_run, refinement, trajectory
from view_pages import elements, index_of, items_of, unpacked

import assay
from assay.family import score_answer
from assay.task import TaskError, json_line, write_jsonl
from train.report.write import write_report
from train.view.book import Run, advantages, bind, open_runs
from train.view.page import CHUNK, MOST, Followed, Server, chunked, whole_page
from train.view.rollouts import Pieces
from train.view.sources import fragment


def page_of(*places: Path, **more: Any) -> str:
    runs = open_runs(places, **more)
    for run in runs:
        run.refresh()
    return whole_page(bind(runs, "test"))


def samples(runs: list[Run]) -> list[int]:
    return [rollout.sample for rollout in bind(runs, "t").rollouts]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    make_run(folder / "run")
    return folder / "run"


def test_a_training_run_has_its_groups_advantages_and_steps(run_folder: Path) -> None:
    page = page_of(run_folder)
    index, bodies, tasks = index_of(page), items_of(page, "body"), items_of(page, "task")
    rows = index["rows"]
    assert len(bodies) == len(rows["task"]) == 3 * 4 * 4
    assert sorted(set(rows["step"])) == [1, 2, 3]
    assert index["tasks"]["id"] == ["t/0", "t/1", "t/2", "t/3"]
    assert index["tasks"]["slices"]["domain"]["values"] == ["docs", "mail"]
    first = rows["reward"][:4]
    mean = sum(first) / 4
    assert rows["advantage"][:4] == pytest.approx([r - mean for r in first], abs=1e-4)
    assert [index["names"]["wrong"][w] for w in rows["wrong"][:4]] == [
        *("", "clean_email_mapper", "words_num_filter", "")
    ]
    assert index["metrics"][-1] == {"run": 0, "set": 0, "step": 4, "reward": 0.4, "outcome": 0.2}
    assert bodies[1]["finding"]["wrong"] == [1] and "text" in bodies[1]
    assert tasks[0]["work"]["input"].startswith("Ask <b>tom</b>")
    assert tasks[0]["prompt"][0]["content"].startswith("Clean 0")
    assert bodies[0]["where"] == "rollouts/step_000001.jsonl line 1"
    # nothing is loaded from elsewhere
    policy = next(str(a["content"]) for _, a in elements(page) if a.get("http-equiv") is not None)
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert not [a for _, a in elements(page) if a.get("src") or a.get("href")]


def test_the_same_files_give_the_same_bytes_also_in_chunks(
    run_folder: Path, tmp_path: Path
) -> None:
    make_run(tmp_path / "run")
    assert page_of(run_folder) == page_of(tmp_path / "run")
    (tmp_path / "a" / "chunks").mkdir(parents=True)
    (tmp_path / "a" / "chunks" / "body-9.js").write_text("of an older page")
    found: list[dict[str, bytes]] = []
    for out, run in (("a", run_folder), ("b", tmp_path / "run")):
        assert assay.main(["view", str(run), "--out", str(tmp_path / out)]) == 0
        found.append({p.name: p.read_bytes() for p in (tmp_path / out).rglob("*.[hj]*")})
        found[-1].pop("provenance.json")
    assert found[0] == found[1]
    assert sorted(found[0]) == ["body-0.js", "index.html", "task-0.js", "token-0.js"]
    packed = found[0]["body-0.js"].decode().removeprefix('assayChunk("body",0,"')
    assert len(unpacked(packed.removesuffix('");\n'))) == 48


def test_texts_of_models_are_never_markup_and_kept_whole(tmp_path: Path) -> None:
    task = refinement(0, text=f"{EVIL} <!-- ]]> \u2028 \ud800 &lt;")
    odd, long = "\udc00 \ud800 \x00 \x1b", "word " * 100_000
    row = line(task, 0, EVIL) | {"why": EVIL, "stop": EVIL, "track": EVIL, "parts": {EVIL: 1.0}}
    write_jsonl(tmp_path / "evil.jsonl", [row, line(task, 1, odd), line(task, 2, long)])
    write_jsonl(tmp_path / "tasks" / "t.jsonl", [task.to_json()])
    page = page_of(tmp_path / "evil.jsonl")
    page.encode("utf-8")
    found = elements(page)
    assert not [tag for tag, _ in found if tag in ("img", "iframe", "object", "link")]
    kinds = [a.get("type") for tag, a in found if tag == "script"]
    assert kinds[:2] == ["application/json", None] and set(kinds[2:]) == {"text/plain"}
    assert not [a for _, a in found if any(name.startswith("on") for name in a)]
    assert [body["text"] for body in items_of(page, "body")] == [EVIL, odd, long]


# --- files that go on ----------------------------------------------------------------------------


def test_a_torn_last_line_is_left_for_later_and_the_file_as_it_is(tmp_path: Path) -> None:
    whole = [json_line(line(refinement(0), j, "x")) for j in range(4)]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(whole[0] + whole[1][:40])
    runs = open_runs([tmp_path])
    assert runs[0].refresh() and samples(runs) == [0]
    assert path.read_bytes() == whole[0] + whole[1][:40]
    assert not runs[0].refresh()
    path.write_bytes(whole[0] + whole[1] + whole[2].rstrip(b"\n"))
    assert runs[0].refresh() and samples(runs) == [0, 1, 2]
    with open(path, "ab") as file:
        file.write(b"\n" + whole[3])
    assert runs[0].refresh() and samples(runs) == [0, 1, 2, 3]
    last = bind(runs, "t").rollouts[3]
    assert json.loads(last.body)["where"] == "rows.jsonl line 4"
    path.write_bytes(whole[0] + whole[2])  # another file takes the place of the old rows
    assert runs[0].refresh() and samples(runs) == [0, 2]


def test_compressed_rows_say_their_line(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n" + json_line(line(refinement(0), 0, "x"))))
    runs = open_runs([path])
    assert runs[0].refresh() and not runs[0].refresh()
    body = json.loads(bind(runs, "t").rollouts[0].body)
    assert (body["where"], body["text"]) == ("answers.jsonl.gz line 2", "x")
    path.write_bytes(gzip.compress(b'{"task_id": "a"}\n'))
    with pytest.raises(TaskError, match=f"^{re.escape(str(path))} line 1: no rollout"):
        runs[0].refresh()


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


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("train.view.page._PAUSE", 0.0)
    make_run(tmp_path / "run", steps=1)
    made = Server(Followed(open_runs([tmp_path / "run"]), "live"))
    thread = threading.Thread(target=made.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def get(server: Server, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=20)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_the_server_follows_a_run_and_answers_nobody_else(server: Server, tmp_path: Path) -> None:
    status, page = get(server, "/")
    index = index_of(page)
    assert (status, index["version"], index["live"]) == (200, 1, True)
    assert "connect-src 'self'" in page and get(server, "/index.json?version=1")[0] == 204
    status, text = get(server, "/chunk/1/body/0")
    assert status == 200 and len(unpacked(text)) == 16
    for place, wanted in (("/chunk/1/body/9", 409), ("/chunk/x/body/0", 409), ("/etc/passwd", 404)):
        assert get(server, place)[0] == wanted
    # a page of somebody else's whose name was pointed at 127.0.0.1 must not read rollouts
    assert get(server, "/", host="evil.example:80")[0] == 403
    assert get(server, "/", host=f"localhost:{server.server_address[1]}")[0] == 200
    rows = [json_line(line(refinement(0), j, "x")) for j in range(2)]
    path = tmp_path / "run" / "rollouts" / "step_000002.jsonl"
    path.write_bytes(rows[0] + rows[1][:30])
    status, text = get(server, "/index.json?version=1")
    assert status == 200 and len(json.loads(text)["rows"]["task"]) == 17
    assert get(server, "/chunk/1/body/0")[0] == 409  # of an older book
    path.write_bytes(b"nonsense\n")
    for _ in range(2):  # said until it is mended
        status, said = get(server, "/index.json?version=2")
        assert status == 500 and "step_000002.jsonl line 1: not valid JSON" in said
    path.write_bytes(rows[0] + rows[1])
    assert len(json.loads(get(server, "/index.json?version=2")[1])["rows"]["task"]) == 18


# --- rows ----------------------------------------------------------------------------------------


def test_odd_values_and_numbers_that_json_does_not_have_break_nothing(tmp_path: Path) -> None:
    """Python reads and writes NaN; a browser reads no chunk that holds one."""
    row = line(refinement(0), 0, "x") | {"notes": {"a": [float("nan")]}, "seconds": float("inf")}
    row |= {"logprobs": [0.0, 0.0, float("nan"), -1.0], "reward": float("nan")}
    odd: dict[str, Any] = {"task_id": 7, "text": "x", "outcome": "high", "reward": True}
    odd |= {"parts": [1], "messages": "no list", "tool_calls": {"a": 1}, "slices": 5, "ids": [1]}
    odd |= {"loss_mask": [1], "sample": None, "tokens": "many", "why": None}
    row |= {"tool_calls": [{"name": "t", "arguments": {"x": float("-inf")}}]}
    metrics = '{"stage": "rl", "step": NaN}\n{"stage": "rl", "step": 1, "reward/mean": Infinity}\n'
    (tmp_path / "metrics.jsonl").write_text(metrics)
    write_jsonl(tmp_path / "rollouts" / "step_000001.jsonl", [row, odd])

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
    assert (index["rows"]["outcome"][1], index["tasks"]["id"][1]) == (None, "7")
    assert items_of(page, "body")[1]["text"] == "x"
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


def test_results_of_several_models_have_links_and_their_own_gold(tmp_path: Path) -> None:
    tasks = [refinement(n) for n in range(2)]
    rows = evaluation_rows(tasks)
    for row, task in zip(rows, tasks, strict=True):
        row |= {"input_text": task.gold["input_text"], "gold_text": task.gold["text"]}
    data = {"rows": {"sft": rows, "rl": rows}, "meta": {"bootstrap": 50}}
    write_report(tmp_path, data)
    assert "view.html" not in (tmp_path / "report.html").read_text("utf-8")
    assert assay.main(["view", str(tmp_path)]) == 0
    write_report(tmp_path, data)
    link = fragment("rl", None, "t/0", 0)
    assert link == "/rl/-/t%2F0/0"
    assert f'href="view.html#{link}"' in (tmp_path / "report.html").read_text("utf-8")
    page = (tmp_path / "view.html").read_text("utf-8")
    assert [s["key"] for s in index_of(page)["sets"]] == ["sft", "rl"]
    body, task = items_of(page, "body")[0], items_of(page, "task")[0]
    assert "--tasks" in task["work"]["unknown"] and body["finding"]["wrong"] == []
    assert body["finding"]["segments"]


def test_tool_calls_and_thoughts_stand_apart_from_what_was_said(tmp_path: Path) -> None:
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
    called = run.to_json(score_answer(task, run.answer()), task)
    called |= {"tool_calls": calls, "errors": {"bad_call": 1}}
    said = str(task.gold["text"])
    inline = f"<think>\nhm\n</think>\n\n{said}"
    told = [*task.prompt, {"role": "assistant", "reasoning_content": "hm", "content": said}]
    # marked in the text, told apart by an endpoint, or kept by an evaluation without messages
    alone = {k: v for k, v in line(task, 3, said).items() if k != "messages"} | {"thought": "hm"}
    rows = [called, line(task, 1, inline), line(task, 2, said, messages=told), alone]
    rows += [line(task, 4, said), line(task, 5, "<think>hm")]
    write_jsonl(tmp_path / "r.jsonl", rows)
    page = page_of(tmp_path / "r.jsonl")
    first, *bodies = items_of(page, "body")
    assert first["calls"] == calls and first["errors"] == {"bad_call": 1}
    assert [m["role"] for m in first["messages"]] == ["assistant", "tool", "assistant"]
    assert index_of(page)["rows"]["calls"][0] == 1
    shown = [body["messages"][-1] for body in bodies if "messages" in body]
    assert [m["thought"] for m in shown] == ["hm"] * 4
    assert [m["content"] for m in shown] == [said, said, said, ""]
    assert bodies[0]["answer"] == said and bodies[0]["text"] == inline
    assert bodies[4]["answer"] == "" and "messages" not in bodies[3]


def test_tokens_have_their_texts_and_both_log_probabilities(tmp_path: Path) -> None:
    make_run(tmp_path / "run", steps=1, tasks=1)
    tokens = items_of(page_of(tmp_path / "run"), "token")[0]
    assert tokens == {"p": ["⟨7⟩", "⟨8⟩"], "l": [-0.25, -2.5], "s": [-0.2, -2.5], "unknown": True}
    vocab = {"model": {"vocab": {"Ġhe": 7, "Ã": 8, "©": 9}}, "decoder": {"type": "ByteLevel"}}
    vocab |= {"added_tokens": [{"id": 2, "content": "<end>"}]}
    file = tmp_path / "run" / "model" / "tokenizer.json"
    file.parent.mkdir()
    file.write_text(json.dumps(vocab))
    tokens = items_of(page_of(tmp_path / "run"), "token")[0]
    assert tokens["p"] == [" he", ""] and "unknown" not in tokens
    assert Pieces(file).of([7, 8, 9, 2, 5]) == [" he", "", "é", "<end>", "⟨5⟩"]
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
    assert [a or 0.0 for a in ours] == pytest.approx(centre(row, valid)[0].tolist(), abs=1e-6)
    scaled = (centre(row, valid) / (spread(row, valid) + 1e-6))[0].tolist()
    assert [a or 0.0 for a in advantages(rewards, by_std=True)] == pytest.approx(scaled, abs=1e-5)
    assert advantages([0.1] * 8, by_std=True) == [0.0] * 8
    assert advantages([None, None], by_std=False) == [None, None]
    assert advantages([0.5], by_std=False) == [None]  # a group of one says nothing


def test_chunks_are_bounded_and_keep_long_items_whole() -> None:
    assert chunked([]) == []
    assert [*map(len, chunked(["x"] * (2 * MOST + 1)))] == [MOST, MOST, 1]
    assert [*map(len, chunked(["x", "y" * 2 * CHUNK, "z"]))] == [1, 1, 1]


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
