"""`assay eval` on any families in one run: rows, tables, baselines, journal, sentences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chat_server import serving
from front import command as front
from front import results
from mixed_tasks import mixed, own, write_canned, write_mixed
from places import ROOT
from view_pages import items_of

pytest.importorskip("aiohttp")
pytest.importorskip("pandas")

from assay.task import Task, write_jsonl
from rollouts.sampler import GIVE_UP
from train.evaluation.run import even_draw

main = front("eval")  # where errors become exit statuses


pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    write_mixed(folder)
    write_canned(folder / "canned.jsonl")
    return folder


def words(place: Path, out: Path, model: str = "", *more: str) -> list[str]:
    tasks = ["--tasks", str(place / "mixed.jsonl"), "--family", str(place / "sums.py")]
    model = model or f"canned:{place / 'canned.jsonl'}"
    return [*tasks, "--model", model, "--out", str(out), *more]


@pytest.fixture(scope="module")
def found(place: Path) -> dict[str, Any]:
    assert main(words(place, place / "out", "", "server.price=[1,2]")) == 0
    return results(place / "out")


def test_five_families_have_one_row_an_answer(found: dict[str, Any]) -> None:
    rows = {row["task_id"]: row for row in found["rows"]}
    assert list(rows) == [task.id for task in mixed()]
    outcomes = {name: row["outcome"] for name, row in rows.items()}
    assert outcomes["j0"] == outcomes["a7"] == outcomes["o2"] == 1.0
    assert outcomes["t0"] == outcomes["a8"] == outcomes["o3"] == outcomes["r0"] == 0.0
    assert (rows["o3"]["reward"], rows["o3"]["why"]) == (0.1, "wrong sum")  # not the outcome
    assert (rows["r0"]["label"], rows["r0"]["said"]) == ("DROP", "KEEP")
    assert (rows["r0"]["source"], rows["o3"]["source"]) == ("doc0", "book")
    assert rows["o3"]["slices"] == {"digits": "1"} and rows["a7"]["output"] == "<answer>7</answer>"
    read, written = rows["r1"]["tokens_in"], rows["r1"]["tokens_out"]
    assert read > 0 and rows["r1"]["cost"] == pytest.approx((read + 2 * written) / 1e6)


def test_tables_are_by_family_and_slice_with_clustered_intervals(found: dict[str, Any]) -> None:
    tables = found["tables"]
    assert tables["overall"]["n"] == 18 and tables["overall"]["no_outcome"] == 0
    texts = tables["by_family"]["refinement"]
    assert (texts["n"], texts["sources"], texts["balanced"]) == (6, 3, 0.5)
    sums = tables["by_family"]["sums"]  # all from one book: nothing is known of other books
    assert (sums["mean_outcome"], sums["sources"], sums["interval"]) == (1 / 8, 1, None)
    assert sums["mean_reward"] == pytest.approx(0.1 + 0.9 / 8)
    status = tables["by_slice"]["refinement"]["gold status"]
    assert (status["KEEP"]["mean_outcome"], status["DROP"]["mean_outcome"]) == (1.0, 0.0)
    # gold and every cheat stand beside the model
    baselines = found["baselines"]
    assert baselines["gold"]["overall"]["mean_outcome"] == 1.0
    assert baselines["gold"]["overall"]["n"] == 18
    assert baselines["cheat:two"]["by_family"]["sums"]["mean_outcome"] == 1 / 8
    assert set(baselines["cheat:drop"]["by_family"]) == {"refinement"}


def test_the_page_and_an_own_familys_files_are_written(place: Path, found: dict[str, Any]) -> None:
    page = (place / "out" / "report.html").read_text()
    assert "<h2>Families</h2>" in page and "sums: digits = 2" in page and "cheat:two" in page
    asked = items_of((place / "out" / "view.html").read_text(), "task")
    assert len(asked) == 18 and all("gold" in task or "work" in task for task in asked)
    assert found["files"] == ["sums.md"]
    assert (place / "out" / "sums.md").read_text() == "8 sums\n"


@pytest.fixture
def toys(tmp_path: Path) -> Path:
    """Forty sums, and the family's own file."""
    write_mixed(tmp_path)
    write_jsonl(tmp_path / "toy.jsonl", [own(i).to_json() for i in range(40)])
    return tmp_path


def toy_words(folder: Path, model: str) -> list[str]:
    command = words(folder, folder / "out", model, "server.in_flight=1")
    return ["--tasks", str(folder / "toy.jsonl"), *command[2:]]


def test_other_settings_and_code_are_refused_by_name(
    toys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = toy_words(toys, "gold")
    assert main(command) == 0
    assert main([*command, "--seed", "1"]) == 2
    assert "another seed" in capsys.readouterr().err
    with open(toys / "sums.py", "a") as code:
        code.write("\n# changed\n")
    again = f"import sys, assay; sys.exit(assay.main(['eval', *{command!r}]))"
    done = subprocess.run([sys.executable, "-c", again], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "other families" in done.stderr


def test_a_dead_endpoint_is_said_at_once_and_ends_the_run(
    toys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(lambda body: 401) as (url, seen):
        assert main(toy_words(toys, url)) == 2
    assert len(seen) == GIVE_UP
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"{GIVE_UP} requests in a row failed" in last
    assert not (toys / "out" / "results.json").exists()


def test_a_reward_setting_changes_rewards_and_no_outcome(place: Path, tmp_path: Path) -> None:
    setting, drops = "reward.refinement.wrong_drop=0.1", []
    for name, at in (("a", 0), ("b", 2)):  # behind --tasks, which takes all that follows
        command = words(place, tmp_path / name, "gold")
        assert main([*command[:at], *([setting] if at else []), *command[at:]]) == 0
        found = results(tmp_path / name)
        drops.append(found["baselines"]["cheat:drop"]["overall"])
    assert drops[0]["mean_outcome"] == drops[1]["mean_outcome"]
    assert drops[0]["mean_reward"] > drops[1]["mean_reward"]


def task(name: str, track: str, status: str = "KEEP", **more: Any) -> Task:
    gold = {"input_text": "x" * 40, "status": status, "text": "x"}
    return Task(name, "refinement", track, "test", [], gold, **more)


def test_a_limit_is_an_even_draw_that_the_seed_decides_and_keeps_groups_whole() -> None:
    tasks = [task(f"{track}{i}", track) for track in "abc" for i in range(50)]
    first = even_draw(tasks, 9, 0)
    assert [one.track for one in first] == [*"aaabbbccc"]
    assert first == even_draw(tasks, 9, 0) != even_draw(tasks, 9, 1) and first[:3] != tasks[:3]
    assert even_draw(tasks, 200, 0) == tasks
    grouped = [
        task(f"g{g}s{s}#{v}", "order", group=f"g{g}", meta={"instance": f"g{g}s{s}"})
        for g in range(5)
        for s in range(2)
        for v in range(3)
    ]
    kept = even_draw(grouped, 2, 0)
    assert len(kept) == 6 and len({one.group for one in kept}) == 1
