"""Every scorer and parser of model outputs reads whatever a model might write: without an
exception, in bounded time, to the same score twice, and never above gold."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from functools import partial
from itertools import chain, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_tasks import objects, value_tables
from places import tables
from sql_tasks import sql_tasks

from assay.family import BUILT_IN, deadline
from assay.task import Answer, Score, Task
from rewards.audit_laws import gold_of
from rewards.cdr.errors import failure_mode
from rewards.cdr.release_scores import parse_json, score_prediction
from rewards.cdr.score import score_refinement
from rewards.dare.read import Unreadable, check_shape
from rewards.dare.score import read_gold, score_table
from rewards.gold import Step, execute
from rewards.krama.answer import READINGS, score_response
from rewards.parse import normalise, parse
from rewards.score import score_lines
from rollouts.krama.lake import answer_of, blocks, printed_values
from rollouts.tool_calls import FORMATS, ToolSpec, fitting
from train.view.explain_cdr import counterfactuals

TABLES = tables("rewards")
# NUL, a byte order mark, spaces and line ends that are none, a lone surrogate, odd letters
TOKENS = [
    *chain(*tables("rewards")["fuzz_words"]),
    "\n",
    "\r\n",
    "\t",
    " ",
    "9" * 5000,
    "import os",
    "lambda: 0",
]
TOKENS += "\x00\ufeff\u200b\u2028\u0085\u202e\ud800\u00e9\u0130\uff11\U0001d7d9\U0001f642"
LONG = 100_000

TEXTS = ("Mail x@a.org now, then see http://a.org/x.\n\nThe  end of “it” .", "IP 203.0.113.4", "")
RECIPES = (
    (Step("clean_email_mapper"), Step("clean_links_mapper")),
    (Step("clean_ip_mapper"), Step("text_length_filter", {"min_len": 0, "max_len": 40})),
)
CODE = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}


def cleaned(text: str, recipe: tuple[Step, ...]) -> dict[str, Any]:
    run = execute(text, recipe)
    steps = [{"operator": s.operator, "params": dict(s.params)} for s in recipe]
    return {"input_text": text, "status": run.status, "text": run.text, "recipe": steps}


DATED = "day,shop,y\n" + "".join(f"2024-01-{i:02},s{i % 3},{i * 1.5}\n" for i in range(1, 25))
BY_DAY = {"task_type": "time-CF", "truth_csv": DATED, "key_columns": ["day", "shop"]}
GOLDS: dict[str, list[dict[str, Any]]] = {
    "refinement": [cleaned(text, recipe) for text in TEXTS for recipe in RECIPES],
    "structured": [task.gold for task in objects()],
    "answer": [
        {"answer_type": kind, "answer": value}
        for kind, values in TABLES["fuzz_answers"].items()
        for value in values
    ],
    "table": [*(task.gold for task in value_tables()), BY_DAY | {"targets": ["y"]}],
    "sql": [task.gold for task in sql_tasks()],
}


def outputs(gold: str) -> st.SearchStrategy[str]:
    """Gold with changes, marks, text, JSON and what is nested deeply."""
    token = st.sampled_from(TOKENS)
    junk = st.lists(token, max_size=12).map("".join)
    places = st.integers(0, len(gold))
    mutated = st.tuples(places, st.sampled_from((0, 1, 8, 40)), junk).map(
        lambda cut: gold[: cut[0]] + cut[2] + gold[cut[0] + cut[1] :]
    )
    leaves = st.none() | st.booleans() | st.floats() | st.integers() | token | st.just(gold)
    values = st.recursive(
        leaves,
        lambda v: st.lists(v, max_size=4) | st.dictionaries(token, v, max_size=4),
        max_leaves=8,
    )
    pairs = st.sampled_from((("[", "]"), ('{"a":', "}"), ("(", ")"), ("<answer>", "</answer>")))
    nested = st.tuples(pairs, st.sampled_from((3, 900, 20_000)), token).map(
        lambda n: n[0][0] * n[1] + n[2] + n[0][1] * n[1]
    )
    framed = st.tuples(junk, junk).map(gold.join)
    rows = st.lists(st.lists(token, min_size=2, max_size=3).map(",".join)).map("\n".join)
    written = st.just(gold) | mutated | junk | framed | nested | rows.map("row_id,y\n".__add__)
    return written | st.text() | values.map(lambda v: json.dumps(v, ensure_ascii=False))


def law(read: Callable[[], Any], gold: Score | None = None) -> None:
    """Reads twice, and holds what both say against the rules."""
    with deadline(60), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parsers, about what a model wrote
        one, two = read(), read()
    if not isinstance(one, Score):
        assert repr(one) == repr(two)
        return
    assert json.dumps(one.to_json()) == json.dumps(two.to_json())
    assert one.outcome is not None and one.reward is not None, one.why
    assert 0 <= one.outcome <= 1 and math.isfinite(one.reward)
    if gold is not None and gold.outcome is not None and gold.reward is not None:
        assert one.outcome <= gold.outcome + 1e-9 and one.reward <= gold.reward + 1e-9


@pytest.mark.parametrize("name", ["refinement", "structured", "answer", "sql"])
@settings(max_examples=30)
@given(data=st.data())
def test_no_output_of_a_family_earns_more_than_gold(name: str, data: st.DataObject) -> None:
    family, gold = BUILT_IN[name], data.draw(st.sampled_from(GOLDS[name]))
    task = Task("t", name, "t", "train", [{"role": "user", "content": "Do it."}], gold)
    right = gold_of(family, task)
    text = data.draw(outputs(right.text or json.dumps(gold.get("answer"))))
    text = f"```sql\n{text}\n```" if name == "sql" and data.draw(st.booleans()) else text
    files = {"answer.json": text.encode("utf-8", "surrogatepass")} if name == "answer" else {}
    answer = Answer(text, data.draw(st.booleans()), files if data.draw(st.booleans()) else {})
    weights = family.weights()
    law(lambda: family.score(task, answer, weights), family.score(task, right, weights))
    if name == "answer":
        for how, said in product(READINGS, (text, value_of(text))):
            law(partial(in_reading, gold, said, how))
    if name == "refinement":
        law(lambda: score_refinement(gold, text, "release", weights))


@pytest.mark.parametrize("trusted", [True, False])
@settings(max_examples=15)
@given(data=st.data())
def test_no_prediction_file_earns_more_than_gold(trusted: bool, data: st.DataObject) -> None:
    pytest.importorskip("pandas")
    gold = read_gold(data.draw(st.sampled_from(GOLDS["table"])))
    said = data.draw(outputs(gold.truth_csv)).encode("utf-8", "surrogatepass")
    try:
        check_shape(said)  # as for every file of a model's
    except Unreadable:
        return
    for reading in ("strict", "release") if trusted else ("strict",):
        right = score_table(gold, gold.truth_csv.encode(), reading, trusted=True)
        law(lambda r=reading: score_table(gold, said, r, trusted=trusted), right)


def in_reading(gold: dict[str, Any], said: Any, how: Any) -> Any:
    return score_response(gold["answer_type"], gold["answer"], {"answer": said}, how).to_json()


def release(text: str) -> Any:
    """The release's numbers of a row, its failure mode, and what explains it."""
    gold = GOLDS["refinement"][0]
    row = {"input_text": gold["input_text"], "reference_status": gold["status"]}
    row |= {"reference_text": gold["text"], "scoring_profile": "text_refinement"}
    row |= {"operator_sequence": [s["operator"] for s in gold["recipe"]]}
    said = parse(text, "release")
    numbers, _ = score_prediction(row, said.status, said.text)
    mode = failure_mode(row, said.status, said.text)
    given = (said.status, normalise(said.text))
    cause = counterfactuals(gold).get(given) if len(text) < 5_000 else ""
    return numbers, mode, cause


def value_of(text: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return "no JSON"


def script(text: str) -> Any:
    """What a script prints and plans, read by the answer contract."""
    found = blocks(text)
    return found, printed_values(text), answer_of(found.plan or text, text, False)


def calls(text: str) -> Any:
    spec = ToolSpec("run", "", CODE)
    every = [call for form in FORMATS.values() for call in form.read(text)]
    return every, [fitting(spec, call) for call in every if not call.error]


def lines(text: str) -> Any:
    """A line of `assay score`: as it is, and as an output, a response and a family."""
    answer = GOLDS["answer"][0]
    rows = [{"family": "answer", "task": answer, "output": text}]
    rows += [{"family": "answer", "task": answer, "response": value_of(text)}]
    rows += [{"family": text, "task": {}, "output": ""}]
    return [*score_lines([*text.split("\n"), *(json.dumps({"id": 1, **row}) for row in rows)])]


CALL = '<tool_call>{"name": "run", "arguments": {"code": "1 + 1"}}</tool_call>'
PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "release": (release, "<status>KEEP</status><clean_text>Mail now</clean_text>"),
    "JSON": (value_of, '{"a": [1, 2.5, null]}'),
    "script": (script, '```json\n[{"id": "main-task"}]\n```\n```python\nprint(1)\n```'),
    "tool calls": (calls, CALL + "<tool_call><function=run><parameter=code>1</parameter>"),
    "rows": (lines, json.dumps({"id": 1, "family": "answer", "task": {}, "output": "x"})),
}


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=30)
@given(data=st.data())
def test_every_parser_reads_every_output(name: str, data: st.DataObject) -> None:
    read, gold = PARSERS[name]
    text = data.draw(outputs(gold))
    law(lambda: read(text))


@pytest.mark.parametrize("name", ["JSON", "script", "tool calls", "release"])
def test_no_pattern_takes_long_over_one_mark_repeated(name: str) -> None:
    """What is not linear takes minutes for these."""
    read = PARSERS[name][0]
    for token in ("<answer>", "<tool_call>", "```json", "[", '"', "<parameter=", "\n", " "):
        with deadline(60):
            read(token * (LONG // len(token)))
