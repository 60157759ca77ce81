"""`assay export verifiers|trl|inspect|gym`: tasks in words, and the one file that a tool loads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay import console
from assay.family import all_families
from assay.files import atomic_write_set
from assay.task import RIGHT, Task, TaskError, json_text, write_jsonl
from rewards.adapters.words import SETTINGS, TASKS, Words, in_words, score_text, settings_of
from rollouts import adapters

# form: (the adapter's file, how it is used)
FORMS = {
    "verifiers": ("assay_tasks.py", "PYTHONPATH={out} vf-validate assay-tasks"),
    "trl": ("assay_trl.py", "PYTHONPATH={out} python -c 'import assay_trl'"),
    "inspect": ("assay_inspect.py", "inspect eval {out}/assay_inspect.py"),
    "gym": ("app.py", "ng_run '+config_paths=[{out}/assay.yaml]'"),
}
_GYM = """assay:
  resources_servers:
    assay:
      entrypoint: app.py
      domain: other
"""


def adapt(form: str, tasks: Sequence[Task], out: Path) -> int:
    """Write the adapter, the tasks and `refused.jsonl`. Exit status 3 when some were left out.
    Raises `TaskError` when none is left."""
    taken: list[Words] = []
    refused: list[dict[str, str]] = []
    for task in tasks:
        try:
            taken.append(_checked(task))
        except TaskError as error:
            refused.append({"id": task.id, "why": str(error)})
    if not taken:
        raise TaskError(refused[0]["why"] if refused else "there are no tasks")
    ids = [w.task.id for w in taken]
    if len(set(ids)) < len(ids):
        raise TaskError("two tasks have one id; export their files one by one")
    name, use = FORMS[form]
    origins = sorted({f.origin for f in all_families().values() if f.origin})
    with atomic_write_set(out) as new:
        write_jsonl(new / TASKS, (w.task.to_json() for w in taken))
        (new / SETTINGS).write_bytes(json_text(settings_of(origins), indent=1))
        source = Path(adapters.__file__).with_name(name)
        (new / name).write_bytes(source.read_bytes())
        if form == "gym":
            write_jsonl(new / "gym.jsonl", map(gym_row, taken))
            (new / "assay.yaml").write_text(_GYM, encoding="utf-8")
        write_jsonl(new / "refused.jsonl", refused)
    print(f"{out}: {len(taken)} tasks; {use.format(out=out)}", file=sys.stderr)
    if refused:
        print(f"{len(refused)} left out; {out / 'refused.jsonl'} says why", file=sys.stderr)
    return console.UNSCORED if refused else console.DONE


def _checked(task: Task) -> Words:
    words = in_words(task)
    made = score_text(task, words.gold)
    if made.outcome is None or made.outcome < RIGHT:
        raise TaskError(f"task {task.id}: its gold as a text scores {made.outcome} ({made.why})")
    return words


def gym_row(words: Words) -> dict[str, Any]:
    """A row of NeMo Gym's data."""
    return {"responses_create_params": {"input": words.messages}, "assay_id": words.task.id}
