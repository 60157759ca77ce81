"""Which columns of a table people ask for: what its source models, and outcomes by their words."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from data_gen.dare.words import phrase, plain_about

MODELLED, OUTCOME, PERHAPS, OTHER = 0, 1, 2, 3
TOO_LITTLE = "too little says that a column is what is asked for (--less-sure asks all the same)"

_FIT = re.compile(
    r"\b(?:lm|glm|gam|aov|nls|lme|lmer|glmer|gls|plm|rlm|loess|rpart|ctree|cforest|lda|qda|polr|"
    r"multinom|tobit|hurdle|zeroinfl|geeglm|gee|lmrob|glmrob|nlme|ivreg|betareg|randomForest|rq|"
    r"ltsReg|drm|glm\.nb|mlogit|feols|lm_robust|linear_reg|glmmPQL|dynlm)\(\s*"
    r"(?:(?:formula|fixed|model|x)\s*=\s*)?([^~,;=#\n]{1,60})~"
)
_RESPONSE = re.compile(
    r"\b(response|dependent|outcome)( variable| measure)?\b|\bto (be )?predict", re.I
)
_NO_RESPONSE = re.compile(r"\bresponse (rate|time)s?\b|\bin response\b|\bresponses? to\b", re.I)
_STRONG = re.compile(
    r"\b((sale|selling|sold|house|home|auction|retail|resale)\w* (price|value)|"
    r"price (of (a |the )?(house|home|car|diamond|computer)|in (us |singapore )?\$?dollars?)|"
    r"prices?$|wages?\b(?! rate| index)|salar(y|ies)|earnings?\b|earns\b|yields?\b|harvest|"
    r"gross domestic product|gdp per|gdp$|gross (state|national) product|(test|exam|math\w*|"
    r"reading|science|achievement|average|final|overall|total|course|"
    r"evaluation) \w* ?(scores?|grades?)|scores?$|grade point|gpa$|achievement|survived?\b|"
    r"survival|died|death\b|dead\b|malignan\w+|tumou?r type|diabet\w+|diagnos\w+|species|"
    r"ozone|pm2|nox\b|concentration|miles per gallon|mpg$|fuel (economy|consumption)|"
    r"ridership|(crime|murder|robbery|burglary|assault|theft|larceny|arrest|mortality|fatality|"
    r"death|dropout|graduation|unemployment|"
    r"accident|infection|birth|fertility|turnover|success|pass) rate|murders per|"
    r"life expectancy|infant (mortality|deaths)|birth ?weight|blood pressure|cholesterol|"
    r"glucose|body fat|strength$|compressive|bilirubin|default(ed)?$|churn(ed)?$|spam$|"
    r"purchas(ed?|ing)\b|takeup|voted?\b|voting|vote$|turnout|approved?|denied|accepted\b|"
    r"hired|callback|admitted|released|labou?r[- ]force|lfp$|employment status|(doctor|"
    r"physician|hospital|office) visits|number of visits|visits$|length of stay|days absent|"
    r"absen\w+|arrival delay|delay$|time to (deliver|complete)\w*|finishing time|damage|"
    r"health (status|insurance)|self[- ]rated? health|smoker$|smoking status|brand|"
    r"(travel|transport\w*|commut\w*) mode|mode of (travel|transport\w*)|"
    r"value of [^.]{0,30}(homes?|houses?|housing)|choice|chosen|consumption|demand|output$|"
    r"production$|invest(ment)?$|expenditures?$|births$|fatalities|deaths$|kills|injur\w+|"
    r"biomass|abundance|fruits|eggs|seeds|mass$|body mass\w*|satisfaction|happiness)\b",
    re.I,
)
_WORDS = re.compile(
    r"\b(price|cost|wage|income|salar(y|ies)|earning|revenue|profit|sales?\b|expenditure|spending|"
    r"expense|charge|consumption|demand|fare|tip\b|bill\b|value of|gross|gdp|gnp|gsp|output|yield|"
    r"production|productivity|investment|score|grade|gpa|points?\b|mark\b|achievement|performance|"
    r"result|rating|evaluation|quality|satisf\w+|happiness|approv\w+|accept\w+|den(y|ied)|"
    r"admit(ted)?\b|"
    r"default|deny|churn|fraud|spam|purchas|bought|buys?\b|subscri|click|callback|hired|"
    r"surviv|died|dead|death|mortal|fatal|kill|alive|malign|benign|tumou?r|cancer|diagnos|diabet|"
    r"disease|infect|sick|illness|health|pain|symptom|blood pressure|cholesterol|glucose|bmi\b|"
    r"body mass|body fat|birth ?weight|weight|height|length|width|mass\b|diameter|volume|"
    r"species|variety|concentration|ozone|emission|pollut|temperature|temp\b|rain|"
    r"precipit|wind|humid|flow|density|strength|hardness|speed|accelerat|mpg|mileage|efficien|"
    r"crime|murder|assault|robbery|arrest|violent|accident|injur|crash|damage|delay|late\b|"
    r"vote|turnout|support|attitude|opinion|trust|particip|employ|unemploy|labou?r force|union|"
    r"insur|smok|drink|alcohol|drug use|attend|absen|pass(ed)?\b|fail|complet|dropout|graduat|"
    r"win(s|ner)?\b|won\b|goals?\b|runs?\b|hits?\b|life expectancy|lifeexp|fertility|birth rate|"
    r"growth|"
    r"return|visits?\b|count\b|rate\b|reaction|response|amount|hours worked|"
    r"working hours|abundance|biomass|richness|calor|fat\b|protein|attack|rank\b|loss|claims?\b|"
    r"time (to|taken|until)|duration|finishing time|choice\b|chosen|ridership|passengers|births\b)",
    re.I,
)
_NAMED = re.compile(
    r"^(class|target|label|outcome|response|result|y|diagnosis|dx|dep_?var|disease|quality)$", re.I
)
_NEVER = re.compile(
    r"\b(father|mother|parent|husband|wife|spous(e|al)|partner|coapp\w*|sibling|mom|dad)('?s)?\b|"
    r"\bnumber of "
    r"(rows?|observations?|trials?|subjects?|children|kids|persons?|people|members?|siblings?|"
    r"adults|"
    r"weeks?|days|months|years|groups?|plots?|replicat\w+|surveys?|times|rooms|bed\w*|bath\w*|"
    r"cylinders|"
    r"gears|doors|carburetors)\b|\byears of\b|\bage\b|\bdummy\b",
    re.I,
)


def modelled(about: str, columns: Sequence[str]) -> frozenset[str]:
    """Columns that stand left of `~` in a model of the source's own examples, also under one
    function (`lm(log(price) ~ size)`)."""
    return frozenset(target for target, _ in _models(about, columns))


def explained_by(target: str, about: str, columns: Sequence[str]) -> frozenset[str]:
    """Columns that stand right of `~` where the source's own examples model `target`; all of them
    where one says `.`."""
    found: set[str] = set()
    for name, right in _models(about, columns):
        if name == target:
            words = set(re.findall(r"[A-Za-z.][\w.]*", right))
            found |= {c for c in columns if c in words or "." in words}
    return frozenset(found - {target})


def _models(about: str, columns: Sequence[str]) -> list[tuple[str, str]]:
    """(the column on the left of `~`, the text on its right) of each model in the examples."""
    found: list[tuple[str, str]] = []
    for hit in _FIT.finditer(about):
        plain = re.sub(r"^[\w.]+\((.*)\)$", r"\1", hit[1].strip()).strip()
        plain = re.sub(r"\s*[-+*/]\s*[\d.]+$|\s*[<>=]+\s*[\d\"'\w.]+$", "", plain)
        plain = plain.rpartition("$")[2].strip(" `()")
        if plain in columns:
            found.append((plain, _to_its_end(about[hit.end() : hit.end() + 400])))
    return found


def _to_its_end(text: str) -> str:
    """The text up to the comma or bracket that ends an argument."""
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0 or (letter == "," and not depth):
            return text[:i]
    return text.split("\n", 1)[0]


def rank(name: str, text: str, responses: Collection[str], title: str = "") -> int:
    """How much speaks for a column as what is asked for, the least the most: its source models it,
    calls it the response or names it in the title; its words are those of an outcome; they may be;
    nothing."""
    if name in responses or _NAMED.match(name):
        return MODELLED
    if _RESPONSE.search(text) and not _NO_RESPONSE.search(text):
        return MODELLED
    said = phrase(text) or ("" if len(text) > 90 else text)
    called = split(name)
    words = [hit[0].lower() for one in (said, called) for hit in _WORDS.finditer(one)]
    if _NEVER.search(f"{called} {said}") or not (words or _STRONG.search(f"{said}\n{called}")):
        return OTHER
    if any(len(word) >= 4 and word in title.lower() for word in words):
        return MODELLED
    return OUTCOME if _STRONG.search(said) or _STRONG.search(called) else PERHAPS


def split(name: str) -> str:
    """The words of a name: `birthWeight` and `birth_weight` are `birth Weight`."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|[._\-]+|(?<=[A-Za-z])(?=\d)", " ", name)
    return " ".join(apart.split())


def best(
    free: Sequence[str],
    columns: Sequence[str],
    texts: Mapping[str, str],
    about: str,
    title: str = "",
) -> dict[str, int]:
    """The columns that are free to be asked for and have something for them, each with its rank.
    Where nothing describes a table, nobody can tell: then the rest as well, as the last."""
    responses = modelled(about, columns)
    ranks = {n: rank(n, texts.get(n, ""), responses, title) for n in free}
    told = bool(about.strip() or texts)
    return {name: found for name, found in ranks.items() if found < OTHER or not told}


def outcomes_beside(
    target: str,
    columns: Sequence[str],
    texts: Mapping[str, str],
    about: str,
    title: str = "",
) -> frozenset[str]:
    """Other columns that are outcomes as well, less those that the source explains `target` by.

    What a table measures as outcomes mostly comes about together: deaths in the front and in the
    rear, the scores of both teams. One beside the other asks for little, and often gives it.
    """
    given = explained_by(target, about, columns)
    responses = modelled(about, columns)
    others = [c for c in columns if c != target and c not in given]
    return frozenset(c for c in others if rank(c, texts.get(c, ""), responses, title) <= OUTCOME)


def invented(title: str, about: str) -> bool:
    """Whether a source says that nobody measured its rows: they were simulated or made up."""
    return bool(_INVENTED.search(f"{title}. {plain_about(about)[:1500]}"))


_INVENTED = re.compile(
    r"\b(simulated|fake|hypothetical|synthetic|fictitious|fictional|toy|made[- ]up|artificial)\b"
    r"(\W+\w+){0,3}?\W+(data\w*|examples?|sample|survey|api|cases|results)\b|"
    r"\bdata\w*\b[^.]{0,60}\b(simulated|made up|artificially|fictitious|hypothetical|fabricated|"
    r"randomly generated)\b",
    re.I,
)
