"""The typed steps that questions over tables are composed of: load, clean, join, filter, group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from data_gen.krama.lakes.pipeline import LakeStep, Question
from data_gen.krama.lakes.tables import Table


class NoQuestion(ValueError):
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
            raise NoQuestion
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
            raise NoQuestion
        name = self.rng.choice(fitting)
        self.used.append(name)
        return name

    def year(self) -> str:
        fitting = [y for y in self.table.years if y not in self.used]
        if not fitting:
            raise NoQuestion
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
SUMMARIES = (("mean", "mean()"), ("median", "median()"), ("total", "sum()"), ("largest", "max()"))


def grouped(b: Builder, name: str, number: str, word: str, call: str) -> None:
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


# how far the k-th of the sorted groups is from the next, relative
GAP = "float(abs(g.iloc[{k}] - g.iloc[{k} - 1]) / max(abs(g.iloc[{k} - 1]), 1e-9))"


def asked(b: Builder, text: str, shape: str, margin: str = "1.0") -> Question:
    """The question that the steps so far answer; `margin` as in `Question`."""
    key = f"{shape}|{b.files}|{b.used}|{b.said}"
    return Question(text, tuple(b.steps), key, margin)
