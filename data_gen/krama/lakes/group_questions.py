"""Questions about groups of rows: how many, which, the best, and a value for each."""

from __future__ import annotations

from data_gen.krama.lakes.pipeline import Question
from data_gen.krama.lakes.steps import GAP, SUMMARIES, Builder, asked, grouped


def count_groups(b: Builder) -> Question:
    """How many groups lie above the overall mean: numeric_exact."""
    b.load()
    number, name = b.number(), b.group()
    b.maybe_filter()
    word, call = b.rng.choice(SUMMARIES[:2])
    grouped(b, name, number, word, call)
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
    return asked(
        b,
        f"Find {text}. Skip rows without a number.",
        f"above {word}",
        "float((g - line).abs().min() / max(abs(line), 1e-9))",
    )


def best_group(b: Builder) -> Question:
    """The group with the highest or lowest summary: string_exact."""
    b.load()
    joined = b.maybe_join()
    number = joined or b.number()
    name = b.group()
    b.maybe_filter()
    word, call = b.rng.choice(SUMMARIES[:3])
    grouped(b, name, number, word, call)
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
    return asked(
        b,
        f"Find {text}. Skip rows without a number. Answer with the name only.",
        f"best {order} {word}",
        GAP.format(k=1),
    )


def top_groups(b: Builder) -> Question:
    """The k best groups: list_exact."""
    b.load()
    number, name = b.number(), b.group()
    b.maybe_filter()
    word, call = b.rng.choice(SUMMARIES[:3])
    grouped(b, name, number, word, call)
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
    return asked(
        b,
        f"Which are {text}{b.scope()}? Skip rows without a number. Answer with a list of names.",
        f"top{k} {order} {word}",
        GAP.format(k=k),
    )


def group_values(b: Builder) -> Question:
    """One summary per group in alphabetical order: list_approximate."""
    b.load()
    number, name = b.number(), b.group(most=10)
    b.maybe_filter()
    word, call = b.rng.choice(SUMMARIES[:2])
    grouped(b, name, number, word, call)
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
    return asked(
        b,
        f"List {text} in alphabetical order of '{name}'. Skip rows without a number. "
        "Answer with a list of numbers.",
        f"each {word}",
    )


def pair(b: Builder) -> Question:
    """The pair of two groups with the highest summary: string_approximate."""
    b.load()
    number, first = b.number(), b.group()
    second = b.year() if b.table.years and b.rng.random() < 0.6 else b.group()
    b.maybe_filter(0.4)
    word, call = b.rng.choice(SUMMARIES[:3])
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
    return asked(
        b,
        f"Find {text}. Skip rows without a number. Answer with both, separated by a comma.",
        f"pair {word}",
        GAP.format(k=1),
    )
