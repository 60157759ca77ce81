"""Rebuild documents.jsonl.gz from the archives that SOURCES.md names.

    python -m data_gen.corpus.build ARCHIVE_DIR

ARCHIVE_DIR holds the PyPI source archives (`Django-5.1.tar.gz`, …), the two Debian packages
unpacked with `dpkg-deb -x PACKAGE.deb deb/NAME`, and nothing is downloaded here. Same archives,
same bytes.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_CHARS = 2600  # of one document: enough for a dozen passages, small enough to ship
MIN_CHARS = 500


@dataclass(frozen=True)
class Source:
    """One origin: `files` is a regular expression over paths inside it."""

    name: str
    path: str
    files: str
    licence: str
    domain: str
    limit: int


SOURCES = (
    Source("django-5.1", "Django-5.1.tar.gz",
           r"docs/(topics|ref|howto|intro|misc|faq|internals)/.*\.txt$",
           "BSD-3-Clause", "docs", 110),
    Source("django-5.1-releases", "Django-5.1.tar.gz", r"docs/releases/\d.*\.txt$",
           "BSD-3-Clause", "releases", 70),
    Source("sqlalchemy-2.0.36", "sqlalchemy-2.0.36.tar.gz",
           r"doc/build/(orm|core|faq|tutorial)/.*\.rst$", "MIT", "docs", 50),
    Source("twisted-24.7.0", "twisted-24.7.0.tar.gz", r"docs/.*\.rst$", "MIT", "docs", 60),
    Source("sphinx-8.0.2", "sphinx-8.0.2.tar.gz", r"doc/.*\.rst$", "BSD-2-Clause", "docs", 30),
    Source("pytest-8.3.5", "pytest-8.3.5.tar.gz", r"doc/en/(how-to|explanation|reference).*\.rst$",
           "MIT", "docs", 25),
    Source("flask-3.0.3", "flask-3.0.3.tar.gz", r"docs/.*\.rst$", "BSD-3-Clause", "docs", 30),
    Source("jinja2-3.1.4", "jinja2-3.1.4.tar.gz", r"docs/.*\.rst$", "BSD-3-Clause", "docs", 10),
    Source("attrs-24.2.0", "attrs-24.2.0.tar.gz", r"docs/.*\.(rst|md)$", "MIT", "docs", 15),
    Source("sqlite3-doc-3.40.1", "deb/sqlite3-doc", r"share/doc/sqlite3/[^/]*\.html$",
           "public domain", "web", 90),
    Source("apache2-doc-2.4.68", "deb/apache2-doc", r"/manual/en/.*\.html$",
           "Apache-2.0", "web", 90),
)  # fmt: skip


def members(source: Source, root: Path) -> Iterator[tuple[str, str]]:
    """(path inside the source, text), sorted by path so that the order is not the archive's."""
    path, wanted = root / source.path, re.compile(source.files)
    if path.is_dir():
        found = [p for p in path.rglob("*") if p.is_file() and wanted.search(p.as_posix())]
        for file in sorted(found):
            yield file.relative_to(path).as_posix(), file.read_text("utf-8", "replace")
        return
    with tarfile.open(path) as archive:
        chosen = [m for m in archive.getmembers() if m.isfile() and wanted.search(m.name)]
        for member in sorted(chosen, key=lambda m: m.name):
            data = archive.extractfile(member)
            if data is not None:
                yield member.name, data.read().decode("utf-8", "replace")


def rst_paragraphs(text: str) -> Iterator[str]:
    """Plain prose paragraphs and list items: no directive, literal block, table or heading rule."""
    for block in re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n")):
        lines = block.split("\n")
        if not lines[0] or lines[0][0] in " \t" or re.search(r"::\s*$|:\w+:`|`_|\|", block):
            continue
        if any(re.fullmatch(r"[=\-~^\"'#*+.`_:]{3,}", line.strip()) for line in lines):
            continue
        flat = re.sub(r"\s+", " ", block).strip()
        flat = re.sub(r"^(\*|-|#\.) ", "", flat).replace("``", "")
        if not flat.startswith((".. ", ":", "$", ">>>")):
            yield flat


def html_paragraphs(text: str) -> Iterator[str]:
    """Paragraphs with their inline tags and entities left in place: the tags are the task."""
    body = re.sub(r"<(script|style|pre|table)\b.*?</\1>", " ", text, flags=re.S | re.I)
    for block in re.split(
        r"</?(?:p|li|ul|ol|div|h\d|dl|dt|dd|blockquote|body|br)\b[^>]*>", body, flags=re.I
    ):
        flat = re.sub(r"\s+", " ", block).strip()
        if not re.search(r"<(?!/?(b|i|em|strong|a|code|tt|u|var)\b)", flat, re.I):
            yield flat


def usable(paragraph: str) -> bool:
    """Prose: starts like a sentence, ends like one, mostly letters."""
    if not 25 <= len(paragraph) <= 700 or paragraph[-1] not in ".!?:":
        return False
    if not re.match(r"(<[^>]+>)?[A-Z]", paragraph) or re.search(
        r"\ufffd| [*#+] |\w_[\s.,)]", paragraph
    ):
        return False
    plain = re.sub(r"<[^>]+>", "", paragraph)
    letters = sum(c.isalpha() or c == " " for c in plain)
    return bool(plain) and letters >= 0.88 * len(plain) and plain.count(" ") >= 3


def document(source: Source, path: str, text: str) -> dict[str, str] | None:
    """One row, or None when the file holds too little prose."""
    cut = html_paragraphs if source.domain == "web" else rst_paragraphs
    kept: list[str] = []
    for paragraph in cut(text):
        if usable(paragraph) and paragraph not in kept:
            kept.append(paragraph)
        if sum(map(len, kept)) > MAX_CHARS:
            break
    body = "\n\n".join(kept)
    if len(body) < MIN_CHARS:
        return None
    short = re.sub(r"^(usr/share/doc/|[^/]+-\d[^/]*/)", "", path)
    return {"id": f"{source.name}/{short}", "domain": source.domain, "source": source.name,
            "licence": source.licence, "text": body}  # fmt: skip


def build(root: Path) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for source in SOURCES:
        found = [
            row for path, text in members(source, root) if (row := document(source, path, text))
        ]
        step = max(1.0, len(found) / source.limit)  # spread over the source, not its first files
        chosen = [found[int(i * step)] for i in range(min(source.limit, len(found)))]
        print(f"{source.name:24} {source.licence:14} {len(chosen):4} of {len(found)}")
        rows += chosen
    return rows


def main(argv: list[str]) -> int:
    rows = build(Path(argv[0]))
    target = Path(__file__).with_name("documents.jsonl.gz")
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    target.write_bytes(gzip.compress(lines.encode(), compresslevel=9, mtime=0))
    print(f"{len(rows)} documents, {len(lines):,} characters, {target.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
