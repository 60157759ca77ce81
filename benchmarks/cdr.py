"""CDR-Bench's scorer against plain implementations, in one run, on the same rows.

    python -m benchmarks.cdr --corpus CORPORA [--documents 60] [--repeat 2]

The scorer's alternative is the published formulas written down as they stand, with the edit
distance the release used (`pip install editdistance`) and, where it is installed, with
`Levenshtein`. The rows are those of a build of the corpus. Results are compared for equality before
anything is printed. Prints processor seconds of this process, the best of `--repeat`; ratios above
1 where this project is faster.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from assay.rows import unpacked
from data_gen.cdr.cli import main as build
from data_gen.cdr.rows import TRACKS
from rewards.cdr.release_files import score_file

Row = dict[str, Any]
Distance = Callable[[str, str], int]
CONFIG = Path(__file__).resolve().parents[1] / "configs" / "cdr_reference.yaml"


def best(work: Callable[[], object], repeat: int) -> float:
    """Fewest processor seconds of `repeat` runs."""
    seconds: list[float] = []
    for _ in range(repeat):
        gc.collect()
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


def distances() -> dict[str, Distance]:
    """Edit distances that are installed, by name."""
    found: dict[str, Distance] = {}
    try:
        import editdistance

        found["editdistance"] = editdistance.eval
    except ImportError:
        print("editdistance is not installed; its line is left out")
    try:
        import Levenshtein

        found["Levenshtein"] = Levenshtein.distance
    except ImportError:
        print("Levenshtein is not installed; its line is left out")
    return found


# -- the published formulas, plainly (spec sections 11 and 12) --


def plain_lines(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n[ \t]*(?:\n[ \t]*)+", "\n\n", text).strip()


def plain_normal(text: str) -> str:
    return re.sub(r" +([,.;:!?])", r"\1", re.sub(r"[ \t]+", " ", plain_lines(text)))


def plain_scores(rows: Sequence[Row], distance: Distance) -> list[tuple[bool, float]]:
    """(RS, RG) of every variant's prediction, with the distances the release also writes."""
    found: list[tuple[bool, float]] = []
    for row in rows:
        source, reference = row["input_text"], row["reference_text"]
        for variant in row["variant_predictions"]:
            text = variant["predicted_clean_text"]
            match = variant["predicted_status"].strip().upper() == row["reference_status"]
            d_in, d_pred = distance(source, reference), distance(text, reference)
            d_edit = distance(source, text)
            gain = 1.0 if d_pred == 0 else min(1.0, max(0.0, (d_in - d_pred) / max(d_in, 1)))
            _ = max(0.0, 1.0 - abs(d_edit - d_in) / max(d_edit, d_in, 1))
            if row["reference_status"] == "DROP" and row["reference_text_full_run"] is not None:
                distance(text, row["reference_text_full_run"])
            plain_lines(text) == plain_lines(reference)  # noqa: B015  (written beside RS)
            found.append((match and plain_normal(text) == plain_normal(reference), gain))
    return found


def our_scores(rows: Sequence[Row]) -> list[tuple[bool, float]]:
    """The same from a scored predictions file."""
    scored = score_file(rows, 3, 0, "core", "bench")
    return [(v["recipe_success"], v["refinement_gain"]) for v in scored.variants]


def tracks(corpus: Path, documents: int, most: int, folder: Path) -> list[Row]:
    """Up to `most` rows of a build of the first documents of each file of the corpus."""
    files = sorted(corpus.glob("*.jsonl*")) if corpus.is_dir() else [corpus]
    (folder / "corpus").mkdir()
    for file in files:
        with open(file, "rb") as packed, unpacked(packed) as lines:
            name = file.name.partition(".")[0]
            first = b"".join(islice(lines, documents))
            (folder / "corpus" / f"{name}.jsonl").write_bytes(first)
    given = ["--corpus", str(folder / "corpus"), "--out", str(folder / "out")]
    settings = ["tracks=true", "instances.min_groups=2", "mining.min_recipe_support=3"]
    if build(["--config", str(CONFIG), *given, *settings]):
        raise SystemExit("the build failed")
    made = (folder / "out" / "tracks" / f"{track}.jsonl" for track in TRACKS)
    return [json.loads(line) for file in made for line in file.open("rb")][:most]


def predictions(built: Sequence[Row]) -> list[Row]:
    """Rows with three answers each: gold, the input, and gold with every 40th word doubled."""
    rows: list[Row] = []
    for row in built:
        words = row["reference_text"].split(" ")
        spoilt = " ".join(w + w if i % 40 == 7 else w for i, w in enumerate(words))
        status = row["reference_status"]
        answers = [
            (status, row["reference_text"]),
            ("KEEP", row["input_text"]),
            (status, spoilt),
        ]
        rows.append(
            row
            | {
                "variant_predictions": [
                    {
                        "prompt_variant_index": i,
                        "predicted_status": s,
                        "predicted_clean_text": t,
                    }
                    for i, (s, t) in enumerate(answers)
                ]
            }
        )
    return rows


def score_part(rows: Sequence[Row], repeat: int) -> None:
    ours = our_scores(rows)
    own = best(lambda: our_scores(rows), repeat)
    chars = sum(len(r["input_text"]) for r in rows)
    print(f"scorer: {len(ours)} predictions, inputs of {chars / len(rows):,.0f} characters")
    print(f"  score_file, all it writes      {own:8.2f} s  {len(ours) / own:8,.0f} a second")
    for name, distance in distances().items():
        if plain_scores(rows, distance) != ours:
            raise SystemExit(f"{name}: the plain formulas give other results")
        plain = best(lambda d=distance: plain_scores(rows, d), repeat)
        print(f"  plain formulas, {name:<13}  {plain:8.2f} s  ratio {plain / own:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", required=True, type=Path)
    parser.add_argument("--documents", type=int, default=60, help="of each file of the corpus")
    parser.add_argument("--predictions", type=int, default=400, help="rows that are scored")
    parser.add_argument("--repeat", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        built = tracks(args.corpus, args.documents, args.predictions, Path(folder))
    score_part(predictions(built), args.repeat)


if __name__ == "__main__":
    main()
