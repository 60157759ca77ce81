"""Tasks over lakes from question drafts that an endpoint proposes.

It sees what the builder knows of a table and of the tables that can be joined with it, and answers
with drafts: the choices of a question (`choices.FIELDS`), no code and no answer. A draft becomes a
question by the builder's own steps, and a task by the checks that `generate` makes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

from data_gen.asking import Endpoint, answers
from data_gen.krama.lakes.choices import NoQuestion
from data_gen.krama.lakes.constants import Watch
from data_gen.krama.lakes.drawing import BATCH, tables_of
from data_gen.krama.lakes.forms import TYPES
from data_gen.krama.lakes.generate import Tally, to_task, unfit
from data_gen.krama.lakes.lake import Lake
from data_gen.krama.lakes.pipeline import Question
from data_gen.krama.lakes.questions import proposed_question
from data_gen.krama.lakes.tables import Table
from data_gen.krama.lakes.verify import validate_all
from data_gen.krama.lakes.wording import facts_of
from data_gen.proposing import Outcome, Unfit, printable, read_reply, short
from rewards.seeds import derive_seed
from rewards.task import Task

ROUNDS = 4  # times that a table is asked about, with another seed each time
ASKED = 6  # drafts that a request asks for
_VALUES = 12  # values of a column that are shown
_LINKS = 20  # joins that are shown
_FORM = """\
Propose {asked} questions worth asking over this table, as a data scientist would ask them of a
colleague. Reply with JSON alone: {{"proposals": [{{…}}, …]}}. A proposal has these fields and no
others; leave out what it does not need. Write no code and no answers: they are computed.
- "kind": one of
  "one_number" (a summary of a measure), "difference" (of a summary between two values of a column),
  "portion" (percentage of rows beyond a limit), "count_groups" (how many groups lie above the mean
  of groups), "best_group", "top_groups" (the k best), "group_values" (a summary of each group),
  "pair" (the best pair of two columns), "line" (slope or correlation of two measures),
  "between_years" (a yearly series between two years),
  "share" (percentage of a total that one value of a column has), "spread" (highest less lowest
  group), "change" (per cent between two years), "above_own" (rows above the mean of their own
  group), "nth_group" (the second or third best)
- "file": {file}
- "measure": a measure, or a list of two for "line" (the second is explained by the first)
- "by": the column to group by; a list of two for "pair", a column of years for "between_years"
  and "change"
- "part": "after_comma", "before_comma" or "in_brackets", where "by" holds two things
- "summary": "mean", "median", "total" (amounts alone), or "std" (for "one_number")
- "filter": {{"column": …, "is": value}} or {{"column": …, "above" | "below" | "at least" |
  "at most": number}}
- "join": {{"file": …, "brings": column}}; the column it brings must then be a measure or in "by". A
  list of two joins, of which one brings a measure and one a column for "by", joins three tables
- "order": "highest" or "lowest" (best_group, top_groups, nth_group, pair); "k": 2 to 5
  (top_groups); "place": 2 or 3 (nth_group)
- "values": [one, other] of "by" (difference, change); "value": of "by" (share, one_number with a
  join)
- "limit": number, "side": "above" or "below" (portion)
- "line": "slope", "correlation" or "both"
- "share": 0.25, 0.5 or 0.75; "back": 1, 2 or 3 years from the end (between_years)
- "digits": decimals of the answer; "rows": least rows of a group: 2, 3, 5 or 8
"""


def prompt(lake: Lake, place: int) -> str:
    """What an endpoint is asked about one table of a lake."""
    table = lake.tables[place]
    parts = [
        f"A folder of tables, {lake.name!r}, is to be asked questions that a program answers.",
        _said(table),
    ]
    links = lake.links[place][:_LINKS]
    if links:
        parts.append("It can be joined with:")
        parts += [
            f"- file \"{lake.tables[link.other].key}\" by '{link.mine}'; brings "
            f"{lake.tables[link.other].column(link.brings)}, "
            f"{'a measure' if link.what == 'number' else 'to group by'}"
            for link in links
        ]
    return "\n".join([*parts, "", _FORM.format(asked=ASKED, file=f'"{table.key}"')])


def _said(table: Table) -> str:
    lines = [f'file "{table.key}"{_titled(table)}, {table.rows} rows. Columns:']
    for name in table.numbers:
        kind = "a measure that adds up" if name in table.totals else "a measure"
        levels = ", ".join(f"{v:g}" for v in table.levels[name])
        lines.append(f"- {table.column(name)}: {kind}; usual values {levels or 'nearly equal'}")
    for name in table.groups:
        lines.append(f"- {table.column(name)}: to group by; {_some(table.values[name])}")
    for half in table.halves:
        what = f"holds two things; {half.cut} gives {_some(half.values)}"
        lines.append(f"- {table.column(half.column)}: {what}")
    for name in table.years:
        span = table.spans[name]
        lines.append(f"- {table.column(name)}: years from {span[0]} to {span[-1]}")
    for name in table.names:
        lines.append(f"- {table.column(name)}: names the rows")
    return "\n".join(lines)


def _titled(table: Table) -> str:
    return f" ({table.about.title})" if table.about.title else ""


def _some(values: Sequence[str]) -> str:
    shown = ", ".join(map(repr, values[:_VALUES]))
    more = f" … of {len(values)}" if len(values) > _VALUES else ""
    return f"values {shown}{more}"


def generate_proposed(
    lakes: Sequence[Lake],
    count: int,
    seed: int,
    split: str,
    tally: Tally,
    endpoint: Endpoint,
    advance: Callable[[int], Any] = lambda _: None,
) -> list[Task]:
    """At most `count` tasks from what the endpoint proposes, in the order of the requests. Fewer
    come back when a round over all tables gives none, or after `ROUNDS` of them. Raises
    `TaskError` when the endpoint cannot be had."""
    makers = _Makers(split, tally, {kind: Watch(kind) for kind in TYPES}, endpoint.model)
    made: list[Task] = []
    places = [(lake, n) for lake in lakes for n in range(len(lake.tables))]
    Random(derive_seed(seed, "lake-proposals", split)).shuffle(places)
    for turn in range(ROUNDS):
        before, waiting = len(made), iter(places)
        while len(made) < count and (part := list(islice(waiting, BATCH))):
            seeds = [derive_seed(seed, "proposals", one.name, n, turn) for one, n in part]
            asked = [(prompt(*where), own) for where, own in zip(part, seeds, strict=True)]
            tally.requests += len(asked)
            for (lake, n), own, reply in zip(part, seeds, answers(endpoint, asked), strict=True):
                of = f"{lake.name}/{lake.tables[n].key}"
                drafts, odd = read_reply(reply, of)
                tally.outcomes += odd
                for task in makers.tasks(lake, of, drafts, own, count - len(made)):
                    made.append(task)
                    advance(1)
        if len(made) in (before, count):
            break
    return made


class _Makers:
    """What turns the drafts of one split into tasks."""

    def __init__(self, split: str, tally: Tally, watches: Mapping[str, Watch], model: str) -> None:
        self.split, self.tally, self.watches, self.model = split, tally, watches, model

    def tasks(
        self, lake: Lake, of: str, drafts: Sequence[Mapping[str, Any]], seed: int, room: int
    ) -> Iterator[Task]:
        """The drafts of one reply that pass every check; what became of each is noted."""
        drawn: list[tuple[Mapping[str, Any], str, Question, int]] = []
        for draft in drafts:
            draw = derive_seed(seed, draft[""])
            try:
                kind, question = proposed_question(lake.tables, draft, draw, lake.links)
            except (Unfit, NoQuestion) as error:
                self._note(of, draft, str(error) or "the table has not what this kind needs")
                continue
            if question.shape in lake.seen:
                self._note(of, draft, "asked already")
                continue
            lake.seen.add(question.shape)
            lake.tried.update(t.key for t in tables_of(lake, question))
            drawn.append((draft, kind, question, draw))
        checked = validate_all([(question, lake.frames) for _, _, question, _ in drawn])
        for (draft, kind, question, draw), (values, why) in zip(drawn, checked, strict=True):
            if room <= 0:
                self._note(of, draft, "not needed: there were enough")
                continue
            if values is not None:
                watch = self.watches[question.steps[-1].answer_type]
                why = unfit(lake, question, values, watch, self.tally)
            else:
                self.tally.reasons[why] += 1
            self._note(of, draft, why)
            if values is not None and not why:
                room -= 1
                yield self._task(lake, question, values, kind, draw)

    def _note(self, of: str, draft: Mapping[str, Any], why: str) -> None:
        self.tally.outcomes.append(Outcome(of, draft[""], short(draft), printable(why)))

    def _task(
        self, lake: Lake, question: Question, values: dict[str, Any], kind: str, draw: int
    ) -> Task:
        task = to_task(lake, question, values, self.split, kind, draw)
        read = tables_of(lake, question)
        self.tally.facts[task.id] = facts_of(question, read, values["main-task"])
        return replace(task, meta={**task.meta, "proposed_by": self.model})
