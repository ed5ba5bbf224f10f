"""Transfer models booked by hand."""

from __future__ import annotations

from simulator.links.registry import Fifo, Uncontended, link_model
from simulator.model.cluster import Route


def test_models_by_name() -> None:
    assert isinstance(link_model("none"), Uncontended)
    assert isinstance(link_model("fifo"), Fifo)


def test_fifo_waits_for_every_channel_and_holds_them_all() -> None:
    free = [3.0, 5.0, 0.0]
    route = Route((0, 1), 2.0, 0.5)
    assert Fifo().book(route, 4.0, 1.0, free) == (5.0, 7.5)
    assert free == [7.5, 7.5, 0.0]
    assert Fifo().book(route, 0.0, 9.0, free) == (9.0, 9.5)


def test_without_contention_nothing_is_booked() -> None:
    free = [3.0]
    assert Uncontended().book(Route((0,), 2.0, 0.5), 4.0, 1.0, free) == (1.0, 3.5)
    assert free == [3.0]
