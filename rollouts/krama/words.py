# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""DS-Guru's words, how a checkout of KramaBench gives them, and tables as it shows them."""

from __future__ import annotations

import ast
import importlib
import os
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from assay.family import THOUGHT
from assay.task import Task
from rollouts.krama.index import CHARS_A_TOKEN
from rollouts.words.interpret import Bag, Program, mark, template
from rollouts.words.templates import Kind, Read, Release, Slot, Words, ours, unfilled

SYSTEM = Path("systems/dsguru/baseline_system.py")
PROMPTS = Path("systems/dsguru/baseline_prompts.py")
UTILITIES = Path("systems/dsguru/baseline_utils.py")
RUNNER = Path("benchmark/benchmark.py")
_ASKED = ("question_json", "files", "names", "paths")
KIND = Kind(
    "ds_guru",
    {
        "system": Slot(),
        "task": Slot((*_ASKED, "snippet", "tables"), ("question",)),
        "task_without_files": Slot(_ASKED, ("question",)),
        "table": Slot(("file", "types", "rows")),
        "part": Slot((), ("question", "part")),
        "repair": Slot(("code", "output", "error")),
        "no_code": Slot(),
        THOUGHT: Slot(),
    },
    Path(__file__).with_name("words.yaml"),
    lambda task: any(tool.startswith("ds_guru") for tool in task.tools),
)


def question_of(task: Task, words: Words) -> str:
    """A task's question; a sub-task's in these words."""
    said = str(task.prompt[-1]["content"])
    found = unfilled(ours(KIND).texts["part"], said) if task.meta.get("parent") else None
    return words.fill("part", **found) if found else said


def csv_files(lake: Path) -> list[str]:
    """The files that the release reads: CSV files of the folder itself. It takes them in the order
    of the file system; here they are sorted."""
    return sorted(name for name in os.listdir(lake) if name.endswith(".csv"))


def tables_of(lake: Path, words: Words, rows: int, tokens: int) -> str:
    """The CSV files as the release shows them, the first `rows` rows of each. `tokens` 0: all of
    it; else fewer rows where it would be longer, and its beginning where no rows fit either."""
    names = csv_files(lake)
    room = int(tokens * CHARS_A_TOKEN)
    while True:
        shown = [_table(lake / name, rows) for name in names]
        text = "".join(
            words.fill("table", file=name, types=table[0], rows=table[1])
            for name, table in zip(names, shown, strict=True)
            if table is not None
        )
        if not room or len(text) <= room:
            return text
        if not rows:
            return text[:room]
        rows //= 2


_READING = Lock()


def _table(path: Path, rows: int) -> tuple[str, str] | None:
    """(types of the columns, first rows as CSV) as pandas prints them, which reads the whole file
    as the release does. None for a file that it cannot read, where the release ends."""
    stat = path.stat()
    with _READING:  # many episodes open the same lake at once: it is read once
        return _read_table(path, rows, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4096)
def _read_table(path: Path, rows: int, time: int, size: int) -> tuple[str, str] | None:
    pandas: Any = importlib.import_module("pandas")
    how: dict[str, Any] = {"engine": "python", "on_bad_lines": "skip"}
    try:
        try:
            frame = pandas.read_csv(path, **how)
        except UnicodeDecodeError:
            frame = pandas.read_csv(path, encoding="latin-1", **how)
    except ValueError:  # no columns, or no table at all
        return None
    return str(frame.dtypes), str(frame.head(rows).to_csv())


def read_release(folder: Path) -> Read | None:
    """The first messages with and without tables, a sub-task's question, the repair prompt as the
    retry loop calls it, and how many rows and tries the code fixes."""
    if not (folder / SYSTEM).is_file():
        return None
    rows: list[int] = []

    def table(data: Any, row_limit: int) -> str:
        rows.append(row_limit)
        return mark("rows")

    imported: dict[str, Any] = {"get_table_string": table}
    for name in ("QUESTION_PROMPT", "QUESTION_PROMPT_NO_DATA"):
        imported[name] = Program(folder / PROMPTS).constant(name)
    system = Program(folder / SYSTEM, imported)
    loop = system.function("run_few_shot")
    with_files, without = _first(system, True), _first(system, False)
    if with_files[0] != without[0] or not rows:
        raise system.refused(system.function("generate_prompt"), "another way to show tables")
    shown = system.call("get_input_data", _self({mark("file"): Bag({"dtypes": mark("types")})}))
    runner = Program(folder / RUNNER)
    asked = {"query": mark("part"), "id": ""}
    me = Bag({"verbose": False})
    part = runner.until(
        "run_task", "query", self=me, task=asked, parent_task_query=mark("question")
    )
    utilities = Program(folder / UTILITIES)
    return Read(
        {
            "system": template(with_files[0]),
            "task": template(with_files[1]),
            "task_without_files": template(without[1]),
            "table": template(shown),
            "part": template(part),
            "repair": template(_repair(system, loop)),
            "no_code": "",
            THOUGHT: "",
        },
        {"rows": rows[0], "tries": _tries(system, loop)},
        (utilities.code("get_table_string"), system.code("process_dataset")),
    )


def _self(dataset: dict[str, Any], **more: Any) -> Bag:
    """The system as its methods see it, over a lake that is mounted as `data`."""
    own = {"verbose": False, "debug": False, "dataset": dataset, "dataset_directory": "data"}
    return Bag({**own, "question_output_dir": "", "llm": None, **more})


def _first(system: Program, snippet: bool) -> tuple[str, str]:
    """System and user message of the first request, with marks."""
    files = {mark("file"): Bag({"dtypes": mark("types")})}
    me = _self(files, supply_data_snippet=snippet)
    said: Any = system.until(
        "run_one_shot", "messages", self=me, query=mark("question"), query_id=""
    )
    roles = [message["role"] for message in said]
    if roles != ["system", "user"]:
        raise system.refused(system.function("run_one_shot"), f"messages of {', '.join(roles)}")
    text = str(said[1]["content"])
    text = text.replace(system.call("get_input_data", me), mark("tables"))
    text = text.replace(f"['{mark('file')}']", mark("names"))
    text = text.replace(f"['data/{mark('file')}']", mark("paths"))
    return str(said[0]["content"]), text


def _repair(system: Program, loop: ast.FunctionDef) -> str:
    """The repair prompt with the three files in the order in which the loop hands them over."""
    name = "generate_error_handling_prompt"
    kinds = {"code_fp": "code", "output_fp": "output", "error_fp": "error"}
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = [a.id for a in node.args if isinstance(a, ast.Name)]
            if node.func.attr == name and sorted(given) == sorted(kinds) and not node.keywords:
                return str(system.call(name, _self({}), *(kinds[one] for one in given)))
    raise system.refused(loop, f"no call of {name} that is known")


def _tries(system: Program, loop: ast.FunctionDef) -> int:
    for node in ast.walk(loop):
        if isinstance(node, ast.For) and ast.unparse(node.iter).startswith("range("):
            return len(system.value(node.iter, {}))
    raise system.refused(loop, "no loop over tries")


# releases by the hash of their words
KNOWN = {
    "ff4ba3728eb87d8903708f20d291a44a20a0a9a7d58d4f444402b14f05a40718": "KramaBench 96b8253",
}
RELEASE = Release(read_release, KNOWN)
