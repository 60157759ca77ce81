"""Rows in, rows out: one JSON row is checked, executed and answered, and never raises."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, cast

from assay.task import json_line
from rewards.gold.catalog import OPERATORS
from rewards.gold.core import PROFILES, GoldError, Profile, Step, nearest
from rewards.gold.recipe import BoundStep, bind_recipe, run_bound

ROW_FIELDS = ("id", "input_text", "recipe", "profile", "word_list")
STEP_FIELDS = ("operator", "params", "word_list")
_CACHE_LIMIT = 1000


@dataclass
class RowExecutor:
    """Executes rows, remembering checked recipes.

    `recipe` and `profile` apply to rows that carry none of their own; `states` adds the texts
    after each mapper to the answers.
    """

    recipe: list[Any] | None = None
    profile: str = "bench"
    states: bool = False
    _checked: dict[str, tuple[BoundStep, ...]] = field(
        default_factory=dict[str, tuple[BoundStep, ...]]
    )

    def line(self, line: bytes, place: str) -> tuple[bytes, bool]:
        """(answer as one JSON line, whether the row was good) for the line at `place`."""
        row: Any = None
        try:
            row = json.loads(line)
            answer = self.row(row)
            return json_line(answer), True
        except GoldError as error:
            why = str(error)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            why = f"not valid JSON ({error})"
        except RecursionError:
            why = "nested too deeply to read or execute"
        except MemoryError:
            why = "infrastructure: out of memory while executing"
        except Exception as error:  # a library failing on one document must not cost the others
            why = f"executing failed: {type(error).__name__}: {error}"
        return json_line({"id": row_id(row), "error": f"{place}: {why}"}), False

    def row(self, row: object) -> dict[str, Any]:
        """Execute one row. Raises `GoldError` naming the field that is wrong."""
        if not isinstance(row, dict):
            raise GoldError(f"wanted a JSON object, got {type(row).__name__}")
        fields = cast("dict[str, Any]", row)
        text = fields.get("input_text")
        if fields.get("id") is None:
            raise GoldError("field 'id' is missing; every row needs one")
        if not isinstance(text, str):
            hint = nearest("input_text", [f for f in fields if f not in ROW_FIELDS])
            raise GoldError(f"field 'input_text' is {_kind(text)}, wanted a string{hint}")
        done = run_bound(text, self._bound(fields))
        answer: dict[str, Any] = {
            "id": fields["id"],
            "status": done.status,
            "reference_text": done.text,
            "reference_text_full_run": done.full_run_text,
            "trace": done.trace,
        }
        if self.states:
            answer["states"] = done.states
        return answer

    def _bound(self, row: dict[str, Any]) -> tuple[BoundStep, ...]:
        recipe = row.get("recipe", self.recipe)
        profile = row.get("profile") or self.profile
        words = row.get("word_list")
        key = json.dumps([recipe, profile, words])
        if key not in self._checked:
            if len(self._checked) >= _CACHE_LIMIT:
                self._checked.clear()
            self._checked[key] = bind_recipe(read_steps(recipe, words), read_profile(profile))
        return self._checked[key]


def _kind(value: object) -> str:
    return "missing" if value is None else type(value).__name__


def row_id(row: object) -> Any:
    """The id of a row however bad it is, or None."""
    return cast("dict[str, Any]", row).get("id") if isinstance(row, dict) else None


def read_profile(profile: object) -> Profile:
    if profile not in PROFILES:
        raise GoldError(f"field 'profile' is {profile!r}, wanted one of {', '.join(PROFILES)}")
    return profile


def read_steps(recipe: object, word_list: object = None) -> list[Step]:
    """Steps from JSON: `[{operator, params?}]`; `word_list` may stand in the step or the row.

    Raises `GoldError` naming the step and what is wrong with it.
    """
    if not isinstance(recipe, list):
        wanted = "a list of {operator, params} objects"
        raise GoldError(f"field 'recipe' is {_kind(recipe)}, wanted {wanted}")
    return [
        _read_step(step, index, word_list) for index, step in enumerate(cast("list[Any]", recipe))
    ]


def _read_step(step: object, index: int, word_list: object) -> Step:
    where = f"recipe step {index}"
    if not isinstance(step, dict):
        raise GoldError(f"{where} is {_kind(step)}, wanted an object with 'operator' and 'params'")
    given = cast("dict[str, Any]", step)
    for name in given:
        if name not in STEP_FIELDS:
            raise GoldError(f"{where}: no field {name!r}{nearest(name, STEP_FIELDS)}")
    operator, params = given.get("operator"), given.get("params")
    if not isinstance(operator, str):
        raise GoldError(f"{where}: field 'operator' is {_kind(operator)}, wanted a name")
    if params is not None and not isinstance(params, dict):
        raise GoldError(f"{where}: field 'params' is {_kind(params)}, wanted an object")
    bound = dict(cast("dict[str, Any]", params or {}))
    known = OPERATORS.get(operator)
    words = given.get("word_list", word_list)
    if known and words is not None and any(p.name == "word_list" for p in known.params):
        bound.setdefault("word_list", words)
    return Step(operator, bound)
