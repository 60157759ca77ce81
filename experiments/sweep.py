"""One evaluation under several settings: what turns and seconds, rows or tries change.

    python -m experiments.sweep --out DIR (--preset NAME | --setting "OPTIONS" …) -- EVAL OPTIONS

Runs `assay eval` once for every setting, each in its own folder below `--out`, and prints one row
for each: the mean outcome by track and over all tasks, the paired difference from the first setting
with a 95 % interval clustered by source, tokens and turns of an answer, tokens of a turn and
minutes. On CDR-Bench its main table over the settings follows, and `cdr_reports` has the release's
leaderboard. `sweep.md` and `sweep.json` keep the tables. A sweep that
was stopped goes on when the same command is run again. Exit status 3 when some answers have no
outcome.

Presets are the published sweeps: `cdr-strategies` is CDR-Bench's Table 2, the four prompt modes;
`cdr-thinking` its Figure 5: thinking off, then on, of a model whose chat template has
`enable_thinking`. `dare-budget` is DARE-bench's Table 4: turns and seconds a run. Of KramaBench's
Tables 6 and 12 to 14 are `krama-rows` (10, 50, 100, 150 rows of each file, 5 tries) and
`krama-tries` (5, 10, 15, 20 tries, 100 rows). A preset of KramaBench gives the lake's description
100,000 tokens, as the paper bounds it by rows alone; `tools.snippet_tokens` among the options of
`assay eval` overrules that.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from assay.files import write_text
from rollouts.words.cdr import MODES
from train.evaluation.benchmarks import FAMILIES, benchmark
from train.evaluation.results import read_results
from train.evaluation.tables import compare_rows, signed

ROOT = Path(__file__).parent.parent
_ROWS = "krama.agent=ds-guru-few-shot krama.settings=end-to-end tools.snippet_tokens=100000"
PRESETS: dict[str, tuple[str, ...]] = {
    "cdr-strategies": tuple(f"cdr.mode={mode}" for mode in MODES),
    "cdr-thinking": tuple(
        f"model.chat_template_kwargs.enable_thinking={word}" for word in ("false", "true")
    ),
    "dare-budget": tuple(
        f"tools.turns={turns} tools.run_s={seconds}"
        for turns, seconds in ((3, 300), (5, 200), (6, 180), (8, 120), (10, 100), (15, 100))
    ),
    "krama-rows": tuple(
        f"{_ROWS} tools.tries=5 tools.snippet_rows={n}" for n in (10, 50, 100, 150)
    ),
    "krama-tries": tuple(
        f"{_ROWS} tools.snippet_rows=100 tools.tries={n}" for n in (5, 10, 15, 20)
    ),
}
UNSCORED = 3  # exit status of `assay eval` when answers have no outcome
Row = Mapping[str, Any]


def short(settings: Sequence[str]) -> list[str]:
    """Settings without the options that all of them share, in words."""
    parted = [re.split(r"\s+(?=--|[\w.]+=)", text.strip()) for text in settings]
    shared = set[str].intersection(*(set(options) for options in parted)) if parted[1:] else set()
    left = [[o for o in options if o not in shared] or options for options in parted]
    return [", ".join(map(_in_words, options)) for options in left]


def _in_words(option: str) -> str:
    """`run s 200` of tools.run_s=200, `seed 1` of --seed 1."""
    name, _, value = option.removeprefix("--").replace(" ", "=", 1).partition("=")
    return f"{name.rpartition('.')[2]} {value}".replace("_", " ").strip()


def folder_of(setting: str) -> str:
    """A plain name for the folder of a setting."""
    return re.sub(r"[^\w.]+", "-", setting).strip("-")


def evaluate(setting: str, given: Sequence[str], out: Path) -> int:
    """`assay eval` in a process of its own. Its exit status; raises SystemExit for any but 0 and
    the one that says some answers have no outcome. What is given last holds."""
    command = [sys.executable, "-m", "assay", "eval", *shlex.split(setting), *given]
    done = subprocess.run([*command, "--out", str(out)], check=False).returncode
    if done not in (0, UNSCORED):
        raise SystemExit(done)
    return done


def line(name: str, rows: Sequence[Row], first: Sequence[Row] | None) -> dict[str, Any]:
    """What one setting came to. Answers without an outcome are counted, and are in no mean."""
    scored = [row for row in rows if row["outcome"] is not None]
    tracks = sorted({str(row["track"]) for row in rows})
    turns = sum(int(row["turns"]) for row in rows)
    tokens = sum(int(row["tokens_in"] or 0) + int(row["tokens_out"] or 0) for row in rows)
    return {
        "setting": name,
        "answers": len(rows),
        "no outcome": len(rows) - len(scored),
        "tracks": {t: _mean([r for r in scored if r["track"] == t]) for t in tracks},
        "overall": _mean(scored),
        "difference": compare_rows("", "", first, rows).to_json()["outcome"] if first else None,
        "shown difference": signed(compare_rows("", "", first, rows).outcome) if first else "",
        "tokens": tokens / max(len(rows), 1),
        "turns": turns / max(len(rows), 1),
        "tokens of a turn": tokens / max(turns, 1),
        "minutes": fmean(float(row["seconds"]) / 60 for row in rows) if rows else None,
    }


def _mean(rows: Sequence[Row]) -> float | None:
    return fmean(float(row["outcome"]) for row in rows) if rows else None


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Markdown; outcomes in percent."""
    tracks = list(dict.fromkeys(t for one in lines for t in one["tracks"]))
    names = ["setting", *tracks, "all", "difference", "tokens", "turns", "tokens of a turn"]
    names += ["minutes", "no outcome"]
    shown = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for one in lines:
        cells = [one["setting"], *(_percent(one["tracks"].get(t)) for t in tracks)]
        cells += [_percent(one["overall"]), one["shown difference"] or "-"]
        cells += [f"{one['tokens']:,.0f}", f"{one['turns']:.2f}", f"{one['tokens of a turn']:,.0f}"]
        cells += [f"{one['minutes'] or 0:.3f}", str(one["no outcome"])]
        shown.append(f"| {' | '.join(cells)} |")
    return "\n".join(shown) + "\n"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def main(words: Sequence[str]) -> int:
    at = list(words).index("--") if "--" in words else len(words)
    options = argparse.ArgumentParser(
        prog="python -m experiments.sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--preset", choices=list(PRESETS))
    options.add_argument("--setting", action="append", default=[], metavar="OPTIONS")
    args = options.parse_args(words[:at])
    given = list(words[at + 1 :])
    settings = list(dict.fromkeys([*(PRESETS[args.preset] if args.preset else ()), *args.setting]))
    if not settings:
        options.error("give --preset, or --setting once for each setting")
    if not given or "--out" in given:
        options.error("give the options of `assay eval` after --, without --out")
    status, lines, first = 0, list[dict[str, Any]](), None
    for setting, name in zip(settings, short(settings), strict=True):
        out = args.out / folder_of(setting)
        status = max(status, evaluate(setting, given, out))
        rows: list[Row] = read_results(out / "results.json")["rows"]
        lines.append(line(name, rows, first))
        first = first or rows
    runs = [args.out / folder_of(setting) for setting in settings]
    several = [found.several for found in map(benchmark, FAMILIES) if found.several]
    text = "\n".join([table(lines), *filter(None, (more(runs, args.out, "") for more in several))])
    kept = {"given": given, "settings": lines}
    write_text(args.out / "sweep.json", json.dumps(kept, indent=1))
    write_text(args.out / "sweep.md", text)
    print(text)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
