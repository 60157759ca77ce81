# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""Scoring a DARE-bench prediction: the release's reading, and a strict one for training.

`release` computes what the published harness computes (join on the key, compare row counts, metric
a target, mean over targets; what makes the harness raise counts as no prediction). `strict` closes
what that lets through: every key of the truth exactly once and no repeated key, and the reward for
a mere file only when its keys match and all targets are there. Texts are compared there under
Unicode's NFC.

Reward (paper, section 3.3): 0 without a usable file, else 0.1 + outcome.
"""

from __future__ import annotations

import base64
import binascii
import importlib.metadata
import json
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast

from assay.errors import install_extra
from assay.task import Answer, Score, Task, TaskError
from rewards.dare.read import (
    ReaderLost,
    Unreadable,
    prediction_bytes,
    read_here,
    read_prediction,
    read_truth,
)
from rewards.weights import TableReward

# ---- the four metrics
# The four published metrics on two aligned columns. pandas is imported when first called.
#
# They give what the harness's scikit-learn calls give, including its exceptions, which the harness
# turns into 0 (spec 8.3); own arithmetic because those calls cost most of a reward's time.


Column = Any  # a pandas Series; its own annotations are partial


class MetricRaises(ValueError):
    """The published evaluator raises here, and records the whole example as failed."""


def exact_list(truth: Column, said: Column) -> float:
    """Return 1 if the two columns are equal as Python lists, else 0: `1 == 1.0 == True`, text to
    the letter (the harness's comparison of IF labels, spec 8.3)."""
    return float(truth.tolist() == said.tolist())


def within_tolerance(truth: Column, said: Column) -> float:
    """Return 1 if every row is within 1e-8 + 1e-5·|prediction| (`numpy.allclose`), else 0.
    Raises `MetricRaises` on text."""
    import numpy as np

    try:
        return float(np.allclose(truth.to_numpy(), said.to_numpy()))
    except (TypeError, ValueError):
        raise MetricRaises("text against numbers") from None


def _is_number(column: Column) -> bool:
    return column.dtype.kind in "biuf"


def macro_f1(truth: Column, said: Column) -> float:
    """Compute the macro-averaged F1 over every class in truth or prediction, in [0, 1]
    (scikit-learn's `f1_score`); 0 where scikit-learn would refuse.

    Missing text is one more class; numbers must be whole and present on both sides.
    """
    import numpy as np
    import pandas as pd

    numbers = _is_number(truth)
    if numbers != _is_number(said):
        return 0.0
    both = pd.concat([truth, said], ignore_index=True)
    if numbers:
        values = both.to_numpy(dtype=float)
        if not np.isfinite(values).all() or (values != np.floor(values)).any():
            return 0.0
        codes, classes = pd.factorize(values)
    else:
        codes, classes = pd.factorize(both.to_numpy(dtype=object), use_na_sentinel=False)
        if not all(isinstance(label, str) or pd.isna(label) for label in classes):
            return 0.0
    count, size = len(classes), len(truth)
    if not size:
        return 0.0
    first, second = codes[:size], codes[size:]
    hits = np.bincount(first[first == second], minlength=count).astype(float)
    total = np.bincount(first, minlength=count) + np.bincount(second, minlength=count)
    return float(np.mean(2.0 * hits / total))  # a class is in at least one of the two


def raw_r2(truth: Column, said: Column) -> float | None:
    """Compute R2 without the clip (scikit-learn's `r2_score`), at most 1; None where
    scikit-learn would refuse (missing, infinite, text)."""
    import numpy as np

    try:
        y = truth.to_numpy(dtype=float)
        p = said.to_numpy(dtype=float)
    except (TypeError, ValueError):
        return None
    if len(y) < 2 or not (np.isfinite(y).all() and np.isfinite(p).all()):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        left = float(((y - p) ** 2).sum())
        spread = float(((y - y.mean()) ** 2).sum())
    if spread == 0.0:
        return 1.0 if left == 0.0 else 0.0
    value = 1.0 - left / spread
    return value if np.isfinite(value) else -1e308


def clipped_r2(truth: Column, said: Column) -> float:
    """Compute R2 clipped to [0, 1]; 0 where scikit-learn would refuse."""
    value = raw_r2(truth, said)
    return 0.0 if value is None else min(1.0, max(0.0, value))


METRICS: dict[str, Callable[[Column, Column], float]] = {
    "class-IF": exact_list,
    "reg-IF": within_tolerance,
    "class-MM": macro_f1,
    "reg-MM": clipped_r2,
    "time-XF": clipped_r2,
    "time-CF": clipped_r2,
}


Reading = Literal["release", "strict"]
READINGS: tuple[Reading, ...] = ("release", "strict")
TASK_TYPES = tuple(METRICS)
EXISTENCE = 0.1
FILE = "prediction.csv"
_R2 = ("reg-MM", "time-XF", "time-CF")


@dataclass(frozen=True)
class TableGold:
    """The truth of one task. `made_with`: versions of what computed it (IF only)."""

    task_type: str
    truth_csv: str
    key_columns: tuple[str, ...]
    targets: tuple[str, ...]
    made_with: Mapping[str, str]


def score_file(task: Task, answer: Answer, weights: TableReward) -> Score:
    """Score the file that an episode left; it is read in a confined process."""
    return score_table(read_gold(task.gold), answer.files.get(FILE), weights.reading)


def score_trusted(task: Task, answer: Answer, weights: TableReward) -> Score:
    """Score a file that our own code wrote; it is read in this process."""
    data = answer.files.get(FILE)
    return score_table(read_gold(task.gold), data, weights.reading, trusted=True)


def score_table(
    gold: TableGold, prediction: bytes | None, reading: str = "strict", *, trusted: bool = False
) -> Score:
    """Score the bytes of `prediction.csv` (None: there is none). Never raises on any bytes.

    The bytes are parsed in a confined process; `trusted` ones, which our own code wrote, in this
    one. Without the confined process there is no outcome.

    `outcome` is the mean of the type's metric over the targets. `parts`: `exists` (0 also where
    the harness raises), `usable` (keys and targets match), `score`, a score a target, and `r2_raw`,
    the mean R2 before the clip, for types that have one.
    """
    if reading not in READINGS:
        raise TaskError(f"reading={reading!r}: wanted one of {', '.join(READINGS)}")
    if prediction is None:
        return _none(gold, "no_prediction")
    try:
        wanted = (*gold.key_columns, *gold.targets)
        said = read_here(prediction) if trusted else read_prediction(prediction, wanted)
    except Unreadable as error:
        return _none(gold, f"unreadable: {error}")
    except ReaderLost as error:
        return Score(None, None, {}, f"failure: {error}")
    try:
        with warnings.catch_warnings():  # of pandas, about columns that hold odd things
            warnings.simplefilter("ignore")
            return _compare(gold, said, reading)
    except MetricRaises as error:
        return _none(gold, f"not comparable: {error}")


def _compare(gold: TableGold, said: Any, reading: str) -> Score:
    keys, targets = list(gold.key_columns), list(gold.targets)
    missing = [key for key in keys if key not in said.columns]
    if missing:
        return _score(gold, {}, {}, reading, f"missing_keys: {', '.join(missing)}")
    truth = read_truth(gold.truth_csv)
    if reading == "strict":
        truth, said = _composed(truth), _composed(said)
    there = [name for name in targets if name in said.columns]
    repeated = bool(said.duplicated(keys).any())
    if repeated:  # joining n rows of one key with m of the truth's makes n·m: count first
        size = _joined_rows(truth, said, keys)
        if size is not None and size != len(truth):
            return _score(gold, {}, {}, reading, f"row_mismatch: {size} of {len(truth)}")
    left = truth[keys + targets].rename(columns={t: f"{t}|truth" for t in targets})
    right = said[keys + there].rename(columns={t: f"{t}|said" for t in there})
    joined = _merged(left, right, keys)
    if joined is None:
        return _none(gold, "not comparable: the keys are of another type")
    if len(joined) != len(truth):
        return _score(gold, {}, {}, reading, f"row_mismatch: {len(joined)} of {len(truth)}")
    if reading == "strict" and repeated:
        return _score(gold, {}, {}, reading, "repeated_keys")
    pairs = {name: (joined[f"{name}|truth"], joined[f"{name}|said"]) for name in there}
    metric = METRICS[gold.task_type]
    scores = dict.fromkeys(targets, 0.0) | {name: metric(*p) for name, p in pairs.items()}
    raw: dict[str, float] = {}
    for name, pair in pairs.items() if gold.task_type in _R2 else ():
        if (value := raw_r2(*pair)) is not None:
            raw[name] = value
    absent = [name for name in targets if name not in there]
    why = f"missing_targets: {', '.join(absent)}" if absent else "ok"
    return _score(gold, scores, raw, reading, why)


def _composed(frame: Any) -> Any:
    """The same table, its texts under NFC."""
    changed: dict[str, Any] = {}
    for name in frame.columns:
        cells = frame[name]
        if cells.dtype.kind not in "biufcmM" and any(map(_foreign, cells)):
            changed[name] = cells.map(_nfc)
    return frame.assign(**changed) if changed else frame


def _nfc(cell: Any) -> Any:
    return unicodedata.normalize("NFC", cell) if _foreign(cell) else cell


def _foreign(cell: Any) -> bool:
    return isinstance(cell, str) and not cell.isascii()


def _joined_rows(truth: Any, said: Any, keys: list[str]) -> int | None:
    """How many rows the join would have; None where the key types refuse."""
    counts = said.groupby(keys, dropna=False, sort=False).size().reset_index(name="|times")
    joined = _merged(truth[keys], counts, keys)
    return None if joined is None else int(joined["|times"].sum())


def _merged(left: Any, right: Any, keys: list[str]) -> Any:
    """Rows whose key is in both, in the truth's order; None where the key types refuse."""
    try:
        return left.merge(right, on=keys, how="inner")
    except (ValueError, TypeError, MemoryError):
        return None


def _score(
    gold: TableGold,
    scores: Mapping[str, float],
    raw: Mapping[str, float],
    reading: str,
    why: str,
) -> Score:
    """A file that exists. `strict` pays for that only when it is usable."""
    outcome = sum(scores.values()) / len(scores) if scores else 0.0
    usable = why == "ok"
    parts = {"exists": 1.0, "usable": float(usable), "score": outcome}
    if len(scores) > 1:
        parts |= {f"score/{name}": value for name, value in scores.items()}
    if raw:
        parts["r2_raw"] = sum(raw.values()) / len(raw)
    reward = outcome + (EXISTENCE if usable or reading == "release" else 0.0)
    return _told(gold, Score(outcome, reward, parts, why))


def _none(gold: TableGold, why: str) -> Score:
    return _told(gold, Score(0.0, 0.0, {"exists": 0.0, "usable": 0.0, "score": 0.0}, why))


def _told(gold: TableGold, score: Score) -> Score:
    """Say it when the answers come from other versions than those at hand."""
    differ = mismatch(gold.made_with)
    if not differ:
        return score
    parts = {**score.parts, "environment_mismatch": 1.0}
    return Score(score.outcome, score.reward, parts, f"{score.why}; gold made with {differ}")


def mismatch(made_with: Mapping[str, str]) -> str:
    """Say which packages have another release here than the one gold was made with; "" if none has.

    Differences below the minor version (1.9.0, 1.9.1) are not counted.
    """
    said: list[str] = []
    for package, version in sorted(made_with.items()):
        here = _installed(package)
        if here and here.split(".")[:2] != version.split(".")[:2]:
            said.append(f"{package} {version}, here is {here}")
    return "; ".join(said)


@lru_cache(maxsize=32)
def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


# --- gold from what tasks and rows hold ---------------------------------------------------------

_SUFFIX = {
    "class": ("class-IF", "class-MM"),
    "reg": ("reg-IF", "reg-MM"),
    "ts": ("time-XF", "time-CF"),
}
_TRUTH = {
    "IF": "simulated_pred_local.csv",
    "MM": "ground_truth.csv",
    "XF": "ground_truth_v1.csv",
    "CF": "ground_truth_v2.csv",
}


def read_gold(task: Mapping[str, Any]) -> TableGold:
    """Read gold from a task's own field or a row's: in the open, or as a folder and a variant.
    Raises `TaskError` naming the field that cannot be used."""
    if "task_dir" in task:
        return _gold_of_folder(str(task["task_dir"]), str(task.get("variant", "")))
    kind, text = task.get("task_type"), task.get("truth_csv")
    if kind not in TASK_TYPES:
        raise TaskError(
            f"task field 'task_type' is {kind!r}; wanted one of {', '.join(TASK_TYPES)}"
        )
    if not isinstance(text, str):
        raise TaskError("task field 'truth_csv' is missing or not text; give the truth's CSV")
    keys = _names(task, "key_columns")
    made: dict[str, str] = cast("Any", task.get("made_with")) or {}
    return _checked(TableGold(str(kind), text, keys, _names(task, "targets"), made))


def _names(task: Mapping[str, Any], field: str) -> tuple[str, ...]:
    value: Any = task.get(field)
    if not isinstance(value, list) or not value:
        raise TaskError(f"task field {field!r} is missing or not a list of column names")
    return tuple(str(name) for name in cast("list[Any]", value))


def _checked(gold: TableGold) -> TableGold:
    try:
        truth = read_truth(gold.truth_csv)
    except ModuleNotFoundError:
        raise TaskError(f"family 'table' needs pandas; {install_extra('sandbox')}") from None
    except (ValueError, OverflowError) as error:
        raise TaskError(f"task field 'truth_csv' cannot be read: {error}") from None
    for name in (*gold.key_columns, *gold.targets):
        if name not in truth.columns:
            raise TaskError(f"task field 'truth_csv' has no column {name!r}")
    return gold


def task_type_of(folder: str, variant: str) -> str:
    """Name the task type, `class-IF` … `time-CF`, of a database's name and v1, v2, IF, MM, XF or
    CF. Raises `TaskError` for others."""
    family = folder.rstrip("/").rpartition("_")[2]
    if family not in _SUFFIX:
        raise TaskError(f"task_dir {folder!r}: its name must end in _class, _reg or _ts")
    kinds = _SUFFIX[family]
    by_name = {"v1": kinds[0], "v2": kinds[1]} | {kind.partition("-")[2]: kind for kind in kinds}
    if variant not in by_name:
        raise TaskError(f"variant {variant!r}: wanted one of {', '.join(by_name)} for {folder!r}")
    return by_name[variant]


def _gold_of_folder(folder: str, variant: str) -> TableGold:
    kind = task_type_of(folder, variant)
    verify = Path(folder) / "verify"
    name = _TRUTH[kind.partition("-")[2]]
    try:
        text = (verify / name).read_text(encoding="utf-8")
        about = json.loads((verify / "all_metadata.json").read_text(encoding="utf-8"))
        made_path = verify / "made_with.json"
        made: dict[str, str] = {}
        if made_path.is_file():
            made = json.loads(made_path.read_text(encoding="utf-8"))
    except OSError as error:
        hint = "; make it with `assay tasks dare --import … --simulate`" if "IF" in kind else ""
        raise TaskError(f"task_dir {folder}: {error.filename}: {error.strerror}{hint}") from None
    except ValueError as error:
        raise TaskError(f"task_dir {folder}: verify/all_metadata.json: {error}") from None
    targets = tuple(str(t) for t in about["question"]["target"])
    keys: Sequence[str] = ("row_id",)
    if kind == "time-CF":
        header: Any = read_truth(text).columns
        keys = [str(c) for c in header if c not in targets]
    return _checked(TableGold(kind, text, tuple(keys), targets, made))


def score_table_row(
    task: Mapping[str, Any], row: Mapping[str, Any], weights: TableReward | None = None
) -> Score:
    """Score a row of `assay score`: the prediction is given as text, as base64, as a path, or not
    at all; the reading by the row, or else by `weights`.

    Raises `TaskError` when the row itself cannot be used.
    """
    gold = read_gold(task)
    given = [
        k for k in ("prediction_csv", "prediction_b64", "prediction_path") if row.get(k) is not None
    ]
    if len(given) > 1:
        raise TaskError(f"fields {' and '.join(given)}: give one of them")
    for name in given:
        if not isinstance(row[name], str):
            raise TaskError(f"field {name!r} is {type(row[name]).__name__}; wanted text")
    data: bytes | None = None
    if given == ["prediction_csv"]:
        data = str(row["prediction_csv"]).encode("utf-8", "surrogatepass")
    elif given == ["prediction_b64"]:
        try:
            data = base64.b64decode(row["prediction_b64"], validate=True)
        except (binascii.Error, ValueError):
            raise TaskError("field 'prediction_b64' is not base64") from None
    elif given:
        try:
            data = prediction_bytes(row["prediction_path"])
        except Unreadable as error:
            return _none(gold, f"unreadable: {error}")
    return score_table(gold, data, str(row.get("reading", (weights or TableReward()).reading)))
