# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""The official on-disk format (spec section 2): databases, their files, tables in three forms, and
the domain of a table.

pandas is imported when first needed, so that the command line starts fast.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from assay.errors import pandas as pd
from assay.syntax import python_literal
from assay.task import TaskError
from rewards.dare.score import TASK_TYPES

Frame = Any  # a pandas DataFrame; its annotations are partial
FAMILY = {"classification": "class", "regression": "reg", "time_series_analysis": "ts"}
KIND = {"class": "classification", "reg": "regression", "ts": "time_series_analysis"}
LISTING = "question_list.json"
VARIANTS = {
    "v1": {"class": "class-IF", "reg": "reg-IF", "ts": "time-XF"},
    "v2": {"class": "class-MM", "reg": "reg-MM", "ts": "time-CF"},
}
HIDDEN = ("train_v1_no_err", "ground_truth", "simulated_pred", "all_metadata")
SIMULATED = "simulated_pred_local.csv"  # of IF; releases leave it out, for it is made by running
_POINTER = b"version https://git-lfs"  # a file of a clone that `git lfs pull` did not fill
# of the construction parameters, those that decide an IF answer
_SOLUTION = (
    "selected_features",
    "column_type_inference",
    "target",
    "imputer_type",
    "model_type",
    "random_state",
    "problem_type",
    "save_file_type",
    "expected_ranges",
    "stated",
    "not_filtered_related_features",
    "numerical_features",
    "categorical_features",
)


@dataclass(frozen=True)
class Entry:
    """One database of a question list: its folder, its row there, its construction parameters."""

    folder: Path
    row: Mapping[str, Any]
    recipe: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])  # `data_info`, `meta_data`

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def solution(self) -> dict[str, Any]:
        """The parameters that decide an IF answer."""
        return {name: self.recipe[name] for name in _SOLUTION if name in self.recipe}

    @property
    def family(self) -> str:
        return FAMILY[str(self.row["task"])]

    def task_type(self, variant: str) -> str:
        found = VARIANTS[variant][self.family]
        assert found in TASK_TYPES
        return found

    def missing(self, variant: str, again: bool = False) -> list[str]:
        """The files of a variant that are not there, as paths in the folder: those that a solver is
        handed, and what its answers are read from or (`again`, or where IF has none) made from."""
        wanted = [f"source/{name}" for name in self.row.get(f"needed_files_{variant}") or ()]
        kind = self.task_type(variant).rpartition("-")[2]
        if kind == "IF" and (again or self._absent(f"verify/{SIMULATED}")):
            form = self.recipe.get("save_file_type")
            wanted += [f"source/train_v1_no_err.{form}", f"source/val_v1.{form}"]
        elif kind == "MM":
            wanted.append("verify/ground_truth.csv")
        elif kind in ("XF", "CF"):
            wanted.append(f"verify/ground_truth_{variant}.csv")
        return [name for name in dict.fromkeys(wanted) if self._absent(name)]

    def _absent(self, name: str) -> bool:
        """Whether a file is not there, or is what git's large file store leaves in its place."""
        try:
            with open(self.folder / name, "rb") as file:
                return file.read(len(_POINTER)) == _POINTER
        except OSError:
            return True

    def needed(self, variant: str) -> list[str]:
        """Names a solver is handed. Raises `TaskError` for one that must stay hidden."""
        names = [str(n) for n in self.row[f"needed_files_{variant}"]]
        for name in names:
            hidden = any(name.startswith(h) for h in HIDDEN)
            if (
                hidden
                or os.path.basename(name) != name
                or not (self.folder / "source" / name).is_file()
            ):
                raise TaskError(
                    f"{self.name}: needed_files_{variant} names {name!r}, which is hidden, missing "
                    "or no bare file name in source/"
                )
        return names


@dataclass(frozen=True)
class Absent:
    """A database of a question list that cannot be used, and why."""

    name: str
    why: str


def read_entries(top: Path) -> list[Entry]:
    """All databases of a folder with `question_list.json`. Raises `TaskError` naming what lacks."""
    found: list[Entry] = []
    for entry in listed_entries(top):
        if isinstance(entry, Absent):
            raise TaskError(f"{top / LISTING}: {entry.name}: {entry.why}")
        found.append(entry)
    return found


def listed_entries(top: Path) -> list[Entry | Absent]:
    """The databases of a folder with `question_list.json`, those that lack their parameters as
    `Absent`. Raises `TaskError` for a list that cannot be read."""
    listing = top / LISTING
    try:
        rows: Any = json.loads(listing.read_text(encoding="utf-8"))
    except OSError as error:
        raise TaskError(f"{listing}: {error.strerror}; give the folder that holds it") from None
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{listing}: not valid JSON ({error})") from None
    if not isinstance(rows, list):
        raise TaskError(f"{listing}: wanted a list of databases")
    entries: list[Entry | Absent] = []
    for number, row in enumerate(cast("list[Any]", rows)):
        if not isinstance(row, dict):
            raise TaskError(f"{listing} entry {number}: wanted an object")
        entries.append(_entry(top, cast("dict[str, Any]", row), f"{listing} entry {number}"))
    return entries


def _entry(top: Path, row: dict[str, Any], where: str) -> Entry | Absent:
    name = row.get("file_path")
    if not isinstance(name, str) or os.path.basename(name) != name:
        raise TaskError(f"{where}: field 'file_path' is {name!r}; wanted a folder name")
    if row.get("task") not in FAMILY:
        raise TaskError(f"{where}: field 'task' is {row.get('task')!r}; wanted {', '.join(FAMILY)}")
    folder = top / "databases" / name
    try:
        about = json.loads((folder / "verify" / "all_metadata.json").read_text(encoding="utf-8"))
        recipe = about["question"]
    except OSError as error:
        lost = "its folder" if not folder.is_dir() else "verify/all_metadata.json"
        return Absent(name, f"{lost} cannot be read ({error.strerror})")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Absent(name, f"verify/all_metadata.json: {error!r}; wanted JSON with 'question'")
    return Entry(folder, row, recipe, about)


def read_table(path: Path) -> Frame:
    """A table as the reference reads it: csv with only the empty field missing, sqlite tables
    joined on row_id, parquet as it is."""
    if path.suffix.lower() == ".parquet":
        return pd.read_parquet(path)
    if path.suffix == ".csv":
        return pd.read_csv(path, keep_default_na=False, na_values=[""])
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        query = "select name from sqlite_master where type='table' order by name"
        names = [str(row[0]) for row in db.execute(query)]
        parts = [pd.read_sql(f'select * from "{n}"', db) for n in names]
    joined = parts[0]
    for part in parts[1:]:
        joined = joined.merge(part, on="row_id")
    return joined


def csv_bytes(frame: Frame) -> bytes:
    """UTF-8, LF, header, no index, an empty field for what is missing."""
    out = io.StringIO()
    frame.to_csv(out, index=False, lineterminator="\n")
    return out.getvalue().encode("utf-8")


def table_bytes(frame: Frame, kind: str, table: str, splits: int = 1) -> bytes:
    """A table in one of the three forms. sqlite: `splits` tables share row_id, or one, `table`."""
    if kind == "csv":
        return csv_bytes(frame)
    if kind == "parquet":
        out = io.BytesIO()
        frame.to_parquet(out, index=False)
        return out.getvalue()
    return _sqlite_bytes(frame, table, splits)


def _sqlite_bytes(frame: Frame, table: str, splits: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.sqlite"
        db = sqlite3.connect(path)
        if splits <= 1:
            frame.to_sql(table, db, index=False)
        else:
            whole = frame if "row_id" in frame.columns else _numbered(frame)
            columns = [c for c in whole.columns if c != "row_id"]
            for part in range(splits):
                whole[["row_id", *columns[part::splits]]].to_sql(
                    f"table_{part + 1}", db, index=False
                )
        db.commit()
        db.close()
        return path.read_bytes()


def _numbered(frame: Frame) -> Frame:
    out = frame.copy()
    out.insert(0, "row_id", range(1, len(frame) + 1))
    return out


def write_database(top: Path, name: str, files: Mapping[str, bytes]) -> None:
    """Files of one database, `source/…` and `verify/…`, whole or not at all."""
    home = top / "databases"
    home.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=home, prefix=".making-"))
    for relative, data in files.items():
        path = work / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    work.chmod(0o755)
    shutil.rmtree(home / name, ignore_errors=True)
    work.replace(home / name)


def write_question_list(top: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """`question_list.json`, sorted by database."""
    listed = sorted((dict(r) for r in rows), key=lambda r: str(r["file_path"]))
    text = json.dumps(listed, indent=2, ensure_ascii=False) + "\n"
    (top / LISTING).write_text(text, encoding="utf-8")


def json_bytes(value: Any) -> bytes:
    """Indented, sorted JSON with a final line end."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def metadata_json(recipe: Mapping[str, Any], name: str, about: dict[str, Any]) -> bytes:
    """`all_metadata.json`: how the database was made, file names included."""
    kind, home = recipe["save_file_type"], f"./{name}"
    question = {
        **recipe,
        "target_candidates": recipe["target"],
        "needed_files_v1": [f"train_v1.{kind}", f"val_v1.{kind}", "metadata.txt"],
        "needed_files_v2": [f"train_v2.{kind}", f"val_v2.{kind}", "metadata.txt"],
        "train_v2_save_file": f"{home}/source/train_v2.{kind}",
        "val_v2_save_file": f"{home}/source/val_v2.{kind}",
        "val_no_err_save_file": f"{home}/source/val_v1.{kind}",
        "train_no_err_save_file": f"{home}/source/train_v1_no_err.{kind}",
        "train_err_split_save_file": f"{home}/source/train_v1.{kind}",
        "output_file": f"{home}/prediction.csv",
        "ground_truth_file": f"{home}/verify/ground_truth.csv",
        "simulated_pred_file": f"{home}/verify/simulated_pred_local.csv",
    }
    return json_bytes({"question": question, "data_info": about, "meta_data": {}})


# --- domains, by the paper's appendix M as far as rules can: a keyword of a table's source that
# names a domain decides, else the words of its title. The paper asks a language model, which reads
# the description too; its shares (Table 3) compare with these only roughly. ---

DOMAINS = {
    "finance": r"price|wage|income|salar|bank|loan|credit|stock|econom|insur|expend|cost",
    "health": r"patient|disease|cancer|blood|drug|birth|hospital|medic|health|mortal|weight",
    "education": r"school|student|teacher|score|college|university|exam|grade",
    "environment": r"temperature|species|forest|weather|rain|ozone|pollut|river|soil|plant|bird",
    "business": r"customer|sales|firm|market|retail|employ|product",
    "technology": r"comput|software|internet|phone",
    "automotive": r"\bcar\b|vehicle|traffic|driver|automobile",
}
OTHER = "other"
_NAMED = {"healthcare": "health", "automobiles and vehicles": "automotive"}  # other keywords


def domain_of_text(text: str, keywords: Iterable[str] = ()) -> str:
    """One of the domains, `other` when nothing tells."""
    named = (_NAMED.get(word, word) for word in (k.strip().lower() for k in keywords))
    if domain := next((word for word in named if word in DOMAINS), ""):
        return domain
    counts = {d: len(re.findall(p, text.lower())) for d, p in DOMAINS.items()}
    best = max(counts, key=lambda d: counts[d])
    return best if counts[best] else OTHER


def domain_of_page(entry: Entry) -> str:
    """The domain of an official database, by its source's page (`verify/all_metadata.json`)."""
    page = parts_in(entry.about.get("meta_data"))
    return domain_of_text(str(page.get("title") or ""), _listed(page.get("keywords")))


def parts_in(value: Any) -> Mapping[str, Any]:
    """An object of a page; an empty one for anything else."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _listed(value: Any) -> list[str]:
    """Keywords as a list, or as the text of one."""
    if isinstance(value, str):
        try:
            value = python_literal(value)
        except (ValueError, SyntaxError):
            value = value.split(",")
    return [str(word) for word in cast("list[Any]", value)] if isinstance(value, list) else []
