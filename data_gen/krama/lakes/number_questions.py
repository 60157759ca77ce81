"""Questions about measured columns: one figure, a fitted line, a value between two years."""

from __future__ import annotations

from data_gen.krama.lakes.pipeline import Question
from data_gen.krama.lakes.steps import SUMMARIES, Builder, NoQuestion, asked


def one_number(b: Builder) -> Question:
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
    return asked(
        b, f"What is {text}? Skip rows without a number.", f"number {word}{digits}", margin
    )


def line(b: Builder) -> Question:
    """Slope, correlation or both of two measured columns: numeric_ or list_approximate."""
    b.load()
    joined = b.maybe_join(0.7)
    first = b.number()
    rest = [n for n in b.table.numbers if n not in b.used]
    if joined is None and not rest:
        raise NoQuestion
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
        return asked(b, f"What is {text}? Skip rows without both numbers.", "correlation", margin)
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
        return asked(
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
    return asked(
        b,
        f"Regress {text}. Answer with a list: slope, intercept. Skip rows without both numbers.",
        "line",
        "min(abs(slope), abs(start))",
    )


def between_years(b: Builder) -> Question:
    """A yearly series interpolated at a point between two years: numeric_approximate."""
    b.load()
    number, year = b.number(), b.year()
    b.maybe_filter()
    word, call = b.rng.choice(SUMMARIES[:3])
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
    return asked(
        b, f"What is {text}? Skip rows without a number.", f"interp {word}{share}{at}", "abs(seen)"
    )
