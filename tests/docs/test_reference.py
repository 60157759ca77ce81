"""The site's reference pages come from the parsers, the dataclasses and the benchmarks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    program = "import pathlib, sys, generate; generate.write_pages(pathlib.Path(sys.argv[1]))"
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'docs'}"}
    subprocess.run([sys.executable, "-c", program, str(folder)], cwd=ROOT, env=env, check=True)
    return folder


def test_every_command_setting_and_operator_has_its_place(pages: Path) -> None:
    commands = (pages / "reference/commands.md").read_text("utf-8")
    for head in ("## assay report", "### assay tasks dare", "### assay slurm shard"):
        assert f"\n{head}\n" in commands
    assert "`--no-view`" in commands and "| `--out OUT` | required |" in commands
    settings = (pages / "reference/settings.md").read_text("utf-8")
    assert "| `rl.rollouts_per_prompt` | `8` |" in settings
    assert "`reward.refinement.status`" in settings
    assert "text_length_filter" in (pages / "operators.md").read_text("utf-8")


def test_every_benchmark_that_is_run_has_a_section_with_its_command(pages: Path) -> None:
    page = (pages / "benchmarks.md").read_text("utf-8")
    files = [*(ROOT / "benchmarks").glob("*.py")]
    run = [path.stem for path in files if '__name__ == "__main__"' in path.read_text("utf-8")]
    assert len(run) > 5
    for name in run:
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert f"benchmarks.{name}" in section or f"benchmarks/{name}.py" in section, name
