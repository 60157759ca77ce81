"""Rows that add up other rows, or say their means, found by their words and by their numbers."""

# numpy and pandas ship no types that pyright could follow here
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from assay.tables.number_format import ANY_WORDS

Array = Any  # a numpy array
_NUMBER = re.compile(
    r"\(?[-+−]?\s?[$€£]?\s?[.,]?\d[\d.,'’ \u00a0\u202f]*(?:[eE][-+]?\d+)?\s?[%$€£]?\)?"
)
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}([-/.]\d{1,4})?([ T]\d{1,2}:\d\d.*)?|\d{1,2}:\d\d(:\d\d)?")
_LOOKED = 2000  # distinct cells that tell a column of numbers from one of text
_MOSTLY = 0.8  # of the filled cells of a column of numbers


@dataclass(frozen=True)
class Strip:
    """A column. `codes` are places in `texts`, -1 where no text stands; `values` are numbers, NaN
    where none stands or where its marks leave it open. `filled` says where anything stands."""

    name: str
    filled: Array
    codes: Array
    texts: tuple[str, ...]
    values: Array
    numeric: bool

    @cached_property
    def numbers(self) -> Array:
        """The numbers, without what is none."""
        return self.values[~np.isnan(self.values)]

    @cached_property
    def weights(self) -> Array:
        """The numbers as they are added up: 0 where none stands."""
        return np.nan_to_num(self.values)

    def only(self, rows: Array) -> Strip:
        """The column in some rows."""
        filled, codes, values = self.filled[rows], self.codes[rows], self.values[rows]
        return Strip(self.name, filled, codes, self.texts, values, self.numeric)

    def at(self, row: int) -> str:
        """The text of a cell; nothing where none stands."""
        code = int(self.codes[row])
        return self.texts[code] if code >= 0 else ""

    def said_text(self, row: int) -> str:
        """The text of a cell if it is a word: no number, no word for a missing value."""
        text = self.at(row)
        return "" if not text or is_number(text) or text.casefold() in ANY_WORDS else text


def is_number(text: str) -> bool:
    """Whether a cell is written like a number, with any marks."""
    return bool(_NUMBER.fullmatch(text))


def is_date(text: str) -> bool:
    return bool(_DATE.fullmatch(text))


def strip_of(name: str, column: Any) -> Strip:
    """A column of texts, numbers or other values."""
    pd: Any = importlib.import_module("pandas")
    none = np.full(len(column), -1)
    if column.dtype.kind in "iufb":
        values = _finite(column.to_numpy(dtype="float64", na_value=float("nan")))
        numeric = column.dtype.kind != "b"
        return Strip(name, ~np.isnan(values), none, (), values, numeric)
    if column.dtype.kind in "Mm":
        return Strip(name, column.notna().to_numpy(), none, (), np.full(len(column), np.nan), False)
    told = column if column.dtype == "str" else column.astype(object)
    codes, uniques = pd.factorize(told)
    return _spread(name, codes, uniques.tolist())


def strip_of_cells(name: str, cells: Sequence[Any]) -> Strip:
    """The same of a few cells; None and NaN are no values."""
    seen: dict[Any, int] = {}
    codes = [-1 if v is None or v != v else seen.setdefault(v, len(seen)) for v in cells]
    return _spread(name, np.array(codes, dtype=int), list(seen))


def _spread(name: str, codes: Array, listed: list[Any]) -> Strip:
    texts = tuple(" ".join(u.split()) if isinstance(u, str) else "" for u in listed)
    counts = np.bincount(codes[codes >= 0], minlength=len(listed))
    numeric = _mostly_numbers(listed, texts, counts)
    found = _values(listed, texts) if numeric else _typed(listed)
    spread = np.append(_finite(np.array(found, dtype="float64")), np.nan)
    is_text = np.append(np.array([bool(t) for t in texts], dtype=bool), False)
    empty = np.append(np.array([isinstance(u, str) and not u.strip() for u in listed], bool), True)
    return Strip(
        name, ~empty[codes], np.where(is_text[codes], codes, -1), texts, spread[codes], numeric
    )


def _finite(values: Array) -> Array:
    """The numbers without those too large for a float, which have no sums."""
    return np.where(np.isfinite(values), values, np.nan)


def _mostly_numbers(listed: Sequence[Any], texts: Sequence[str], counts: Array) -> bool:
    some = range(min(len(listed), _LOOKED))
    number, other = 0, 0
    for place in some:
        text, value = texts[place], listed[place]
        if isinstance(value, str) and (not text or text.casefold() in ANY_WORDS):
            continue
        hit = is_number(text) if text else isinstance(value, int | float) and value is not True
        number, other = number + hit * int(counts[place]), other + (not hit) * int(counts[place])
    return number > 0 and number >= _MOSTLY * (number + other)


def _typed(listed: Sequence[Any]) -> list[float]:
    nan = float("nan")
    return [float(v) if isinstance(v, int | float) else nan for v in listed]


def _values(listed: Sequence[Any], texts: Sequence[str]) -> list[float]:
    """The numbers by their marks: a comma is a decimal mark if it must be one anywhere."""
    comma = any(re.search(r"\d,\d{1,2}$|\d,\d{4,}$", t) for t in texts)
    found = _typed(listed)
    for place, text in enumerate(texts):
        if text and is_number(text):
            bare = re.sub(r"[\s$€£%'’\u00a0\u202f()]", "", text).replace("−", "-")
            bare = bare.replace(".", "").replace(",", ".") if comma else bare.replace(",", "")
            try:
                found[place] = -float(bare) if text.startswith("(") else float(bare)
            except ValueError:
                continue
    return found


def _listed(text: str) -> tuple[str, ...]:
    """Words that stand between bars."""
    return tuple(" ".join(word.split()) for word in text.split("|"))


# words that alone make a row a total, in any case; the languages of tables that people have
_TOTALS = _listed("""
total | totals | grand total | subtotal | sub total | sub-total | overall total | sum | sum total |
summe | summen | gesamt | gesamtsumme | insgesamt | endsumme | zwischensumme | teilsumme |
gesamtergebnis | teilergebnis | totaux | sous-total | total général | total general | totale |
totali | totale generale | subtotale | suma | suma total | somme | somma | totaal | totalt | summa |
totalsumma | toplam | genel toplam | razem | ogółem | celkem | spolu | összesen | yhteensä | i alt |
σύνολο | итого | всего | итог | 合計 | 合计 | 总计 | 總計 | 総計 | 小計 | 小计 | 总和 |
합계 | 총계 | 소계 | tổng | tổng cộng | jumlah | कुल | المجموع | סה"כ | סהכ
""")
# the same, where words such as none and some beside them do not say that they are answers
_WHOLES = _listed("""
all | overall | combined | all combined | everyone | alle | tous | toutes | todos | todas | tutti |
tutte | все | 全部 | 全体 | ensemble | both sexes | both genders
""")
_ANSWERS = _listed("""
always | any | few | half | most | never | no | nobody | none | often | part | partly | some
""")
# of these, only together with the name of what is summed: "Corva Total", "Summe Nord"
_STEMS = _listed("""
total | subtotal | sub-total | summe | zwischensumme | gesamt | insgesamt | итого | gesamtergebnis |
ergebnis | всего | 合計 | 合计 | 总计 | 總計 | 総計 | 小計 | 小计 | 합계 | 소계 | toplam |
razem | ogółem | celkem | összesen | totale | totaal | suma
""")
_ALL = re.compile(
    r"(?:all|both|alle|beide|tous les|toutes les|todos los|todas las|tutti i|tutte le)"
    r"[ _-]?(?:the )?([^\W\d_]{3,})(?: combined| total)?"
)
_GROUPS = _listed("""
age | ages | altersgruppen | areas | bereiche | categories | causes | cities | classes | counties |
countries | departments | employees | ethnicities | genders | geschlechter | groups | industries |
items | jahre | levels | months | occupations | origins | people | personen | persons | products |
races | regionen | regions | sectors | sexes | sites | sources | states | students | types | years
""")
# words of figures over the rows above: what they are, in the languages of tables that people have
_WORDED = {
    "mean": """average | averages | mean | avg | durchschnitt | mittelwert | mittel | moyenne |
        promedio | media | gemiddelde | média | średnia | ortalama | среднее | 平均 | 平均値 |
        平均值 | 평균 | column average | mean value""",
    "median": "median | mediana | médiane | медиана | 中央値 | 中位数",
    "max": """max | max. | maximum | highest | largest | höchstwert | maximal | máximo | massimo |
        maximo | максимум | макс | макс. | 最大 | 最大値 | 最大值 | 최대""",
    "min": """min | min. | minimum | lowest | smallest | tiefstwert | minimal | mínimo | minimo |
        минимум | мин | мин. | 最小 | 最小値 | 最小值 | 최소""",
    "std": """std | sd | stdev | std dev | std. dev | standard deviation | standardabweichung |
        écart-type | ecart-type | desviación estándar | deviazione standard | 標準偏差 | 标准差""",
    "count": "count | n | anzahl | nombre | number of rows | rows",
}
_FIGURES = {word: what for what, words in _WORDED.items() for word in _listed(words)}
_LEAST = 4  # rows that a sum without a word must add up
_MEMBERS = 40  # distinct values of a column in which one may be the sum of the others
_ROWS = 5000  # up to which sums of some of the other values are looked for
_BITS = 40  # that the numbers of a value must tell before its sums are no chance
_KEYS = 0.95  # of the groups in which a value must be the sum of its siblings
_TAIL = 6  # rows at the end in which an average is looked for


def totals_of(
    strips: Sequence[Strip], passed: Sequence[str] = ()
) -> tuple[dict[int, str], dict[tuple[str, str], str]]:
    """(single rows, pairs of a column and a value), with why they are doubted, that add up others.
    Columns of `passed` are settled: no value of theirs is doubted."""
    rows: dict[int, str] = {}
    values: dict[tuple[str, str], str] = {}
    measures = [s for s in strips if _additive(s)]
    # what adds up does so in the first numbers too; a table may have thousands of such columns
    sums = _sums_of_siblings(strips, measures[:32])
    for strip in strips:
        if strip.name in passed:
            continue
        for code, why in _worded(strip, strips, sums):
            places = (strip.codes == code).nonzero()[0]
            if len(places) == 1:
                rows.setdefault(int(places[0]), why)
            elif len(places):
                values[strip.name, strip.texts[code]] = why
    for (name, text), why in sums.items():
        if name not in passed and (name, text) not in values:
            strip = next(s for s in strips if s.name == name)
            places = (strip.codes == strip.texts.index(text)).nonzero()[0]
            if not all(int(p) in rows for p in places):
                values[name, text] = why
    if not passed:
        for row, why in (*_sums_of_all(strips, measures), *_far_above(strips, measures)):
            rows.setdefault(row, why)
    return rows, values


def _worded(
    strip: Strip, strips: Sequence[Strip], sums: dict[tuple[str, str], str]
) -> Iterator[tuple[int, str]]:
    """The places in `texts` whose words say that they add up others, with why."""
    if not strip.texts:
        return
    folded = [t.casefold().strip(" :.*=-–—") for t in strip.texts]
    joined = "\n".join(folded)
    stems = sorted((s for s in _STEMS if s in joined), key=len, reverse=True)
    whole = {*_TOTALS, *_WHOLES}
    answers = not set(folded).isdisjoint(_ANSWERS)
    for code, text in enumerate(folded):
        said = f"{strip.texts[code]!r} in {strip.name!r}"
        if text in whole:
            if (text in _WHOLES and answers) or _contradicted(strip, code, strips):
                continue
            yield code, said
        elif text.startswith(("all", "both", "beide", "tous", "tout", "tod", "tutt")):
            if (strip.name, strip.texts[code]) in sums or _all_of(text, strip.name):
                yield code, said
        elif any(s in text for s in stems):
            if (part := _part(text, stems)) and _belongs(part, code, strip, strips):
                yield code, said
        elif text in _FIGURES and _at_end(strip, code, strips):
            yield code, said


def _contradicted(strip: Strip, code: int, strips: Sequence[Strip]) -> bool:
    """Whether the numbers of a single row in the middle of a table are no sums: there are several,
    and none is the largest of its column or the sum of rows above (Total, the company)."""
    places = (strip.codes == code).nonzero()[0]
    if not len(places):  # of a row that is left out
        return True
    row = int(places[0])
    if len(places) > 1 or row == 0 or row >= len(strip.codes) - _TAIL:
        return False
    measures = [s for s in strips if _additive(s) and not np.isnan(s.values[row])]
    if len(measures) < 2 or _sums_above(row, strips):
        return False
    return all(s.values[row] < np.nanmax(s.values) for s in measures)


def _all_of(text: str, name: str) -> bool:
    """Whether `all ages` names what the column holds, or what tables commonly add up."""
    found = _ALL.fullmatch(text)
    if not found:
        return False
    if text.startswith("both"):
        return found[1] in ("sexes", "genders")
    parts = re.split(r"[\W_]+", name.casefold())
    return found[1] in _GROUPS or any(len(p) > 2 and found[1].startswith(p[:-1]) for p in parts)


def _part(text: str, stems: Sequence[str]) -> str:
    """What a text such as `corva total` adds up; nothing where its words are no such pair."""
    for stem in stems:
        if stem not in text or text == stem:
            continue
        wide = not stem.isascii() and ord(stem[0]) > 0x2E80
        gap = r"[\s:,–(-]*" if wide else r"[\s:,–(-]+"
        if found := re.fullmatch(f"{re.escape(stem)}{gap}(.+?)\\)?", text):
            return found[1]
        if found := re.fullmatch(f"(.+?){gap}{re.escape(stem)}\\)?", text):
            return found[1]
    return ""


def _belongs(part: str, code: int, strip: Strip, strips: Sequence[Strip]) -> bool:
    """Whether a text such as `Corva Total` adds up rows of this table: its part, Corva, is a value
    of it, or other columns of text are empty there, or its numbers are the sums of the rows
    above."""
    if any(part in {t.casefold() for t in s.texts} for s in strips if len(s.texts) < 5000):
        return True
    places = (strip.codes == code).nonzero()[0]
    for other in strips:
        if other is not strip and other.texts and not other.numeric:
            here = other.filled[places].mean() if len(places) else 1.0
            if here == 0.0 and other.filled.mean() > 0.8:
                return True
    return len(places) == 1 and _sums_above(int(places[0]), strips)


def _at_end(strip: Strip, code: int, strips: Sequence[Strip]) -> bool:
    """Whether a row at the end holds figures over those above: its word says a mean or a median, or
    another text that is filled elsewhere is empty in it, or its numbers are what its word says."""
    places = (strip.codes == code).nonzero()[0]
    if len(places) != 1 or len(strip.codes) - places[0] > _TAIL or len(strip.texts) <= 3:
        return False
    row = int(places[0])
    what = _FIGURES[strip.texts[code].casefold().strip(" :.*=-–—")]
    return what in ("mean", "median") or _bare(row, strips) or _figures(row, what, strips)


def _figures(row: int, what: str, strips: Sequence[Strip]) -> bool:
    """Whether all numbers of a row are the largest, the smallest, the deviation or the number of
    those above; other such rows may stand between."""
    hits = 0
    for strip in strips:
        if not strip.numeric or np.isnan(strip.values[row]):
            continue
        found: list[Any] = []
        for end in range(max(2, row - _TAIL), row + 1):
            above = strip.values[:end][~np.isnan(strip.values[:end])]
            if len(above) > 1:
                made = {"max": np.max, "min": np.min, "std": np.std, "count": len}[what](above)
                found += [float(made), float(np.std(above, ddof=1)) if what == "std" else made]
        room = 10 * max(1e-9 * abs(strip.values[row]), _tolerance(strip))
        if not any(abs(one - strip.values[row]) <= room for one in found):
            return False
        hits += 1
    return hits > 0


def _tolerance(strip: Strip) -> float:
    """What sums of these numbers may differ by: half a unit of the last place of each."""
    some = strip.numbers[:200]
    places = 0
    while places < 6 and bool((abs(some * 10**places - np.round(some * 10**places)) > 1e-6).any()):
        places += 1
    return 0.0 if places == 0 else 0.51 * 10.0**-places


def _sums_above(row: int, strips: Sequence[Strip]) -> bool:
    """Whether every number of a row is the sum of a block of rows that ends just above it."""
    hits = 0
    for strip in strips:
        if not strip.numeric or np.isnan(strip.values[row]) or strip.values[row] == 0:
            continue
        above = np.nancumsum(strip.values[:row][::-1])[1:]
        room = max(1e-9 * abs(strip.values[row]), _tolerance(strip))
        if not bool((abs(above - strip.values[row]) <= room).any()):
            return False
        hits += 1
    return hits > 0


def _additive(strip: Strip) -> bool:
    """Whether the numbers of a column can have a sum that tells: no years, no running numbers."""
    if not strip.numeric:
        return False
    found = strip.numbers
    if len(found) < _LEAST or not bool((found != 0).any()):
        return False
    whole = bool((found == np.round(found)).all())
    years = whole and found.min() >= 1500 and found.max() <= 2200
    steps = np.diff(found)
    running = whole and bool((steps == steps[0]).all())
    return not years and not running


def _sums_of_all(strips: Sequence[Strip], measures: Sequence[Strip]) -> Iterator[tuple[int, str]]:
    """A row whose numbers are the sums of all the others, whatever its words."""
    if not measures or len(measures[0].values) <= _LEAST:
        return
    votes = np.zeros(len(measures[0].values), dtype=int)
    for strip in measures:
        whole = np.nansum(strip.values)
        room = max(1e-9 * abs(whole), _tolerance(strip))
        hit = (abs(2 * strip.values - whole) <= room) & (abs(strip.values) >= 10)
        votes += np.where(np.isnan(strip.values), 0, hit)
    for row in np.flatnonzero(votes):
        here = sum(not np.isnan(s.values[row]) for s in measures)
        sure = votes[row] >= 2 or _bare(int(row), strips)
        if sure and votes[row] >= 0.5 * here:
            yield int(row), "its numbers are the sums of all the others"


def _far_above(strips: Sequence[Strip], measures: Sequence[Strip]) -> Iterator[tuple[int, str]]:
    """Rows at the end in which a text is missing that all others have, and whose numbers are all
    far above those of the others: totals of another year, of a plan."""
    count = len(strips[0].filled) if strips else 0
    if len(measures) < 2 or count <= 2 * _TAIL:
        return
    for row in range(count - _TAIL, count):
        here = [s for s in measures if not np.isnan(s.values[row])]
        above = [np.nanmax(s.values[: count - _TAIL], initial=-np.inf) for s in here]
        far = [s.values[row] > 3 * high > 0 for s, high in zip(here, above, strict=True)]
        if len(far) > 1 and all(far) and _bare(row, strips):
            yield row, "its numbers are far above all others"


def _bare(row: int, strips: Sequence[Strip]) -> bool:
    """Whether columns of text that are filled elsewhere are empty in a row."""
    texts = [s for s in strips if s.texts and not s.numeric]
    return any(not s.filled[row] and s.filled.mean() > 0.9 for s in texts)


def _sums_of_siblings(
    strips: Sequence[Strip], measures: Sequence[Strip]
) -> dict[tuple[str, str], str]:
    """Values of a column whose rows are the sums, or the means, of the rows of other values, group
    by group of the other columns: `Both sexes` beside Male and Female, North beside its towns,
    whatever the words. The others' first rows stand side by side."""
    pd = importlib.import_module("pandas")
    found: dict[tuple[str, str], str] = {}
    rooms = [_tolerance(measure) * len(measure.values) ** 0.5 for measure in measures]
    for strip in strips:
        count = np.count_nonzero(np.bincount(strip.codes + 1)[1:])
        if strip.numeric or not 3 <= count <= _MEMBERS or len(strip.codes) < 2 * count:
            continue
        codes, before = strip.codes.copy(), -1
        while before < len(found):  # a country may be the sum of regions that are sums themselves
            before, kept, places = len(found), codes >= 0, np.full(len(codes), -1)
            places[kept], order = pd.factorize(codes[kept])
            first, end = np.triu_indices(len(order) + 1, 2 if len(codes) <= _ROWS else len(order))
            for measure, least in zip(measures, rooms, strict=True):
                sums = np.bincount(places + 1, measure.weights, len(order) + 1)[1:]
                added = np.append(0, np.cumsum(sums))
                for place, own in enumerate(sums.tolist()):
                    inside = (first <= place) & (place < end)
                    whole, many = added[end] - added[first] - inside * own, end - first - inside
                    rounded = least or min(0.5 * len(codes) ** 0.5, 1e-4 * abs(own))
                    room = max(1e-9 * abs(added).max(), rounded)
                    apart = np.ptp(sums) > 1e-9 * abs(own) > 0
                    near = (abs(whole - own) <= room) | (abs(whole - own * many) <= room * many)
                    for block in np.flatnonzero(near & (many > 1) & apart)[:2].tolist():
                        mine = places == place
                        others = (first[block] <= places) & (places < end[block]) & ~mine
                        if what := _by_groups(strip, mine, others, measure, strips):
                            text = strip.texts[int(order[place])]
                            why = f"{text!r} in {strip.name!r} (the {what} of others)"
                            found.setdefault((strip.name, text), why)
                            codes[mine] = -1
                            break
    return found


def _by_groups(
    strip: Strip, mine: Array, others: Array, measure: Strip, strips: Sequence[Strip]
) -> str:
    """Whether, in each group of the other columns, the rows of a value are the sum of the others,
    or their mean: `sum`, `mean` or nothing. Few or small numbers tell nothing, but where the others
    are all that there are; nor do means of equal ones. Sums may be off by what was rounded."""
    keys = np.zeros(len(strip.codes), dtype=int)
    for other in sorted(strips, key=lambda s: s.numeric):  # texts leave the smallest groups
        if other is measure or (not other.numeric and len(set(other.codes[mine])) == 1):
            continue
        if other.texts and not other.numeric:
            part = other.codes
        elif other.numeric and set(other.values[mine]) == set(other.values[others]):
            part = np.unique(other.values, return_inverse=True)[1]
        else:
            continue
        keys = np.unique(keys * (int(part.max()) + 2) + part + 1, return_inverse=True)[1]
        most = np.minimum(np.bincount(keys, mine), np.bincount(keys, others) // 2)
        if most.sum() < 3:  # smaller groups hold no more
            return ""
    own, rows = np.bincount(keys, mine * measure.weights), np.bincount(keys, others)
    rest, squares = (np.bincount(keys, others * measure.weights**n) for n in (1, 2))
    both = (np.bincount(keys, mine) > 0) & (rows > 1)
    rest, rows, own = rest[both], rows[both], own[both]
    room = (_tolerance(measure) or 0.5) * (rows + 1)
    told = np.log2(np.maximum(1, abs(own) / (2 * room))).sum() >= _BITS and len(set(own)) > 2
    if len(own) < 3 or not own.any() or not (told or (mine | others).all()):
        return ""
    room = np.maximum(1e-9 * abs(own), room if told else _tolerance(measure))
    if (abs(own - rest) <= room).mean() >= _KEYS:
        return "sum"
    varied = (squares[both] / rows - (rest / rows) ** 2 > 1e-9 * own**2).sum() > 2
    varied &= (np.diff(measure.numbers) <= 0).any()  # no numbers of rows
    near = abs(own - rest / rows) <= np.maximum(1e-9 * abs(own), 2 * _tolerance(measure))
    return "mean" if told and varied and near.mean() >= _KEYS else ""
