"""Phases and micro-batches in operators' names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.model.pass_tags import PHASES, Tag, tag_of, tagged, tags_of
from tests.examples import examples


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("conv1#F3", Tag("F", 3)),
        ("conv1/grad#B12", Tag("B", 12)),
        ("fc/weight#W0", Tag("W", 0)),
        ("relu#R7", Tag("R", 7)),
        ("fc.weight/step#U", Tag("U")),
        ("fc.weight/step#U@2", Tag("U")),
        ("fc.weight/step#U5", Tag("U", 5)),
        ("bucket0/sum1.2#C", Tag("C")),
        ("conv1", None),
        ("conv1#F", None),
        ("conv1#X3", None),
        ("conv1#F3/rest", None),
        ("sum#C2", None),
        ("a#F1#B2", Tag("B", 2)),
    ],
)
def test_names_by_hand(name: str, tag: Tag | None) -> None:
    assert tag_of(name) == tag


@settings(max_examples=examples(150), deadline=None)
@given(
    name=st.text(),
    what=st.tuples(st.sampled_from("FBWR"), st.integers(0, 10_000))
    | st.tuples(st.just("U"), st.none() | st.integers(0, 10_000))
    | st.tuples(st.just("C"), st.none()),
    replica=st.integers(0, 3),
)
def test_what_is_tagged_is_read(name: str, what: tuple[str, int | None], replica: int) -> None:
    alone = what == ("U", None)
    made = tagged(name, *what, replica=replica if alone else 0)
    assert made.startswith(name)
    assert tag_of(made) == what
    phase, micro_batch = tags_of([made, "plain"])
    assert phase.tolist() == [list(PHASES).index(what[0]), -1]
    assert micro_batch.tolist() == [-1 if what[1] is None else what[1], -1]
