"""Make data_gen/corpus/ (the demo corpus) again from the archives that its SOURCES.md names.

    python -m benchmarks.demo_corpus ARCHIVE_DIR

ARCHIVE_DIR holds the PyPI source archives (`Django-5.1.tar.gz`, …), the two Debian packages
unpacked with `dpkg-deb -x PACKAGE.deb deb/NAME`, and nothing is downloaded here. Same archives,
same bytes. A file that is no UTF-8 stops it.
"""

from __future__ import annotations

import gzip
import re
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from assay.task import json_line
from data_gen.corpora import SHIPPED

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
    notice: str  # path of the licence text inside the origin, or beside it


SOURCES = (
    Source(
        "django-5.1",
        "Django-5.1.tar.gz",
        r"docs/(topics|ref|howto|intro|misc|faq|internals)/.*\.txt$",
        "BSD-3-Clause",
        "docs",
        110,
        "LICENSE",
    ),
    Source(
        "django-5.1-releases",
        "Django-5.1.tar.gz",
        r"docs/releases/\d.*\.txt$",
        "BSD-3-Clause",
        "releases",
        70,
        "LICENSE",
    ),
    Source(
        "sqlalchemy-2.0.36",
        "sqlalchemy-2.0.36.tar.gz",
        r"doc/build/(orm|core|faq|tutorial)/.*\.rst$",
        "MIT",
        "docs",
        50,
        "LICENSE",
    ),
    Source(
        "twisted-24.7.0", "twisted-24.7.0.tar.gz", r"docs/.*\.rst$", "MIT", "docs", 60, "LICENSE"
    ),
    Source(
        "sphinx-8.0.2",
        "sphinx-8.0.2.tar.gz",
        r"doc/.*\.rst$",
        "BSD-2-Clause",
        "docs",
        30,
        "LICENSE.rst",
    ),
    Source(
        "pytest-8.3.5",
        "pytest-8.3.5.tar.gz",
        r"doc/en/(how-to|explanation|reference).*\.rst$",
        "MIT",
        "docs",
        25,
        "LICENSE",
    ),
    Source(
        "flask-3.0.3",
        "flask-3.0.3.tar.gz",
        r"docs/.*\.rst$",
        "BSD-3-Clause",
        "docs",
        30,
        "LICENSE.txt",
    ),
    Source(
        "jinja2-3.1.4",
        "jinja2-3.1.4.tar.gz",
        r"docs/.*\.rst$",
        "BSD-3-Clause",
        "docs",
        10,
        "LICENSE.txt",
    ),
    Source(
        "attrs-24.2.0", "attrs-24.2.0.tar.gz", r"docs/.*\.(rst|md)$", "MIT", "docs", 15, "LICENSE"
    ),
    Source(
        "sqlite3-doc-3.40.1",
        "deb/sqlite3-doc",
        r"share/doc/sqlite3/[^/]*\.html$",
        "public domain",
        "web",
        90,
        "",
    ),
    Source(
        "apache2-doc-2.4.68",
        "deb/apache2-doc",
        r"/manual/en/.*\.html$",
        "Apache-2.0",
        "web",
        90,
        "../../LICENSE",
    ),
)
PREFACE = """# Sources of the demo corpus

`documents.jsonl.gz` holds prose from the documentation of the projects below. Each document is one
file of its origin, cut to its first plain paragraphs (about 2,600 characters); code, tables and
directives are left out, line breaks inside paragraphs are joined, and the HTML pages keep their
inline tags. Nothing else was changed. Files about licences themselves are left out.

The Python packages are the source archives of the package index, the other two the documentation
packages of Debian 12. The notices that the licences ask for are in LICENCES.txt.

| source | origin | kind | licence | documents |
|---|---|---|---|---|
"""
APACHE_NOTICE = """Apache HTTP Server, documentation.
Copyright The Apache Software Foundation.
This product includes software developed at The Apache Software Foundation.
The excerpts were changed: cut to paragraphs, line breaks joined.
"""


def members(source: Source, root: Path) -> Iterator[tuple[str, str]]:
    """(path inside the source, text), sorted by path so that the order is not the archive's."""
    path, wanted = root / source.path, re.compile(source.files)
    if path.is_dir():
        found = [p for p in path.rglob("*") if p.is_file() and wanted.search(p.as_posix())]
        for file in sorted(found):
            yield file.relative_to(path).as_posix(), file.read_text("utf-8")
        return
    with tarfile.open(path) as archive:
        chosen = [m for m in archive.getmembers() if m.isfile() and wanted.search(m.name)]
        for member in sorted(chosen, key=lambda m: m.name):
            data = archive.extractfile(member)
            if data is not None:
                yield member.name, data.read().decode("utf-8")


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
        r"\ufffd| [*#+] |\w_[\s.,)]|pypi", paragraph
    ):
        return False
    plain = re.sub(r"<[^>]+>", "", paragraph)
    letters = sum(c.isalpha() or c == " " for c in plain)
    return bool(plain) and letters >= 0.88 * len(plain) and plain.count(" ") >= 3


def document(source: Source, path: str, text: str) -> dict[str, str] | None:
    """One row, or None when the file holds too little prose."""
    if re.search(r"licen[sc]e", path.rsplit("/", 1)[-1], re.I):
        return None
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
    return {
        "id": f"{source.name}/{short}",
        "domain": source.domain,
        "source": source.name,
        "licence": source.licence,
        "text": body,
    }


def notice(source: Source, root: Path) -> str:
    """The licence text of an origin under a heading that names it."""
    if not source.notice:
        return ""
    path = root / source.path
    if path.is_dir():
        ours = (SHIPPED.parent / source.notice).read_text("utf-8")
        text = APACHE_NOTICE + "\n" + ours
    else:
        text = next(t for _, t in members(replace(source, files=rf"^[^/]+/{source.notice}$"), root))
    return f"{'=' * 80}\n{source.name} ({source.licence})\n{'=' * 80}\n{text.strip()}\n\n"


def describe(rows: list[dict[str, str]]) -> str:
    """SOURCES.md: one line for each source, with the number of its documents."""
    lines = [PREFACE]
    for source in SOURCES:
        count = sum(row["source"] == source.name for row in rows)
        origin = source.path.replace("deb/", "Debian package ")
        lines.append(
            f"| {source.name} | {origin} | {source.domain} | {source.licence} | {count} |\n"
        )
    return "".join(lines)


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
    root = Path(argv[0])
    rows = build(root)
    target = SHIPPED
    lines = b"".join(map(json_line, rows)).decode()
    target.write_bytes(gzip.compress(lines.encode(), compresslevel=9, mtime=0))
    target.with_name("SOURCES.md").write_text(describe(rows), encoding="utf-8")
    notices = dict.fromkeys(notice(source, root) for source in SOURCES)
    target.with_name("LICENCES.txt").write_text("".join(notices), encoding="utf-8")
    print(f"{len(rows)} documents, {len(lines):,} characters, {target.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
