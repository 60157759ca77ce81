# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""What a source says of its columns, and questions in words: fixed content, varied wording, every
step that matters stated; and those of a build in an endpoint's words (`--writer`).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.console import Progress
from assay.files import yaml_beside
from assay.task import TaskError, derive_seed
from data_gen.certificate import Refused
from data_gen.dare.layout import Frame
from data_gen.dare.targets import Looked
from data_gen.rewording import Endpoint, Facts, Rewording, job_of, report, reword_all

# --- What a source says of its columns: descriptions, and the phrases that questions use for  ---

LONGEST = 90  # letters of a phrase; longer descriptions are cut at a clause, or not used
_SECTIONS = re.compile(r"^#{2,4}\s*(.+?)\s*$", re.M)
_UNWANTED = ("usage", "examples", "see also", "references", "author", "authors")
_SAID_ITEM = (
    r"^\s*(?:[-*]\s+)?[`*_]{{0,3}}{name}[`*_]{{0,3}}\s*(?:[:=]|\n)[`*:\s]*(.+(?:\n(?!\s*\n).*)*)"
)
_TYPED = re.compile(  # a type, or nothing at all, in place of what a column is
    r"\b(factors?|vector|levels?|numeric|integer|logical|variable|unknown|missing|note that)\b|"
    r"^(dummy|binary|ordered|character|column|values?|code[ds]?|see|of|for|in|with|as|to)\b|"
    r"^[^\w']|^\d|[=<>$^+*{}\\\"“”()]|"
    r"\b(a|an|and|as|at|by|for|from|in|of|on|or|per|the|to|with)$",  # cut in its middle
    re.I,
)


def plain_about(about: str) -> str:
    """A documentation page without its code: usage and examples say nothing of the data."""
    parts = _SECTIONS.split(about)
    kept = [parts[0]]
    for title, body in zip(parts[1::2], parts[2::2], strict=False):
        if title.strip().lower() not in _UNWANTED:
            kept.append(f"{title}\n{body}")
    text = "\n".join(kept)
    text = re.sub(r"^.*R Documentation.*\n[-|\s]*\n", "", text)
    return re.sub(r"\n\s*\n\s*\n+", "\n\n", text).strip()


def described(about: str, names: Sequence[str]) -> dict[str, str]:
    """The columns that a text describes as `name: words` items, a name on a line of its own with
    words below included. Whole paragraphs, on one line each."""
    found: dict[str, str] = {}
    text = plain_about(about)
    listed = re.search(r"^(Format|Value|Arguments|Details)\s*$", text, re.M)
    text = text[listed.end() :] if listed else text
    marks = r"[`*_]{0,3}"
    other = "|".join(re.escape(name) for name in names)
    following = re.compile(rf"\n\s*[-*]\s|\s-{{3,}}|\n\s*{marks}(?:{other}){marks}\s*[:=]")
    for name in names:
        hit = re.search(_SAID_ITEM.format(name=re.escape(name)), text, re.M)
        if hit is None or re.match(rf"(?:{other}){marks}\s*[:=]", hit[1]):
            continue  # nothing is said of it: the next item follows
        said = following.split(hit[1])[0]
        found[name] = tidy(said)[:400]
    return {name: said for name, said in found.items() if re.search(r"[^\W\d_]{2}", said)}


def tidy(text: str) -> str:
    """One line without marks of a page's layout."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    # a product keeps its sign
    text = re.sub(r"[`|]+|(?<!\w)[*_]+|\*+(?![\w(])|_+(?!\w)", "", " ".join(text.split()))
    return re.sub(r"\s+([,.;:])", r"\1", text).strip(" -–:")


def phrase(text: str) -> str:
    """The words that name a column in a question: a description's first clause without what stands
    in brackets; "" where it says too little or too much, or tells a type in place of a meaning."""
    clause = re.split(r";|[!?](?=\s|$)|:\s|\.(?=\s+[A-Z]|$)|\s[-–]{1,2}\s", tidy(text))[0]
    said = re.sub(r"\s*\([^()]*\)", "", clause).strip(" ,-–'")
    fits = 4 <= len(said) <= LONGEST and re.search(r"[^\W\d_]{3}", said)
    return said if fits and not _TYPED.search(said) else ""


def phrases(columns: Sequence[str], texts: Mapping[str, str]) -> dict[str, str]:
    """Column → its phrase, for the columns whose phrase is their own: no other column's phrase, nor
    its name."""
    made = {name: phrase(texts[name]) for name in columns if name in texts}
    count = Counter(said.lower() for said in made.values())
    names = {name.lower() for name in columns}
    return {
        name: said
        for name, said in made.items()
        if said
        and count[said.lower()] == 1
        and said.lower() not in names - {name.lower()}
        and said.lower() != name.lower()
    }


# --- questions: fixed content, varied wording

OPENINGS: Mapping[str, Sequence[str]] = yaml_beside(__file__, "openings.yaml")


def _one_of(name: str, rng: random.Random) -> str:
    return f"{rng.choice(OPENINGS[name])} "


def quoted(names: Sequence[str]) -> str:
    """`a`, `b`."""
    return ", ".join(f"`{n}`" for n in names)


def _targets(names: Sequence[str]) -> str:
    """`a`, or `a`, `b` and `c`."""
    return " and ".join(filter(None, [quoted(names[:-1]), quoted(names[-1:])]))


_VERB = re.compile(r"(is|are|was|did|does|do|has|have|whether|if|there|how|what|in|on|the) ", re.I)


@dataclass(frozen=True)
class Called:
    """What a question calls columns: words where there are some, else the name in backticks.
    `quoted`: the words stand in quotation marks."""

    words: Mapping[str, str]
    quoted: bool

    def one(self, name: str) -> str:
        if name not in self.words:
            return f"`{name}`"
        return f"“{self.words[name]}”" if self.quoted else self.words[name]

    def all(self, names: Sequence[str]) -> str:
        bare = self.words and not self.quoted
        return ("; " if bare else ", ").join(map(self.one, names))


def called(recipe: Mapping[str, Any], rng: random.Random) -> Called:
    """Words are quoted where they would run into the sentence around them."""
    words: dict[str, str] = recipe.get("column_words", {})
    long = any("," in w or ";" in w or len(w.split()) > 8 or _VERB.match(w) for w in words.values())
    return Called(words, rng.random() < 0.5 or long)


def _bounds(name: str, allowed: list[Any], kind: str, rng: random.Random) -> str:
    if kind == "categorical":
        return f"{name} must be one of {', '.join(repr(a) for a in allowed)}"
    low, high = (f"{v:.15g}" for v in allowed)
    return rng.choice(
        (
            f"{name} must lie between {low} and {high}",
            f"{name} must be at least {low} and at most {high}",
        )
    )


def if_question(recipe: dict[str, Any], rng: random.Random) -> str:
    """The whole IF prompt (spec 3.2)."""
    ext, stated, kinds = recipe["save_file_type"], recipe["stated"], recipe["column_type_inference"]
    task, names = recipe["problem_type"], called(recipe, rng)
    parts = [
        _one_of("exact", rng),
        f"There are a training file `train_v1.{ext}`, a validation file `val_v1.{ext}` and "
        f"`metadata.txt`, which describes the columns. "
        f"Perform {task} of {_targets(recipe['target'])}. "
        "Use library defaults for whatever is not stated. ",
    ]
    if names.words:
        parts.append(_one_of("words", rng))
    if ext == "csv":
        parts.append("Read csv files with the empty field as the only missing value. ")
    if ext == "sqlite":
        parts.append(_one_of("join", rng))
    listed = "; ".join(
        _bounds(names.one(n), r, kinds[n], rng) for n, r in recipe["expected_ranges"].items()
    )
    parts.append(
        f"Filter the training rows by the expected ranges: {listed}. {_one_of('missing', rng)}"
    )
    parts += _features(recipe, names)
    seed = f" with random_state={recipe['random_state']}" if "seed" in stated else ""
    single = recipe["model_type"] in ("LogisticRegression", "GaussianNB", "LinearSVC")
    wrap = " (in a MultiOutputClassifier)" if len(recipe["target"]) > 1 and single else ""
    parts.append(f"Fit one scikit-learn {recipe['model_type']}{wrap}{seed}. {_output(recipe, ext)}")
    return "".join(parts).strip()


def _features(recipe: Mapping[str, Any], names: Called) -> list[str]:
    """What the model is trained on, and how it is prepared."""
    stated, parts = recipe["stated"], list[str]()
    numbers, words = recipe["numerical_features"], recipe["categorical_features"]
    order = ", in this order" if "order" in stated else ""
    parts.append(f"Train on these features only{order}: {names.all(recipe['selected_features'])}. ")
    if words:
        parts.append(f"Numeric: {names.all(numbers) or 'none'}. Categorical: {names.all(words)}. ")
    if "impute" in stated:
        fill = recipe["imputer_type"].replace("most_frequent", "most frequent value")
        fills = [f"numeric features with the {fill}"] if numbers else []
        fills += ["categorical features with the most frequent category"] if words else []
        parts.append(f"Fill missing {' and '.join(fills)}. ")
    if "scale" in stated and numbers:
        parts.append("Then standardise the numeric features (StandardScaler). ")
    if words:
        parts.append(
            "One-hot encode the categorical ones, placed after the numeric block, "
            "ignoring unknown categories, dense output. "
        )
    return parts


def _output(recipe: dict[str, Any], ext: str) -> str:
    return (
        f"Predict every row of `val_v1.{ext}` and save `prediction.csv` with the columns "
        f"{_targets(['row_id', *recipe['target']])}."
    )


def mini_question(recipe: dict[str, Any], rng: random.Random) -> str:
    """The same content in few words, for a small model; only numeric columns occur."""
    stated, target = recipe["stated"], recipe["target"][0]
    ranges = ", ".join(
        f"{n} in [{r[0]:.15g}, {r[1]:.15g}]" for n, r in recipe["expected_ranges"].items()
    )
    fill = f" Impute {recipe['imputer_type']}." if "impute" in stated else ""
    scale = " Scale." if "scale" in stated else ""
    seed = f"(random_state={recipe['random_state']})" if "seed" in stated else "()"
    keep = rng.choice(("Keep rows with", "Filter training rows to", "Train only on rows with"))
    return (
        f"train_v1.csv, val_v1.csv. {keep} {ranges} (or missing). Features: "
        f"{', '.join(recipe['selected_features'])}. Target: {target}.{fill}{scale} "
        f"Model: {recipe['model_type']}{seed}. Save prediction.csv."
    )


def mm_question(recipe: dict[str, Any], rng: random.Random) -> str:
    """The modelling prompt: train as you like on one file, predict the other."""
    ext = recipe["save_file_type"]
    return (
        f"{_one_of('free', rng)}The columns are described in `metadata.txt`. Train a "
        f"{recipe['problem_type']} model on `train_v2.{ext}`, on the CPU, and predict "
        f"{_targets(recipe['target'])} for each `row_id` of `val_v2.{ext}`. Save "
        f"`prediction.csv` with the columns {_targets(['row_id', *recipe['target']])}."
    )


def xf_question(target: str, rng: random.Random) -> str:
    return (
        f"{_one_of('free', rng)}`metadata.txt` describes the columns. `train.csv` holds a time "
        f"series; `val_v1.csv` holds later time points with everything but the target `{target}`. "
        f"Train on the CPU, predict `{target}` for each `row_id` of `val_v1.csv`, and save "
        f"`prediction.csv` with the columns `row_id` and `{target}`."
    )


def cf_question(
    target: str, keys: list[str], resample: tuple[str, str] | None, rng: random.Random
) -> str:
    first = (
        f"First resample the training data to the interval '{resample[0]}', aggregating the target "
        f"with '{resample[1]}'. "
        if resample
        else ""
    )
    return (
        f"{_one_of('free', rng)}`metadata.txt` describes the columns. `train.csv` holds a raw time "
        f"series. {first}Forecast `{target}` at the later time points listed in `val_v2.csv`; they "
        f"may be unsorted and non-contiguous. Save `prediction.csv` with {quoted(keys)}, "
        f"written as in `val_v2.csv`, and `{target}`. More time points than asked are allowed."
    )


def column_lines(texts: Mapping[str, str], looked: Looked) -> dict[str, str]:
    """A line for every column: what the source says, and what the values are."""
    said = phrases(list(looked.frame.columns), texts)
    out: dict[str, str] = {}
    for name in looked.frame.columns:
        values = looked.frame[name].dropna()
        if looked.kinds[name] == "numerical":
            fact = f"number from {values.min():g} to {values.max():g}"
        else:
            shown = sorted(map(str, values.unique()))[:6]
            fact = f"one of {len(values.unique())} categories, such as {', '.join(shown)}"
        text = texts.get(name, "")
        if name in said and not text.lower().startswith(said[name].lower()):
            text = f"{said[name]}; {text}"  # the words of the questions stand first
        out[name] = f"{text} ({fact})" if text else fact
    return out


def metadata_text(title: str, about: str, columns: dict[str, str]) -> str:
    """Description, then every column by name."""
    body = about.strip()[:4000] or title
    lines = "\n".join(f"{name}: {text}" for name, text in columns.items())
    return f"{title}\n\n{body}\n\n=== Columns & descriptions ===\n\n{lines}\n"


# --- `--short` with MM, XF or CF: few plain columns, few rows, a question of one line ---
# A small model sees at most some hundred tokens of a table: its columns stand in the question and
# there is no metadata file. `data_gen/dare/agents.py` reads these questions again.

MOST = 7  # features
ROWS = 600
SERIES_ROWS = 8000  # a longer series is none for a short task
LABELS = 12  # of a column of words
_PLAIN = re.compile(r"[A-Za-z](?:[\w.]{0,18}\w)?", re.ASCII)

Kinds = Mapping[str, tuple[str, ...]]


def plain(name: str) -> bool:
    """Whether a name can stand in a list without marks, and costs few tokens."""
    return _PLAIN.fullmatch(name) is not None


def short_kinds(kinds: Kinds, asked: str) -> dict[str, tuple[str, ...]]:
    """The kinds of tasks of a build with short questions: IF alone, unless `asked` (the option
    `--task-types`) names MM, XF or CF. Raises `TaskError` where it names IF beside one of these."""
    words = {word.strip() for word in asked.split(",")}
    if more := sorted(words & {"MM", "XF", "CF"}):
        if "IF" in words:
            raise TaskError(
                f"--short --task-types {asked}: short IF tasks and short {more[0]} tasks have "
                "different tables; build them in two folders"
            )
        return {f: tuple(t for t in own if t != "IF") for f, own in kinds.items()}
    found = {f: tuple(t for t in own if t == "IF") for f, own in kinds.items()}
    if not any(found.values()):
        raise TaskError(f"--short --task-types {asked}: name the tracks, such as XF,CF for series")
    return {f: own for f, own in found.items() if own}


def few_columns(looked: Looked, targets: Sequence[str], rng: random.Random) -> Looked:
    """The targets with at most `MOST` features of plain names, and `ROWS` rows. Raises `Refused`
    where fewer than two features are left or a target has no plain name."""
    frame = looked.frame
    fit = [
        name
        for name in looked.features(list(targets))
        if plain(name)
        and (looked.kinds[name] == "numerical" or frame[name].nunique() <= LABELS)
        and frame[name].nunique() > 1
    ]
    if len(fit) < 2 or not all(map(plain, targets)):
        raise Refused("draft", "too few columns that a short question can name")
    kept = set(rng.sample(fit, min(MOST, len(fit))))
    columns = [c for c in frame.columns if c in targets or c in kept]
    rows = sorted(rng.sample(range(len(frame)), min(ROWS, len(frame))))
    part = frame[columns].iloc[rows].reset_index(drop=True)
    return Looked(part, {c: looked.kinds[c] for c in columns})


def check_series(rows: int, names: Sequence[str]) -> None:
    """Raises `Refused` for a series that has no short question with these columns."""
    if rows > SERIES_ROWS:
        raise Refused("series", f"more than {SERIES_ROWS} rows, too many for a short task")
    if long := next((name for name in names if not plain(name)), ""):
        raise Refused("series", f"column '{long}' is too long for a short question")


def few_known(frame: Frame, known: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The keys and the first `MOST` further columns that a short question can list."""
    free = [
        name
        for name in known
        if name not in keys
        and plain(name)
        and (frame[name].dtype.kind in "if" or frame[name].nunique() <= LABELS)
    ]
    return [*free[:MOST], *keys]


def _list(head: str, names: Sequence[str]) -> str:
    return f" {head}: {', '.join(names)}." if names else ""


def mm_short(recipe: Mapping[str, Any]) -> str:
    """The modelling question in one line."""
    kinds, target = recipe["column_type_inference"], recipe["target"][0]
    names = recipe["related_features"]
    numbers = [n for n in names if kinds[n] == "numerical"]
    words = [n for n in names if kinds[n] != "numerical"]
    return (
        f"train_v2.csv, val_v2.csv. Predict {target}: {recipe['problem_type']}."
        f"{_list('Numbers', numbers)}{_list('Words', words)} Save prediction.csv."
    )


def series_short(
    target: str, time: str, keys: Sequence[str], known: Sequence[str], kinds: Mapping[str, str]
) -> dict[str, str]:
    """The questions of a series: `v1` with covariates, `v2` without."""
    free = [name for name in known if name not in keys]
    numbers = _list("Numbers", [n for n in free if kinds[n] == "numerical"])
    words = _list("Words", [n for n in free if kinds[n] != "numerical"])
    head = f"Forecast {target} over {time}: regression.{_list('Keys', keys)}"
    return {
        "v1": f"train.csv, val_v1.csv. {head}{numbers}{words} Save prediction.csv.",
        "v2": f"train.csv, val_v2.csv. {head} Save prediction.csv.",
    }


# --- `--writer`: a question is cut at the sentences that say what to do: every step of an IF task,
# the resampling and the names of bins of a forecast, further files, how to save. These stay to the
# letter and in their order, and so do the opening and the words for columns. What is left, the
# description of files and task, may be said otherwise (`data_gen.rewording`). ---

_STEPS = tuple(OPENINGS["steps"])
_CUT = re.compile(rf"(?:^|(?<=\s))(?={'|'.join(map(re.escape, _STEPS))})")
_KIND = re.compile(r"\b(?:classification|regression)\b")


def facts_of(question: str) -> Facts:
    """What a rewording of a question must keep."""
    steps = [part.strip() for part in _CUT.split(question)]
    fixed = [part for part in steps if part.startswith(_STEPS)]
    literals = dict.fromkeys([*fixed, *_KIND.findall(question)])
    return Facts(tuple(literals), in_order=(tuple(dict.fromkeys(fixed)),) if fixed else ())


def opening_of(question: str) -> str:
    """The first sentences, which say how to go about any task."""
    said = (f"{each} " for name in ("exact", "free") for each in OPENINGS[name])
    return next((each for each in said if question.startswith(each)), "")


def reword_rows(rows: Sequence[dict[str, Any]], writer: Endpoint, seed: int) -> dict[str, Any]:
    """Put proved rewordings in place of the questions of a question list; the report. Raises
    `TaskError` when the endpoint cannot be had; nothing is changed then."""
    asked = [(row, v) for row in rows for v in ("question_v1", "question_v2") if row[v]]
    openings = [opening_of(str(row[v])) for row, v in asked]
    jobs = [
        job_of(bare, facts_of(bare), derive_seed(seed, str(row["file_path"]), v, "writer"))
        for (row, v), opening in zip(asked, openings, strict=True)
        for bare in [str(row[v]).removeprefix(opening)]
    ]
    with Progress("wordings", "questions", len(jobs)) as bar:
        made = reword_all(jobs, writer, bar.add)
    found: dict[str, Rewording] = {}
    for (row, v), opening, one in zip(asked, openings, made, strict=True):
        found[f"{row['file_path']} {v.removeprefix('question_')}"] = one
        row[v] = opening + one.text
    return report(found)
