"""Gold proved twice: both ways agree on right pipelines, and a wrong reader or step is refused."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

pytest.importorskip("pandas")
pytest.importorskip("duckdb")

from proof_lake import opened, question, values_of

from data_gen.queries.lake import Lake, open_lake
from data_gen.queries.lake_checks import refusal
from data_gen.queries.ops import (
    Above,
    AboveOwn,
    Best,
    Change,
    Clean,
    Correlate,
    Difference,
    Each,
    Figure,
    Fit,
    Group,
    Interpolate,
    Join,
    Keep,
    Least,
    Limit,
    Load,
    Nth,
    Op,
    Portion,
    Share,
    Source,
    Split,
    Spread,
    Top,
    Years,
)
from data_gen.tally import DIFFERS, UNPROVABLE, Refusal

PRICES = Source("preise.csv", columns=("Name", "Art", "Preis"))
LEVELS = Source("preise.csv", columns=("Name", "Art", "Stufe"))
SITES = Source("sites.csv", columns=("Place", "Rain", "Year"))
AREA = Join(Source("register.tsv", columns=("Name", "Fläche")), "Name", "Name", "Fläche")
OFFICE = Join(Source("register.tsv", columns=("Name", "Amt")), "Name", "Name", "Amt", False)
TOWN = Split("Place", "after_comma", "town")
GROUP = Group(("Art",), (False,), "Preis", "median")

GOOD: dict[str, list[Op]] = {
    "mean": [Load(PRICES), Clean("Preis"), Figure("Preis", "mean", 2)],
    "total": [Load(SITES), Clean("Samples"), Figure("Samples", "total", 0)],
    "rain": [Load(SITES), Clean("Rain"), Figure("Rain", "mean", 3)],
    "wind": [Load(SITES), Clean("Wind"), Limit("Wind", "<=", 20.0), Figure("Wind", "std", 3)],
    "keep": [Load(PRICES), Clean("Preis"), Keep("Art", "Büro"), Figure("Preis", "median", 2)],
    "join": [Load(PRICES), AREA, Figure("Fläche", "mean", 3)],
    "best": [Load(PRICES), Clean("Preis"), GROUP, Best(True)],
    "top": [Load(PRICES), Clean("Preis"), GROUP, Top(3, True)],
    "each": [Load(PRICES), Clean("Preis"), GROUP, Each()],
    "above": [Load(PRICES), Clean("Preis"), GROUP, Above()],
    "least": [Load(PRICES), Clean("Preis"), Least(("Art",), (False,), 12), GROUP, Each()],
    "halves": [
        Load(SITES),
        Clean("Rain"),
        Split("Place", "after_comma", "town"),
        Group(("town",), (False,), "Rain", "mean"),
        Best(False),
    ],
    "years": [
        Load(SITES),
        Clean("Rain"),
        Years("Year"),
        Group(("Year",), (True,), "Rain", "mean"),
        Interpolate(0.25, 2),
    ],
    "nth": [Load(PRICES), Clean("Preis"), GROUP, Nth(2, True)],
    "spread": [Load(PRICES), Clean("Preis"), GROUP, Spread(2)],
    "change": [
        Load(SITES),
        Clean("Rain"),
        Years("Year"),
        Group(("Year",), (True,), "Rain", "mean"),
        Change(1992, 2003, 1),
    ],
    "share": [Load(SITES), Clean("Samples"), TOWN, Share("town", "Ely", "Samples", 2)],
    "above own": [Load(SITES), Clean("Samples"), TOWN, AboveOwn("town", "Samples")],
    "two joins": [Load(PRICES), AREA, OFFICE, Group(("Amt",), (False,), "Fläche", "mean"), Each()],
    "portion": [Load(LEVELS), Clean("Stufe"), Portion("Stufe", ">", 5.0, 1)],
    "difference": [
        Load(LEVELS),
        Clean("Stufe"),
        Difference("Art", "Hof", "Büro", "Stufe", "mean", 3),
    ],
    "correlation": [Load(PRICES), Clean("Preis"), Clean("Stufe"), Correlate("Preis", "Stufe")],
    "fit": [Load(PRICES), Clean("Preis"), AREA, Fit("Preis", "Fläche", True)],
}

# (pipeline, what is broken in its code, by what): each must be found by the second way
MUTANTS: dict[str, tuple[str, str, str]] = {
    "decimal comma taken for thousands": (
        "mean",
        r"t = pd.read_csv\(.*\)\n(t\[.*\n)*",
        "t = pd.read_csv('data/preise.csv', sep=';', encoding='cp1252', dtype=str)\n"
        "t['Preis'] = pd.to_numeric(t['Preis'].str.replace(',', ''), errors='coerce')\n",
    ),
    "thousands taken for decimals": (
        "mean",
        r"t = pd.read_csv\(.*\)\n(t\[.*\n)*",
        "t = pd.read_csv('data/preise.csv', sep=';', encoding='cp1252', dtype=str)\n"
        "t['Preis'] = pd.to_numeric(t['Preis'].str.split(',').str[0], errors='coerce')\n",
    ),
    "-9999 read as data": ("wind", r"t\['Wind'\] = .*mask.*\n", ""),
    "M read as zero": (
        "rain",
        r't = t.dropna\(subset=\["Rain"\]\)',
        't["Rain"] = t["Rain"].fillna(0)',
    ),
    "a row above the names too many": ("rain", r"\nfound_1", "\nt = t.iloc[1:]\nfound_1"),
    "wrong encoding": ("keep", "encoding='cp1252'", "encoding='cp437'"),
    "< for <=": ("wind", "<= 20", "< 20"),
    "> for >=": ("least", ">= 12", "> 12"),
    "mean for median": ("keep", r"median\(\)", "mean()"),
    "median for mean": ("mean", r"mean\(\)", "median()"),
    "left join": ("join", r'how="inner"\).dropna\(subset=\["Fläche"\]\)', 'how="left").fillna(0)'),
    "duplicate keys dropped": (
        "join",
        r"\nt = t.merge",
        '\nu = u.drop_duplicates("Name")\nt = t.merge',
    ),
    "ascending": ("best", "ascending=False", "ascending=True"),
    "descending": ("halves", "ascending=True", "ascending=False"),
    "one name too many": ("top", r":3\]", ":4]"),
    "one name too few": ("top", r":3\]", ":2]"),
    "missing numbers counted as zero": (
        "each",
        r't = t.dropna\(subset=\["Preis"\]\)',
        't["Preis"] = t["Preis"].fillna(0)',
    ),
    "rounded down": ("rain", r"round\(raw, 3\)", "int(raw * 1000) / 1000"),
    "rounded to other digits": ("rain", r"round\(raw, 3\)", "round(raw, 2)"),
    "spread of a population": ("wind", r"std\(\)", "std(ddof=0)"),
    "blanks around names kept": ("best", r"\.astype\(str\)\.str\.strip\(\)", ".astype(str)"),
    "blanks around names kept in a filter": ("keep", r"\.str\.strip\(\) == ", " == "),
    "the first comma": ("halves", r",\(\[\^,\]\*\)\$", "^[^,]*,(.*)$"),
    "x and y exchanged": (
        "fit",
        r'polyfit\(t\["Preis"\](.*), t\["Fläche"\](.*), 1',
        'polyfit(t["Fläche"].astype(float), t["Preis"].astype(float), 1',
    ),
    "the other way": ("difference", "first.mean", "-first.mean"),
    "the next pair of years": ("years", r"years\[-3\], years\[-2\]", "years[-2], years[-1]"),
    "at least instead of above": ("portion", "> 5", ">= 5"),
    "the median as the line": ("above", r"float\(g.mean\(\)\)", "float(g.quantile(0.9))"),
    "rank correlation": (
        "correlation",
        r'corr\(t\["Stufe"\]\)',
        'corr(t["Stufe"], method="spearman")',
    ),
    "the best for the second best": ("nth", r"g.index\[1\]", "g.index[0]"),
    "the second from the other end": ("nth", "ascending=False", "ascending=True"),
    "from the mean instead of the lowest": ("spread", r"g.min\(\)", "g.mean()"),
    "the change in the wrong direction": (
        "change",
        r"g.loc\[2003\] / g.loc\[1992\]",
        "g.loc[1992] / g.loc[2003]",
    ),
    "the change of the later value": ("change", r" - 1\)", ")"),
    "a share of the rows": ("share", r"\.sum\(\)", ".count()"),
    "a share of the rest": (
        "share",
        r't\["Samples"\]\.sum\(\)',
        '(t["Samples"].sum() - part.sum())',
    ),
    "the mean of all for the own": (
        "above own",
        r't.groupby\("town"\)\["Samples"\].transform\("mean"\)',
        't["Samples"] * 0 + t["Samples"].mean()',
    ),
    "the own median": ("above own", r'transform\("mean"\)', 'transform("median")'),
    "nearly its own mean": ("above own", "> line", ">= line - 2000"),
    "the second join without its duplicate keys": (
        "two joins",
        r'\nt = t.merge\(.*"Amt".*',
        '\nu = u.drop_duplicates("Name")\nt = t.merge(u, on="Name", how="inner")',
    ),
    "a count for a total": ("total", r"sum\(\)", "count()"),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return opened(tmp_path_factory.mktemp("proof"))


def found(
    lake: Lake, name: str, change: tuple[str, str] | None = None
) -> tuple[Refusal | None, dict[str, Any]]:
    """(why the second way refuses, values of the first), with the code changed by a pattern."""
    asked = question(lake, GOOD[name])
    code = asked.code()
    if change is not None:
        new, count = re.subn(change[0], change[1].replace("\\", r"\\"), code)
        assert count, (change[0], code)
        code = new
    values = values_of(code, lake.folder.parent)
    if change is not None and "error" in values:
        pytest.fail(f"the mutant does not run: {values['error']}\n{code}")
    return refusal(asked, values, lake.shelf), values


@pytest.mark.parametrize("name", GOOD)
def test_right_pipelines_are_proved(lake: Lake, name: str) -> None:
    why, values = found(lake, name)
    assert why is None, values


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_reader_or_step_is_refused(lake: Lake, name: str) -> None:
    pipeline, old, new = MUTANTS[name]
    why, values = found(lake, pipeline, (old, new))
    assert why and why.code == DIFFERS and why.what.startswith("step "), (why, values)


def test_gold_is_what_the_cells_say(lake: Lake) -> None:
    """Both ways could be wrong together: the mean computed from the numbers as they were made."""
    made = [round((i * 7919 % 9000) * 2.75 + 10, 2) for i in range(90) if i % 20 != 7]
    values = found(lake, "mean")[1]
    assert values["main-task"] == pytest.approx(round(sum(made) / len(made), 2))
    assert values["subtask-2"] == len(made)
    made = [i * 37 % 101 / 4 for i in range(120) if i % 15 != 3]
    assert found(lake, "rain")[1]["main-task"] == pytest.approx(round(sum(made) / len(made), 3))


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (["1.234", "5.678", "9.012"], "allow two readings"),
        (["1,2", "3.4", "5,6"], "decimal points and decimal commas"),
    ],
)
def test_what_the_second_way_cannot_decide_is_refused(
    tmp_path: Path, cells: list[str], why: str
) -> None:
    lake = opened(tmp_path)
    lines = ["Art;Wert"] + [f"{'abc'[i % 3]};{cells[i % 3]}" for i in range(30)]
    (tmp_path / "data" / "preise.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ops: list[Op] = [
        Load(Source("preise.csv", columns=("Wert",))),
        Clean("Wert"),
        Figure("Wert", "mean", 2),
    ]
    found = refusal(question(lake, ops), {}, lake.shelf)
    assert found and found.code == UNPROVABLE and why in found.what


def test_what_the_user_says_of_a_file_holds_for_both_ways(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    cells = ["1,234", "5,678", "9,012", "7,777"]
    lines = ["Art;Wert;Zahl"]
    lines += [f"{'abc'[i % 3]};{cells[i * i % 4]};{i * i % 37 + 1}" for i in range(40)]
    (folder / "t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "tables.yaml").write_text('"t.csv": {decimal: ",", missing: {Zahl: ["5"]}}\n')
    lake = open_lake(folder)
    for column in ("Wert", "Zahl"):
        ops: list[Op] = [
            Load(Source("t.csv", columns=(column,))),
            Clean(column),
            Figure(column, "mean", 3),
        ]
        asked = question(lake, ops)
        values = values_of(asked.code(), tmp_path)
        assert refusal(asked, values, lake.shelf) is None, values
    assert values["subtask-2"] < 40  # the 5s went


def test_names_that_differ_by_case_alone_are_two_columns(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [f"{'abc'[i % 3]},{i}.5,{i * i % 37}" for i in range(40)]
    (folder / "t.csv").write_text("\n".join(["Art,wert,x", *rows]) + "\n")
    (folder / "tables.yaml").write_text('"t.csv": {names: [Art, wert, Wert]}\n')
    lake = open_lake(folder)
    source = Source("t.csv", columns=("wert", "Wert"))
    ops: list[Op] = [Load(source), Clean("wert"), Clean("Wert"), Fit("wert", "Wert", True)]
    asked = question(lake, ops, "list_approximate")
    assert refusal(asked, values_of(asked.code(), tmp_path), lake.shelf) is None


def test_a_step_without_a_typed_form_is_not_provable(lake: Lake) -> None:
    asked = question(lake, GOOD["mean"])
    steps = (*asked.steps[:-1], replace(asked.steps[-1], op=None))
    found = refusal(replace(asked, steps=steps), {}, lake.shelf)
    assert found and found.code == UNPROVABLE


def test_the_second_way_shares_no_code_and_no_reader_with_the_first() -> None:
    folder = ROOT / "data_gen" / "queries"
    # the last is Python's own parser, one thread at a time
    allowed = {"assay.errors", "assay.syntax", "data_gen.queries.ops"}
    own = sorted((ROOT / "data_gen" / "proof").glob("*.py"))
    allowed |= {f"data_gen.proof.{path.stem}" for path in own}
    # of a package's frame, whose rows stand in no file, pandas reads what it wrote; a model is
    # refitted with the library that fitted it
    apart = {"forms": {"pandas"}, "tabular": {"numpy"}}
    for path in (folder / "ops.py", folder / "duckdb_sql.py", *own):
        name = path.stem
        tree = ast.parse(path.read_text(encoding="utf-8"))
        froms = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        modules = [
            f"{n.module}.{a.name}" if n.module == "data_gen.queries" else n.module or ""
            for n in froms
            for a in n.names
        ]
        modules += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
        heads = ("assay", "data_gen", "rewards", "rollouts")
        ours = {m for m in modules if m.partition(".")[0] in heads}
        assert ours <= allowed, (name, ours - allowed)
        used = {"pandas", "numpy"} & ({m.partition(".")[0] for m in modules} | texts)
        assert used <= apart.get(name, set()), name
