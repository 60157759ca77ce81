"""A small lake and tasks over it, for the tests of agents and generators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from places import tables

from assay.task import Task

TEXTS = tables("small_lake")
CODE, PLAN, SETTLED = TEXTS["code"], TEXTS["plan"], TEXTS["settled"]


def make_lake(folder: Path, settled: bool = False) -> Path:
    """Two towns' rain (a marker and summary rows in them), a table of sites, a note; with
    `settled`, also what `tables.yaml` has to say of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for town, start in (("amherst", 1.0), ("boston", 2.0)):
        rows = [f"{year},{start + (year % 5) / 4},{start * 2}" for year in range(2000, 2030)]
        rows[7] = "2007,M,2.0"
        text = "Year,Jun,Jul\n" + "\n".join(rows) + "\nMean,1.5,3.0\n"
        (folder / f"rain_{town}.csv").write_text(text, encoding="utf-8")
    sites = ["Sites of the survey,,,", "Site,Town,Kind,Samples"]
    towns, kinds = ("Amherst", "Boston", "Acton"), ("Fresh", "Marine")
    for i in range(60):
        sites.append(f'Site {i},{towns[i % 3]},{kinds[i % 2]},"{1000 + i * i * 7:,}"')
    (folder / "sites.csv").write_text("\n".join(sites) + "\n", encoding="utf-8")
    (folder / "notes.txt").write_text("Rain is in inches.\nM is missing.\n", encoding="utf-8")
    if settled:
        (folder / "tables.yaml").write_text(SETTLED, encoding="utf-8")
    for path in [folder, *folder.parents][:4]:
        if path.owner() == folder.owner():  # others' folders, such as /tmp, are open already
            path.chmod(path.stat().st_mode | 0o055)
    for path in filter(Path.is_file, folder.iterdir()):
        path.chmod(0o644)
    return folder


def make_task(lake: Path, tool: str, **gold: Any) -> Task:
    question = "What is the mean rain in June in Amherst, rounded to 2 decimals?"
    part = {"id": "1", "step": "Load 'rain_amherst.csv' and drop summary rows", "answer": 30}
    part |= {"query": "How many years?", "answer_type": "numeric_exact"}
    base = {"answer_type": "numeric_exact", "answer": 1.5, "subtasks": [part]}
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": question}]
    made = Task("small-1", "answer", "krama-small", "test", prompt, base | gold, tools=(tool,))
    meta = {"domain": "small", "gold_files": ["rain_amherst.csv"]}
    return replace(made, files={"lake": str(lake)}, meta=meta)
