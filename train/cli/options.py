"""What the commands of this room share: their common options."""

from __future__ import annotations

import argparse

from rewards import console


def options(command: str, what: str) -> argparse.ArgumentParser:
    parser = console.parser(command, what, settings="settings; see docs/training.md")
    console.add_config(parser)
    console.add_family(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the resolved settings only")
    return parser
