"""What the commands of this room share: their common options."""

from __future__ import annotations

import argparse


def options(command: str, what: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"assay {command}", description=what)
    parser.add_argument("settings", nargs="*", metavar="key=value")
    parser.add_argument("--config", help="YAML of settings; see docs/training.md")
    parser.add_argument(
        "--family",
        action="append",
        default=[],
        metavar="FILE.py[:NAME]",
        help="a family of your own; may be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the resolved settings only")
    return parser
