"""What a build holds, in the rows of the paper's Tables 4, 6 and 7."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from data_gen.cdr.domains import LABELS, PAPER
from data_gen.cdr.library import LibraryRecipe

FILE = "statistics.md"
_FACT = "fact "  # begins the counts of this module, among those of a build
NAMES = {  # of Table 6, in its order, with what the paper prints
    "tasks": ("Total tasks", "3,462"),
    "atomic_m": ("Atomic mapper tasks", "132"),
    "atomic_f": ("Atomic filter tasks", "42"),
    "agnostic_m": ("Order-agnostic mapper tasks", "497"),
    "order_m": ("Mapper-order sensitivity tasks", "286"),
    "order_f": ("Filter-order sensitivity tasks", "2,505"),
    "mean_characters": ("Mean input length, characters", "2,704.0"),
    "median_characters": ("Median input length, characters", "650.0"),
    "fewest_characters": ("Shortest input, characters", "27"),
    "most_characters": ("Longest input, characters", "9,997"),
    "short": ("Short inputs (up to 4,000)", "2,398"),
    "medium": ("Medium inputs (up to 8,000)", "664"),
    "long": ("Long inputs", "400"),
    "operators": ("Active operators", "29"),
    "anchors": ("Recipe family anchors", "16"),
    "recipes": ("Executable recipe templates", "63"),
    "sequences": ("Materialized executable variants", "616"),
    "mean_recipe_length": ("Mean recipe length", "4.23"),
    "mean_pool": ("Mean prompt variants of a sample", "10.4"),
    "median_pool": ("Median prompt variants of a sample", "11.0"),
    "mean_words": ("Mean words of an instruction", "46.1"),
    "median_words": ("Median words of an instruction", "44.0"),
}
_TRACKS = ("atomic_m", "atomic_f", "agnostic_m", "order_m", "order_f")


def facts_of(row: Mapping[str, Any]) -> Iterator[str]:
    """What one row of the tracks adds; counted with everything else of a build."""
    domain, bucket = row["domain"], row["input_length_bucket"]
    yield f"{_FACT}track {row['source_track']}"
    yield f"{_FACT}characters {row['input_length_chars']}"
    yield f"{_FACT}bucket {domain}/{bucket}"
    yield f"{_FACT}length {row['recipe_length']}"
    yield f"{_FACT}pool {row['prompt_candidate_pool_count']}"
    yield f"{_FACT}sequence {'>'.join(row['operator_sequence'])}"
    for variant in row["prompt_variants"]:
        yield f"{_FACT}words {len(variant['user_requirement'].split())}"
    for name in set(row["operator_sequence"]):
        yield f"{_FACT}operator {domain}/{name}"
    if row["recipe_id"]:
        yield f"{_FACT}recipe {row['recipe_id']}"


def parted(counts: Mapping[str, int]) -> tuple[Counter[str], dict[str, Counter[str]]]:
    """(the other counts, the facts by kind)."""
    others: Counter[str] = Counter()
    facts: dict[str, Counter[str]] = {}
    for name, number in counts.items():
        if name.startswith(_FACT):
            kind, value = name.removeprefix(_FACT).split(" ", 1)
            facts.setdefault(kind, Counter())[value] = number
        else:
            others[name] = number
    return others, facts


def statistics(
    facts: Mapping[str, Counter[str]], library: Iterable[LibraryRecipe]
) -> dict[str, Any]:
    """Table 6 as numbers by the keys of `NAMES`, and `domains` with Table 7's. A recipe counts
    where a task asks for it, an anchor where one of its recipes counts."""
    empty: Counter[str] = Counter()
    used = [entry for entry in library if facts.get("recipe", empty)[entry.recipe.id]]
    lengths = facts.get("characters", empty)
    tracks, buckets = facts.get("track", empty), facts.get("bucket", empty)
    sizes = list(map(int, lengths))
    made: dict[str, Any] = {"tasks": tracks.total()}
    made |= {track: tracks[track] for track in _TRACKS}
    made |= {
        "mean_characters": _mean(lengths),
        "median_characters": _median(lengths),
        "fewest_characters": min(sizes, default=0),
        "most_characters": max(sizes, default=0),
    }
    for size in ("short", "medium", "long"):
        made[size] = sum(n for name, n in buckets.items() if name.endswith(f"/{size}"))
    operators = facts.get("operator", empty)
    made |= {
        "operators": len({name.rpartition("/")[2] for name in operators}),
        "anchors": len({(e.domain, e.recipe.family_id) for e in used if not e.recipe.composed}),
        "recipes": len(used),
        "sequences": len(facts.get("sequence", empty)),
        "mean_recipe_length": _mean(facts.get("length", empty)),
        "mean_pool": _mean(facts.get("pool", empty)),
        "median_pool": _median(facts.get("pool", empty)),
        "mean_words": _mean(facts.get("words", empty)),
        "median_words": _median(facts.get("words", empty)),
    }
    made["domains"] = {
        domain: {
            "tasks": sum(n for key, n in buckets.items() if key.startswith(f"{domain}/")),
            **{size: buckets[f"{domain}/{size}"] for size in ("short", "medium", "long")},
            "anchors": len({e.recipe.family_id for e in own if not e.recipe.composed}),
            "recipes": len(own),
        }
        for domain in sorted({key.rpartition("/")[0] for key in buckets})
        for own in [[e for e in used if domain in (e.domain, LABELS.get(e.domain))]]
    }
    made["operator_tasks"] = dict(sorted(operators.items()))
    return made


def _mean(counts: Mapping[str, int]) -> float:
    total = sum(counts.values())
    return round(sum(int(value) * n for value, n in counts.items()) / total, 2) if total else 0.0


def _median(counts: Mapping[str, int]) -> float:
    total, seen = sum(counts.values()), 0
    if not total:
        return 0.0
    middle: list[int] = []
    for value, n in sorted((int(value), n) for value, n in counts.items()):
        seen += n
        if not middle and 2 * seen >= total:
            middle.append(value)
        if 2 * seen > total:
            middle.append(value)
            break
    return (middle[0] + middle[-1]) / 2


def page(found: Mapping[str, Any]) -> str:
    """The tables as Markdown, beside the paper's numbers where it prints them."""
    lines = ["# Statistics of this build", "", "## Table 6", ""]
    lines += ["| statistic | this build | the paper |", "|---|---|---|"]
    lines += [f"| {name} | {found[key]:,} | {paper} |" for key, (name, paper) in NAMES.items()]
    lines += ["", "## Table 7", ""]
    lines += ["| domain | tasks | short | medium | long | anchors | recipes |", "|---" * 7 + "|"]
    for domain, one in found["domains"].items():
        lines.append(f"| {domain} | " + " | ".join(f"{value:,}" for value in one.values()) + " |")
    lines += ["", "## Table 4", "", "Tasks that ask for an operator, by domain.", ""]
    names = sorted({key.rpartition("/")[2] for key in found["operator_tasks"]})
    domains = list(found["domains"])
    lines.append("| operator | " + " | ".join(domains) + " | among the paper's 29 |")
    lines.append("|---" * (len(domains) + 2) + "|")
    for name in names:
        own = [f"{found['operator_tasks'].get(f'{domain}/{name}', 0):,}" for domain in domains]
        lines.append(f"| {name} | " + " | ".join(own) + f" | {'yes' if name in PAPER else 'no'} |")
    return "\n".join(lines) + "\n"


def short(found: Mapping[str, Any]) -> str:
    """The last lines of a build."""
    return (
        f"{found['anchors']} family anchors, {found['recipes']} recipes, {found['sequences']} "
        f"executable variants of {found['mean_recipe_length']} steps on average; inputs of "
        f"{found['mean_characters']:,} characters on average, {found['short']:,} short, "
        f"{found['medium']:,} medium, {found['long']:,} long; instructions of "
        f"{found['mean_words']} words on average, {found['median_words']:g} in the median"
    )
