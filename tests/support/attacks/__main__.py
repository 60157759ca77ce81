"""`PYTHONPATH=.:tests/support python -m attacks [LEVEL] [NUMBER …]`: a JSON line per row, of the
whole table or of the rows with these numbers; status 1 if one is open."""

import json
import sys
from dataclasses import asdict

from attacks import run_all
from rollouts.sandbox.model import LEVELS, Level

wanted: list[Level] = [level for level in LEVELS if level in sys.argv[1:]]
numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
outcomes = run_all(wanted[0] if wanted else None, numbers)
for outcome in outcomes:
    print(json.dumps(asdict(outcome)))
sys.exit(any(not outcome.stopped for outcome in outcomes))
