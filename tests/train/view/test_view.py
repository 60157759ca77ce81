"""What a page of rollouts holds: every text whole, harmless, and the same for the same files; and
the server that follows a run that goes on."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_run import EVIL, evaluation_rows, line, make_run, refinement
from view_pages import elements, index_of, items_of, unpacked

import assay
from assay import family as families
from assay.family import Family, Score
from assay.task import Answer, Task, json_line, write_jsonl
from train.report.write import write_report
from train.view.book import Run, advantages, bind, open_runs
from train.view.explain import Explanation, Finding, Step, Work, align, explained, plain_spine
from train.view.page import Followed, Server, whole_page
from train.view.rollouts import Pieces


def page_of(*places: Path, **more: Any) -> str:
    runs = open_runs(places, **more)
    for run in runs:
        run.refresh()
    return whole_page(bind(runs, "test"))


def samples(runs: list[Run]) -> list[int]:
    return [rollout.sample for rollout in bind(runs, "t").rollouts]


def test_a_training_run_has_its_groups_advantages_and_steps(tmp_path: Path) -> None:
    make_run(tmp_path)
    page = page_of(tmp_path)
    index, bodies, tasks = index_of(page), items_of(page, "body"), items_of(page, "task")
    rows = index["rows"]
    assert rows["step"] == [step for step in (1, 2, 3) for _ in range(16)]
    assert index["tasks"]["id"] == ["t/0", "t/1", "t/2", "t/3"]
    assert index["tasks"]["slices"]["domain"]["values"] == ["docs", "mail"]
    first = rows["reward"][:4]
    wanted = [reward - sum(first) / 4 for reward in first]
    assert rows["advantage"][:4] == pytest.approx(wanted, abs=1e-4)
    wrong = [index["names"]["wrong"][w] for w in rows["wrong"][:4]]
    assert wrong == ["", "clean_email_mapper", "words_num_filter", ""]
    assert index["metrics"][-1] == {"run": 0, "set": 0, "step": 4, "reward": 0.4, "outcome": 0.2}
    assert bodies[1]["finding"]["wrong"] == [1] and "text" in bodies[1]
    assert tasks[0]["work"]["input"].startswith("Ask <b>tom</b>")
    assert bodies[0]["where"] == "rollouts/step_000001.jsonl line 1"
    # nothing is loaded from elsewhere
    policy = next(str(a["content"]) for _, a in elements(page) if a.get("http-equiv") is not None)
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert not [a for _, a in elements(page) if a.get("src") or a.get("href")]


def test_the_same_files_give_the_same_bytes_also_in_chunks(tmp_path: Path) -> None:
    (tmp_path / "a" / "chunks").mkdir(parents=True)
    (tmp_path / "a" / "chunks" / "body-9.js").write_text("of an older page")
    found: list[dict[str, bytes]] = []
    for out in ("a", "b"):
        make_run(tmp_path / f"made {out}" / "run")
        run = str(tmp_path / f"made {out}" / "run")
        assert assay.main(["view", run, "--out", str(tmp_path / out)]) == 0
        found.append({p.name: p.read_bytes() for p in (tmp_path / out).rglob("*.[hj]*")})
        found[-1].pop("provenance.json")
    assert found[0] == found[1]
    assert sorted(found[0]) == ["body-0.js", "index.html", "task-0.js", "token-0.js"]


def test_texts_of_models_are_never_markup_and_kept_whole(tmp_path: Path) -> None:
    task = refinement(0, text=f"{EVIL} <!-- ]]> \u2028 \ud800 &lt;")
    odd, long = "\udc00 \ud800 \x00 \x1b", "word " * 100_000
    row = line(task, 0, EVIL) | {"why": EVIL, "stop": EVIL, "track": EVIL, "parts": {EVIL: 1.0}}
    write_jsonl(tmp_path / "evil.jsonl.gz", [row, line(task, 1, odd), line(task, 2, long)])
    write_jsonl(tmp_path / "tasks" / "t.jsonl", [task.to_json()])
    page = page_of(tmp_path / "evil.jsonl.gz")
    page.encode("utf-8")
    found = elements(page)
    assert not [tag for tag, _ in found if tag in ("img", "iframe", "object", "link")]
    kinds = [a.get("type") for tag, a in found if tag == "script"]
    assert kinds[:2] == ["application/json", None] and set(kinds[2:]) == {"text/plain"}
    assert not [a for _, a in found if any(name.startswith("on") for name in a)]
    bodies = items_of(page, "body")
    assert [body["text"] for body in bodies] == [EVIL, odd, long]
    assert bodies[1]["where"] == "evil.jsonl.gz line 2"


# --- files that go on ----------------------------------------------------------------------------


def test_a_torn_last_line_is_left_for_later_and_the_file_as_it_is(tmp_path: Path) -> None:
    whole = [json_line(line(refinement(0), j, "x")) for j in range(4)]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(whole[0] + whole[1][:40])
    runs = open_runs([tmp_path])
    assert runs[0].refresh() and samples(runs) == [0]
    assert path.read_bytes() == whole[0] + whole[1][:40]
    assert not runs[0].refresh()
    path.write_bytes(b"".join(whole[:3]).rstrip(b"\n"))
    assert runs[0].refresh() and samples(runs) == [0, 1, 2]
    path.write_bytes(b"".join(whole))
    assert runs[0].refresh() and samples(runs) == [0, 1, 2, 3]
    last = bind(runs, "t").rollouts[3]
    assert json.loads(last.body)["where"] == "rows.jsonl line 4"
    path.write_bytes(whole[0] + whole[2])  # another file takes the place of the old rows
    assert runs[0].refresh() and samples(runs) == [0, 2]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("train.view.page._PAUSE", 0.0)
    make_run(tmp_path / "run", steps=1)
    with Server(Followed(open_runs([tmp_path / "run"]), "live")) as made:
        threading.Thread(target=made.serve_forever, args=(0.05,)).start()
        yield made
        made.shutdown()


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
    for place, wanted in (("/chunk/1/body/9", 409), ("/etc/passwd", 404)):
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
    path.unlink()  # a resumed run makes the step again
    assert len(json.loads(get(server, "/index.json?version=3")[1])["rows"]["task"]) == 16


# --- rows ----------------------------------------------------------------------------------------


def test_numbers_that_json_does_not_have_break_nothing(tmp_path: Path) -> None:
    """Python reads and writes NaN; a browser reads no chunk that holds one."""
    row = line(refinement(0), 0, "x") | {"notes": {"a": [float("nan")]}, "seconds": float("inf")}
    row |= {"logprobs": [0.0, 0.0, float("nan"), -1.0], "reward": float("nan")}
    write_jsonl(tmp_path / "rollouts" / "step_000001.jsonl", [row])

    def refuse(name: str) -> None:
        raise AssertionError(name)

    page = page_of(tmp_path)
    kinds = [items_of(page, kind) for kind in ("body", "token", "task")]
    json.loads(json.dumps([index_of(page), *kinds]), parse_constant=refuse)
    assert kinds[1][0]["l"] == [None, -1.0]


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


def test_results_of_several_models_have_their_own_gold(tmp_path: Path) -> None:
    tasks = [refinement(n) for n in range(2)]
    rows = evaluation_rows(tasks)
    for row, task in zip(rows, tasks, strict=True):
        row |= {"input_text": task.gold["input_text"], "gold_text": task.gold["text"]}
    write_report(tmp_path, {"rows": {"sft": rows, "rl": rows}, "meta": {"bootstrap": 50}})
    page = page_of(tmp_path)
    assert [s["key"] for s in index_of(page)["sets"]] == ["sft", "rl"]
    assert "--tasks" in items_of(page, "task")[0]["work"]["unknown"]


def test_tool_calls_and_thoughts_stand_apart_from_what_was_said(tmp_path: Path) -> None:
    task, said = refinement(0), "done"
    call = {"name": "python_executor", "arguments": {"code": "print(1)"}, "answer": "1\n"}
    calls = [call | {"kind": "ok", "seconds": 0.5, "turn": 0}]
    messages = [
        *task.prompt,
        {"role": "assistant", "content": "<tool_call>…</tool_call>"},
        {"role": "tool", "content": "1\n"},
        {"role": "assistant", "content": said},
    ]
    called = line(task, 0, said, messages=messages, tool_calls=calls) | {"tool_calls": calls}
    told = [*task.prompt, {"role": "assistant", "reasoning_content": "hm", "content": said}]
    # marked in the text, or told apart by an endpoint
    rows = [called, line(task, 1, f"<think>\nhm\n</think>\n\n{said}")]
    rows += [line(task, 2, said, messages=told), line(task, 5, "<think>hm"), line(task, 4, said)]
    write_jsonl(tmp_path / "r.jsonl", rows)
    page = page_of(tmp_path / "r.jsonl")
    first, *bodies = items_of(page, "body")
    assert first["calls"] == calls and index_of(page)["rows"]["calls"][0] == 1
    assert [m["role"] for m in first["messages"]] == ["assistant", "tool", "assistant"]
    shown = [body["messages"][-1] for body in bodies if "messages" in body]
    assert [(m["thought"], m["content"]) for m in shown] == [*[("hm", said)] * 2, ("hm", "")]
    assert bodies[0]["answer"] == said and "messages" not in bodies[-1]


def test_tokens_have_their_texts_and_both_log_probabilities(tmp_path: Path) -> None:
    make_run(tmp_path / "run", steps=1, tasks=1)
    tokens = items_of(page_of(tmp_path / "run"), "token")[0]
    assert tokens == {"p": ["⟨7⟩", "⟨8⟩"], "l": [-0.25, -2.5], "s": [-0.2, -2.5], "unknown": True}
    vocab = {"model": {"vocab": {"Ġhe": 7, "Ã": 8, "©": 9}}, "decoder": {"type": "ByteLevel"}}
    file = tmp_path / "run" / "model" / "tokenizer.json"
    file.parent.mkdir()
    file.write_text(json.dumps(vocab))
    tokens = items_of(page_of(tmp_path / "run"), "token")[0]
    assert tokens["p"] == [" he", ""] and "unknown" not in tokens
    assert Pieces(file).of([7, 8, 9, 5]) == [" he", "", "é", "⟨5⟩"]


def test_advantages_are_the_trainers() -> None:
    torch = pytest.importorskip("torch")
    from train.model.loss import centre, spread

    row, valid = torch.tensor([[0.1, 0.5, 0.0, 0.4]]), torch.tensor([[True, True, False, True]])
    centred = centre(row, valid)
    scaled = centred / (spread(row, valid) + 1e-6)
    for by_std, wanted in ((False, centred), (True, scaled)):
        ours = advantages([0.1, 0.5, None, 0.4], by_std)
        assert ours[2] is None
        assert [a or 0.0 for a in ours] == pytest.approx(wanted[0].tolist(), abs=1e-5)
    assert advantages([0.1] * 8, by_std=True) == [0.0] * 8
    assert advantages([0.5], by_std=False) == [None]  # a group of one says nothing


def test_a_family_from_outside_names_its_own_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work("", "b", "", (Step("find", "search"),))

    def explain(task: Task, answer: Answer) -> Explanation:
        segments = align(plain_spine("", "b"), "", "b", answer.text)
        return Explanation(work, Finding(answer.text, "", segments, (0,), "find is wrong"))

    own = Family("own_steps", lambda t, a: Score.of(a.text == "b"), lambda t: "b", explain=explain)
    monkeypatch.setitem(families._added, own.name, own)
    found = explained(Task("o", own.name, "t", "train", [], {}), {}, "<think>b</think>c")
    assert found is not None and (found.work, found.finding.text) == (work, "c")
