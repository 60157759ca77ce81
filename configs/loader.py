"""Settings from frozen dataclasses, strict YAML and dotted overrides such as `rl.lr=3e-5`.

Layers, later wins: the class's defaults, the YAML file, the overrides. Within a layer a `preset`
is applied first, so `rl.preset=dare` on the command line replaces what the file says and a
further `rl.lr=1e-5` changes the preset. Every mistake is a `ConfigError` naming where it stands;
for a mistyped setting it says which was probably meant: other trainers' words, and near spellings.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import inspect
import json
import math
import sys
import types
import typing
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import (
    MISSING,
    Field,
    asdict,
    dataclass,
    field,
    fields,
    is_dataclass,
    make_dataclass,
)
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast

import yaml

from assay.errors import TaskError
from assay.syntax import parse_python

T = TypeVar("T")
Values = dict[str, Any]


class ConfigError(TaskError):
    """A setting that cannot be used; the message names the file (or command line) and the key."""


def within(default: Any, least: float, most: float | None = None, **marks: Any) -> Any:
    """A field whose number, where it is not None, is `least` or more, and `most` at most."""
    return field(default=default, metadata={"least": least, "most": most, **marks})


def locked(default: Any, least: float | None = None, most: float | None = None) -> Any:
    """A field whose value a resumed run must not change, with the bounds of `within`."""
    return field(default=default, metadata={"locked": True, "least": least, "most": most})


def fitted() -> Any:
    """A locked number that is fitted to the data: 0, which may be written `auto`, until it is."""
    return within(0, 0, locked=True, auto=True)


@dataclass(frozen=True)
class Section:
    """Settings that belong together. Raises `ValueError` for a number beyond its field's bounds,
    naming the field, what it is and what to set; the loader adds where it stands."""

    def __post_init__(self) -> None:
        for f in fields(self):
            least, most = f.metadata.get("least"), f.metadata.get("most")
            value = getattr(self, f.name)
            if (
                value is None
                or least is None
                or least <= value <= (value if most is None else most)
            ):
                continue
            if most == 1:
                raise ValueError(f"{f.name}={value} is not a share; set a number from 0 to 1")
            if most is not None:
                raise ValueError(f"{f.name}={value}: set {least:g} to {most:g}")
            raise ValueError(f"{f.name}={value} is too small; set {least:g} or more")


# A locked field of nested settings whose names the schema does not know: a plain dict. Who knows
# them checks each part with `read_section`.
OPEN: Mapping[str, Any] = {"locked": True, "open": True}


def to_dict(config: Any) -> dict[str, Any]:
    """Plain JSON data of a config, nested, in field order."""
    return json.loads(json.dumps(asdict(config), default=str))


def config_hash(config: Any) -> str:
    """16 hexadecimal digits that depend on the values only."""
    text = json.dumps(to_dict(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def locked_difference(old: Mapping[str, Any] | Any, new: Any) -> list[str]:
    """Dotted names of locked fields in which `new` differs from `old` (a config or its dict)."""
    before = to_dict(old) if is_dataclass(old) else cast("Mapping[str, Any]", old)
    now, found = to_dict(new), list[str]()
    also: tuple[str, ...] = getattr(new, "also_locked", tuple)()  # where other values decide
    for f in fields(new):
        value = getattr(new, f.name)
        if is_dataclass(value):
            names = locked_difference(before.get(f.name) or dict[str, Any](), value)
            found += [f"{f.name}.{name}" for name in names]
        elif f.metadata.get("open"):
            old_leaves, new_leaves = _leaves(before.get(f.name), f.name), _leaves(value, f.name)
            names = old_leaves.keys() | new_leaves.keys()
            found += sorted(
                n for n in names if old_leaves.get(n, _MISSING) != new_leaves.get(n, _MISSING)
            )
        elif not (f.metadata.get("locked") or f.name in also):
            continue
        elif before.get(f.name, _MISSING) != now[f.name]:
            found.append(f.name)
    return found


_MISSING = object()


def _leaves(value: Any, prefix: str) -> dict[str, Any]:
    """Dotted name → value of every setting in nested mappings."""
    if not isinstance(value, Mapping):
        return {} if value is None else {prefix: value}
    found: dict[str, Any] = {}
    for name, inner in cast("Mapping[str, Any]", value).items():
        found |= _leaves(inner, f"{prefix}.{name}")
    return found


# --- YAML files and overrides -----------------------------------------------------------------


def read_section(cls: type[T], values: Mapping[str, Any], where: str, prefix: str) -> T:
    """An instance of the dataclass `cls` from plain `values`, its defaults for the rest.

    Raises `ConfigError` naming `where` and the setting under its dotted `prefix`.
    """
    checked: Values = {}
    _apply(cls, cls, checked, values, where, prefix)
    return cast(T, _build(cls, checked, where, prefix))


def load(cls: type[T], path: str | Path | None = None, overrides: Sequence[str] = ()) -> T:
    """An instance of `cls` from defaults, then the YAML file at `path`, then `key=value` texts."""
    values: Values = {}
    _expand_default_presets(cls, values)
    if path is not None:
        _apply(cls, cls, values, read_yaml(Path(path)), str(path), "")
    for text in _presets_first(overrides):
        _apply(cls, cls, values, _parse_override(text), "command line", "")
    places = ([str(path)] if path is not None else []) + (["command line"] if overrides else [])
    return cast(T, _build(cls, values, " + ".join(places) or "defaults", ""))


def given_values(settings: type | Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """The settings that `key=value` words name, each of its type: those of a dataclass, or types by
    name.

    A dataclass's own rules are not asked: they hold for the whole, defaults included.
    """
    if isinstance(settings, type):
        settings = {f.name: _hints(settings)[f.name] for f in _fields(settings)}
    kinds = [(name, kind, field(default=None)) for name, kind in settings.items()]
    read = load(cast("type[Any]", make_dataclass("Settings", kinds)), None, words)
    given = dict.fromkeys(word.partition("=")[0].strip() for word in words)
    return {name: getattr(read, name) for name in given}


def dump(config: Any, path: str | Path | None = None) -> str:
    """The resolved config as YAML that `load` reads back; also written to `path` if given."""
    text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _fields(cls: type) -> tuple[Field[Any], ...]:
    return fields(cast(Any, cls))


def section_of(cls: type, name: str) -> type | None:
    """The dataclass of a nested section, or None for a plain setting."""
    kind = _hints(cls)[name]
    return kind if is_dataclass(kind) and isinstance(kind, type) else None


def dotted_names(cls: type, prefix: str = "") -> list[str]:
    """Every setting of `cls` by its full dotted name, sections before their settings."""
    names: list[str] = []
    for f in _fields(cls):
        names.append(prefix + f.name)
        inner = section_of(cls, f.name)
        if inner is not None:
            names += dotted_names(inner, f"{prefix}{f.name}.")
    return names


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice (PyYAML silently takes the last)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = cast(Any, self.construct_object(key_node, deep=True))  # pyright: ignore[reportUnknownMemberType]
            if not isinstance(key, Hashable):
                continue  # super says so
            if key in seen:
                line = key_node.start_mark.line + 1
                raise ConfigError(f"line {line}: key {key!r} is given twice; keep one")
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Mapping[str, Any]:
    """The top level of a file of settings. Raises `ConfigError`."""
    try:
        data: Any = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give a YAML file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    except ConfigError as error:
        raise ConfigError(f"{path} {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: not valid YAML: nested too deep") from None
    except ValueError as error:  # a number or date that there is none of
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: wanted `key: value` lines, got {type(data).__name__}")
    return cast("dict[str, Any]", data)


def _presets_first(overrides: Sequence[str]) -> list[str]:
    """`rl.lr=1e-5 rl.preset=dare` means the preset, then the rate, in either order."""
    return sorted(overrides, key=lambda text: not text.partition("=")[0].endswith("preset"))


def _parse_override(text: str) -> Mapping[str, Any]:
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError(f"command line: {text!r} is not a setting; write key=value, as in seed=1")
    value: Any = _Text(raw)
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


class _Text(str):
    """The right side of an override: what it means depends on the type of its field."""


def _presets(cls: type) -> dict[str, Values]:
    return cast("dict[str, Values]", cls.__dict__.get("PRESETS", {}))


def _expand_default_presets(cls: type, values: Values) -> None:
    for f in _fields(cls):
        inner = section_of(cls, f.name)
        if inner is not None:
            _expand_default_presets(inner, values.setdefault(f.name, {}))
        elif f.name == "preset" and f.default in _presets(cls):
            values.update(_presets(cls)[f.default])


def _apply(
    root: type, cls: type, values: Values, layer: Mapping[str, Any], where: str, prefix: str
) -> None:
    """Check one layer against `cls` and merge it into `values`."""
    known = {f.name for f in _fields(cls)}
    open_names = {f.name for f in _fields(cls) if f.metadata.get("open")}
    auto_names = {f.name for f in _fields(cls) if f.metadata.get("auto")}
    for key in sorted(layer, key=lambda k: k != "preset"):
        name = f"{prefix}{key}"
        if key not in known:
            meant = _meant(dotted_names(root), prefix, str(key))
            raise ConfigError(f"{where}: unknown key {name}; {meant}")
        inner, value = section_of(cls, key), layer[key]
        if key in open_names:
            _merge(values.setdefault(key, {}), value, f"{where}: {name}")
        elif key in auto_names and value == "auto":
            values[key] = 0
        elif inner is None:
            values[key] = _convert(value, _hints(cls)[key], f"{where}: {name}")
            if key == "preset":
                values.update(_presets(cls).get(values[key], {}))
        elif value is None or isinstance(value, Mapping):
            section = cast("Mapping[str, Any]", value or {})
            _apply(root, inner, values.setdefault(key, {}), section, where, f"{name}.")
        else:
            some = f"{name}.{_fields(inner)[0].name}"
            raise ConfigError(f"{where}: {name} is a section; set a key in it: {some}")


def _merge(values: Values, layer: Any, where: str) -> None:
    """Merge nested mappings into `values`; the right side of an override is read as YAML."""
    layer = _yaml_value(layer) if isinstance(layer, _Text) else layer
    if layer is None:
        return
    if not isinstance(layer, Mapping):
        raise ConfigError(f"{where} is a section; set a key in it")
    for key, value in cast("Mapping[str, Any]", layer).items():
        if isinstance(value, Mapping):
            inner = values.setdefault(str(key), {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{where}.{key} is a value and a section; keep one")
            _merge(cast("Values", inner), value, f"{where}.{key}")
        elif isinstance(value, _Text):
            values[str(key)] = _yaml_value(value)
        else:
            values[str(key)] = value


def _yaml_value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return str(text)


def _build(cls: type, values: Values, where: str, prefix: str) -> Any:
    arguments = dict(values)
    for f in _fields(cls):
        inner = section_of(cls, f.name)
        if inner is not None:
            below = f"{prefix}{f.name}."
            arguments[f.name] = _build(inner, values.get(f.name, {}), where, below)
    try:
        return cls(**arguments)
    except ConfigError:
        raise
    except ValueError as error:  # the section's own cross-field rules
        raise ConfigError(f"{where}: {prefix}{error}") from None


def _convert(value: Any, kind: Any, where: str) -> Any:
    """`value` as `kind`, or a ConfigError: got, wanted."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None or (isinstance(value, _Text) and value.lower() in ("null", "none")):
            return None
        return _convert(value, next(k for k in inner if k is not type(None)), where)
    if origin is Literal:
        return _choice(value, inner, where)
    if kind is str and isinstance(value, str):
        return str(value)
    if isinstance(value, _Text):
        value = _yaml_value(value)
    if origin is tuple:
        return _tuple(value, inner, where)
    if kind is float:
        number = _float(value)
        if number is not None:
            return number
    elif isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    wanted = {
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "str": "text",
    }.get(kind.__name__, kind.__name__)
    raise ConfigError(f"{where}={_show(value)} is {type(value).__name__}; wanted {wanted}")


def _choice(value: Any, choices: tuple[Any, ...], where: str) -> Any:
    if value is False and "off" in choices:  # YAML 1.1 reads a bare `off` as false
        return "off"
    if value in choices:
        return choices[choices.index(value)]
    raise ConfigError(f"{where}={_show(value)}; wanted one of {', '.join(map(str, choices))}")


def _tuple(value: Any, inner: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ConfigError(f"{where}={_show(value)}; wanted a list such as [a, b]")
    items = cast("list[Any]", value)
    if inner[-1] is not Ellipsis and len(items) != len(inner):
        raise ConfigError(f"{where} has {len(items)} entries; wanted {len(inner)}")
    kinds = [inner[0]] * len(items) if inner[-1] is Ellipsis else inner
    return tuple(
        _convert(v, k, f"{where}[{i}]") for i, (v, k) in enumerate(zip(items, kinds, strict=True))
    )


def _float(value: Any) -> float | None:
    """A finite float from a number, or from text as PyYAML leaves `1e-6`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _show(value: Any) -> str:
    text = repr(str(value)) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


@cache
def _docs_in(source: str) -> dict[str, dict[str, str]]:
    """Class → field → the text under it, of a module's source."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.walk(parse_python(source)):
        if isinstance(node, ast.ClassDef):
            docs = found.setdefault(node.name, {})
            for pair in pairwise(node.body):
                match pair:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        docs[name] = " ".join(text.split())
                    case _:
                        pass
    return found


def field_docs(cls: type) -> dict[str, str]:
    """Field → the text under it, on one line."""
    above = cls.__mro__[1]
    inherited = field_docs(above) if is_dataclass(above) else {}
    source = inspect.getsource(sys.modules[cls.__module__])
    return inherited | _docs_in(source).get(cls.__name__, {})


def dotted_docs(cls: type, prefix: str = "") -> dict[str, tuple[str, str]]:
    """Every setting by its full dotted name → (default as written on a command line, meaning)."""
    docs, found = field_docs(cls), dict[str, tuple[str, str]]()
    for f in _fields(cls):
        inner = section_of(cls, f.name)
        if inner is not None:
            found |= dotted_docs(inner, f"{prefix}{f.name}.")
        else:
            value = "" if f.default is MISSING else shown(f.default)
            if f.metadata.get("auto") and not f.default:
                value = "auto"
            found[prefix + f.name] = (value, docs.get(f.name, ""))
    return found


def settings_help(cls: type, without: str = "-") -> str:
    """Every setting with its default and meaning, as it stands at the end of a command's help, but
    for those whose names begin with `without`."""
    lines = [
        f"  {name}={value}\n      {doc}"
        for name, (value, doc) in dotted_docs(cls).items()
        if not name.startswith(without)
    ]
    return "\n".join(["settings, with their defaults:", *lines])


def shown(value: Any) -> str:
    """A default as one would write it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(shown(v) for v in cast("tuple[Any, ...]", value)) + "]"
    return str(value)


# --- near misses

# our settings for one thing, of which a run has one or more → the words of other trainers for it
_OTHERS: dict[tuple[str, ...], str] = {
    ("sft.betas", "rl.betas"): "adam_beta1 adam_beta2",
    ("rl.kl_coef",): "beta kl_beta kl_loss_coef kl_penalty",
    ("rl.clip_low", "rl.clip_high"): "clip_range clip_ratio cliprange epsilon",
    ("data",): "dataset train_file",
    ("validation",): "eval_file val_data val_file validation_file",
    ("eval.every",): "eval_steps",
    ("engine.micro_tokens", "sft.batch_size"): "gradient_accumulation_steps",
    ("rl.rollouts_per_prompt",): "group_size n_generations n_rollouts num_generations "
    "num_rollouts num_samples rollout_n rollouts samples_per_prompt",
    ("sft.lr", "rl.lr"): "learning_rate",
    ("model.lora_rank",): "lora_r",
    ("rl.schedule",): "lr_scheduler_type",
    ("sft.warmup", "rl.warmup"): "lr_warmup_steps warmup_ratio warmup_steps",
    ("rl.max_new_tokens",): "max_completion_length max_response max_response_length max_tokens",
    ("sft.grad_clip", "rl.grad_clip"): "max_grad_norm",
    ("engine.slots",): "max_num_seqs",
    ("rl.max_length",): "max_prompt max_prompt_length",
    ("sft.max_length", "rl.max_length"): "max_seq_len max_seq_length seq_len sequence_length",
    ("rl.steps", "sft.epochs"): "max_steps num_steps",
    ("model.path",): "model_name model_name_or_path",
    ("sft.epochs",): "num_epochs num_train_epochs",
    ("out",): "output_dir",
    ("sft.batch_size", "engine.micro_tokens"): "per_device_train_batch_size",
    ("rl.mini_batch",): "ppo_mini_batch_size",
    ("rl.save_every", "sft.save_every"): "save_steps",
    ("rl.divide_by_std",): "scale_rewards",
    ("rl.prompts_per_step", "sft.batch_size"): "train_batch_size",
}
TERMS = {word: ours for ours, words in _OTHERS.items() for word in words.split()}
# settings that people expect, and why there is none
_ABSENT: dict[str, str] = {
    "sft.steps": "SFT counts in epochs, there is no sft.steps; set sft.epochs",
    "sft.max_steps": "SFT counts in epochs, there is no sft.max_steps; set sft.epochs",
    **dict.fromkeys(
        ("rl.gold_state", "rl.gold_state_share", "rl.curriculum", "noise"),
        "it won nothing where it was measured (docs/results) and is gone; leave it out",
    ),
    "checkpoint.sft_every": "it is called sft.save_every now",
    "cluster.val_data": "it is called validation now",
    "cluster.val_every": "it is called eval.every now",
    "rl.epochs": "RL counts in steps, there is no rl.epochs; set rl.steps",
    "rl.batch_size": (
        "a step has rl.prompts_per_step · rl.rollouts_per_prompt rollouts, an optimiser step "
        "rl.mini_batch prompts; set those"
    ),
}


def _meant(names: Sequence[str], prefix: str, key: str) -> str:
    """What to write for the unknown `prefix + key`, of the settings `names` (full dotted names)."""
    leaf, dotted = key.lower(), f"{prefix}{key}".lower()
    if dotted in _ABSENT and any(n.startswith(prefix) for n in names):
        return _ABSENT[dotted]
    return f"did you mean {' or '.join(_nearest(names, prefix, leaf)[:3])}?"


def _nearest(names: Sequence[str], prefix: str, leaf: str) -> list[str]:
    if terms := [n for n in TERMS.get(leaf, ()) if n in names]:
        return [n for n in terms if prefix and n.startswith(prefix)] or terms
    siblings = {n.removeprefix(prefix): n for n in names if n.startswith(prefix)}
    if near := difflib.get_close_matches(leaf, siblings, 1, cutoff=0.6):
        return [siblings[near[0]]]
    if same := [n for n in names if n.rsplit(".", 1)[-1] == leaf]:
        return same
    leaves = {n.rsplit(".", 1)[-1]: n for n in reversed(names)}
    if near := difflib.get_close_matches(leaf, leaves, 1, cutoff=0.6):
        return [leaves[near[0]]]
    return difflib.get_close_matches(prefix + leaf, names, 1, cutoff=0.0)
