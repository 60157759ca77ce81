"""Plain files of this machine in parts that worker processes read themselves.

What a process is sent is the place of its part, not the bytes. Inputs that cannot be read from the
middle (compressed ones, URLs, pipes, standard input) come in blocks that the parent has read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from assay.rows import Block, blocks, compressed, local_file

PART = 1 << 20


@dataclass(frozen=True)
class Part:
    """The lines of a file that begin at a byte from `start` to `end`. `position` is how many bytes
    of all inputs are behind `end`."""

    source: str
    start: int
    end: int
    position: int


def parts(names: Sequence[str], size: int = PART) -> Iterator[Part | Block]:
    """The lines of the inputs, one after the other. Raises as `blocks` does."""
    before = 0
    for name in names:
        path = None if compressed(name) else local_file(name)
        if path is not None:
            with open(path, "rb"):  # one that may not be read is refused before work begins
                pass
            start = 0
            while (end := min(os.path.getsize(path), start + size)) > start:
                yield Part(name, start, end, before + end)
                start = end
            before += start
        else:
            position = 0
            for block in blocks([name]):
                position = block.position
                yield replace(block, position=before + position)
            before += position


def lines_of(job: Part | Block) -> bytes:
    """Whole lines, without a mark at the start of the file."""
    if isinstance(job, Block):
        return job.data
    path = local_file(job.source)
    if path is None:
        raise FileNotFoundError(2, "was there when the work began", job.source)
    with open(path, "rb") as file:
        if not job.start:
            data = file.read(job.end)
        else:
            # A line begins behind a line's end. The one that begins before is another part's.
            file.seek(job.start - 1)
            read = file.read(job.end - job.start + 1)
            data = read[read.find(b"\n") + 1 :] if b"\n" in read else b""
        if data and not data.endswith(b"\n"):
            data += file.readline()
    return data if job.start else data.removeprefix(b"\xef\xbb\xbf")
