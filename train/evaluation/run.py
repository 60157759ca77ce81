# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownVariableType=false
"""`assay eval`: open the tasks, let the model answer, score, tabulate, write, print.

`--out` gets `results.json`, `rows.jsonl` (the journal, with conversations), `report.html`, and the
official files of the benchmarks that were asked for by name.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from assay.family import (
    family_named,
    family_of,
    has_family,
    require_families,
    slices_of,
    use_families,
)
from assay.files import write_bytes, write_text
from assay.journal import (
    ASKED,
    key_of,
    read_journal,
    read_record,
    refuse_other,
    refuse_other_tasks,
    task_hash,
)
from assay.record import installed, revision
from assay.task import (
    Answer,
    Task,
    TaskError,
    derive_seed,
    json_text,
    read_tasks,
    refuse_without_gold,
    with_absolute_files,
)
from configs.loader import ConfigError, read_section
from configs.schema import weights_of
from rollouts.environments import EnvironmentFactory
from rollouts.sampler import answered
from rollouts.trajectory import Trajectory
from train.evaluation.answering import (
    UNASKED,
    Given,
    Job,
    answer_all,
    environment_factory,
    in_its_words,
    is_folder,
    is_remote,
    say_end,
    thinking,
)
from train.evaluation.benchmarks import (
    FAMILIES,
    HELDOUT,
    OF_A_RELEASE,
    Evaluation,
    Opened,
    all_heldout,
    benchmark,
    benchmark_of,
    plan_of,
    splits_of,
    way_of,
)
from train.evaluation.results import RECORD, RESULTS, ROWS, text_table
from train.evaluation.rows import baseline_rows, reference_answer, row_of, scorer
from train.evaluation.tables import Draw, tables
from train.report.write import write_page, write_rollouts
from train.run.record import PACKAGES, machine
from train.run.trained_on import NAME, read_trained

Row = dict[str, Any]
# what rows.jsonl keeps and results.json does not
JOURNAL_ONLY = frozenset(("messages", "file_texts", ASKED))


MOST_SHOWN = 10_000  # answers that a page is written of unasked; `assay view` writes any


def run(command: Evaluation) -> int:
    """Evaluate as the settled options of `assay eval` say; returns the exit status."""
    command = replace(command, name=command.name or model_name(command))
    aside = sys.stderr if command.json else sys.stdout  # --json: nothing but one object on stdout
    with contextlib.redirect_stdout(aside):
        data, given = evaluate(command)
    if len(data["rows"]) <= MOST_SHOWN:
        write_rollouts(command.out, files_of(command.tasks))
    page = write_page(command.out, data)
    if command.json:
        shown = {k: v for k, v in data.items() if k != "rows"}
        print(json.dumps(shown, ensure_ascii=False, default=str))
    else:
        for found in data["benchmarks"].values():
            print(f"{found['text']}\n")
        print(text_table(data))
        if short := data["tables"]["overall"].get("k_short"):
            print(f"{short} tasks lack an answer and are left out of avg@k and pass@k")
        print(f"results: {command.out / RESULTS}\nreport: {page}")
    return say_end("assay eval", data["rows"], given)


def model_name(command: Evaluation) -> str:
    """What the model is called in tables and file names."""
    if is_remote(command.who):
        return Path(command.server.model).name
    kind, colon, rest = command.who.partition(":")
    return f"{kind}:{Path(rest).name}" if colon else Path(kind).name


def evaluate(command: Evaluation) -> tuple[dict[str, Any], Given]:
    """Run an evaluation and write its files; returns what results.json holds, and how its rows were
    had."""
    use_families(command.family)
    command = in_its_words(command)
    shop = environment_factory(command)
    asked = open_all(command.tasks, command)
    equipped = [shop.equip(task) for task in asked.tasks]
    asked = replace(asked, tasks=command.asked_in.asked(equipped))
    weights = weights_for(command, asked)
    for line in [*(line for part in asked.opened for line in part.said), asked.seen.said]:
        if line:
            print(line, flush=True)
    draw = Draw(seed=command.seed)
    # first: gold that is no use ends it here
    references = {} if command.no_baselines else baseline_rows(asked.tasks, weights)
    baselines = {name: tables(rows, draw) for name, rows in references.items()}
    rows, given = _answered(asked, command, shop, weights)
    command.out.mkdir(parents=True, exist_ok=True)
    data = {
        "meta": _meta(asked, command, weights, given),
        "tables": tables(rows, draw),
        "baselines": baselines,
        "rows": [{k: v for k, v in row.items() if k not in JOURNAL_ONLY} for row in rows],
        "benchmarks": _official(asked, rows, command),
        "files": _own_tables(rows, command.out),
    }
    write_bytes(command.out / RESULTS, json_text(data, indent=1, default=str))
    return data, given


def weights_for(command: Evaluation, asked: Asked) -> dict[str, Any]:
    """Weights by family: `reward.<family>.<setting>=value`, `reading`, and what benchmarks ask
    for. Raises `ConfigError`."""
    reward: dict[str, dict[str, Any]] = {name: dict(own) for name, own in command.reward.items()}
    for name in dict.fromkeys(part.benchmark for part in asked.opened if part.benchmark):
        for family, values in benchmark(name).rewards(command).items():
            reward.setdefault(family, {}).update(values)
    if command.reading:
        for family in _reading_families(command.reading, asked.tasks):
            reward.setdefault(family, {})["reading"] = command.reading
    return weights_of(reward, "command line")


def _reading_families(reading: str, tasks: Sequence[Task]) -> list[str]:
    """The tasks' families whose scorer has this reading."""
    found: list[str] = []
    for name in dict.fromkeys(task.family for task in tasks):
        try:
            read_section(family_named(name).weights, {"reading": reading}, "reading", "")
            found.append(name)
        except ConfigError:
            continue
    if not found:
        raise ConfigError(f"reading={reading}: no family of these tasks has such a reading")
    return found


def _answered(
    asked: Asked, command: Evaluation, shop: EnvironmentFactory, weights: Mapping[str, Any]
) -> tuple[list[Row], Given]:
    """(all rows in the tasks' order, how they were had)."""
    score = scorer(weights)

    def row(task: Task, run: Trajectory) -> Row:
        scored, name = score(task, run), asked.benchmark(task)
        made = row_of(task, run, scored, command.server.price)
        if name:
            way = way_of(task, name)
            made["more"] = way.more(task, run, scored, command) if way is not None else {}
        if task.id in asked.seen.ids:
            made["trained_on"] = True
        if task.tools or name:  # the prompts of a benchmark stand in no file of tasks
            made["messages"] = run.messages
        return made

    def parts(settings: Mapping[str, Any]) -> Any:
        return gathered(command.gather, asked.tasks, settings, command.sampling.n)

    job = Job(
        tasks=asked.tasks,
        shop=shop,
        plan=lambda task, command, words: plan_of(task, command, words, asked.benchmark(task)),
        row=row,
        place=command.out / ROWS,
        record=command.out / RECORD,
        servers=command.out / "servers",
        what="evaluating",
        reference=reference_answer,
        gathered=parts if command.gather else None,
    )
    given = answer_all(command, job)
    for task, j in given.missing:
        given.rows[task.id, j] = row(task, answered(task, Answer(failure=UNASKED), j, command.seed))
    return given.ordered(asked.tasks), given


def _meta(
    asked: Asked, command: Evaluation, weights: Mapping[str, Any], given: Given
) -> dict[str, Any]:
    trained, opened = asked.seen.to_json(), asked.opened
    named = {part.asked for part in opened}  # what all that was opened calls its tasks
    return {
        "name": command.name,
        "model": command.who,
        "tasks": list(command.tasks),
        "opened": [{"benchmark": o.benchmark, **o.notes} for o in opened],
        "rows_left_out": sum(int(o.notes.get("rows_left_out") or 0) for o in opened),
        "heldout": all(o.heldout for o in opened) and not trained["included"],
        "splits": [o.split for o in opened if o.split],
        "tasks_are": named.pop() if len(named) == 1 and not trained["included"] else "",
        "trained_on": trained,
        "asked": len(asked.tasks),
        "found": sum(len(o.tasks) for o in opened),
        "limit": command.limit,
        "chosen": asdict(command.chosen),
        "samples": command.sampling.n,
        "seed": command.seed,
        "families": sorted({f.origin for f in map(family_of, asked.tasks) if f.origin}),
        "weights": {n: vars(weights[n]) for n in sorted({t.family for t in asked.tasks})},
        "thinking": thinking(command),
        "words": command.asked_in.record(asked.tasks),
        "versions": installed(PACKAGES),
        "code": revision(),
        "machine": machine(),
        "settings": given.settings,
        "answered_by": given.answered_by,
    }


def _official(asked: Asked, rows: Sequence[Row], command: Evaluation) -> dict[str, Any]:
    """The own files and numbers of every benchmark that was opened by name."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(part.benchmark for part in asked.opened if part.benchmark):
        write = benchmark(name).tables
        if write is None:
            continue
        by_id = {t.id: t for t in asked.tasks if asked.opened[asked.of[t.id]].benchmark == name}
        mine = [row for row in rows if row["task_id"] in by_id]
        made = write([by_id[str(row["task_id"])] for row in mine], mine, command.out, command)
        found[name] = {**made.numbers, "text": made.text}
    return found


def _own_tables(rows: Sequence[Row], out: Path) -> list[str]:
    """Files of families from outside: their `tables` gives (name, text) pairs."""
    written: list[str] = []
    for name in dict.fromkeys(str(row["family"]) for row in rows):
        family = family_named(name)
        if family.tables is None:
            continue
        for file, text in family.tables([row for row in rows if row["family"] == name]):
            if Path(file).name != file:
                raise ConfigError(f"family {name}: its table {file!r} is no plain file name")
            write_text(out / file, str(text), errors="backslashreplace")
            written.append(file)
    return written


# --- `--gather`: finished parts as one evaluation ------------------------------------------------


def gathered(
    folders: Sequence[Path], tasks: Sequence[Task], settings: Mapping[str, Any], samples: int
) -> tuple[dict[tuple[str, int], Row], list[dict[str, str]]]:
    """(rows by task and sample, what answered them) of finished parts. Raises `TaskError` for a
    part that is not finished, has other settings, or does not belong; and where tasks are left."""
    rows: dict[tuple[str, int], Row] = {}
    answered_by: list[dict[str, str]] = []
    asked = {task.id: task_hash(task) for task in tasks}
    for folder in folders:
        record = _record(folder)
        refuse_other(folder, record, json.loads(json_text(settings)), "--gather")
        found = {key_of(row, folder / ROWS): row for row in read_journal(folder / ROWS)}
        refuse_other_tasks(folder, found, asked, "--gather")
        twice = sorted(found.keys() & rows.keys())
        if twice:
            raise TaskError(
                f"--gather {folder}: task {twice[0][0]} is in another part too; give each part once"
            )
        rows |= found
        answered_by += record.get("answered_by") or []
    missing = [t.id for t in tasks for j in range(samples) if (t.id, j) not in rows]
    if missing:
        raise TaskError(
            f"--gather: {len(missing)} answers are in no part, the first of task {missing[0]}; "
            "give all parts"
        )
    return rows, answered_by


def _record(folder: Path) -> dict[str, Any]:
    if not (folder / RESULTS).is_file():
        raise TaskError(
            f"--gather {folder}: this part is not finished (it has no {RESULTS}); run its command "
            "again"
        )
    return read_record(folder / RECORD) or {}


# --- rows that the model was trained on ----------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What the model's record says of the tasks asked for.

    `stages` is None where there is no record to look at. `ids` are the tasks that were trained on;
    they are among the tasks evaluated only if `included`. `said`: the same in words.
    """

    stages: Sequence[str] | None = None
    ids: frozenset[str] = frozenset()
    included: bool = False
    said: str = ""

    def to_json(self) -> dict[str, Any]:
        """For results.json."""
        return {
            "record": self.stages is not None,
            "stages": list(self.stages or ()),
            "rows": len(self.ids),
            "left_out": 0 if self.included else len(self.ids),
            "included": self.included and bool(self.ids),
            "said": self.said,
        }


def without_trained(tasks: Sequence[Task], command: Evaluation) -> tuple[list[Task], Seen]:
    """The tasks to ask, and what is known: rows that the model was trained on are left out unless
    `--include-trained`. Raises `TaskError` where none is left."""
    if not is_folder(command.who):
        return list(tasks), Seen()
    record = read_trained(Path(command.who).expanduser())
    if record is None:
        said = f"{command.who} has no {NAME}: what it was trained on is not known; none is left out"
        return list(tasks), Seen(said=said)
    stages, every = [*map(str, record.stages)], len(tasks)
    ids = frozenset(task.id for task in tasks if record.saw(task))
    if not ids:
        said = f"none of {every} rows was trained on ({record})"
        return list(tasks), Seen(stages, said=said)
    said = f"{len(ids)} of {every} rows were trained on ({record})"
    if command.include_trained:
        said += "; they are asked too: this is no held-out result"
        return list(tasks), Seen(stages, ids, True, said)
    if len(ids) == every:
        raise TaskError(
            f"--model {command.who}: all {every} rows of --tasks were trained on ({record}) "
            "and are left out; give held-out tasks, or --include-trained to ask them"
        )
    said += " and are left out; --include-trained asks them too"
    return [task for task in tasks if task.id not in ids], Seen(stages, ids, False, said)


# --- the tasks of a command line -----------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """All tasks of a run, and which opened word each came from. Paths of files are absolute. `seen`
    says which of the tasks asked for the model was trained on."""

    tasks: list[Task]
    opened: list[Opened]
    of: dict[str, int]  # task id → index into `opened`
    seen: Seen

    def benchmark(self, task: Task) -> str:
        """The benchmark that asks and records the task, "" without one."""
        return self.opened[self.of[task.id]].benchmark or benchmark_of(task.family)


def open_all(words: Sequence[str], command: Evaluation) -> Asked:
    """Every word of `--tasks` without what the model was trained on, drawn down to `--limit`.
    Raises `TaskError` in one sentence for what cannot be read, for a family that is not known, for
    two tasks of one id, and where nothing is left."""
    opened = [open_word(word, command) for word in words]
    of: dict[str, int] = {}
    for index, (word, part) in enumerate(zip(words, opened, strict=True)):
        for task in part.tasks:
            if task.id in of:
                raise TaskError(
                    f"--tasks {word}: task {task.id} is there twice (first in "
                    f"{words[of[task.id]]}); give each task once"
                )
            of[task.id] = index
    tasks = [task for part in opened for task in part.tasks]
    if not tasks:
        raise TaskError(f"--tasks {' '.join(words)}: no task is left")
    tasks = command.chosen.select(tasks, f"--tasks {' '.join(words)}")
    require_families(tasks)
    refuse_without_gold(tasks, f"--tasks {' '.join(words)}")
    tasks, seen = without_trained(tasks, command)
    drawn = part_of(even_draw(tasks, command.limit, command.seed), command.part)
    if not drawn:
        raise TaskError(f"--part {command.part}: no task is left for it; give fewer parts")
    return Asked(drawn, opened, of, seen)


def open_word(word: str, command: Evaluation) -> Opened:
    """One word of `--tasks`. Raises `TaskError`."""
    name, colon, rest = word.partition(":")
    if colon and name in FAMILIES:
        opened = benchmark(name).open(rest, command)
        published = bool(opened.tasks) and all(t.meta.get("published") for t in opened.tasks)
        called = opened.asked or (OF_A_RELEASE if published else "")
        return replace(opened, benchmark=name, asked=called)
    path = Path(word)
    if path.is_dir():
        path = _in_folder(path)
    if not path.is_file():
        known = ", ".join(f"{n}:DIR" for n in FAMILIES)
        raise TaskError(f"--tasks {word}: no such file; give a tasks.jsonl, a folder, or {known}")
    found = [with_absolute_files(task, path.parent) for task in read_tasks(path)]
    if not found:
        raise TaskError(f"{path}: no tasks in it; build some with `assay tasks`")
    return Opened(found, heldout=all_heldout(found), split=splits_of(path, found))


def files_of(words: Sequence[str]) -> list[Path]:
    """The files of tasks that words of `--tasks` mean; a benchmark's folder is none."""
    paths = [Path(word) for word in words]
    return [_in_folder(path) if path.is_dir() else path for path in paths if path.exists()]


def _in_folder(folder: Path) -> Path:
    for name in (HELDOUT, "tasks.jsonl"):
        if (folder / name).is_file():
            return folder / name
    known = ", ".join(f"{n}:{folder}" for n in FAMILIES)
    raise TaskError(
        f"--tasks {folder}: the folder holds neither {HELDOUT} nor tasks.jsonl; name a file of it, "
        f"or a benchmark ({known})"
    )


# --- `--part` and `--limit` ----------------------------------------------------------------------


def part_of(tasks: Sequence[Task], word: str) -> list[Task]:
    """The tasks of part `word`, "I/N" with I from 0; all for "". Parts are decided by the tasks and
    N alone, so jobs agree on them without talking; tasks of one unit stay together. Raises
    `TaskError`."""
    if not word:
        return list(tasks)
    first, slash, second = word.partition("/")
    if not (slash and first.isdecimal() and second.isdecimal() and int(first) < int(second)):
        raise TaskError(f"--part {word}: wanted I/N, with I from 0 to N-1, such as 0/8")
    numbers = {name: k for k, name in enumerate(dict.fromkeys(map(unit_of, tasks)))}
    return [task for task in tasks if numbers[unit_of(task)] % int(second) == int(first)]


def even_draw(tasks: Sequence[Task], limit: int, seed: int) -> list[Task]:
    """At most about `limit` tasks (0: all), the same number of each track and within a track as
    even over the values of its slices as can be, drawn by seed and in their old order.

    A task that is asked in several ways counts once; order groups and such ways are kept whole, so
    that a few more than `limit` may be left.
    """
    if not limit:
        return list(tasks)
    if limit < 0:
        raise TaskError(f"--limit {limit}: give 1 or more, or 0 for all")
    units: dict[str, list[Task]] = {}
    for task in tasks:
        units.setdefault(unit_of(task), []).append(task)
    tracks: dict[str, list[str]] = {}
    for unit, members in units.items():
        tracks.setdefault(members[0].track, []).append(unit)
    draws = [_drawn(track, names, units, seed) for track, names in tracks.items()]
    taken: set[str] = set()
    count = 0
    for unit in chain.from_iterable(zip_longest(*draws)):
        if count >= limit:
            break
        if unit is not None:
            taken.add(unit)
            count += len({task.meta.get("instance") or task.id for task in units[unit]})
    return [task for task in tasks if unit_of(task) in taken]


def _drawn(
    track: str, names: Sequence[str], units: Mapping[str, Sequence[Task]], seed: int
) -> Iterator[str]:
    """Units of one track, drawn so that values of slices come up as evenly as they can; those of
    the same values in an order by seed."""
    had: Counter[tuple[str, str]] = Counter()
    alike: dict[tuple[tuple[str, str], ...], deque[tuple[int, str]]] = {}
    for key, name in sorted((derive_seed(seed, "limit", track, n), n) for n in names):
        alike.setdefault(_slices(units[name][0]), deque()).append((key, name))
    while alike:  # next are those whose slices were drawn least
        chosen = min(alike, key=lambda pairs: (sum(had[pair] for pair in pairs), alike[pairs][0]))
        had.update(chosen)
        yield alike[chosen].popleft()[1]
        if not alike[chosen]:
            del alike[chosen]


def _slices(task: Task) -> tuple[tuple[str, str], ...]:
    if not has_family(task.family):
        return ()
    return tuple(slices_of(family_of(task), task).items())


def unit_of(task: Task) -> str:
    """What is drawn whole: an order group, an instance in all its wordings, or a task."""
    return f"{task.family}/{task.group or task.meta.get('instance') or task.id}"
