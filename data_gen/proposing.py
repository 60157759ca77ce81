"""Tasks that an endpoint proposes: where it is, what it said, and what became of each proposal.

A proposal is a small JSON object of choices that the builder has itself; it holds no code and no
answer. It is read field by field and passes every check that the builder's own drafts pass.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from data_gen.asking import FILE, Endpoint, Reply, said
from data_gen.inputs import Input
from rewards.console import Parser, near_miss
from rewards.task import TaskError

MOST = 12  # proposals that are read of one reply
BASE_URL = "OPENAI_BASE_URL"  # the endpoint of a model that is given by its name alone
_SHOWN = 120  # characters of a proposal in a report
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.S)


class Unfit(ValueError):
    """A proposal that cannot become a task; the text says why."""


@dataclass(frozen=True)
class Outcome:
    """What became of one proposal: `of` is the input it was made for, `number` its place in the
    reply, from 1 (0: the reply itself), `what` the proposal in short, `why` "" where it became a
    task."""

    of: str
    number: int
    what: str
    why: str = ""

    def row(self, licence: str = "unknown") -> Input:
        """Its line of refused.jsonl."""
        place = f"proposal {self.number}" if self.number else "reply"
        return Input(f"{self.of}, {place}: {self.what}", 0, (self.why,), licence)


def add_options(parser: Parser) -> None:
    """`--proposer` and `--proposer-model`."""
    group = parser.add_argument_group("an endpoint that proposes tasks; proof decides")
    group.add_argument(
        "--proposer",
        default="",
        metavar="URL|MODEL",
        help="OpenAI-compatible endpoint that proposes what to ask, in place of the builder's own "
        f"drafts; a model's name alone is looked for at ${BASE_URL}",
    )
    group.add_argument("--proposer-model", default="", metavar="NAME", help="its model")


def proposer(given: str, model: str, key_env: str, out: Path) -> Endpoint:
    """The endpoint of `--proposer`, with the journal of the folder. Raises `TaskError`."""
    if given.startswith(("http://", "https://")):
        if not model:
            raise TaskError("--proposer: name the model of this endpoint with --proposer-model")
        return Endpoint(given, model, out / FILE, key_env, role="proposer")
    if model:
        raise TaskError(
            f"--proposer {given}: give a URL of http or https beside --proposer-model, or the "
            "model's name alone"
        )
    url = os.environ.get(BASE_URL, "")
    if not url:
        raise TaskError(
            f"--proposer {given}: no URL, so ${BASE_URL} must say where this model is served; give "
            "--proposer URL --proposer-model NAME, or set it"
        )
    return Endpoint(url, given, out / FILE, key_env, role="proposer")


def read_reply(reply: Reply, of: str) -> tuple[list[dict[str, Any]], list[Outcome]]:
    """(the proposals of a reply, at most `MOST`; what cannot be read of it). Never raises for what
    a model wrote."""
    text = said(reply)
    found = _json_in(text)
    listed: Any = cast("dict[str, Any]", found).get("proposals") if _is_object(found) else found
    if listed is None and _is_object(found):
        listed = [found]  # one proposal by itself
    if not isinstance(listed, list):
        why = "cut off before its end" if reply["stop"] != "eos" else "no JSON with proposals"
        return [], [Outcome(of, 0, short(text), why)]
    kept: list[dict[str, Any]] = []
    odd: list[Outcome] = []
    rows = cast("list[Any]", listed)
    for number, row in enumerate(rows, 1):
        if number > MOST:
            odd.append(Outcome(of, number, short(row), f"more than {MOST} in one reply"))
        elif _is_object(row):
            kept.append({str(k): v for k, v in row.items()} | {"": number})
        else:
            odd.append(Outcome(of, number, short(row), "no JSON object"))
    return kept, odd


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _json_in(text: str) -> Any:
    """The JSON of a reply: all of it, a fenced block, or from the first bracket to the last."""
    blocks = [text, *_FENCED.findall(text)]
    starts = [text.find(c) for c in "{[" if c in text]
    ends = [text.rfind(c) for c in "}]" if c in text]
    if starts and ends:
        blocks.append(text[min(starts) : max(ends) + 1])
    for block in blocks:
        try:
            return json.loads(block, parse_constant=_no_number)
        except (ValueError, RecursionError):
            continue
    return None


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def short(value: Any) -> str:
    """A proposal, or what stands in its place, on one line."""
    if _is_object(value):
        value = {k: v for k, v in cast("dict[str, Any]", value).items() if k}
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = "…"
    text = printable(text[: 2 * _SHOWN])
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 2]} …"


def printable(text: str) -> str:
    """The text with a blank for every mark that no file may hold as it is (halves of a pair)."""
    return "".join(c if c.isprintable() else " " for c in text)


def check_fields(row: Mapping[str, Any], known: Sequence[str], where: str = "") -> None:
    """Raises `Unfit` for a field that the form does not have."""
    for name in row:
        if name and name not in known:
            raise Unfit(f"no field {name[:40]!r}{where}{near_miss(name, known)}")


def text_in(row: Mapping[str, Any], name: str) -> str:
    """A field of text, "" where it is not given. Raises `Unfit`."""
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Unfit(f"{name}: wanted text, not {short(value)}")
    return value.strip()


def texts_in(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A field of names: a list, or one by itself. Raises `Unfit`."""
    value = row.get(name)
    if value is None:
        return ()
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not all(isinstance(item, str) and item.strip() for item in items):
        raise Unfit(f"{name}: wanted names of columns, not {short(value)}")
    names = [str(item).strip() for item in items]
    if len(set(names)) < len(names):
        raise Unfit(f"{name}: one name stands there twice")
    return tuple(names)


def told(model: str, asked: int, outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Counts for a certificate; every refused proposal is in refused.jsonl."""
    rows = list(outcomes)
    why = Counter(kind(one.why) for one in rows if one.why)
    return {
        "model": model,
        "requests": asked,
        "proposals": sum(one.number > 0 for one in rows),
        "accepted": sum(not one.why for one in rows),
        "refused": dict(sorted(why.items(), key=lambda pair: (-pair[1], pair[0]))),
    }


def kind(why: str) -> str:
    """A reason without the names in it: what stands in quotation marks, in brackets, or after a
    colon."""
    text = re.sub(r"'[^']*'|`[^`]*`|“[^”]*”", "…", re.split(r": |; ", why)[0])
    return re.sub(r"\s*\([^()]*\)", "", text)[:80].strip()
