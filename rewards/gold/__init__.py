"""Deterministic gold: the operators of CDR-Bench and recipes made of them.

>>> execute("a\\u00a0b", [Step("whitespace_normalization_mapper")]).text
'a b'
"""

from rewards.gold.catalog import OPERATORS, RECIPE_PARAMS
from rewards.gold.core import PROFILES, GoldError, Operator, Param, Profile, Step
from rewards.gold.recipe import BoundStep, Execution, bind, bind_recipe, execute, run_bound

__all__ = [
    "OPERATORS",
    "PROFILES",
    "RECIPE_PARAMS",
    "BoundStep",
    "Execution",
    "GoldError",
    "Operator",
    "Param",
    "Profile",
    "Step",
    "bind",
    "bind_recipe",
    "execute",
    "run_bound",
]
