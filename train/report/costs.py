# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""What a run took, what it left out, and what it was made of."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import yaml

from train.evaluation.results import is_baseline, named_rows
from train.report.markup import Line, Links, plain, section, table, wide

Metrics = Sequence[Mapping[str, Any]]
LONGEST_REASON = 90  # characters
HASH = 12  # characters of a hash that are shown


def spent(data: Mapping[str, Any], metrics: Metrics, record: Mapping[str, Any]) -> str:
    """The section of time and cost."""
    times = (data.get("meta") or {}).get("times") or record.get("times") or {}
    stages = [["stage", "minutes"], *([name, f"{float(s) / 60:.1f}"] for name, s in times.items())]
    if times:
        stages.append(["all stages", f"{sum(map(float, times.values())) / 60:.1f}"])
    loops = [["loop", "steps", "minutes", "seconds a step", "rollout", "training", "tokens/s"]]
    loops += [_loop(stage, metrics) for stage in ("sft", "rl") if _sum(metrics, stage, "time/step")]
    heads = ["model", "answers", "prompt tokens", "sampled tokens", "seconds an answer", "cost $"]
    models = [heads, *_models(data)]
    return section(
        "Time and cost",
        plain(stages, "Time by stage"),
        plain(loops, "Time of training loops"),
        plain(models, "Answers of evaluations") if len(models) > 1 else "",
    )


def _sum(metrics: Metrics, stage: str, key: str) -> float:
    return sum(float(r[key]) for r in metrics if r.get("stage") == stage and r.get(key) is not None)


def _loop(stage: str, metrics: Metrics) -> list[str]:
    steps = sum(r.get("stage") == stage for r in metrics)
    whole, rollout, train = (
        _sum(metrics, stage, f"time/{name}") for name in ("step", "rollout", "train")
    )
    speeds = [
        float(r["time/tokens_per_second"])
        for r in metrics
        if r.get("stage") == stage and r.get("time/tokens_per_second") is not None
    ]
    return [
        {"sft": "SFT", "rl": "Dr.GRPO"}[stage],
        str(steps),
        f"{whole / 60:.1f}",
        f"{whole / steps:.1f}",
        f"{rollout / whole:.0%}" if rollout else "–",
        f"{train / whole:.0%}" if train else "–",
        f"{sum(speeds) / len(speeds):.0f}" if speeds else "–",
    ]


def _models(data: Mapping[str, Any]) -> Iterator[list[str]]:
    for name, rows in named_rows(data).items() if data else ():
        if is_baseline(name) or not rows:
            continue
        costs = [float(r["cost"]) for r in rows if r.get("cost") is not None]
        seconds = [float(r["seconds"]) for r in rows if r.get("seconds") is not None]
        yield [
            name,
            str(len(rows)),
            f"{sum(r.get('tokens_in') or 0 for r in rows):,}",
            f"{sum(r.get('tokens_out') or 0 for r in rows):,}",
            f"{sum(seconds) / len(seconds):.2f}" if seconds else "–",
            f"{sum(costs):.4f}" if costs else "–",
        ]


def left_out(data: Mapping[str, Any], metrics: Metrics, links: Links) -> str:
    """The section of what counts nowhere, and why."""
    meta = data.get("meta") or {}
    lines: list[Line] = []

    def note(what: str, count: Any, why: str) -> None:
        if count:
            lines.append(("", [escape(what), escape(str(count)), escape(why)]))

    asked, found = meta.get("asked"), meta.get("found")
    if asked is not None and found is not None and asked < found:
        note("tasks", found - asked, f"--limit {meta.get('limit')}: a seeded draw was asked")
    trained = meta.get("trained_on") or {}
    note("tasks", trained.get("left_out"), "the model was trained on them")
    note("rows", meta.get("rows_left_out"), "the tasks could not be opened; see `opened` below")
    lines += [line for name, line in _failures(data, links) if name]
    skipped = sum(float(r.get("why/failure") or 0) > 0 for r in metrics)
    note("RL steps", skipped, "had rollouts without an outcome; those are in no mean and no group")
    if not lines:
        return ""
    body = wide(table(("what", "how many", "why"), lines, "words"), "What was left out")
    return section("What was left out", body)


def _failures(data: Mapping[str, Any], links: Links) -> Iterator[tuple[str, Line]]:
    """Answers without an outcome, by model and reason."""
    for name, rows in named_rows(data).items() if data else ():
        if is_baseline(name) and not isinstance(data["rows"], list):
            continue
        reasons = Counter(
            str(r.get("failure") or r["why"])[:LONGEST_REASON] for r in rows if r["outcome"] is None
        )
        for reason, count in reasons.most_common(8):
            linked = links.answers(str(count), name, {"outcome": "none"})
            why = f"no outcome: {reason}; counted in no mean"
            yield name, ("", [escape(f"answers of {name}"), linked, escape(why)])


def provenance(data: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """The section of what the numbers were made of: a table, and everything that was noted."""
    lines = [["what", "value"], *(list(pair) for pair in _origins(data, record))]
    rest = {k: v for k, v in record.items() if k != "config"}
    blocks = (
        ("Measured and noted", data.get("meta") or {}),
        ("Run, versions and inputs", rest),
        ("Settings", record.get("config")),
    )
    folded = "".join(
        f"<details><summary>{title}</summary><pre>{escape(_yaml(block))}</pre></details>"
        for title, block in blocks
        if block
    )
    return section("How it was made", plain(lines, "Provenance", "words"), folded)


def _origins(data: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    meta = data.get("meta") or {}
    made = {**meta, **record}
    if isinstance(command := record.get("command"), list):
        words = [str(word) for word in command]
        yield "command", shlex.join([Path(words[0]).name, *words[1:]] if words else [])
    named = {"model": "model", "tasks": "tasks", "seed": "seed", "config_hash": "hash of settings"}
    for key, name in named.items():
        value = made.get(key)
        if isinstance(value, list):
            yield name, ", ".join(map(str, value))
        elif isinstance(value, str | int):
            yield name, str(value)
    code = made.get("code")
    if isinstance(code, Mapping):
        changed = ", with changes that were not committed" if code.get("dirty") else ""
        yield "code", f"revision {str(code.get('revision'))[:HASH]}{changed}"
    machine = made.get("machine")
    if isinstance(machine, Mapping):
        known = [machine.get("cpu"), f"{machine.get('cores')} cores", machine.get("system")]
        yield "machine", ", ".join(map(str, known))
    for name, value in (record.get("inputs") or {}).items():
        yield f"hash of {name}", str(value)[:HASH]
    versions = made.get("versions")
    if isinstance(versions, Mapping):
        yield "versions", ", ".join(f"{name} {value}" for name, value in versions.items())


def _yaml(data: Any) -> str:
    plain_data = json.loads(json.dumps(data, default=str))
    return yaml.safe_dump(plain_data, sort_keys=False, allow_unicode=True, width=100)
