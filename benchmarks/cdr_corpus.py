"""Documents for measurements of `assay tasks cdr`: made from a seed, as many as wanted.

    python -m benchmarks.cdr_corpus --documents 20000 --out corpus.jsonl [--seed 0]

Four domains in equal parts. Every document is prose with passages that an operator changes (links,
markup, comments, addresses, repeated sentences, odd spacing), each with a chance of its own, so
that documents differ in which operators they activate. Document i depends on the seed and i alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from assay.task import derive_seed

DOMAINS = ("web", "latex", "rag", "privacy")
WORDS: tuple[str, ...] = (
    *("river", "station", "harbour", "engine", "ledger", "orchard", "council", "winter", "market"),
    *("bridge", "letter", "copper", "garden", "signal", "museum", "valley", "pilot", "archive"),
    *("meadow", "lantern", "quarry", "theatre", "canal", "village", "tower", "castle", "forest"),
    *("railway", "printer", "journal", "teacher", "surgeon", "painter", "builder", "sailor"),
    *("farmer", "measure", "record", "compare", "collect", "describe", "follow", "reach", "carry"),
    *("remain", "appear", "consider", "improve", "early", "late", "narrow", "broad", "quiet"),
    *("heavy", "bright", "modern", "ancient", "northern", "careful", "ordinary", "the", "a", "of"),
    *("and", "to", "in", "that", "with", "from", "under", "near", "after", "before", "between"),
    *("without", "through", "against"),
)

Passage = Callable[[Random], str]


def sentence(rng: Random) -> str:
    words = rng.choices(WORDS, k=rng.randint(6, 18))
    return " ".join(words).capitalize() + rng.choice(".....!?")


def prose(rng: Random) -> str:
    return " ".join(sentence(rng) for _ in range(rng.randint(2, 6)))


def _word(rng: Random) -> str:
    return rng.choice(WORDS)


def _url(rng: Random) -> str:
    return f"https://www.{_word(rng)}-{_word(rng)}.com/{_word(rng)}/{rng.randint(1, 999)}.html"


def _table(rng: Random) -> str:
    rows = "".join(
        f"<tr><td>{_word(rng)}</td><td>{rng.randint(1, 99)}</td></tr>\n" for _ in range(4)
    )
    return f"<table>\n{rows}</table>"


def _repeated(rng: Random) -> str:
    said = sentence(rng)
    return f"{said} {prose(rng)} {said}"


def _figure(rng: Random) -> str:
    name = f"fig:{_word(rng)}{rng.randint(1, 99)}"
    return (
        f"As Figure \\ref{{{name}}} shows, {prose(rng)}\n\n\\begin{{figure}}\n"
        f"\\includegraphics[width=5cm]{{{_word(rng)}.png}}\n"
        f"\\caption{{{sentence(rng)}}}\n\\label{{{name}}}\n\\end{{figure}}"
    )


def _number(rng: Random, *widths: int) -> str:
    return "-".join("".join(rng.choices("0123456789", k=width)) for width in widths)


COMMON: tuple[tuple[float, Passage], ...] = (
    (0.35, lambda r: f"It is \u201c{_word(r)}\u201d \u2013 or so they say\u2026 {sentence(r)}"),
    (0.25, lambda r: f"{sentence(r)} \u2014 {sentence(r)}"),
    (0.20, lambda r: f"The caf\u00c3\u00a9 of {_word(r)} &amp; {_word(r)}: {sentence(r)}"),
    (0.25, lambda r: f"{_word(r)}\u00a0{_word(r)}\u2009{_word(r)} {sentence(r)}"),
)
PASSAGES: dict[str, tuple[tuple[float, Passage], ...]] = {
    "web": (
        (0.70, lambda r: f'<p class="x">{prose(r)} <a href="{_url(r)}">{_word(r)}</a></p>'),
        (0.50, lambda r: f"See {_url(r)} for more. {sentence(r)}"),
        (0.25, _table),
        (0.20, lambda r: f"\u25cf {sentence(r)}\n\u25ba {sentence(r)}"),
        (0.20, lambda r: f"/* Copyright {r.randint(1990, 2024)} {_word(r)} */ {sentence(r)}"),
        (0.25, _repeated),
        (0.20, lambda r: f"{_word(r)} -- {_word(r)} | {_word(r)} === {sentence(r)}"),
    ),
    "latex": (
        (0.55, lambda r: f"{prose(r)} % {sentence(r)}\n{prose(r)}"),
        (0.35, lambda r: f"\\newcommand{{\\{_word(r)}x}}{{{_word(r)}}}\n{prose(r)}"),
        (0.30, _figure),
        (0.35, lambda r: f"\\section{{{_word(r)}}}\n{prose(r)}"),
        (0.20, _repeated),
        (0.25, lambda r: f"$ {_word(r)} = {r.randint(1, 9)} $ -- {sentence(r)}"),
    ),
    "rag": (
        (0.65, _repeated),
        (0.45, lambda r: f"{_word(r)} -- {_word(r)} *** {sentence(r)}"),
        (0.40, lambda r: f"Source: {_url(r)} {sentence(r)}"),
        (0.25, lambda r: f"<b>{_word(r)}</b> {sentence(r)}"),
        (0.20, lambda r: f"| {_word(r)} | {_word(r)} |\n| --- | --- |\n{sentence(r)}"),
    ),
    "privacy": (
        (0.65, lambda r: f"Write to {_word(r)}.{_word(r)}@{_word(r)}.org. {sentence(r)}"),
        (0.40, lambda r: f"Host {'.'.join(str(r.randint(1, 255)) for _ in range(4))} answered."),
        (0.40, lambda r: f"Call +1 {_number(r, 3, 3, 4)} today. {sentence(r)}"),
        (0.35, lambda r: f"The log is at /var/log/{_word(r)}/{_word(r)}.txt. {sentence(r)}"),
        (0.25, lambda r: f"api_key={_word(r)}{_number(r, 12)} {sentence(r)}"),
        (0.20, lambda r: "MAC " + ":".join(f"{r.randint(0, 255):02x}" for _ in range(6))),
        (0.30, lambda r: f"Seen on {_url(r)} by {_word(r)}. {sentence(r)}"),
        (0.10, lambda r: f"channel: feishu, id ou_{r.getrandbits(128):032x}. {sentence(r)}"),
    ),
}


def document(seed: int, number: int) -> dict[str, str]:
    """One row `{id, domain, source, licence, text}` of a corpus."""
    rng = Random(derive_seed(seed, "document", number))
    domain = DOMAINS[number % len(DOMAINS)]
    parts = [make(rng) for chance, make in (*PASSAGES[domain], *COMMON) if rng.random() < chance]
    parts += [prose(rng) for _ in range(min(int(rng.expovariate(0.25)), 24))]
    rng.shuffle(parts)
    text = rng.choice(("\n", "\n\n")).join(parts) or prose(rng)
    if domain == "latex":
        text = f"\\documentclass{{article}}\n\\begin{{document}}\n{text}"
        if rng.random() < 0.4:
            text += f"\n\\begin{{thebibliography}}{{9}}\n{prose(rng)}\n\\end{{thebibliography}}"
        text += "\n\\end{document}\n"
    return {
        "id": f"{domain}-{seed}-{number}",
        "domain": domain,
        "source": f"made from seed {seed}",
        "licence": "CC0-1.0",
        "text": text,
    }


def documents(count: int, seed: int = 0) -> Iterator[dict[str, str]]:
    return (document(seed, number) for number in range(count))


def write_corpus(path: Path, count: int, seed: int = 0) -> None:
    """`count` documents as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as out:
        for row in documents(count, seed):
            out.write(json.dumps(row) + "\n")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.cdr_corpus", description=__doc__)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    write_corpus(args.out, args.documents, args.seed)


if __name__ == "__main__":
    main()
