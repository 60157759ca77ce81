"""Groups are what following every link gives, whatever the order of the links."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_gen.groups import Together

NAMES = [f"n{i:02d}" for i in range(12)]
links = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=20)


@given(links, st.randoms(use_true_random=False))
def test_groups_are_the_connected_ones(pairs: list[tuple[str, str]], rng: object) -> None:
    plain = {name: {name} for name in NAMES}
    for one, two in pairs:
        whole = plain[one] | plain[two]
        for name in whole:
            plain[name] = whole
    made = Together()
    rng.shuffle(pairs)  # type: ignore[attr-defined]
    for one, two in pairs:
        made.join(one, two)
    assert made.heads(NAMES) == {name: min(plain[name]) for name in NAMES}


def test_a_long_chain_is_followed() -> None:
    made = Together()
    names = [f"{i:06d}" for i in range(50_000)]
    for one, two in zip(names[1:], names, strict=False):
        made.join(one, two)
    assert made.head(names[-1]) == names[0] and made.head("alone") == "alone"
