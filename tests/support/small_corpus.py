"""A corpus small enough for tests, in three domains, written where a test wants it."""

from __future__ import annotations

from pathlib import Path

from assay.task import write_jsonl

TEXTS = {
    "web": "<p>See https://a.org/x{n} &amp; www.b.com/{n} now.</p>\n<b>Word {n}</b> more text {t}",
    "rag": "Same one. Same one. Note {n} is here. -- Note {n} is here. The end {t} now.",
    "privacy": "Mail ana{n}@acme.io from 10.0.0.{n} at /home/a{n}/b.txt, tel 555-010{n}. {t}",
}


def write_corpus(folder: Path, count: int = 40) -> Path:
    """`web.jsonl`, `rag.jsonl` and `privacy.jsonl` with `count` documents each."""
    folder.mkdir(parents=True, exist_ok=True)
    for label, text in TEXTS.items():
        about = {"domain": label, "source": "made up", "licence": "CC0"}
        texts = [text.format(n=n, t="some more words " * (n % 9)) for n in range(count)]
        rows = [{"id": f"{label}-{n}", **about, "text": said} for n, said in enumerate(texts)]
        write_jsonl(folder / f"{label}.jsonl", rows)
    return folder
