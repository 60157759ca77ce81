"""Which units are left out of training for the balance of KEEP and DROP."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.cdr.records import Record
from data_gen.cdr.sampling import unbalanced
from data_gen.cdr.units import ORDER, Instance, RowPlan
from data_gen.cdr.units import Unit as Worded

FILTERS = ("words_num_filter", "text_length_filter")
Unit = tuple[str, str, str]  # track, filter ("" for none), statuses (K and D)

units = st.lists(
    st.one_of(
        st.tuples(
            st.just("order_f"),
            st.sampled_from(FILTERS),
            st.sampled_from(("DDD", "DDK", "DKK", "KKD")),
        ),
        st.tuples(st.just("atomic_f"), st.sampled_from(FILTERS), st.sampled_from(("D", "K"))),
        st.tuples(st.just("order_m"), st.just(""), st.just("KK")),
    ),
    max_size=60,
)


def unit_of(unit: Unit, number: int) -> Worded:
    track, name, statuses = unit
    recipe = tuple(n for n in (name, "clean_html_mapper") if n)
    record = Record(f"doc-{number}", "web", "")
    rows = [
        Instance(
            RowPlan(ORDER, track, "", (str(i),), recipe), record, "DROP" if s == "D" else "KEEP"
        )
        for i, s in enumerate(statuses)
    ]
    return Worded(number, rows, "", ("", ""), [])


def worded(made: Sequence[Unit]) -> list[Worded]:
    return [unit_of(unit, number) for number, unit in enumerate(made)]


def excess(units: list[Unit]) -> int:
    return sum(status == "D" for *_, s in units for status in s) - sum(
        status == "K" for *_, s in units for status in s
    )


@settings(deadline=None)
@given(units)
def test_every_filter_of_every_track_is_nearer_to_balance(made: list[Unit]) -> None:
    left_out = unbalanced(worded(made))
    assert all(made[n][1] for n in left_out)
    for track in ("order_f", "atomic_f"):
        for name in FILTERS:
            own = {n: u for n, u in enumerate(made) if u[:2] == (track, name)}
            kept = [unit for n, unit in own.items() if n not in left_out]
            assert abs(excess(kept)) <= min(1, abs(excess(list(own.values()))))


@settings(deadline=None)
@given(units)
def test_the_choice_does_not_depend_on_the_order_of_units(made: list[Unit]) -> None:
    listed = worded(made)
    assert unbalanced(listed) == unbalanced(listed[::-1])


def test_groups_that_only_drop_go_before_those_that_teach_both() -> None:
    made: list[Unit] = [("order_f", FILTERS[0], s) for s in ("DDD", "DKK", "DDK", "DDD")]
    assert unbalanced(worded(made)) == {0, 3}
