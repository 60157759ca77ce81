"""Questions in an endpoint's words, each kept only where it is proved to ask the same.

An OpenAI-compatible endpoint proposes; a check without a model decides. `lacks` proves that every
fact stands in a rewording and that none came to it. It cannot prove that a sentence means the same:
facts whose order or neighbours carry meaning are named in `Facts`, and a `Proof` asks the endpoint
what it reads in the new words alone. A refused rewording leaves the question as it was.

What the endpoint said is journalled by the hash of the request, so that the same requests over the
same journal give the same bytes and ask nobody.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib.util
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from assay.errors import install_extra
from assay.files import yaml_beside
from assay.task import TaskError
from assay.thoughts import answer_after_thoughts
from configs import KEY_ENV
from data_gen.certificate import Refusal

FILE = "rewordings.jsonl"  # the journal beside a build
WRITING, READING = 0.8, 0.0  # temperatures of a rewording, and of a proof of one
_MOST = 4000  # tokens of a reply

Request = tuple[str, int]  # (prompt, seed)
Reply = Mapping[str, str]  # request, model, text, stop
Advance = Callable[[int], Any]  # told how many requests were answered


# --- the endpoint and its journal


def add_writer(parser: argparse.ArgumentParser) -> None:
    """`--writer`, `--writer-model` and `--key-env`: an endpoint that rewords what is built."""
    group = parser.add_argument_group("an endpoint that rewords; accepted only when proved")
    url = "OpenAI-compatible endpoint; ends before /chat/completions"
    group.add_argument("--writer", default="", metavar="URL", help=url)
    group.add_argument("--writer-model", default="", metavar="NAME", help="its model")
    key = "environment variable with its key (%(default)s)"
    group.add_argument("--key-env", default=KEY_ENV, metavar="NAME", help=key)


def writer_of(args: argparse.Namespace, folder: Path) -> Endpoint | None:
    """The endpoint that a command line names, with its journal in `folder`. Raises `TaskError`."""
    if not args.writer:
        return None
    return Endpoint(args.writer, args.writer_model, folder / FILE, key_env=args.key_env)


class Endpoint:
    """An endpoint, and what it has said. `url` ends before `/chat/completions`; `journal` is a file
    beside the output; `options` are those of `OpenAIEngine`. Raises `TaskError`."""

    def __init__(self, url: str, model: str, journal: Path, **options: Any) -> None:
        if not url.startswith(("http://", "https://")):
            raise TaskError(f"--writer {url}: give a URL that starts with http:// or https://")
        if not model:
            raise TaskError(
                f"--writer {url}: name the model that it shall use (--writer-model NAME)"
            )
        if importlib.util.find_spec("aiohttp") is None:
            raise TaskError(f"asking an endpoint needs aiohttp: {install_extra('client')}")
        from assay import journal as store  # as the engine: builds that ask nobody need none

        self.url, self.model, self.journal, self._store = url, model, journal, store
        self._options: dict[str, Any] = {"in_flight": 8, "timeout_s": 300.0} | options
        self._known = self._journalled()
        self._order: list[str] = []  # of the requests so far
        self.asked = 0  # requests that the journal did not answer

    def _journalled(self) -> dict[str, Reply]:
        found: dict[str, Reply] = {}
        for number, row in enumerate(self._store.read_journal(self.journal), 1):
            if not all(isinstance(row.get(key), str) for key in ("request", "text", "stop")):
                raise TaskError(
                    f"{self.journal} line {number}: no journalled reply (request, text, stop); "
                    "remove the line, or the file, and it is asked again"
                )
            found[row["request"]] = row
        return found

    def answers(
        self, requests: Sequence[Request], temperature: float, advance: Advance = lambda _: None
    ) -> list[Reply]:
        """The reply to each request, several side by side, in the order of the requests.

        Raises `TaskError` when the endpoint cannot be had; what it said until then is in the
        journal, which keeps the order of the requests: which reply came first does not show.
        """
        names = [self._name(prompt, seed, temperature) for prompt, seed in requests]
        missing = {n: r for n, r in zip(names, requests, strict=True) if n not in self._known}
        advance(len(names) - len(missing))
        if missing:
            from rollouts.event_loop import asyncio_run

            asyncio_run(self._ask(missing, temperature, advance))
        if names:
            self._order += names
            self._known = self._journalled() | self._known  # others may ask over it
            order = dict.fromkeys([*self._order, *sorted(self._known)])
            self._store.rewrite_journal(self.journal, (self._known[name] for name in order))
        return [self._known[name] for name in names]

    def _name(self, prompt: str, seed: int, temperature: float) -> str:
        """The hash of a request: of everything that decides the reply, and not of where it went."""
        body = [self.model, prompt, temperature, _MOST, seed]
        return hashlib.sha256(json.dumps(body).encode("ascii")).hexdigest()

    async def _ask(
        self, missing: Mapping[str, Request], temperature: float, advance: Advance
    ) -> None:
        # only here: most builds ask nobody, and the engine brings half of the sampler along
        from rollouts.conversation import ContextFull
        from rollouts.engines.http_engine import EndpointError, OpenAIEngine
        from rollouts.trajectory import Sampling

        engine = OpenAIEngine(self.url, self.model, **self._options)
        sampling = Sampling(max_new_tokens=_MOST, temperature=temperature)

        async def one(name: str, prompt: str, seed: int) -> None:
            try:
                said = await engine.chat([{"role": "user", "content": prompt}], (), sampling, seed)
                text, stop = said.text, str(said.stop)
            except ContextFull:
                text, stop = "", "length"
            except EndpointError as error:
                if "no_answer" not in error.notes:
                    raise
                text, stop = "", str(error.notes["no_answer"])  # it would be so again
            row = {"request": name, "model": self.model, "text": text, "stop": stop}
            self._known[name] = row
            self.asked += 1
            self._store.append_rows(self.journal, [row])
            advance(1)

        async with engine:
            waiting = [asyncio.create_task(one(name, *asked)) for name, asked in missing.items()]
            try:
                await asyncio.gather(*waiting)
            except EndpointError as error:
                raise TaskError(
                    f"the writer gave no answer: {error}; {self.asked} new answers are kept in "
                    f"{self.journal}, and no task set was written: the same command goes on there"
                ) from None
            finally:
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)


def _said(reply: Reply) -> str:
    """The text of a reply without what a model thought before it."""
    return answer_after_thoughts(reply["text"]).strip()


# --- rewordings

CUT_OFF, SAME = "cut off", "not changed"  # codes of what says nothing new
_SHOWN = 300  # characters of a refused rewording in a report
_PROMPT = (
    "Reword this question as one colleague would ask another. Keep these to the letter:\n{kept}\n"
    "Leave nothing out, add nothing, do not answer it. Reply with the question alone, on one line."
    "\n\n{question}"
)


@dataclass(frozen=True)
class Proof:
    """One more question to the endpoint: `ask` makes the prompt from the rewording ("": nothing has
    to be asked), `against` says what the reply, given the rewording, speaks against it."""

    ask: Callable[[str], str]
    against: Callable[[str, str], Refusal | None]


@dataclass(frozen=True)
class Job:
    """A question to reword. `lacks` says why a rewording may not stand for it; `proofs` are asked
    of one that may, one after the other."""

    question: str
    prompt: str
    seed: int
    lacks: Callable[[str], Refusal | None]
    proofs: Sequence[Proof] = ()


@dataclass(frozen=True)
class Rewording:
    """The words to use. `refused` says why they are still those of the question, None where they
    are new; `said` is what the endpoint said."""

    text: str
    refused: Refusal | None = None
    said: str = ""


def job_of(question: str, facts: Facts, seed: int) -> Job:
    """A question whose rewording keeps these facts."""
    kept = "\n".join(f"- {part}" for part in named(question, facts))
    prompt = _PROMPT.format(kept=kept or "- (nothing)", question=question)
    return Job(question, prompt, seed, partial(lacks, question, facts=facts))


def reword_all(
    jobs: Sequence[Job], endpoint: Endpoint, advance: Advance = lambda _: None
) -> list[Rewording]:
    """The rewordings, in the order of the jobs. Raises `TaskError` when the endpoint cannot be had;
    what it said until then is in the journal."""
    requests = [(job.prompt, job.seed) for job in jobs]
    replies = endpoint.answers(requests, WRITING, advance)
    made = [_first(job, reply) for job, reply in zip(jobs, replies, strict=True)]
    for turn in range(max((len(job.proofs) for job in jobs), default=0)):
        asked: list[tuple[int, Proof, Request]] = []
        for place, job in enumerate(jobs):
            if made[place].refused is None and turn < len(job.proofs):
                proof = job.proofs[turn]
                if prompt := proof.ask(made[place].text):
                    asked.append((place, proof, (prompt, job.seed)))
        replies = endpoint.answers([request for *_, request in asked], READING)
        for (place, proof, _), reply in zip(asked, replies, strict=True):
            if why := proof.against(made[place].text, _said(reply)):
                made[place] = replace(made[place], text=jobs[place].question, refused=why)
    return made


def _first(job: Job, reply: Reply) -> Rewording:
    said = _said(reply)
    if reply["stop"] != "eos":
        why: Refusal | None = Refusal(CUT_OFF, reply["stop"])
    else:
        why = Refusal(SAME) if said == job.question else job.lacks(said)
    return Rewording(job.question if why else said, why, said)


def report(found: Mapping[str, Rewording]) -> dict[str, Any]:
    """Counts for a certificate, and every refused rewording by the name of its task."""
    refused = {name: (why, one.said) for name, one in found.items() if (why := one.refused)}
    counts = Counter(why.code for why, _ in refused.values())
    return {
        "asked": len(found),
        "reworded": len(found) - len(refused),
        "refused": dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))),
        "refusals": {
            name: {"why": why.coded(), "said": said[:_SHOWN]}
            for name, (why, said) in refused.items()
        },
    }


# --- what a rewording must keep

SHORTEST, LONGEST, SLACK = 0.4, 2.0, 100  # length of a rewording, in lengths of the question

_QUOTED = (
    r"(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w))*'(?!\w)|\"[^\"\n]*\"|`[^`\n]*`|“[^”\n]*”|‘[^’\n]*’(?!\w)"
)
_NUMBER = r"(?<![\w.])[-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?%?(?!\w)"
_FILE = re.compile(r"(?<![\w.])[\w-]+\.[A-Za-z]{2,8}\d?(?!\w)")
_PLAIN = frozenset(".,;:?!'’()-–—/%\"“”‘`")  # marks that any sentence may have
_CHATTER = re.compile(
    r"(?i)^(sure|certainly|of course|here(?:'s| is| are)|okay|ok\b|i'd be|as an ai|reworded"
    r"|rewritten)"
    r"|://|\bhere is (?:the|your|a) (?:reworded|rewritten)"
)
# words of one line may stand for each other; each line is in both texts or in neither
_MEANINGS = [
    re.compile(rf"(?i)\b(?:{words})\b") for words in yaml_beside(__file__, "meanings.yaml")
]


@dataclass(frozen=True)
class Facts:
    """What a rewording must keep beside numbers and quoted names, which are found by themselves.

    `literals` (file names, sentences that say how to answer) stand in it to the letter. The parts
    of each of `together` follow one another with no other fact between them ("'Area'", "above",
    "30"); the first mentions of each of `in_order` keep their order: both as far as the question
    itself has them so. No text of `gold` may come in.
    """

    literals: tuple[str, ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    in_order: tuple[tuple[str, ...], ...] = ()
    gold: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Read:
    """The facts of a text in their order, those that are numbers, and the words around them."""

    order: list[str]
    numbers: Counter[str]
    names: Counter[str]
    rest: str


def _read(text: str, known: Iterable[str]) -> _Read:
    """Facts are known texts, longer ones first, then quoted texts, then numbers."""
    wanted = sorted({k for k in known if k}, key=lambda k: (-len(k), k))
    edged = [
        ("(?<![\\w./-])" if k[0].isalnum() else "")
        + re.escape(k)
        + ("(?!\\w)" if k[-1].isalnum() else "")
        for k in wanted
    ]
    pattern = re.compile("|".join([*edged, _QUOTED, f"(?P<number>{_NUMBER})"]))
    order: list[str] = []
    numbers, names = Counter[str](), Counter[str]()
    for match in pattern.finditer(text):
        order.append(match.group(0))
        (names if match.group("number") is None else numbers)[match.group(0)] += 1
    return _Read(order, numbers, names, pattern.sub(" ", text))


def named(question: str, facts: Facts) -> list[str]:
    """The literal parts of a question that a rewording repeats unchanged: each once, in order."""
    return list(dict.fromkeys(_read(question, facts.literals).order))


def lacks(question: str, text: str, facts: Facts) -> Refusal | None:
    """Why a rewording may not stand for the question; None when it may."""
    if why := malformed(question, text):
        return why
    asked = _read(question, facts.literals)
    said = _read(text, asked.names)
    if why := _changed(asked, said, facts) or _meaning(asked.rest, said.rest):
        return why
    for groups, holds, code in (
        (facts.together, _adjoin, "parted"),
        (facts.in_order, _ordered, "another order"),
    ):
        for group in groups:
            one, two = (_read(each, [*asked.names, *group]).order for each in (question, text))
            if holds(one, group) and not holds(two, group):
                return Refusal(code, " ".join(group)[:80])
    given = any(_holds(text, answer) and not _holds(question, answer) for answer in facts.gold)
    return Refusal("the answer is in it") if given else None


def malformed(question: str, text: str) -> Refusal | None:
    """Why a text is no question in other words, whatever it says; None when it may be one."""
    if not text.strip():
        return Refusal("empty")
    if "\n" in text and "\n" not in question:
        return Refusal("several lines")
    if not all(c.isprintable() or c == "\n" for c in text):
        return Refusal("control characters")
    if _CHATTER.search(text) and not _CHATTER.search(question):
        return Refusal("more than the question")
    if len(text) < SHORTEST * len(question):
        return Refusal("too short")
    if len(text) > LONGEST * len(question) + SLACK:
        return Refusal("too long")
    odd = {c for c in text if not c.isalnum() and not c.isspace()} - set(question) - _PLAIN
    return Refusal("new marks") if odd else None


def _meaning(before: str, after: str) -> Refusal | None:
    """A word that turns the meaning and is in one text alone."""
    for pattern in _MEANINGS:
        one, two = pattern.search(before), pattern.search(after)
        if bool(one) != bool(two):
            found = one or two
            word = found.group(0).lower() if found else ""
            return Refusal(f"{'lost' if one else 'new'} word", word)
        before, after = pattern.sub(" ", before), pattern.sub(" ", after)
    return None


def _changed(asked: _Read, said: _Read, facts: Facts) -> Refusal | None:
    """A fact that is lost, or that the question does not have."""
    if new := sorted(said.numbers.keys() - asked.numbers.keys()):
        return Refusal("a new number", new[0])
    if any(c.isdigit() for c in said.rest):
        return Refusal("a new number")
    if lost := sorted((asked.numbers - said.numbers).keys()):
        return Refusal("a number is lost", lost[0])
    if more := sorted((said.numbers - asked.numbers).keys()):
        return Refusal("a number is said again", more[0])
    if lost := sorted(asked.names.keys() - said.names.keys()):
        return Refusal("lost", lost[0][:80])
    if new := sorted(said.names.keys() - asked.names.keys()):
        return Refusal("a new quoted value", new[0][:80])
    for literal in facts.literals:  # a sentence said twice, or one of two mentions left out
        if " " in literal and said.names[literal] != asked.names[literal]:
            return Refusal("said again", literal[:80])
    return Refusal("a new file name") if _FILE.search(said.rest) else None


def _ordered(said: Sequence[str], group: Sequence[str]) -> bool:
    places = [said.index(part) if part in said else -1 for part in group]
    return -1 not in places and sorted(places) == places


def _adjoin(said: Sequence[str], group: Sequence[str]) -> bool:
    size = len(group)
    return any(list(said[i : i + size]) == list(group) for i in range(len(said) - size + 1))


def _holds(text: str, part: str) -> bool:
    inner = re.escape(part.strip())
    return bool(inner) and bool(re.search(rf"(?i)(?<!\w){inner}(?!\w)", text))
