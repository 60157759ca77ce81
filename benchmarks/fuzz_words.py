"""What a model might write, drawn from a seed: mutated gold, JSON, tables, tags, numbers, junk."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

_TAGS = """
<answer> </answer> <status> </status> KEEP DROP <clean_text> </clean_text> <analyze> </analyze>
<output> </output> <result> </result> <tool_call> </tool_call> <think> </think> <function=run>
</function> <parameter=code> </parameter> ``` ```json ```python
"""
_MARKS = "{ } [ ] ( ) \" ' ` : , ; . - + % $ = # \\ \"\" '' ~ ^ & | ?"
_WORDS = """
null NaN Infinity -Infinity true false None inf nan 1e999 -1e308 1e-400 0x1f 1_000 1,000 1. .5 +1
SELECT FROM WHERE GROUP BY LIMIT UNION WITH VALUES CAST -- /* cars price rowid randomblob(9)
--1 0 1 -0 1/3 50% 2nd S1 answer main-task row_id y a,b 1,2 or and not yes no unknown the remove
"""
_PHRASES = (
    "\n",
    "\r\n",
    "\t",
    " ",
    "9" * 40,
    "9" * 5000,
    "S0 -> S1:",
    "S1 =",
    '{"answer": ',
    '{"name": "run", "arguments": ',
    "delete every e-mail address",
    "Drop it if over 100 characters",
    "Load 'a.csv'",
    "import os",
    "lambda: 0",
    "def f():\n    ",
)
# NUL, a byte order mark, spaces and line ends that are none, a lone surrogate, odd letters, digits
_ODD = "\x00\ufeff\u200b\u2028\u0085\u202e\ud800\u00e9\u00df\u0130\uff11\U0001d7d9\U0001f642"
TOKENS = (*_TAGS.split(), *_MARKS.split(), *_WORDS.split(), *_PHRASES, *_ODD)
KEYS = (
    "answer",
    "name",
    "arguments",
    "code",
    "id",
    "status",
    "text",
    "corrected_text",
    "a",
    "",
    "é",
)


def output(rng: Random, gold: str, tokens: tuple[str, ...] = TOKENS) -> str:
    """One output: mostly short, now and then up to 200,000 characters."""
    draw = rng.random()
    made = _MAKERS[rng.randrange(len(_MAKERS))](rng, gold, tokens)
    if draw < 0.01:
        made = made * rng.randint(2, 2000)
    elif draw < 0.02:
        made = rng.choice(tokens) * rng.randint(1, 30_000) + made
    return made[:200_000]


def _gold(rng: Random, gold: str, tokens: tuple[str, ...]) -> str:
    return gold


def _mutated(rng: Random, gold: str, tokens: tuple[str, ...]) -> str:
    """Gold with one to four changes."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(gold))
        end = min(len(gold), at + rng.choice((0, 1, 2, 8, 40)))
        change = rng.randrange(7)
        if change == 0:
            gold = gold[:at] + rng.choice(tokens) + gold[at:]
        elif change == 1:
            gold = gold[:at] + gold[end:]
        elif change == 2:
            gold = gold[:at] + rng.choice(tokens) + gold[end:]
        elif change == 3:
            gold = gold[:at] + gold[at:end] * 3 + gold[end:]
        elif change == 4:
            gold = gold[:at] + gold[at:end].swapcase() + gold[end:]
        elif change == 5:
            gold = gold[at:] + gold[:at]
        else:
            gold = gold[:at]
    return gold


def _tokens(rng: Random, gold: str, tokens: tuple[str, ...]) -> str:
    return "".join(rng.choice(tokens) for _ in range(rng.choice((1, 2, 5, 12, 40))))


def _framed(rng: Random, gold: str, tokens: tuple[str, ...]) -> str:
    return _tokens(rng, gold, tokens) + gold + _tokens(rng, gold, tokens)


def _characters(rng: Random, gold: str, tokens: tuple[str, ...]) -> str:
    top = rng.choice((0x7F, 0x2FF, 0xFFFF, 0x10FFFF))
    return "".join(chr(rng.randint(0, top)) for _ in range(rng.choice((0, 1, 3, 20, 200))))


def _json(rng: Random, gold: str, tokens: tuple[str, ...]) -> str:
    text = json.dumps(value(rng, gold, 3), ensure_ascii=rng.random() < 0.5)
    return _mutated(rng, text, tokens) if rng.random() < 0.3 else text


def _nested(rng: Random, gold: str, tokens: tuple[str, ...]) -> str:
    opens, closes = rng.choice((("[", "]"), ('{"a":', "}"), ("(", ")"), ("<answer>", "</answer>")))
    deep = rng.choice((3, 50, 900, 5_000, 20_000))
    return opens * deep + rng.choice(tokens) + closes * (deep - rng.choice((0, 0, 1)))


def _table(rng: Random, gold: str, tokens: tuple[str, ...]) -> str:
    names = [rng.choice(("row_id", "y", "mood", "a", "")) for _ in range(rng.randint(1, 4))]
    lines = [",".join(names)]
    for row in range(rng.choice((0, 1, 3, 24, 24))):
        cells = [str(row + 1), *(rng.choice(tokens) for _ in names[1:])]
        lines.append(rng.choice((",", ",", ",", ";", "\t")).join(cells))
    return rng.choice(("\n", "\n", "\r\n", "\r")).join(lines)


_MAKERS: tuple[Callable[[Random, str, tuple[str, ...]], str], ...] = (
    _gold,
    *[_mutated] * 3,
    _tokens,
    _framed,
    _characters,
    *[_json] * 2,
    _nested,
    _table,
)


def value(rng: Random, gold: Any, depth: int) -> Any:
    """A JSON value; now and then the gold itself, or NaN and infinities."""
    draw = rng.randrange(10 if depth else 7)
    if draw == 0:
        return gold
    if draw == 1:
        return rng.choice((None, True, False, float("nan"), float("inf"), -float("inf"), -0.0))
    if draw == 2:
        return rng.choice((0, 1, -1, 10**40, 2**63, -(2**63), 12, 7))
    if draw in (3, 4):
        return rng.choice(TOKENS)
    if draw in (5, 6):
        return rng.uniform(-1, 1) * 10.0 ** rng.randint(-320, 308)
    if draw == 7:
        return [value(rng, gold, depth - 1) for _ in range(rng.randrange(5))]
    return {rng.choice(KEYS): value(rng, gold, depth - 1) for _ in range(rng.randrange(5))}
