"""`assay tasks NAME --family FILE.py`: tasks of a family that brings its own builder.

The builder's keyword arguments are the settings. Every task is checked before anything is written:
its gold scores 1, an empty answer 0, ids occur once, and two splits share no content.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Union, cast

from assay.console import Parser, add_family, add_out, add_seed, licences_of, near_miss, parser
from assay.family import Family, all_families, family_named, use_families
from assay.task import Answer, Task, TaskError, json_line
from configs.loader import ConfigError, given_values
from data_gen.certificate import Input
from data_gen.pipeline import Made, finish
from data_gen.splits import Wanted, add_splits, read_list, resplit
from rewards.audit_laws import (
    Broken,
    empty_law,
    gold_law,
    gold_of,
    scored,
    shared_content,
    split_law,
)

_SPLIT = re.compile(r"[\w-]+(\.[\w-]+)*")


def build(
    family: Family, seed: int, settings: Mapping[str, Any], wanted: Wanted | None = None
) -> Made:
    """Run the family's builder, take out what is `wanted` for other splits, and check all of it.
    Raises `TaskError` in one sentence."""
    made = _called(family, seed, settings)
    splits = Made()
    splits.tally = made.tally
    for name, tasks in (resplit(family, made, wanted, seed) if wanted else made).items():
        splits[name] = [_as_read(task, family, name) for task in tasks]
    seen: dict[str, str] = {}
    for split, tasks in splits.items():
        for task in tasks:
            if task.id in seen:
                raise TaskError(
                    f"two tasks have the id {task.id!r} (in splits {seen[task.id]} and {split}); "
                    "give each its own; nothing was written"
                )
            seen[task.id] = split
    for task in (task for tasks in splits.values() for task in tasks):
        _refuse([*gold_law(task, scored(task, gold_of(family, task)))])
        _refuse([*empty_law(task, scored(task, Answer()))])
    _refuse([replace(b, where=f"splits {b.where}") for b in split_law(splits)])
    return splits


def _refuse(broken: Sequence[Broken]) -> None:
    if broken:
        raise TaskError(f"{broken[0]}; nothing was written")


def _called(family: Family, seed: int, settings: Mapping[str, Any]) -> Made:
    """What `build` returned, as lists, its shape checked; and what became of the drafts, where it
    is built by the skeleton (`data_gen.pipeline`)."""
    builder = f"build of family {family.name}"
    if family.build is None:
        raise TaskError(
            f"family {family.name} builds no tasks; give Family(build=…) a function "
            "build(seed, **settings) that returns {'train': [Task, …], 'heldout': […]}"
        )
    try:
        made: Any = family.build(seed, **settings)
        splits = Made()
        splits.tally = getattr(made, "tally", None) or splits.tally
        if isinstance(made, Mapping):
            made = {name: list(tasks) for name, tasks in made.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    except TaskError as error:
        raise TaskError(f"{builder}: {error}; nothing was written") from None
    except (Exception, SystemExit) as error:
        raise TaskError(
            f"{builder} raised {type(error).__name__}: {error}; nothing was written"
        ) from None
    if not isinstance(made, dict):
        got = type(made).__name__
        raise TaskError(f"{builder} returned {got}; return {{'train': [Task, …], 'heldout': […]}}")
    splits.update(cast("dict[str, list[Task]]", made))
    for name in cast("dict[Any, Any]", made):
        if not isinstance(name, str) or not _SPLIT.fullmatch(name) or name == "certificate":
            raise TaskError(f"{builder}: split {name!r} is no file name; use letters and digits")
    if not any(splits.values()):
        raise TaskError(f"{builder} gave no task; nothing was written")
    return splits


def _as_read(task: Any, family: Family, split: str) -> Task:
    """The task as a reader of its file meets it, its split and origin filled in."""
    builder = f"build of family {family.name}"
    if not isinstance(task, Task):
        raise TaskError(f"{builder}: split {split} holds {type(task).__name__}; wanted a Task")
    if task.family != family.name:
        raise TaskError(
            f"{builder}: task {task.id} says family {task.family!r}; wanted {family.name!r}"
        )
    meta = {**task.meta, "family_origin": family.origin}
    try:
        line = json_line(replace(task, split=split, meta=meta).to_json())
    except (TypeError, ValueError, RecursionError) as error:
        raise TaskError(
            f"{builder}: task {task.id} cannot be written as JSON ({error}); use text, numbers, "
            "lists and dicts in its gold and meta"
        ) from None
    return Task.from_json(json.loads(line), f"{builder}: task {task.id}")


def origin_hash(family: Family) -> str | None:
    """SHA-256 of the file that the family's builder (else its scorer) stands in."""
    try:
        own = inspect.unwrap(family.build or family.score)
        path = inspect.getsourcefile(type(own.__self__) if inspect.ismethod(own) else own)
    except TypeError:
        return None
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else None


def inputs_of(built: Made) -> list[Input]:
    """A line for each source of tasks, and for each that gave none."""
    tasks = Counter(
        (str(t.meta.get("source") or f"tasks of {split}"), ", ".join(licences_of(t)))
        for split, own in built.items()
        for t in own
    )
    used = {name for name, _ in tasks}
    idle = [name for name in built.tally.inputs if name not in used]
    return [
        *(Input(name, count, (), licence) for (name, licence), count in tasks.items()),
        *(Input(name, 0, (built.tally.why_none(name),)) for name in idle),
    ]


def main(name: str, argv: Sequence[str]) -> int:
    """Exit status 0. Raises `TaskError` or `ConfigError` for what cannot be built."""
    made = options(name)
    args = made.parse_intermixed_args(argv)
    family = _family(name, args.family)
    shares = {"heldout_share": args.heldout_share, "validation_share": args.validation_share}
    # a builder that divides its sources itself is told; of another's tasks, some are moved
    known = set(inspect.signature(family.build).parameters) if family.build else set[str]()
    told = [f"{n}={share}" for n, share in shares.items() if share is not None and n in known]
    heldout, validation = (None if n in known else share for n, share in shares.items())
    settings = read_settings(family, [*args.settings, *told])
    wanted = Wanted(heldout, validation, read_list(args.heldout))
    built = build(family, args.seed, settings, wanted)
    return finish(
        family.name,
        args.out,
        built,
        {
            pair: {"exact": found.exact, "normalised": found.normalised}
            for pair, found in shared_content(built).items()
        },
        inputs_of(built),
        args.seed,
        tally=built.tally,
        hint="--heldout-share 0.2 --validation-share 0.1 take some of train, by source",
        origin=family.origin,
        sha256=origin_hash(family),
        settings=dict(settings),
        checks={"gold_scores_one": True, "empty_scores_zero": True, "ids_occur_once": True},
    )


def options(name: str) -> Parser:
    made = parser(f"tasks {name}", __doc__, settings="keyword arguments of the family's build")
    add_family(made)
    add_out(made, "folder to write into", required=True)
    add_seed(made)
    none = "as the build gives"
    add_splits(made, "sources of split train", none, none)
    return made


def _family(name: str, specs: Sequence[str]) -> Family:
    given = {family.name for family in use_families(specs)}
    if specs and name not in given and name not in all_families():
        brings = ", ".join(sorted(given))
        raise TaskError(f"no family {name!r}: --family brings {brings}{near_miss(name, [*given])}")
    return family_named(name, "assay tasks")


# --- the builder's keyword arguments as settings: read from `key=value` words, checked by type

_MADE_FROM: dict[Any, Callable[[Any], Any]] = {  # a setting's type: how it is made from a tuple
    list: list,
    set: set,
    frozenset: frozenset,
    Sequence: list,
    Iterable: list,
}


def read_settings(family: Family, words: Sequence[str]) -> dict[str, Any]:
    """Keyword arguments for the family's `build`: its defaults, then `key=value` words.

    Raises `ConfigError` for an unknown key (naming the nearest), a value of another type, and a
    setting without default that is not given.
    """
    parameters = _parameters(family, [word.partition("=")[0].strip() for word in words])
    kinds = _kinds(family, parameters)
    given = [word.partition("=")[0].strip() for word in words]
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in given:
            raise ConfigError(
                f"build of family {family.name}: setting {name} has no default; give {name}=VALUE"
            )
    if not parameters and words:
        raise ConfigError(
            f"command line: {words[0]!r}: build of family {family.name} has no settings"
        )
    read = given_values({name: kind for name, (kind, _) in kinds.items()}, words)
    settings = {name: parameter.default for name, parameter in parameters.items()}
    for name, value in read.items():
        settings[name] = None if value is None else kinds[name][1](value)
    return settings


def _parameters(family: Family, given: Sequence[str]) -> dict[str, inspect.Parameter]:
    """The builder's arguments after the seed; one that takes `**settings` takes any."""
    if family.build is None:
        return {}
    signature = inspect.signature(family.build)
    listed = list(signature.parameters.values())
    if not listed or listed[0].kind in (
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.VAR_KEYWORD,
    ):
        raise TaskError(
            f"family {family.name}: build{signature} takes no seed; write build(seed, **settings)"
        )
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = {p.name: p for p in listed[1:] if p.kind in named}
    if listed[-1].kind is inspect.Parameter.VAR_KEYWORD:
        other = [name for name in given if name.isidentifier() and name not in found]
        found |= {n: inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in other}
    return found


def _kinds(
    family: Family, parameters: Mapping[str, inspect.Parameter]
) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """(type that the loader reads, function from what it read to the argument) of each setting."""
    try:
        hints = typing.get_type_hints(family.build)
    except Exception:  # names that only a type checker knows
        hints = {}
    found: dict[str, tuple[Any, Callable[[Any], Any]]] = {}
    for name, parameter in parameters.items():
        kind = hints.get(name)
        if kind is None:
            kind = _kind_of(parameter.default)
        found[name] = _readable(kind)
    return found


def _kind_of(default: Any) -> Any:
    """A type for an argument without annotation, from its default."""
    if default is None or default is inspect.Parameter.empty:
        return object
    if isinstance(default, list | tuple):
        kinds: set[Any] = {type(item) for item in cast("Sequence[Any]", default)}
        inner: Any = kinds.pop() if len(kinds) == 1 else object
        return list[inner] if isinstance(default, list) else tuple[inner, ...]
    return cast(Any, type(default))


def _same(value: Any) -> Any:
    return value


def _readable(kind: Any) -> tuple[Any, Callable[[Any], Any]]:
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin in (Union, types.UnionType):
        rest = [k for k in inner if k is not type(None)]
        if len(rest) != 1:
            return object, _same
        one, back = _readable(rest[0])
        return one | None, back
    if origin is Path:
        return str, Path
    if origin in _MADE_FROM:
        item = _readable(inner[0])[0] if inner else object
        return tuple[item, ...], _MADE_FROM[origin]
    if origin is tuple:
        return (kind if inner else tuple[object, ...]), _same
    if origin is typing.Literal or kind in (int, float, bool, str):
        return kind, _same
    if origin in (dict, Mapping):
        return dict, _same
    return object, _same
