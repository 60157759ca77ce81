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
from typing import Any, cast

from assay.family import THOUGHT
from assay.task import Task
from rollouts.krama.index import CHARS_A_TOKEN
from rollouts.words.release import Source, called, mark, refused, template, thing
from rollouts.words.templates import Kind, Read, Slot, Words, ours, unfilled

SYSTEM = Path("systems/dsguru/baseline_system.py")
PROMPTS = Path("systems/dsguru/baseline_prompts.py")
UTILITIES = Path("systems/dsguru/baseline_utils.py")
RUNNER = Path("benchmark/benchmark.py")
_ASKED = ("question_json", "files", "names", "paths")


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
    system, utilities = Source(folder, SYSTEM), Source(folder, UTILITIES)
    loop = system.functions["run_few_shot"]
    known = {
        "get_table_string": {"text": mark("rows")},
        **{n: {"file": str(PROMPTS)} for n in ("QUESTION_PROMPT", "QUESTION_PROMPT_NO_DATA")},
    }
    lake: dict[str, Any] = {
        "dataset": {mark("file"): thing(dtypes=mark("types"))},
        **{"dataset_directory": "data", "output_dir": "out", "question_output_dir": "out"},
        **{"verbose": False, "debug": False, "llm": None},
    }
    table = {"file": str(SYSTEM), "call": "get_input_data", "self": lake, "known": known}
    asked = {"named": {"query": mark("question"), "query_id": ""}, "until": "messages"}
    part = {"query": mark("part"), "id": ""}
    (shown, with_files, without, query, repair), told = called(
        folder,
        [
            table,
            *(
                {**table, **asked, "call": "run_one_shot", "self": {**lake, **snippet}}
                for snippet in ({"supply_data_snippet": True}, {"supply_data_snippet": False})
            ),
            {
                **{"file": str(RUNNER), "call": "run_task", "until": "query"},
                "self": {"verbose": False},
                "named": {"task": part, "parent_task_query": mark("question")},
            },
            {"file": str(SYSTEM), "call": _REPAIR, "given": _order(folder, loop)},
        ],
    )
    first, bare = ([one["content"] for one in messages] for messages in (with_files, without))
    if len(first) != 2 or first[0] != bare[0]:
        raise refused(folder, "a first request of other messages")
    return Read(
        {
            "system": template(first[0]),
            "task": _asking(first[1], shown),
            "task_without_files": _asking(bare[1], shown),
            "table": template(shown),
            "part": template(query),
            "repair": template(repair),
            "no_code": "",
            THOUGHT: "",
        },
        {"rows": told["get_table_string"]["row_limit"], "tries": _tries(folder, loop)},
        (utilities.code("get_table_string"), system.code("process_dataset")),
    )


_REPAIR = "generate_error_handling_prompt"


def _asking(text: str, tables: str) -> str:
    """A first message with the places of what it shows of the lake."""
    text = text.replace(tables, mark("tables"))
    text = text.replace(f"['{mark('file')}']", mark("names"))
    return template(text.replace(f"['data/{mark('file')}']", mark("paths")))


def _order(folder: Path, loop: ast.FunctionDef) -> list[str]:
    """The three files of the repair prompt in the order in which the loop hands them over."""
    kinds = {"code_fp": "code", "output_fp": "output", "error_fp": "error"}
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = [a.id for a in node.args if isinstance(a, ast.Name)]
            if node.func.attr == _REPAIR and sorted(given) == sorted(kinds) and not node.keywords:
                return [kinds[one] for one in given]
    raise refused(folder, f"no call of {_REPAIR} that is known")


def _tries(folder: Path, loop: ast.FunctionDef) -> int:
    for node in ast.walk(loop):
        if isinstance(node, ast.For) and ast.unparse(node.iter).startswith("range("):
            return len(range(*map(ast.literal_eval, cast("ast.Call", node.iter).args)))
    raise refused(folder, "no loop over tries")


# releases by the hash of their words
KNOWN = {
    "ff4ba3728eb87d8903708f20d291a44a20a0a9a7d58d4f444402b14f05a40718": "KramaBench 96b8253",
}
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
    Path(__file__).with_suffix(".yaml"),
    read=read_release,
    known=KNOWN,
)
