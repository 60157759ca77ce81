"""What `assay select` writes is what was said: calls, schemas, and whose token ids they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from front import command

from assay.task import TaskError
from rollouts.chats import chat_of, tools_of
from train.run.data import training_rows

main = command("select")
pq = pytest.importorskip("pyarrow.parquet")


def tool(name: str, **properties: Any) -> dict[str, Any]:
    shape = {"type": "object", "properties": properties, "required": [*properties]}
    function = {"name": name, "description": f"{name}s", "parameters": shape}
    return {"type": "function", "function": function}


TEXT = {"type": "string"}
SEARCH, UPDATE = tool("search", topic=TEXT), tool("update", id=TEXT, status=TEXT)


def rollout(
    number: int = 0, *, arguments: str = '{"topic": "a"}', name: str = "search", **more: Any
) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    call = {"id": f"call-{number}", "type": "function", "function": function}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [call], "thought_signature": "x"},
        {"role": "tool", "content": "found", "name": name, "tool_call_id": f"call-{number}"},
        {"role": "assistant", "content": "done", "reasoning": "hm"},
    ]
    return {
        "task_id": "t",
        "sample": number,
        "outcome": 1.0,
        "reward": 1.0,
        "track": "own",
        "tokens": 1,
        "messages": messages,
        "tools": [SEARCH, UPDATE],
        **more,
    }


def selected(folder: Path, rows: list[dict[str, Any]], *words: str) -> Path:
    source, out = folder / "r.jsonl", folder / "s.parquet"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["--rollouts", str(source), "--strategy", "av", "--out", str(out), *words]) == 0
    return out


def test_calls_reach_the_training_set_as_they_were_made(tmp_path: Path) -> None:
    row = rollout()
    (where, kept), *_ = training_rows(str(selected(tmp_path, [row])))
    wanted = [dict(m) for m in row["messages"]]
    del wanted[1]["thought_signature"]
    wanted[3]["reasoning_content"] = wanted[3].pop("reasoning")
    assert kept["messages"] == wanted
    turns = chat_of(kept, where).turns
    assert [(c.name, c.arguments) for c in turns[1].calls] == [("search", {"topic": "a"})]


def test_fields_that_no_message_has_get_no_column(tmp_path: Path) -> None:
    row = rollout(tools=[])
    row["messages"] = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    kept = pq.read_table(selected(tmp_path, [row])).to_pylist()[0]
    assert kept["messages"] == row["messages"]


@pytest.mark.parametrize(
    "tools", [[SEARCH], [SEARCH, UPDATE], [tool("mixed", a={"enum": [1, "x"]})]]
)
def test_schemas_come_back_as_they_were(tmp_path: Path, tools: list[dict[str, Any]]) -> None:
    (where, kept), *_ = training_rows(str(selected(tmp_path, [rollout(tools=tools)])))
    found = json.loads(kept["tools"]) if isinstance(kept["tools"], str) else kept["tools"]
    assert found == tools
    assert [spec.schema() for spec in tools_of(kept["tools"], where)] == tools


def test_schemas_that_an_older_file_mixed_are_told_apart(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    row = rollout()
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    old = pa.Table.from_pylist([{"messages": messages, "tools": row["tools"]}])
    properties = old.to_pylist()[0]["tools"][0]["function"]["parameters"]["properties"]
    assert properties["id"] is None  # what Arrow made of it
    pq.write_table(old, tmp_path / "old.parquet")
    (where, kept), *_ = training_rows(str(tmp_path / "old.parquet"))
    assert [spec.schema() for spec in tools_of(kept["tools"], where)] == row["tools"]


def test_rollouts_that_differ_in_calls_alone_are_two(tmp_path: Path) -> None:
    spaced = '{ "topic":"a" }'
    rows = [rollout(0), rollout(1, arguments=spaced), rollout(2, arguments='{"topic": "b"}')]
    rows.append(rollout(3, name="update"))
    kept = pq.read_table(selected(tmp_path, rows, "--deduplicate")).to_pylist()
    assert [row["sample"] for row in kept] == [0, 2, 3]


def test_the_tokenizer_of_the_ids_goes_with_them(tmp_path: Path) -> None:
    rows = [rollout(0, ids=[1, 2], loss_mask=[0, 1], tokenizer="abc"), rollout(1)]
    kept = pq.read_table(selected(tmp_path, rows)).to_pylist()
    assert [row["tokenizer"] for row in kept] == ["abc", ""]


def silent(number: int, outcome: float = 1.0, **more: Any) -> dict[str, Any]:
    row = rollout(number, outcome=outcome, **more)
    row["messages"] = [row["messages"][0], {"role": "assistant", "content": " "}]
    return row


def test_a_good_rollout_without_a_word_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AssertionError):
        selected(tmp_path, [rollout(0), silent(1)])
    said = capsys.readouterr().err
    assert "r.jsonl: task t sample 1 has outcome 1 and says nothing" in said
    assert not (tmp_path / "s.parquet").exists()
    # a wrong one is no more than one that is not kept
    selected(tmp_path, [rollout(0), silent(1, 0.0)], "--allow-invalid")
    manifest = json.loads((tmp_path / "s.parquet.manifest.json").read_text())
    assert manifest["kept"]["rows"] == 1 and manifest["dropped"]["says nothing"] == 1


def test_a_rollout_with_a_call_that_nobody_can_read_is_left_out(tmp_path: Path) -> None:
    out = selected(tmp_path, [rollout(0), rollout(1, arguments='{"topic": ')])
    assert [row["sample"] for row in pq.read_table(out).to_pylist()] == [0]
    manifest = json.loads((tmp_path / "s.parquet.manifest.json").read_text())
    assert manifest["dropped"]["has a tool call that cannot be read"] == 1


def test_a_row_of_parquet_is_refused_as_one_of_jsonl(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a", "weight": 0.5},
    ]
    pq.write_table(pa.Table.from_pylist([{"messages": messages}]), tmp_path / "w.parquet")
    (where, row), *_ = training_rows(str(tmp_path / "w.parquet"))
    with pytest.raises(TaskError, match=r"w.parquet row 1: `weight` of a message is 0.5"):
        chat_of(row, where)


def test_a_call_of_the_older_form_is_kept_as_one_of_the_newer(tmp_path: Path) -> None:
    row = rollout()
    function = row["messages"][1].pop("tool_calls")[0]["function"]
    row["messages"][1]["function_call"] = function
    row["messages"][2] = {"role": "function", "name": "search", "content": "found"}
    (where, kept), *_ = training_rows(str(selected(tmp_path, [row])))
    turns = chat_of(kept, where).turns
    assert [turn.role for turn in turns] == ["user", "assistant", "tool", "assistant"]
    assert [(c.name, c.arguments) for c in turns[1].calls] == [("search", {"topic": "a"})]


@pytest.mark.parametrize("tools", [[SEARCH], [SEARCH, UPDATE]])
def test_a_chat_template_reads_the_rows_as_other_trainers_give_them_to_it(
    tmp_path: Path, tools: list[dict[str, Any]]
) -> None:
    """TRL takes nested tools or JSON text; both leave the nulls of parquet in messages."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    from qwen3 import write_qwen3

    chat = transformers.AutoTokenizer.from_pretrained(write_qwen3(tmp_path / "m"))
    row = rollout(tools=tools)
    kept = pq.read_table(selected(tmp_path, [row])).to_pylist()[0]
    given = json.loads(kept["tools"]) if isinstance(kept["tools"], str) else kept["tools"]
    shown = chat.apply_chat_template(kept["messages"], tools=given, tokenize=False)
    said = [dict(m) for m in row["messages"]]
    said[3]["reasoning_content"] = said[3].pop("reasoning")
    assert shown == chat.apply_chat_template(said, tools=tools, tokenize=False)
    assert '"name": "search", "arguments": {"topic": "a"}' in shown
