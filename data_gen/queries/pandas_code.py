"""The first of the two ways: pandas code of a step, as it stands in the gold pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from data_gen.queries import ops
from data_gen.queries.ops import Cut, OfRows, Op, Source, Summary

Loads = Callable[[Source, str], str]  # (table, variable) -> statements that bind it
Written = tuple[str, str]  # statements, and the expression of the step's value

CALLS: dict[Summary, str] = {
    "mean": "mean()",
    "median": "median()",
    "total": "sum()",
    "largest": "max()",
    "std": "std()",
}
_CUTS: dict[Cut, str] = {
    "after_comma": 'str.extract(r",([^,]*)$")[0]',
    "before_comma": 'str.extract(r"^(.*),[^,]*$")[0]',
    "in_brackets": r'str.extract(r"\(([^()]*)\)\s*$")[0]',
}


def q(text: str) -> str:
    """A string literal; column names hold no quotes and no backslashes."""
    return json.dumps(text, ensure_ascii=False)


def written(op: Op, loads: Loads) -> Written:
    """(statements, value) of a step. Loading leaves columns of numbers as numbers."""
    match op:
        case ops.Load(table):
            return loads(table, "t"), "len(t)"
        case ops.Clean(column):
            return f"t = t.dropna(subset=[{q(column)}])", "len(t)"
        case ops.Years(column):
            return _whole(column), f"int(t[{q(column)}].nunique())"
        case ops.Split(column, cut, into):
            cell = f"t[{q(column)}].astype(str).{_CUTS[cut]}.str.strip()"
            code = f"t[{q(into)}] = {cell}\nt = t.dropna(subset=[{q(into)}])"
            code += f"\nt = t[t[{q(into)}] != {q('')}]"
            return code, f"int(t[{q(into)}].nunique())"
        case ops.Keep(column, value):
            return f"t = t[t[{q(column)}].astype(str).str.strip() == {value!r}]", "len(t)"
        case ops.Limit(column, sign, limit):
            return f"t = t[t[{q(column)}] {sign} {limit:g}]", "len(t)"
        case ops.Join():
            return _join(op, loads), "len(t)"
        case ops.Least(keys, whole, rows):
            size = f"t.groupby({_keys(keys)})[{q(keys[0])}].transform({q('size')})"
            return f"{_ready(keys, whole)}\nt = t[{size} >= {rows}]", "len(t)"
        case ops.Group():
            return _group(op), "len(g)"
        case _:
            return _of_rows(op) if isinstance(op, ops.OfRows) else _of_groups(op)


def _of_groups(op: Op) -> Written:
    match op:
        case ops.Above():
            return "line = float(g.mean())\nabove = g[g > line]", "len(above)"
        case ops.Best(high):
            key = (
                'i = g.index[0]\nname = ", ".join(map(str, i)) if isinstance(i, tuple) else str(i)'
            )
            return f"g = g.sort_values(ascending={not high})\n{key}", "name"
        case ops.Nth(place, high):
            return f"g = g.sort_values(ascending={not high})", f"str(g.index[{place - 1}])"
        case ops.Spread(digits):
            return "raw = float(g.max() - g.min())", _round(digits)
        case ops.Change(one, other, digits):
            return f"raw = 100 * float(g.loc[{other}] / g.loc[{one}] - 1)", _round(digits)
        case ops.Top(k, high):
            return f"g = g.sort_values(ascending={not high})", f"[str(x) for x in g.index[:{k}]]"
        case ops.Each():
            return "g = g.sort_index()", "[float(x) for x in g]"
        case ops.Interpolate(share, at):
            code = "g = g.sort_index()\nyears = [float(y) for y in g.index]\n"
            code += f"low, high = years[-{at + 1}], years[-{at}]\n"
            code += (
                f"point = low + {share} * (high - low)\nseen = float(np.interp(point, years, g))"
            )
            return code, "seen"
        case _:
            raise TypeError(f"no code for {op}")


def _of_rows(op: OfRows) -> Written:
    match op:
        case ops.Figure(of, how, digits):
            return f"raw = float(t[{q(of)}].{CALLS[how]})", _round(digits)
        case ops.Difference(by, one, other, of, how, digits):
            side = f"t[t[{q(by)}].astype(str).str.strip() == {{}}][{q(of)}]"
            first, second = side.format(repr(one)), side.format(repr(other))
            code = f"first = {first}\nsecond = {second}\n"
            code += f"raw = float(first.{CALLS[how]} - second.{CALLS[how]})"
            return code, _round(digits)
        case ops.Portion(column, sign, limit, digits):
            part = f"(t[{q(column)}] {sign} {limit:g})"
            return f"raw = 100 * float({part}.mean())", _round(digits)
        case ops.Share(by, value, of, digits):
            part = f"part = t[t[{q(by)}].astype(str).str.strip() == {value!r}][{q(of)}]\n"
            return f"{part}raw = 100 * float(part.sum() / t[{q(of)}].sum())", _round(digits)
        case ops.AboveOwn(by, of):
            line = f"line = t.groupby({q(by)})[{q(of)}].transform({q('mean')})"
            return f"{_trimmed(by)}\n{line}\nabove = t[t[{q(of)}] > line]", "len(above)"
        case ops.Correlate(x, y):
            return f"r = float(t[{q(x)}].corr(t[{q(y)}]))", "r"
        case ops.Fit(x, y, both):
            xs, ys = f"t[{q(x)}].astype(float)", f"t[{q(y)}].astype(float)"
            code = f"slope, start = (float(v) for v in np.polyfit({xs}, {ys}, 1))"
            return code, "[slope, start]" if both else "slope"


def _round(digits: int) -> str:
    return f"round(raw, {digits})" if digits else "round(raw)"


def _trimmed(column: str, frame: str = "t") -> str:
    cell = f"{frame}[{q(column)}]"
    return (
        f"{frame} = {frame}.dropna(subset=[{q(column)}])\n{cell} = {cell}.astype(str).str.strip()"
    )


def _whole(column: str, frame: str = "t") -> str:
    cell = f"{frame}[{q(column)}]"
    code = f'{cell} = pd.to_numeric({cell}, errors="coerce")\n'
    return f"{code}{frame} = {frame}.dropna(subset=[{q(column)}])\n{cell} = {cell}.astype(int)"


def _join(op: ops.Join, loads: Loads) -> str:
    lines = [loads(op.table, "u")]
    key = _whole if op.whole else _trimmed
    lines += [key(op.theirs, "u"), key(op.mine)]
    names = "" if op.theirs == op.mine else f".rename(columns={{{q(op.theirs)}: {q(op.mine)}}})"
    lines.append(f"u = u[[{q(op.theirs)}, {q(op.brings)}]]{names}")
    merge = f"t = t.merge(u, on={q(op.mine)}, how={q('inner')})"
    lines.append(f"{merge}.dropna(subset=[{q(op.brings)}])")
    return "\n".join(lines)


def _ready(keys: Sequence[str], whole: Sequence[bool]) -> str:
    """Keys to group by: whole numbers, or texts without the blanks around them."""
    return "\n".join(_whole(k) if w else _trimmed(k) for k, w in zip(keys, whole, strict=True))


def _keys(keys: Sequence[str]) -> str:
    return q(keys[0]) if len(keys) == 1 else f"[{', '.join(map(q, keys))}]"


def _group(op: ops.Group) -> str:
    summed = f"g = t.groupby({_keys(op.keys)})[{q(op.of)}].{CALLS[op.how]}.dropna()"
    return f"{_ready(op.keys, op.whole)}\n{summed}"


def blocks(op: Op) -> list[str]:
    """What a step does to the columns it groups by or orders by: done once is enough."""
    match op:
        case ops.Least(keys, whole) | ops.Group(keys, whole):
            return [_ready([k], [w]) for k, w in zip(keys, whole, strict=True)]
        case ops.Years(column):
            return [_whole(column)]
        case _:
            return []


def fewest(op: ops.Group) -> str:
    """The expression of how many rows the smallest group has."""
    return f"t.groupby({_keys(op.keys)})[{q(op.of)}].count().min()"
