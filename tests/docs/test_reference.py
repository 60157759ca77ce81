"""docs/reference/commands.md and settings.md are what the parsers and dataclasses say."""

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
    for head in ("## assay report", "### assay tasks dare", "### assay slurm submit"):
        assert f"\n{head}\n" in page
    assert "`--no-view`" in page and "| `--out OUT` | required |" in page
    settings = (ROOT / "docs/reference/settings.md").read_text("utf-8")
    assert (
        "| `rl.rollouts_per_prompt` | `8` |" in settings
        and "`reward.refinement.status`" in settings
    )
