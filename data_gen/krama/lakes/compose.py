"""Questions over tables, composed from typed steps: load, clean, join, filter, group, …, finish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from data_gen.krama.lakes.pipeline import Draft, LakeStep
from data_gen.krama.lakes.tables import Table


class NoDraft(ValueError):
    """These tables do not have what this kind of question needs."""


@dataclass
class Builder:
    """Steps so far over the frame `t`, and how they are said in the question."""

    rng: Random
    table: Table
    others: Sequence[Table] = ()
    steps: list[LakeStep] = field(default_factory=list[LakeStep])
    said: list[str] = field(default_factory=list[str])
    used: list[str] = field(default_factory=list[str])
    files: list[str] = field(default_factory=list[str])

    def load(self) -> None:
        self.files.append(self.table.said)
        sheet = self.table.layout.sheet
        self.add(
            "load",
            f"Load '{self.table.path}'" + (f", sheet '{sheet}'" if sheet else ""),
            f"t = {self.table.load}",
            f"How many data rows does {self.table.said} have?",
            "len(t)",
            "numeric_exact",
        )

    def add(
        self,
        kind: str,
        text: str,
        code: str,
        query: str,
        value: str,
        answer_type: str,
        optional: bool = False,
    ) -> None:
        self.steps.append(
            LakeStep(kind, text, code, query, value, answer_type, optional)  # type: ignore[arg-type]
        )

    def number(self) -> str:
        """A measured column, cleaned when it is written with marks or has gaps."""
        if not self.table.numbers:
            raise NoDraft
        name = self.rng.choice(self.table.numbers)
        self.used.append(name)
        self.clean(name)
        return name

    def clean(self, name: str) -> None:
        bare = f't["{name}"]'
        if name in self.table.dirty:
            marks = r"[.$%]" if self.table.layout.decimal == "," else r"[,$%]"
            bare += f'.astype(str).str.replace(r"{marks}", "", regex=True)'
            if self.table.layout.decimal == ",":
                bare += '.str.replace(",", ".", regex=False)'
        code = (
            f't["{name}"] = pd.to_numeric({bare}, errors="coerce")\nt = t.dropna(subset=["{name}"])'
        )
        self.add(
            "clean",
            f"Convert '{name}' to numbers and drop rows without one",
            code,
            f"How many rows have a usable number in '{name}'?",
            "len(t)",
            "numeric_exact",
        )

    def group(self, most: int = 60) -> str:
        fitting = [g for g in self.table.groups if 3 <= len(self.table.values[g]) <= most]
        fitting = [g for g in fitting if g not in self.used]
        if not fitting:
            raise NoDraft
        name = self.rng.choice(fitting)
        self.used.append(name)
        return name

    def year(self) -> str:
        fitting = [y for y in self.table.years if y not in self.used]
        if not fitting:
            raise NoDraft
        name = self.rng.choice(fitting)
        self.used.append(name)
        code = (
            f't["{name}"] = pd.to_numeric(t["{name}"], errors="coerce")\n'
            f't = t.dropna(subset=["{name}"])'
        )
        self.add(
            "clean",
            f"Convert '{name}' to numbers and drop rows without one",
            code,
            f"How many different values does '{name}' have?",
            f't["{name}"].nunique()',
            "numeric_exact",
        )
        return name

    def maybe_filter(self, chance: float = 0.6) -> None:
        """With some chance, keep one group or one side of a threshold."""
        if self.rng.random() > chance:
            return
        free = [g for g in self.table.groups if g not in self.used]
        numbers = [n for n in self.table.numbers if n not in self.used]
        if free and (not numbers or self.rng.random() < 0.6):
            name = self.rng.choice(free)
            value = self.rng.choice(list(self.table.values[name]))
            self.used.append(name)
            code = f't = t[t["{name}"].astype(str).str.strip() == {value!r}]'
            self.said.append(f"where '{name}' is {value!r}")
            self.add(
                "filter",
                f"Keep rows where '{name}' is '{value}'",
                code,
                f"How many rows remain where '{name}' is '{value}'?",
                "len(t)",
                "numeric_exact",
                True,
            )
        elif numbers:
            self._threshold(self.rng.choice(numbers))

    def _threshold(self, name: str) -> None:
        self.used.append(name)
        self.clean(name)
        limit = self.rng.choice(self.table.levels[name])
        sign, word = self.rng.choice(((">", "above"), ("<", "below")))
        self.said.append(f"with '{name}' {word} {limit:g}")
        self.add(
            "filter",
            f"Keep rows with '{name}' {word} {limit:g}",
            f't = t[t["{name}"] {sign} {limit:g}]',
            f"How many rows remain with '{name}' {word} {limit:g}?",
            "len(t)",
            "numeric_exact",
            True,
        )

    def maybe_join(self, chance: float = 0.5) -> str | None:
        """Join another table on a text column that both have; returns its measured column."""
        keys = {
            k: n
            for k in (*self.table.names, *self.table.groups)
            for n in [set(self.table.values[k])]
        }
        options: list[tuple[str, Table, str, str]] = []
        for other in self.others:
            for key in other.names:
                for mine, values in keys.items():
                    if len(values & set(other.values[key])) >= 5 and mine not in self.used:
                        fresh = [n for n in other.numbers if n not in self.table.numbers]
                        options += [(mine, other, key, n) for n in fresh if n not in other.dirty]
        if not options or self.rng.random() > chance:
            return None
        mine, other, key, number = self.rng.choice(options)
        self.files.append(other.said)
        self.used += [mine, number]
        code = (
            f"u = {other.load}\n"
            f'u["{key}"] = u["{key}"].astype(str).str.strip()\n'
            f't["{mine}"] = t["{mine}"].astype(str).str.strip()\n'
            f'u = u[["{key}", "{number}"]].rename(columns={{"{key}": "{mine}"}})\n'
            f't = t.merge(u, on="{mine}", how="inner").dropna(subset=["{number}"])'
        )
        self.said.append(f"matched with {other.said} by name ('{mine}' there '{key}')")
        self.add(
            "join",
            f"Join '{other.path}' on '{mine}' = '{key}' and keep matches",
            code,
            "How many rows have a match in the other table?",
            "len(t)",
            "numeric_exact",
            True,
        )
        return number

    def scope(self) -> str:
        return (" " + " and ".join(self.said)) if self.said else ""


# how a group is summed up: word, code on a grouped series
_SUMMARIES = (("mean", "mean()"), ("median", "median()"), ("total", "sum()"), ("largest", "max()"))


def _grouped(b: Builder, name: str, number: str, word: str, call: str) -> None:
    code = (
        f't = t.dropna(subset=["{name}"])\nt["{name}"] = t["{name}"].astype(str).str.strip()\n'
        f'g = t.groupby("{name}")["{number}"].{call}.dropna()'
    )
    b.add(
        "group",
        f"Compute the {word} of '{number}' per '{name}'",
        code,
        f"For how many values of '{name}' is there a {word} of '{number}'?",
        "len(g)",
        "numeric_exact",
    )


def _draft(b: Builder, question: str, shape: str, margin: str = "1.0") -> Draft:
    key = f"{shape}|{b.files}|{b.used}|{b.said}"
    return Draft(question, tuple(b.steps), key, margin)


def one_number(b: Builder) -> Draft:
    """A count, sum, mean or median, rounded: numeric_exact."""
    b.load()
    joined = b.maybe_join()
    number = joined if joined and b.rng.random() < 0.6 else b.number()
    b.maybe_filter(0.9)
    word, call, digits = b.rng.choice(
        (
            ("mean", "mean()", 2),
            ("mean", "mean()", 3),
            ("median", "median()", 2),
            ("standard deviation (n - 1)", "std()", 2),
            ("total", "sum()", 1),
        )
    )
    text = f"the {word} of '{number}' in {b.table.said}{b.scope()} rounded to {digits} decimals"
    code = f'raw = float(t["{number}"].{call})'
    value = f"round(raw, {digits})"
    b.add(
        "finish",
        f"Compute the {word} of '{number}' and round to {digits} decimals",
        code,
        f"What is {text}?",
        value,
        "numeric_exact",
    )
    scaled = f"raw * 10 ** {digits}"
    margin = f"abs(({scaled}) % 1 - 0.5)"
    return _draft(
        b, f"What is {text}? Skip rows without a number.", f"number {word}{digits}", margin
    )


def count_groups(b: Builder) -> Draft:
    """How many groups lie above the overall mean: numeric_exact."""
    b.load()
    number, name = b.number(), b.group()
    b.maybe_filter()
    word, call = b.rng.choice(_SUMMARIES[:2])
    _grouped(b, name, number, word, call)
    code = "line = float(g.mean())\nabove = g[g > line]"
    text = (
        f"for how many values of '{name}' in {b.table.said}{b.scope()} the {word} of "
        f"'{number}' lies above the mean of these per-'{name}' values"
    )
    b.add(
        "finish",
        "Count the groups above the mean of all groups",
        code,
        f"Find {text}.",
        "len(above)",
        "numeric_exact",
    )
    return _draft(
        b,
        f"Find {text}. Skip rows without a number.",
        f"above {word}",
        "float((g - line).abs().min() / max(abs(line), 1e-9))",
    )


def best_group(b: Builder) -> Draft:
    """The group with the highest or lowest summary: string_exact."""
    b.load()
    joined = b.maybe_join()
    number = joined or b.number()
    name = b.group()
    b.maybe_filter()
    word, call = b.rng.choice(_SUMMARIES[:3])
    _grouped(b, name, number, word, call)
    high = b.rng.random() < 0.6
    order = "highest" if high else "lowest"
    code = f"g = g.sort_values(ascending={not high})"
    text = f"which '{name}' has the {order} {word} of '{number}' in {b.table.said}{b.scope()}"
    b.add(
        "rank",
        f"Sort and take the '{name}' with the {order} value",
        code,
        f"Find {text}.",
        "str(g.index[0])",
        "string_exact",
    )
    return _draft(
        b,
        f"Find {text}. Skip rows without a number. Answer with the name only.",
        f"best {order} {word}",
        _GAP.format(k=1),
    )


_GAP = "float(abs(g.iloc[{k}] - g.iloc[{k} - 1]) / max(abs(g.iloc[{k} - 1]), 1e-9))"


def top_groups(b: Builder) -> Draft:
    """The k best groups: list_exact."""
    b.load()
    number, name = b.number(), b.group()
    b.maybe_filter()
    word, call = b.rng.choice(_SUMMARIES[:3])
    _grouped(b, name, number, word, call)
    k = b.rng.choice((2, 3, 3, 4, 5))
    high = b.rng.random() < 0.7
    order = "highest" if high else "lowest"
    code = f"g = g.sort_values(ascending={not high})"
    text = f"the {k} values of '{name}' with the {order} {word} of '{number}' in {b.table.said}"
    b.add(
        "rank",
        f"Sort and take {k} of '{name}' with the {order} values",
        code,
        f"Which are {text}?",
        f"[str(x) for x in g.index[:{k}]]",
        "list_exact",
    )
    return _draft(
        b,
        f"Which are {text}{b.scope()}? Skip rows without a number. Answer with a list of names.",
        f"top{k} {order} {word}",
        _GAP.format(k=k),
    )


def group_values(b: Builder) -> Draft:
    """One summary per group in alphabetical order: list_approximate."""
    b.load()
    number, name = b.number(), b.group(most=10)
    b.maybe_filter()
    word, call = b.rng.choice(_SUMMARIES[:2])
    _grouped(b, name, number, word, call)
    code = "g = g.sort_index()"
    text = f"the {word} of '{number}' for each '{name}' in {b.table.said}{b.scope()}"
    b.add(
        "finish",
        f"List the {word} of '{number}' in alphabetical order of '{name}'",
        code,
        f"List {text}.",
        "[float(x) for x in g]",
        "list_approximate",
    )
    return _draft(
        b,
        f"List {text} in alphabetical order of '{name}'. Skip rows without a number. "
        "Answer with a list of numbers.",
        f"each {word}",
    )


def line(b: Builder) -> Draft:
    """Slope, correlation or both of two measured columns: numeric_ or list_approximate."""
    b.load()
    joined = b.maybe_join(0.7)
    first = b.number()
    rest = [n for n in b.table.numbers if n not in b.used]
    if joined is None and not rest:
        raise NoDraft
    second = joined or b.rng.choice(rest)
    b.used.append(second)
    if joined is None:
        b.clean(second)
    b.maybe_filter()
    kind = b.rng.choice(("slope", "correlation", "both"))
    x, y = f't["{first}"].astype(float)', f't["{second}"].astype(float)'
    if kind == "correlation":
        text = f"the Pearson correlation of '{first}' and '{second}' in {b.table.said}{b.scope()}"
        b.add(
            "finish",
            f"Correlate '{first}' with '{second}'",
            f"r = float(np.corrcoef({x}, {y})[0, 1])",
            f"What is {text}?",
            "r",
            "numeric_approximate",
        )
        margin = "abs(r) if abs(r) < 0.999 else 0.0"
        return _draft(b, f"What is {text}? Skip rows without both numbers.", "correlation", margin)
    code = f"slope, start = (float(v) for v in np.polyfit({x}, {y}, 1))"
    text = f"'{second}' on '{first}' in {b.table.said}{b.scope()} by ordinary least squares"
    if kind == "slope":
        b.add(
            "regress",
            f"Fit '{second}' on '{first}' with an intercept by least squares",
            code,
            f"What is the slope of {text}?",
            "slope",
            "numeric_approximate",
        )
        return _draft(
            b,
            f"Regress {text}. What is the slope? Skip rows without both numbers.",
            "slope",
            "abs(slope)",
        )
    b.add(
        "regress",
        f"Fit '{second}' on '{first}' with an intercept by least squares",
        code,
        f"What are slope and intercept of {text}?",
        "[slope, start]",
        "list_approximate",
    )
    return _draft(
        b,
        f"Regress {text}. Answer with a list: slope, intercept. Skip rows without both numbers.",
        "line",
        "min(abs(slope), abs(start))",
    )


def between_years(b: Builder) -> Draft:
    """A yearly series interpolated at a point between two years: numeric_approximate."""
    b.load()
    number, year = b.number(), b.year()
    b.maybe_filter()
    word, call = b.rng.choice(_SUMMARIES[:3])
    code = f'g = t.groupby("{year}")["{number}"].{call}.dropna().sort_index()'
    b.add(
        "group",
        f"Compute the {word} of '{number}' per '{year}'",
        code,
        f"For how many values of '{year}' is there a {word}?",
        "len(g)",
        "numeric_exact",
    )
    share = b.rng.choice((0.25, 0.5, 0.75))
    at = b.rng.randrange(1, 4)
    code = (
        f"years = [float(y) for y in g.index]\nlow, high = years[-{at + 1}], years[-{at}]\n"
        f"point = low + {share} * (high - low)\nseen = float(np.interp(point, years, g))"
    )
    order = ("last", "second to last", "third to last")[at - 1]
    before = ("second to last", "third to last", "fourth to last")[at - 1]
    text = (
        f"the {word} of '{number}' per '{year}' in {b.table.said}{b.scope()} linearly "
        f"interpolated at {share:g} of the way from the {before} to the {order} '{year}'"
    )
    b.add(
        "interpolate",
        f"Interpolate linearly between the {before} and the {order} '{year}'",
        code,
        f"What is {text}?",
        "seen",
        "numeric_approximate",
    )
    return _draft(
        b, f"What is {text}? Skip rows without a number.", f"interp {word}{share}{at}", "abs(seen)"
    )


def pair(b: Builder) -> Draft:
    """The pair of two groups with the highest summary: string_approximate."""
    b.load()
    number, first = b.number(), b.group()
    second = b.year() if b.table.years and b.rng.random() < 0.6 else b.group()
    b.maybe_filter(0.4)
    word, call = b.rng.choice(_SUMMARIES[:3])
    whole = second in b.table.years
    code = f't = t.dropna(subset=["{first}", "{second}"])\n'
    code += f't["{first}"] = t["{first}"].astype(str).str.strip()\n'
    code += (
        f't["{second}"] = t["{second}"].astype(int)\n'
        if whole
        else (f't["{second}"] = t["{second}"].astype(str).str.strip()\n')
    )
    code += f'g = t.groupby(["{first}", "{second}"])["{number}"].{call}.dropna()'
    b.add(
        "group",
        f"Compute the {word} of '{number}' per '{first}' and '{second}'",
        code,
        "How many pairs occur?",
        "len(g)",
        "numeric_exact",
    )
    text = (
        f"which pair of '{first}' and '{second}' has the highest {word} of '{number}' in "
        f"{b.table.said}{b.scope()}"
    )
    b.add(
        "rank",
        "Sort and take the pair with the highest value",
        "g = g.sort_values(ascending=False)",
        f"Find {text}.",
        '", ".join(str(x) for x in g.index[0])',
        "string_approximate",
    )
    return _draft(
        b,
        f"Find {text}. Skip rows without a number. Answer with both, separated by a comma.",
        f"pair {word}",
        _GAP.format(k=1),
    )


# kinds of questions; a new kind adds one function and one entry
KINDS: dict[str, Callable[[Builder], Draft]] = {
    "one_number": one_number,
    "count_groups": count_groups,
    "best_group": best_group,
    "top_groups": top_groups,
    "group_values": group_values,
    "line": line,
    "between_years": between_years,
    "pair": pair,
}
