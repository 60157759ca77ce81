"""What commands refuse: exit status 2, and one sentence that names what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mixed_tasks import write_mixed

import assay

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")

ROW = {"task_id": "t", "outcome": 1.0, "reward": 1.0, "why": "ok", "tokens_out": 1}
FILES = {
    "mining.yaml": "mining: {min_support: 3}\n",
    "sft.yaml": "sft: {lr: 1.0e-5}\n",
    "typo.yaml": "sft: {lrr: 1.0e-5}\n",
    "torn.yaml": "sft: [",
    "trained/metrics.jsonl": "",
    "begun/run.json": "{}",
    "damaged/results.json": "{",
    "twice/results.json": json.dumps({"rows": {"model": [ROW, ROW]}}),
    "one/results.json": json.dumps({"meta": {"name": "m"}, "rows": [ROW]}),
    "other/results.json": json.dumps({"meta": {"name": "m"}, "rows": [ROW | {"task_id": "z"}]}),
}
EVAL = "eval --family sums.py --model gold --out o --tasks mixed.jsonl"
# words | what the last line on standard error says
REFUSED = f"""
eval --family sums.py --model gold --out o --tasks nowhere.jsonl | nowhere.jsonl: no such file
{EVAL} mixed.jsonl | is there twice
{EVAL} --model cheat:five | no such cheat
{EVAL} --model solver:reference | is for families
{EVAL} --model canned:/nowhere | /nowhere: no such file
{EVAL} --limit -1 | --limit -1
{EVAL} sampling.n=-1 | sampling.n=-1
{EVAL} sampling.n=2 | sampling.n=2
{EVAL} sampling.temperature=-1 | sampling.temperature=-1
{EVAL} server.price=[1] | server.price=[1.0]: wanted two numbers
{EVAL} reading=loose | no family of these tasks has such a reading
{EVAL} --family /nowhere.py | no such file
{EVAL} --part 2/2 | --part 2/2
{EVAL} --temperature 1 | --temperature is the setting sampling.temperature
{EVAL} --samples 1 | --samples is the setting sampling.n
{EVAL} --engine 1 | --engine is the setting server.kind
{EVAL} --judge-url 1 | --judge-url is the setting krama.judge_url
compare one | compare
compare one none | none
compare one other | no task
report . | give a run
report none | results.json
report damaged | not valid JSON
report begun --no-view --tasks x.jsonl | --tasks goes with --inspect
report trained --no-view --inspect logs | trained: nothing was evaluated
report twice --no-view --inspect logs | two rows of 'model' are sample 0 of task t
view . | give a run directory
view none.jsonl | none
view begun | no rollouts yet
doctor rl.steps=3 | name its file with --for
doctor --for mining.yaml | of no training run
doctor --for sft.yaml --backend verl | `assay sft` has embedded and deepspeed
doctor --for typo.yaml | did you mean
doctor --for torn.yaml | not valid YAML
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refused")
    write_mixed(folder)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("case", REFUSED.strip().splitlines())
def test_what_cannot_be_done_is_refused_in_one_sentence(
    case: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    words, _, said = case.partition(" | ")
    try:
        status = assay.main(words.split())
    except SystemExit as ended:  # the parser's own, below how the command is used
        status = ended.code
    *usage, last = capsys.readouterr().err.strip().splitlines()
    assert (status, said in last) == (2, True), last
    assert not usage or usage[0].startswith("usage: ")
    assert not (place / "o" / "results.json").exists() and not (place / "view.html").exists()
