"""Settings of the commands that ask a model: one dialect, and what options were called before."""

from __future__ import annotations

import pytest

from configs.answers import EvaluationConfig, RolloutConfig, ServeConfig
from configs.loader import ConfigError, dotted_docs
from train.cli import model_options, serve
from train.cli.eval import parser as eval_parser
from train.cli.rollout import parser as rollout_parser

WORDS = ["--model", "m", "--tasks", "t.jsonl", "--out", "o"]


@pytest.mark.parametrize(
    ("option", "setting"),
    [
        ("--temperature", "sampling.temperature"),
        ("--samples", "sampling.n"),
        ("--workers", "server.in_flight"),
        ("--chat-template-kwargs", "model.chat_template_kwargs"),
        ("--engine", "server.kind"),
        ("--judge-url", "krama.judge_url"),
    ],
)
def test_an_earlier_option_is_refused_with_the_name_of_its_setting(
    option: str, setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        eval_parser().parse_intermixed_args([*WORDS, option, "1"])
    said = f"{option} is the setting {setting}: write {setting}=VALUE"
    assert said in capsys.readouterr().err


def test_settings_may_follow_what_takes_all_words() -> None:
    args = eval_parser().parse_intermixed_args([*WORDS, "--gather", "a", "b", "sampling.n=2"])
    args.tasks += ["engine.slots=3"]
    model_options.settle(args, EvaluationConfig, answers=False, temperature=1.0)
    assert (args.n, args.slots, args.temperature) == (2, 3, 1.0)
    assert args.tasks == ["t.jsonl"] and [*map(str, args.gather)] == ["a", "b"]


def test_a_section_may_be_given_as_a_whole() -> None:
    args = rollout_parser().parse_intermixed_args(
        [*WORDS, 'server.request={"top_k": 1, "a": null}']
    )
    model_options.settle(args, RolloutConfig, answers=False, temperature=1.0)
    assert args.request_fields == {"top_k": 1, "a": None}
    args = rollout_parser().parse_intermixed_args([*WORDS, "sampling.temprature=1"])
    with pytest.raises(ConfigError, match=r"did you mean sampling\.temperature\?"):
        model_options.settle(args, RolloutConfig, answers=False, temperature=1.0)


def test_the_help_lists_every_setting_and_few_options() -> None:
    for made, kind in (
        (eval_parser(), EvaluationConfig),
        (rollout_parser(), RolloutConfig),
        (serve.parser(), ServeConfig),
    ):
        text = made.format_help()
        assert all(f"  {name}=" in text for name in dotted_docs(kind))
        assert all(doc for _, doc in dotted_docs(kind).values())
        options = [a for a in made._actions if a.option_strings and "-h" not in a.option_strings]
        assert len(options) <= 16
