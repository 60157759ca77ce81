"""One evaluation under several settings: what turns and seconds, rows or tries change.

    python -m benchmarks.sweep --out DIR (--preset NAME | --setting "OPTIONS" …) -- EVAL OPTIONS

Runs `assay eval` once for every setting, each in its own folder below `--out`, and prints one row
for each: the mean outcome by track and over all tasks, the paired difference from the first setting
with a 95 % interval clustered by source, tokens and turns of an answer, tokens of a turn and
minutes. On CDR-Bench a second table has, by track, the release's RS, RS@K and OCS@K, tokens of an
answer, and the paired difference of RS@K from the first setting; a third is its main table, and
`cdr_reports` the release's leaderboard. `sweep.md` and `sweep.json` keep the tables. A sweep that
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
from assay.rows import read_rows
from rollouts.cdr.prompts import MODES
from train.evaluation.benchmarks import BENCHMARKS
from train.evaluation.comparing import compare_rows, signed
from train.evaluation.results import read_results
from train.evaluation.tables import mean

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


def release_lines(
    name: str, out: Path, rows: Sequence[Row], first: Mapping[str, Sequence[Row]] | None
) -> tuple[list[dict[str, Any]], dict[str, list[Row]]]:
    """(a line a track with the release's numbers of CDR-Bench, the instances they are of). Both
    are empty for an evaluation of something else. `first`: the instances of the first setting."""
    found = instances(out, rows)
    papers = read_results(out / "results.json").get("benchmarks", {}).get("cdr", {})
    lines: list[dict[str, Any]] = []
    for track, paper in papers.get("paper_metrics", {}).items():
        mine = [row for row in rows if row["track"] == track]
        one = compare_rows("", "", first[track], found[track]) if first else None
        lines.append(
            {
                "track": track,
                "setting": name,
                "rs": paper.get("mean_rs"),
                "rs@k": paper.get("mean_rs@k"),
                "ocs@k": paper.get("ocs_at_k"),
                "tokens": mean(row["tokens_out"] for row in mine),
                "difference": one.to_json()["outcome"] if one else None,
                "shown difference": signed(one.outcome) if one else "-",
            }
        )
    return lines, found


def instances(out: Path, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The release's RS@K of every instance, by track, as rows that can be compared."""
    sources = {str(row.get("instance")): row["source"] for row in rows}
    found: dict[str, list[Row]] = {}
    for path in sorted((out / "data" / "evaluation").glob("*/*/score_*/instance_metrics.jsonl")):
        track = found.setdefault(path.parts[-4], [])
        for _, one in read_rows(path):
            name, right = str(one["instance_id"]), one["rs_at_k"]
            outcome = None if right is None else float(right)
            track.append({"task_id": name, "source": sources.get(name, name), "outcome": outcome})
    return found


def release_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Markdown, a track's settings one below another; RS, RS@K and OCS@K in percent."""
    names = ["track", "setting", "RS", "RS@K", "OCS@K", "tokens", "RS@K difference [95 %]"]
    shown = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    tracks = list(dict.fromkeys(one["track"] for one in lines))
    for one in sorted(lines, key=lambda one: tracks.index(one["track"])):
        cells = [one["track"], one["setting"], *(_percent(one[n]) for n in ("rs", "rs@k", "ocs@k"))]
        tokens = "-" if one["tokens"] is None else f"{one['tokens']:,.0f}"
        shown.append(f"| {' | '.join([*cells, tokens, one['shown difference']])} |")
    return "\n".join(shown) + "\n"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def main(words: Sequence[str]) -> int:
    at = list(words).index("--") if "--" in words else len(words)
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.sweep",
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
    release, before = list[dict[str, Any]](), None
    for setting, name in zip(settings, short(settings), strict=True):
        out = args.out / folder_of(setting)
        status = max(status, evaluate(setting, given, out))
        rows: list[Row] = read_results(out / "results.json")["rows"]
        lines.append(line(name, rows, first))
        first = first or rows
        more, found = release_lines(name, out, rows, before)
        release += more
        before = before or found
    kept = {"given": given, "settings": lines} | ({"release": release} if release else {})
    shown = [table(lines), *([release_table(release)] if release else [])]
    shown += _official([args.out / folder_of(s) for s in settings], args.out)
    text = "\n".join(shown)
    write_text(args.out / "sweep.json", json.dumps(kept, indent=1))
    write_text(args.out / "sweep.md", text)
    print(text)
    return status


def _official(runs: Sequence[Path], out: Path) -> list[str]:
    """What benchmarks themselves make of several runs side by side."""
    several = (benchmark.several for benchmark in BENCHMARKS.values())
    return [text for more in several if more and (text := more(runs, out, ""))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
