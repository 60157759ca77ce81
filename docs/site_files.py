"""For mkdocs: files of the repository that pages link to become part of the site.

A page links to `../examples/own_family.py`, which is right where the repository is read. On the
site that file stands beside the pages, so one `../` goes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(((?:\.\./)+)([\w./-]+)((?:#[\w-]*)?)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add every file outside docs/ that a page links to."""
    for page in list(files.documentation_pages()):
        text = Path(page.abs_src_path or "").read_text(encoding="utf-8")
        for up, name, _ in LINK.findall(text):
            if (
                outside(page.src_uri, up)
                and (ROOT / name).is_file()
                and not files.src_uris.get(name)
            ):
                files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that leave docs/ lose the step that leaves it."""

    def shorter(match: re.Match[str]) -> str:
        up, name, anchor = match.groups()
        if not outside(page.file.src_uri, up):
            return match[0]
        return f"]({up.removesuffix('../')}{name}{anchor})"

    return LINK.sub(shorter, markdown)


def outside(page: str, up: str) -> bool:
    """Whether a link of a page leaves docs/."""
    return up.count("../") > page.count("/")
