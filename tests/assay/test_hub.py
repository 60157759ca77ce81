"""A place that a user names is a path of this machine, or a data set of the hub by name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path

import assay_command
import pytest
from cdr_copies import track_rows
from chat_server import Quiet, listening
from front import results
from places import ROOT

from assay.hub import local_place, said
from assay.task import TaskError


@pytest.mark.parametrize("place", ["no/such/folder", "./none", "none", "x/rows.jsonl"])
def test_what_no_hub_can_have_is_told_without_asking_one(tmp_path: Path, place: str) -> None:
    with pytest.raises(TaskError, match=f"^{place}: no such file or folder; give one, .*own/Bench"):
        local_place(place, "own/Bench")
    assert local_place(str(tmp_path), "own/Bench") == tmp_path


def test_what_the_client_says_is_cut_to_its_first_line() -> None:
    with pytest.raises(TaskError, match=r"^x: [^\n]*\(it is gone\)[^\n]*$"), said("x"):
        raise OSError("it is gone\nfor ever")


# --- through the hub's own client, over HTTP ------------------------------------------------------


def release(rows: int) -> dict[str, str]:
    tracks = track_rows(("order_f", "order_m"), rows)
    files = {f"tracks/{name}.jsonl": "\n".join(map(json.dumps, tracks[name])) for name in tracks}
    return files | {"README.md": "A card."}


MODEL = ("config.json", "tokenizer.json", "x.safetensors", "x.onnx")
REPOSITORIES = {  # revision: file: text
    "datasets/own/CDR": {"main": release(3), "v1": release(2)},
    "models/own/tiny": {"main": dict.fromkeys(MODEL, "{}")},
}
ADDRESS = re.compile(r"/(?:api/)?(datasets/|)(?:models/)?(own/\w+)(/[a-z]+/(\w+))?/?([^?]*)")


def digest(text: str) -> str:
    return sha1(text.encode()).hexdigest()


class Hub(Quiet):
    """The part of the hub's HTTP that its client uses to list a revision and to get files."""

    def do_GET(self) -> None:
        found = ADDRESS.match(self.path)
        assert found is not None, self.path
        if found[2] == "own/gated":
            return self.answer(403, "", "X-Error-Code", "GatedRepo")
        revisions = REPOSITORIES.get(f"{found[1] or 'models/'}{found[2]}", {})
        known = {sha: r for r in revisions for sha in (r, digest(r))}
        revision = known.get(found[4] or "main")
        if revision is None:
            lacks = "RevisionNotFound" if revisions else "RepoNotFound"
            return self.answer(404, "", "X-Error-Code", lacks)
        told, files = ("X-Repo-Commit", digest(revision)), revisions[revision]
        if found[5]:
            return self.answer(200, files[found[5]], *told)
        sizes = {f: {"size": len(text), "oid": digest(text)} for f, text in files.items()}
        tree = [{"type": "file", "path": f, **more} for f, more in sizes.items()]
        names = {"id": found[2], "sha": told[1]}
        self.answer(200, json.dumps(tree if "/tree/" in self.path else names), *told)

    do_HEAD = do_GET

    def answer(self, status: int, text: str, *told: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("ETag", f'"{digest(text)}"')
        self.send_header(*told)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else text.encode())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the client of a process started here keeps what it gets from the stand-in."""
    pytest.importorskip("huggingface_hub")
    for name in [n for n in os.environ if n.startswith(("HF_", "HUGGING"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "assay"))
    with listening(Hub) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield tmp_path / "cache"


def test_of_a_revision_the_files_asked_for_are_fetched_and_kept(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("eval", "--model", "gold", "--no-baselines", "cdr.k=1", "--tasks")
    assay_command.assay(tmp_path, *words, "cdr:hf://datasets/own/CDR@v1/tracks", "--out", "out")
    assert len(results(tmp_path / "out")["rows"]) == 4
    kept = sorted(p for p in cache.glob("hub/datasets--own--CDR/snapshots/*/**/*") if p.is_file())
    assert [p.name for p in kept] == ["order_f.jsonl", "order_m.jsonl"]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    ran = assay_command.run(tmp_path, *words, "cdr:own/CDR@v1:order_f", "--out", "offline")
    assert f"revision {digest('v1')} of the hub, in {kept[0].parents[1]}\n" in ran.stderr


WHY = {
    "own/none": "it has no data set of this name that you may read",
    "own/gated": "its owner has to let you read this data set",
    "own/CDR@v2": "the data set has no such revision",
}


@pytest.mark.parametrize("place", WHY)
def test_what_the_hub_refuses_is_one_sentence(cache: Path, tmp_path: Path, place: str) -> None:
    ran = assay_command.run(tmp_path, "pull", f"hf://datasets/{place}", "--out", "T")
    assert ran.returncode == 2 and ran.stderr.count("\n") == 1, ran.stderr
    assert f"{place}: the hub cannot be used ({WHY[place]}); check" in ran.stderr
    assert ran.stderr.endswith(" the network and HF_TOKEN\n")


def test_a_model_is_fetched_by_name_without_what_is_not_loaded(cache: Path) -> None:
    words = [sys.executable, "-m", "train.model.source", "own/tiny"]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    folder = Path(ran.stdout.strip())
    assert {p.name for p in folder.iterdir()} == {*MODEL[:3], "SOURCE.json"}
    assert digest("main") in (folder / "SOURCE.json").read_text()
