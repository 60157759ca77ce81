"""CDR-Bench's four domains: their operators in execution order, and which one a record is of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from assay.files import yaml_beside
from assay.task import TaskError

_TABLES: dict[str, Any] = yaml_beside(__file__, "domains.yaml")
INTERNAL: Mapping[str, str] = _TABLES["internal"]
LABELS = {internal: label for label, internal in INTERNAL.items()}
MAPPERS: dict[str, Sequence[str]] = _TABLES["mappers"]  # in execution order
ALL_MAPPERS = tuple(sorted({name for names in MAPPERS.values() for name in names}))
FILTERS: tuple[str, ...] = tuple(_TABLES["filters"])
LISTED_FILTERS: Sequence[str] = _TABLES["listed_filters"]  # their lists are not public
NOT_IN_PAPER: Sequence[str] = _TABLES["not_in_paper"]
# The paper's 29 operators: 22 mappers and 7 filters (Table 4).
PAPER = frozenset({*ALL_MAPPERS, *FILTERS} - {*NOT_IN_PAPER, *LISTED_FILTERS})


def chosen_operators(only: Sequence[str]) -> frozenset[str]:
    """The operators that the setting `operators.only` names: `paper` stands for the paper's 29,
    nothing for all. Raises `TaskError` for a name that no task can be made of."""
    known = frozenset({*ALL_MAPPERS, *FILTERS} - {*LISTED_FILTERS})
    if not only:
        return known
    for name in only:
        if name != "paper" and name not in known:
            raise TaskError(
                f"operators.only names {name!r}; give `paper`, or operators such as "
                f"{', '.join(sorted(known)[:3])} (rewards/gold/operators.yaml)"
            )
    named = frozenset(name for name in only if name != "paper")
    return named | PAPER if "paper" in only else named


def internal_name(domain: str) -> str:
    """The benchmark's name of a domain given by either name; other names stay as they are."""
    return INTERNAL.get(domain, domain)


def label(domain: str) -> str:
    """The corpus's name of a domain given by either name."""
    return LABELS.get(domain, domain)


def execution_order(domain: str, operators: Iterable[str]) -> tuple[str, ...]:
    """The domain's own mappers in configured order, then foreign ones alphabetically."""
    chosen = set(operators)
    own = [name for name in MAPPERS.get(internal_name(domain), ()) if name in chosen]
    return (*own, *sorted(chosen.difference(own)))


def rank_domains(active: Collection[str], source: str) -> list[str]:
    """Internal domain names, best first, for a record's active mappers (spec section 5).

    Compared in this order, more is better: active mappers of the domain, those of that domain
    only, being the source domain; then the order of the domains.
    """
    owners = {op: sum(op in MAPPERS[d] for d in MAPPERS) for op in ALL_MAPPERS}

    def score(domain: str) -> tuple[int, ...]:
        own = [op for op in MAPPERS[domain] if op in active]
        return -len(own), -sum(owners[op] == 1 for op in own), -(domain == source)

    return sorted(MAPPERS, key=score)


def assign_domain(active: Collection[str], source: str) -> str | None:
    """The best domain with at least one active mapper, or None."""
    best = rank_domains(active, internal_name(source))[0]
    return best if any(op in active for op in MAPPERS[best]) else None
