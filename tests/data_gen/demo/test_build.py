import json
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from random import Random

import pytest
from front import command
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.task import read_tasks
from data_gen.corpora import read_corpus
from data_gen.demo.build import THRESHOLDS, DemoBuilder, DemoTaskError, build_demo_tasks, preset
from data_gen.demo.cli import parse_settings
from data_gen.demo.inject import WEAVERS, Woven, weave, weave_markup, wrap
from data_gen.demo.settings import PRESETS
from data_gen.demo.wording import (
    FILTER_FORMS,
    FILTERS,
    MAPPER_FORMS,
    POLARITIES,
    filter_step,
    read_requirement,
    say_recipe,
)
from data_gen.splits import shared_passages
from rewards.cdr.score import always_drop, copy_input, gold_answer, score_refinement
from rewards.gold import OPERATORS, Step, execute
from rewards.parse import normalise

main = command("tasks")

settings.register_profile("no deadline", deadline=None)  # a loaded machine is not a failure
settings.load_profile("no deadline")
SIZES = {"train_sft": 60, "train_rl": 60, "heldout": 96}


@lru_cache
def corpus():
    shipped = read_corpus()
    return replace(shipped, documents=shipped.documents[::3])  # a third is quick and enough


@lru_cache
def built(difficulty="medium"):
    return build_demo_tasks(corpus(), preset(difficulty, **SIZES), 7)


def every_task():
    return [task for difficulty in PRESETS for split in built(difficulty) for task in split]


def test_every_task_passes_its_own_scorer_from_its_own_words():
    for task in every_task():
        run = execute(task.gold["input_text"], read_requirement(task.meta["requirement"]))
        assert (run.status, run.text) == (task.gold["status"], task.gold["text"])
        assert (run.states, run.full_run_text) == (task.gold["states"], task.gold["full_run_text"])
        score = score_refinement(task.gold, gold_answer(task.gold))
        assert (score.outcome, score.reward) == (1.0, 1.0)


def test_words_that_do_not_lead_to_gold_are_refused(monkeypatch):
    seen = []

    def draft(self, source, rng, made):
        for one in plain(self, source, rng, made):
            seen.append(replace(one, requirement="Remove every word."))
            yield seen[-1]

    plain = DemoBuilder.drafts
    monkeypatch.setattr(DemoBuilder, "drafts", draft)
    with pytest.raises(DemoTaskError, match="does not lead to gold"):
        build_demo_tasks(corpus(), preset("easy", **SIZES), 7)


def test_counts_and_classes_are_as_asked():
    sft, rl, heldout = built()
    assert (len(sft), len(rl), len(heldout)) == (60, 60, 96)
    assert Counter(t.meta["class"] for t in heldout) == {"keep": 32, "keep_filter": 32, "drop": 32}


def test_instructions_with_a_filter_do_not_tell_the_status():
    for split in built():
        said = {}
        for task in split:
            if task.meta["has_filter"]:
                said.setdefault(task.meta["requirement"], Counter())[task.gold["status"]] += 1
        assert said
        assert all(counts["KEEP"] == counts["DROP"] for counts in said.values())


def test_filters_leave_a_wide_margin():
    for task in (t for split in built() for t in split if t.meta["has_filter"]):
        spoken = task.meta["filter"]
        scale = 100 if spoken["operator"] == "alphanumeric_filter" else 1
        share = spoken["statistic"] * scale / spoken["number"]
        assert share <= 0.55 or share >= 1.8
        assert (share > 1) == ((spoken["direction"] == "min") == (task.gold["status"] == "KEEP"))


def test_lazy_answers_succeed_nowhere_but_where_nothing_was_to_do():
    heldout = built()[2]
    assert not any(score_refinement(t.gold, copy_input(t.gold)).outcome for t in heldout)
    for task in heldout:
        if score_refinement(task.gold, always_drop(task.gold)).outcome:
            assert task.gold["text"] == task.gold["input_text"]


def test_held_out_tasks_share_nothing_with_training():
    for difficulty in PRESETS:
        sft, rl, heldout = built(difficulty)
        pairs = shared_passages({"train_sft": sft, "train_rl": rl, "heldout": heldout})
        assert list(pairs) == ["train_sft and heldout", "train_rl and heldout"]
        assert not any(n for pair in pairs.values() for n in pair.values())
        inputs = [t.gold["input_text"] for t in (*sft, *rl, *heldout)]
        assert len(set(inputs)) == len(inputs)
    (same,) = shared_passages({"train_rl": heldout, "heldout": heldout}).values()
    assert all(same.values())


def test_held_out_tasks_do_not_depend_on_training_counts():
    other = build_demo_tasks(corpus(), preset("medium", **SIZES | {"train_sft": 3}), 7)
    assert other[2] == built()[2]


def test_prompts_are_short_and_name_no_operator():
    for task in every_task():
        said = task.prompt[-1]["content"]
        assert not any(name in said for name in OPERATORS)
        assert said.endswith(task.gold["input_text"])
        assert len(said) < 620


def test_files_are_the_same_bytes_twice_and_carry_a_certificate(tmp_path, capsys):
    words = [f"{name}={count}" for name, count in SIZES.items()]
    for folder in ("a", "b"):
        assert main(["demo", "--out", str(tmp_path / folder), "--seed", "8", *words]) == 0
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    heldout = read_tasks(tmp_path / "a" / "heldout.jsonl")
    assert len(heldout) == 96 and heldout != built()[2]  # another seed than built() has
    proof = json.loads((tmp_path / "a" / "certificate.json").read_text())
    assert proof["ok"] and proof["demo"]["corpus"]["documents"] == len(read_corpus().documents)
    assert "96 tasks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("train_slf=3", "did you mean train_sft"),
        ("train_sft=many", "whole number"),
        ("steady=7", "true or false"),
        ("mappers=[a, b]", "wanted a number"),
        ("mappers=1,2", "wanted a list such as [a, b]"),
        ("mappers=[0, 0]", "not all 0"),
        ("filter_share=2", "share from 0 to 1"),
        ("operators=[clean_ip]", "clean_ip_mapper"),
        ("filters=[]", "filters is empty"),
        ("difficulty=brutal", "easy, medium, hard"),
        ("heldout", "write key=value"),
    ],
)
def test_a_bad_setting_is_named(word, message, tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path), word]) == 2
    assert message in capsys.readouterr().err


def test_settings_are_read_as_their_types():
    got = parse_settings(["difficulty=easy", "mappers=[1, 2]", "steady=false", "directions=[min]"])
    assert (got.mappers, got.steady, got.directions, got.forms) == ((1.0, 2.0), False, ("min",), 1)


def test_a_corpus_too_small_for_the_settings_is_said_so(tmp_path, capsys):
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": "a", "text": "Only this one sentence is here."}\n')
    assert main(["demo", "--out", str(tmp_path / "o"), "--corpus", str(path)]) == 2
    assert "larger corpus" in capsys.readouterr().err
    with pytest.raises(DemoTaskError):
        build_demo_tasks(read_corpus(path), preset(), 0)


@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(sorted(MAPPER_FORMS)), max_size=3),
    st.sampled_from(sorted(FILTER_FORMS)),
    st.integers(0, 3),
)
def test_a_wording_reads_back_to_its_recipe(seed, mappers, kind, place):
    steps = [Step(name) for name in mappers]
    steps.insert(place, filter_step(*kind, THRESHOLDS[kind[0]][0]))
    assert read_requirement(say_recipe(steps, Random(seed), 3, POLARITIES)) == steps


def test_every_form_is_unlike_every_other():
    forms = [form for group in MAPPER_FORMS.values() for form in group]
    forms += [f for groups in FILTER_FORMS.values() for group in groups for f in group]
    assert len({form.lower() for form in forms}) == len(forms)
    assert set(FILTERS) == set(THRESHOLDS)


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from(sorted(WEAVERS)))
def test_what_a_weaver_puts_in_its_operator_takes_out(seed, operator):
    prose = 'The server keeps a copy. It\'s "safe" to restart the worker at any time.'
    woven = weave(prose, [operator], Random(seed))
    assert woven.items and normalise(woven.render()) != normalise(prose)
    cleaned = execute(woven.render(), [Step(operator)]).text
    assert normalise(cleaned) == normalise(woven.render([operator]))


def test_real_markup_becomes_items():
    woven = weave_markup('See <a href="x.html">this &amp; that</a>.')
    assert woven.render(["clean_html_mapper"]) == "See this & that."


def test_lines_never_start_with_something_to_delete():
    for seed in range(30):
        woven = weave("one two three four five six seven", ["clean_email_mapper"], Random(seed))
        lines = wrap(woven, 12).body.split("\n")
        assert not any(line[:1] >= "\ue000" for line in lines[1:])
    assert wrap(Woven("a b c"), 3).body == "a b\nc"
