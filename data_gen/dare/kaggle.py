"""Tables from Kaggle, when a token is there: its documented HTTP API, a cache, licences kept.

`kaggle:OWNER/NAME` is one data set; `kaggle:WORDS` what a search for them gives, open licences
only. The token is Kaggle's own: $KAGGLE_API_TOKEN, or $KAGGLE_USERNAME with $KAGGLE_KEY, or
kaggle.json in $KAGGLE_CONFIG_DIR or ~/.kaggle. What was downloaded is kept and not asked for again:
delete the folder to refresh it. API: github.com/Kaggle/kaggle-api, KaggleSwagger.yaml.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from data_gen.dare.licences import is_open
from rewards.task import TaskError
from rollouts.machine import cache_folder

API = "https://www.kaggle.com/api/v1"
TABLES = (".csv", ".tsv", ".parquet", ".sqlite", ".sqlite3", ".db")
MAX_DOWNLOAD = 512 << 20  # bytes of one data set, packed
MAX_TABLE = 256 << 20  # bytes of one table, unpacked


@dataclass(frozen=True)
class DataSet:
    """What the source page says, and the tables that were unpacked."""

    ref: str  # owner/name
    facts: Mapping[str, Any]  # title, subtitle, description, licenseName, usabilityRating, …
    tables: tuple[Path, ...]

    @property
    def about(self) -> str:
        parts = [str(self.facts.get(k) or "") for k in ("subtitle", "description")]
        return "\n\n".join(filter(None, parts))


class _SameHost(urllib.request.HTTPRedirectHandler):
    """A redirect to another host (downloads lead to a file store) must not take the token along."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        there = urllib.parse.urlsplit(newurl).netloc
        if made is not None and there != urllib.parse.urlsplit(req.full_url).netloc:
            made.remove_header("Authorization")
        return made


def token() -> str:
    """The Authorization header. Raises `TaskError` saying where a token may lie."""
    if key := os.environ.get("KAGGLE_API_TOKEN"):
        return f"Bearer {key}"
    user, key = os.environ.get("KAGGLE_USERNAME"), os.environ.get("KAGGLE_KEY")
    if not (user and key):
        folder = Path(os.environ.get("KAGGLE_CONFIG_DIR") or Path.home() / ".kaggle")
        try:
            said: Any = json.loads((folder / "kaggle.json").read_text(encoding="utf-8"))
            user, key = str(said["username"]), str(said["key"])
        except (OSError, ValueError, LookupError, TypeError):
            raise TaskError(
                "--tables kaggle:… needs a token: set KAGGLE_USERNAME and KAGGLE_KEY, or save "
                f"kaggle.json from your Kaggle settings in {folder}"
            ) from None
    return "Basic " + base64.b64encode(f"{user}:{key}".encode()).decode()


class Client:
    """Reads of the API, again after a pause when it is busy."""

    def __init__(self, url: str | None = None, pause: float = 2.0) -> None:
        self.url = (url or os.environ.get("ASSAY_KAGGLE_URL") or API).rstrip("/")
        self.pause = pause
        self._open = urllib.request.build_opener(_SameHost()).open
        self._headers = {"Authorization": token(), "User-Agent": "assay"}

    def json(self, path: str, **query: Any) -> Any:
        with tempfile.TemporaryFile() as file:
            self.fetch(f"{path}?{urllib.parse.urlencode(query)}", file)
            file.seek(0)
            try:
                return json.loads(file.read())
            except ValueError:
                raise TaskError(f"Kaggle: {path}: the answer is no JSON") from None

    def fetch(self, path: str, into: Any) -> None:
        """A body into an open file. Raises `TaskError` with what the server said."""
        for attempt in range(5):
            request = urllib.request.Request(f"{self.url}/{path}", headers=self._headers)
            try:
                with self._open(request, timeout=120) as reply:
                    into.seek(0)
                    into.truncate()
                    while part := reply.read(1 << 20):
                        into.write(part)
                        if into.tell() > MAX_DOWNLOAD:
                            raise TaskError(f"Kaggle: {path}: larger than {MAX_DOWNLOAD} bytes")
                return
            except urllib.error.HTTPError as error:
                why = {
                    401: "the token is refused",
                    403: "not allowed; accept its terms there",
                    404: "there is no such data set",
                }.get(error.code, error.reason)
                if error.code not in (429, 500, 502, 503, 504) or attempt == 4:
                    raise TaskError(f"Kaggle: {path}: {error.code}, {why}") from None
                wait = error.headers.get("Retry-After") or ""
                time.sleep(min(60.0, float(wait) if wait.isdigit() else self.pause * 2**attempt))
            except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
                if attempt == 4:
                    raise TaskError(f"Kaggle: {path}: {error}") from None
                time.sleep(self.pause * 2**attempt)


def data_sets(wanted: str, most: int = 40) -> Iterator[DataSet]:
    """The data sets of `OWNER/NAME` or of a search, from the cache or the network, by name."""
    index = cache_folder() / "kaggle" / f"{hashlib.sha256(wanted.encode()).hexdigest()[:16]}.json"
    if not index.is_file():
        rows = _listed(Client(), wanted, most)
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_text(json.dumps(rows, indent=1, sort_keys=True), encoding="utf-8")
    for row in json.loads(index.read_text(encoding="utf-8")):
        folder = cache_folder() / "kaggle" / str(row["ref"]).replace("/", "__")
        if not folder.is_dir():
            _download(Client(), str(row["ref"]), folder)
        tables = sorted(p for p in folder.iterdir() if p.suffix in TABLES)
        yield DataSet(str(row["ref"]), row, tuple(tables))


def _listed(client: Client, wanted: str, most: int) -> list[dict[str, Any]]:
    """Facts of the data sets, sorted by name."""
    if re.fullmatch(r"[\w.-]+/[\w.-]+", wanted):
        return [_facts(client.json(f"datasets/view/{wanted}"), wanted)]
    found: dict[str, dict[str, Any]] = {}
    for page in range(1, 1 + -(-most // 20)):
        rows: Any = client.json("datasets/list", search=wanted, page=page, filetype="csv")
        rows = cast("Any", rows).get("datasets", []) if isinstance(rows, dict) else rows
        for row in cast("list[Any]", rows):
            facts = _facts(row, "")
            if facts["ref"] and is_open(str(facts.get("licenseName") or "")):
                found[facts["ref"]] = facts
        if not rows:
            break
    if not found:
        raise TaskError(f"--tables kaggle:{wanted}: no data set with an open licence was found")
    return [found[ref] for ref in sorted(found)][:most]


def _facts(row: Any, ref: str) -> dict[str, Any]:
    keep = (
        "title",
        "subtitle",
        "description",
        "licenseName",
        "usabilityRating",
        "lastUpdated",
        "totalBytes",
        "url",
    )
    if not isinstance(row, dict):
        raise TaskError(f"Kaggle: {ref or 'a search'}: the answer is no data set")
    said = cast("dict[str, Any]", row)
    name = str(said.get("ref") or ref)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        name = ""
    return {k: said[k] for k in keep if said.get(k) is not None} | {"ref": name}


def _download(client: Client, ref: str, folder: Path) -> None:
    """Unpack the tables of a data set into `folder`, whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".making-"))
    try:
        with tempfile.TemporaryFile() as packed:
            client.fetch(f"datasets/download/{ref}", packed)
            _unpack(packed, work, ref)
        shutil.rmtree(folder, ignore_errors=True)
        work.replace(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _unpack(packed: Any, work: Path, ref: str) -> None:
    """Tables of an archive by their bare names, each under a limit; other members stay packed."""
    try:
        with zipfile.ZipFile(packed) as archive:
            for member in archive.infolist():
                name = re.sub(r"[^\w.-]+", "-", os.path.basename(member.filename)).lstrip(".-")
                suffix = Path(name).suffix.lower()
                if suffix not in TABLES or (work / name).exists():
                    continue
                with archive.open(member) as source, open(work / name, "wb") as target:
                    left = MAX_TABLE + 1  # whatever the archive claims of its members' sizes
                    while part := source.read(min(1 << 20, left)):
                        target.write(part)
                        left -= len(part)
                if not left:
                    (work / name).unlink()
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise TaskError(f"Kaggle: {ref}: its archive cannot be unpacked: {error}") from None
