"""Generated pages are what the parsers, the dataclasses and the benchmarks say."""

from __future__ import annotations

import subprocess
import sys

from places import ROOT


def test_the_generated_pages_are_up_to_date() -> None:
    words = [sys.executable, "docs/generate.py", "--check"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_and_its_options_are_there() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text("utf-8")
    for head in ("## assay report", "### assay tasks dare", "### assay slurm shard"):
        assert f"\n{head}\n" in page
    assert "`--no-view`" in page and "| `--out OUT` | required |" in page
    settings = (ROOT / "docs/reference/settings.md").read_text("utf-8")
    assert (
        "| `rl.rollouts_per_prompt` | `8` |" in settings
        and "`reward.refinement.status`" in settings
    )


def test_every_benchmark_that_is_run_has_a_section_with_its_command() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text("utf-8")
    files = [*(ROOT / "benchmarks").glob("*.py"), ROOT / "benchmarks" / "faults" / "__main__.py"]
    run = [path for path in files if '__name__ == "__main__"' in path.read_text("utf-8")]
    assert len(run) > 15
    for path in run:
        name = path.parent.name if path.stem == "__main__" else path.stem
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert f"benchmarks.{name}" in section or f"benchmarks/{name}.py" in section, name
