"""Every scorer and parser of model outputs, as a function of (random numbers, an output).

A reading returns what is to be equal twice, and the score that is held against gold where there is
one. It calls the real scorer on a task with real gold, drawn from a small fixed set.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from assay.family import BUILT_IN
from assay.task import Task
from benchmarks.fuzz_read import Read, Reading, scored
from benchmarks.fuzz_sql import sql_gold, sql_read
from rewards.audit.laws import gold_of
from rewards.cdr.errors import failure_mode
from rewards.cdr.json_answers import parse_json, score_prediction, score_structured
from rewards.cdr.release_files import metric_row
from rewards.cdr.score import RefinementReward, score_refinement
from rewards.dare.read import Unreadable, check_shape
from rewards.dare.score import read_gold, score_table
from rewards.gold import Step, execute
from rewards.krama.answer import ANSWER_TYPES, score_response
from rewards.krama.episode import AnswerReward, score_episode, subtask_credit
from rewards.parse import parse, render
from rewards.score import score_lines
from rollouts.krama.contract import answer_of, blocks, printed_values
from rollouts.tool_calls import FORMATS, ToolSpec, fitting
from train.view.explain_cdr import attribute

_TEXTS = (
    "Mail x@a.org now, then see http://a.org/x.\n\nThe  end of “it” .",
    "One line of text with 12 words and an IP 203.0.113.4 in it, no more",
    "short",
    "",
)
_RECIPES: tuple[tuple[Step, ...], ...] = (
    (Step("clean_email_mapper"), Step("clean_links_mapper")),
    (Step("clean_ip_mapper"), Step("text_length_filter", {"min_len": 0, "max_len": 40})),
    (Step("words_num_filter", {"min_num": 3}), Step("punctuation_normalization_mapper")),
)


@cache
def refinement_golds() -> tuple[dict[str, Any], ...]:
    """Every text under every recipe, executed."""
    made: list[dict[str, Any]] = []
    for text in _TEXTS:
        for recipe in _RECIPES:
            run = execute(text, recipe)
            steps = [{"operator": s.operator, "params": dict(s.params)} for s in recipe]
            made.append(
                {"input_text": text, "status": run.status, "text": run.text, "recipe": steps}
            )
    return tuple(made)


JSONS: tuple[Any, ...] = (
    {"helpfulness": 3, "correctness": 4, "verbosity": 1},
    {"safe": True, "violated_categories": ["s1", "s2"], "reason": None},
    {"rows": [{"a": 1.5, "b": "x"}, {"a": -2, "b": ""}], "total": 2},
    [1, "a", None],
)
ANSWERS: Mapping[str, tuple[Any, ...]] = {
    "numeric_exact": (12, 0, -3.5, 10**12),
    "numeric_approximate": (0.4875, 0, -1e-9, 1e15),
    "string_exact": ("Amherst", "1.5", "None"),
    "string_approximate": ("U.S. Space Force", "Yes", "Rome is larger than Milan", "…"),
    "list_exact": (["a", "b"], [1, 2.5], [], [["a", 1], ["b", 2]]),
    "list_approximate": ([1.5, 2.25], ["a", "b c"], [0.0]),
}
_NUMBERS = "row_id,y\n" + "".join(f"{i},{i * 37 % 11 / 7:.4f}\n" for i in range(1, 25))
_LABELS = "row_id,mood\n" + "".join(f"{i},{'abc'[i * i % 3]}\n" for i in range(1, 25))
_DATED = "day,shop,y\n" + "".join(f"2024-01-{i:02},s{i % 3},{i * 1.5}\n" for i in range(1, 25))
TABLES: tuple[dict[str, Any], ...] = (
    {"task_type": "reg-MM", "truth_csv": _NUMBERS, "key_columns": ["row_id"], "targets": ["y"]},
    {"task_type": "reg-IF", "truth_csv": _NUMBERS, "key_columns": ["row_id"], "targets": ["y"]},
    {"task_type": "class-MM", "truth_csv": _LABELS, "key_columns": ["row_id"], "targets": ["mood"]},
    {"task_type": "class-IF", "truth_csv": _LABELS, "key_columns": ["row_id"], "targets": ["mood"]},
    {
        "task_type": "time-CF",
        "truth_csv": _DATED,
        "key_columns": ["day", "shop"],
        "targets": ["y"],
    },
)
_SPEC = ToolSpec(
    "run",
    "",
    {
        "type": "object",
        "properties": {
            "code": {"type": "string"},
            "rows": {"type": "array", "items": {"type": "integer"}},
            "deep": {"type": "object"},
        },
        "required": ["code"],
    },
)


def _refinement(parsing: str, weights: RefinementReward, mode: str) -> Callable[[int, str], Read]:
    def read(pick: int, text: str) -> Read:
        gold = refinement_golds()[pick % len(refinement_golds())]
        gold = gold | ({"mode": mode} if mode else {})
        score = score_refinement(gold, text, parsing, weights, truncated=pick % 17 == 16)
        right = render(gold["status"], gold["text"])
        return scored(score, score_refinement(gold, right, parsing, weights))

    return read


def _refined(pick: int) -> str:
    gold = refinement_golds()[pick % len(refinement_golds())]
    return render(gold["status"], gold["text"])


def _structured_row(pick: int) -> dict[str, Any]:
    value = JSONS[pick % len(JSONS)]
    row: dict[str, Any] = {"input_text": "a text", "reference_text": json.dumps(value)}
    if isinstance(value, dict) and pick % 2:
        row |= {
            "scoring_profile": "mixed_structured_text",
            "reference_json": {**value, "corrected_text": "a text."},
            "reference_text": "a text.",
        }
    return row


def _structured_gold(pick: int) -> str:
    row = _structured_row(pick)
    return json.dumps(row["reference_json"]) if "reference_json" in row else row["reference_text"]


def _structured(parsing: str) -> Callable[[int, str], Read]:
    def read(pick: int, text: str) -> Read:
        row = _structured_row(pick)
        gold = score_structured(row, _structured_gold(pick), parsing)
        return scored(score_structured(row, text, parsing), gold)

    return read


def _json(pick: int, text: str) -> Read:
    try:
        return Read(repr(parse_json(text))[:10_000])
    except (ValueError, RecursionError):
        return Read("no JSON")


def _prediction(pick: int, text: str) -> Read:
    """The release's numbers of a row, for each profile; failure modes and attributions."""
    if pick % 2:
        row = _structured_row(pick)
        score = score_prediction(row, "KEEP", text)
        return Read(json.dumps(metric_row(score, row, text), sort_keys=True, default=str))
    gold = refinement_golds()[pick % len(refinement_golds())]
    row = {
        "input_text": gold["input_text"],
        "reference_status": gold["status"],
        "reference_text": gold["text"],
        "scoring_profile": "text_refinement",
        "operator_sequence": [s["operator"] for s in gold["recipe"]],
    }
    said = parse(text, "release")
    score = score_prediction(row, said.status, said.text)
    mode = failure_mode(row, said.status, said.text) if len(text) < 5_000 else ""
    cause = attribute(gold, said.status, said.text) if len(text) < 5_000 else ""
    return Read((json.dumps(metric_row(score, row, text), sort_keys=True), mode, cause))


def _analysis(pick: int) -> str:
    return "<analyze>\n1. Remove e-mail addresses.\nS0 -> S1: remove links\n</analyze>" + _refined(
        pick
    )


def _table(reading: str, trusted: bool) -> Callable[[int, str], Read]:
    def read(pick: int, text: str) -> Read:
        gold = read_gold(TABLES[pick % len(TABLES)])
        data = text.encode("utf-8", "surrogatepass")
        try:
            check_shape(data)  # as for every file of a model's
        except Unreadable:
            return Read("unreadable")
        score = score_table(gold, data, reading, trusted=trusted)
        return scored(score, score_table(gold, gold.truth_csv.encode(), reading, trusted=True))

    return read


def _table_gold(pick: int) -> str:
    return str(TABLES[pick % len(TABLES)]["truth_csv"])


def _answer_of(pick: int) -> tuple[str, Any]:
    kind = ANSWER_TYPES[pick % len(ANSWER_TYPES)]
    golds = ANSWERS[kind]
    return kind, golds[pick // len(ANSWER_TYPES) % len(golds)]


def _answer_gold(pick: int) -> str:
    gold = _answer_of(pick)[1]
    return gold if isinstance(gold, str) else json.dumps(gold)


def _response(text: str) -> Any:
    """The output as an answer's value: JSON where it is some, else text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _answers(reading: Any) -> Callable[[int, str], Read]:
    def read(pick: int, text: str) -> Read:
        kind, gold = _answer_of(pick)
        response = {"answer": _response(text) if pick % 3 else text}
        score = score_response(kind, gold, response, reading)
        if reading == "release":  # its metrics are not bounded by gold: lists are read as text
            return Read(json.dumps(score.to_json(), sort_keys=True))
        return scored(score, score_response(kind, gold, {"answer": gold}, reading))

    return read


def _episode(pick: int, text: str) -> Read:
    kind, gold = _answer_of(pick)
    steps = [{"step": "Load 'a.csv'", "answer_type": "numeric_exact", "answer": 592}]
    task = {"answer_type": kind, "answer": gold, "subtasks": steps}
    files: dict[str, bytes] = {}
    if pick % 2:
        data = text.encode("utf-8", "surrogatepass")
        files = {"answer.json": data, "pipeline.py": data}
    right = score_response(kind, gold, {"answer": gold})
    return scored(score_episode(task, text, files, False, AnswerReward()), right)


def _episode_gold(pick: int) -> str:
    gold = _answer_of(pick)[1]
    if pick % 2:
        return json.dumps({"response": {"answer": gold}, "values": [1, 592]})
    return f"<answer>{_answer_gold(pick)}</answer>"


def _pipeline(pick: int, text: str) -> Read:
    """What a script prints and plans, read by the answer contract."""
    found = blocks(text)
    printed = printed_values(text)
    answers = answer_of(found.plan or text, text, pick % 5 == 0)
    steps = [{"answer_type": k, "answer": g[0]} for k, g in ANSWERS.items()]
    credit = subtask_credit(steps, list(printed.values()) if printed else [text])
    return Read(repr((found, printed, answers, credit))[:10_000])


def _pipeline_gold(pick: int) -> str:
    plan = json.dumps([{"id": "main-task", "subtasks": [{"id": "subtask-1"}]}])
    if pick % 2:
        return json.dumps({"main-task": 12, "subtask-1": [1, "a"]})
    return f"```json\n{plan}\n```\n```python\nimport pandas as pd\nprint(pd.read_csv('a.csv'))\n```"


def _calls(name: str) -> Callable[[int, str], Read]:
    form = FORMATS[name]

    def read(pick: int, text: str) -> Read:
        calls = form.read(text)
        fits = [fitting(_SPEC, call) for call in calls if not call.error]
        return Read(repr((calls, fits))[:10_000])

    return read


def _call_gold(name: str) -> Callable[[int], str]:
    return lambda pick: FORMATS[name].write("run", {"code": "1 + 1", "rows": [1, pick], "deep": {}})


def _rows(pick: int, text: str) -> Read:
    """A line of `assay score`, valid JSON or not."""
    kind, gold = _answer_of(pick)
    tasks: tuple[dict[str, Any], ...] = (
        {"family": "answer", "task": {"answer_type": kind, "answer": gold}, "output": text},
        {"family": "refinement", "task": refinement_golds()[0], "output": text},
        {"family": "structured", "task": _structured_row(pick), "output": text},
        {"family": "answer", "task": _response(text), "response": _response(text)},
        {"family": text, "task": {}, "output": ""},
    )
    line = text if pick % 6 == 5 else json.dumps({"id": 1, **tasks[pick % 5]})
    return Read(json.dumps([*score_lines(line.split("\n"))], sort_keys=True))


def _family(name: str) -> Callable[[int, str], Read]:
    """The built-in family's own entry, with the output as text and as every file."""

    def read(pick: int, text: str) -> Read:
        from assay.task import Answer

        family = BUILT_IN[name]
        gold = _GOLDS[name](pick)
        task = Task("t", name, "t", "train", [{"role": "user", "content": "Do it."}], gold)
        data = text.encode("utf-8", "surrogatepass")
        answer = Answer(text, pick % 7 == 0, {"answer.json": data} if pick % 2 else {})
        weights = family.weights()
        if name == "answer" and pick % 2 == 0:
            weights = replace(weights, reading="table3")
        right = family.score(task, gold_of(family, task), weights)
        return scored(family.score(task, answer, weights), right)

    return read


_GOLDS: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "refinement": lambda pick: refinement_golds()[pick % len(refinement_golds())],
    "structured": _structured_row,
    "answer": lambda pick: dict(zip(("answer_type", "answer"), _answer_of(pick), strict=True)),
}
_PLAIN = RefinementReward()
READINGS: tuple[Reading, ...] = (
    Reading("refinement strict", 10, _refined, _refinement("strict", _PLAIN, "")),
    Reading("refinement release", 10, _refined, _refinement("release", _PLAIN, "")),
    Reading("refinement, plan first", 4, _analysis, _refinement("strict", _PLAIN, "plan_first")),
    Reading("structured strict", 8, _structured_gold, _structured("strict")),
    Reading("structured release", 8, _structured_gold, _structured("release")),
    Reading("JSON of a response", 4, _structured_gold, _json),
    Reading("release predictions", 4, _refined, _prediction),
    Reading("table strict", 2, _table_gold, _table("strict", True)),
    Reading("table release", 2, _table_gold, _table("release", True)),
    Reading("table strict, confined", 1, _table_gold, _table("strict", False)),
    Reading("answers table3", 12, _answer_gold, _answers("table3")),
    Reading("answers release", 8, _answer_gold, _answers("release")),
    Reading("answer episodes", 8, _episode_gold, _episode),
    Reading("pipelines", 4, _pipeline_gold, _pipeline),
    Reading("tool calls hermes", 6, _call_gold("hermes"), _calls("hermes")),
    Reading("tool calls hermes_brief", 2, _call_gold("hermes_brief"), _calls("hermes_brief")),
    Reading("tool calls qwen_xml", 6, _call_gold("qwen_xml"), _calls("qwen_xml")),
    Reading("rows of assay score", 4, _answer_gold, _rows),
    Reading("family refinement", 2, _refined, _family("refinement")),
    Reading("family structured", 2, _structured_gold, _family("structured")),
    Reading("queries", 1, sql_gold, sql_read),
    Reading("family answer", 2, _episode_gold, _family("answer")),
)


def drawn(rng: Random) -> Reading:
    """One reading, by weight."""
    return rng.choices(READINGS, [r.weight for r in READINGS])[0]
