"""Priced tables on disk: the same times bit for bit, and never those of anything else; bounds as well."""

import os

import numpy as np
import pytest

from experiments.runs import kept, world
from experiments.runs.grid import compose_grid
from experiments.runs.kept import KeptPrices
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import from_edges


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HETSIM_CACHE", str(tmp_path))
    return tmp_path


def graphs_with_times():
    graphs = [from_edges("pair", 2, [(0, 1, 1.0)]), from_edges("one", 1, [])]
    times = np.random.default_rng(0)
    return CostTable(
        {
            graph: GraphCosts(
                times.random((len(graph), 3)), None, times.random((len(graph), 3)) > 0.5
            )
            for graph in graphs
        }
    )


def test_times_come_back_as_they_were():
    table = graphs_with_times()
    assert not KeptPrices({"profile": "a"})
    KeptPrices({"profile": "a"}).keep_table(table)
    found = KeptPrices({"profile": "a"}).table(list(table))
    for graph in table:
        for name in ("seconds", "spread", "in_range", "cached"):
            np.testing.assert_array_equal(getattr(found[graph], name), getattr(table[graph], name))


@pytest.mark.parametrize("what", ["profile", "code", "packages"])
def test_nothing_is_found_once_something_that_decides_differs(what, monkeypatch):
    KeptPrices({"profile": "a"}).keep_table(graphs_with_times())
    if what == "code":
        monkeypatch.setattr(kept, "code_digest", lambda: "other")
    if what == "packages":
        monkeypatch.setattr(kept, "versions", lambda: {"xgboost": "0.1"})
    assert not KeptPrices({"profile": "b" if what == "profile" else "a"})


def test_another_graph_has_no_times():
    table = graphs_with_times()
    KeptPrices({}).keep_table(table)
    other = from_edges("pair", 2, [(0, 1, 2.0)])
    assert KeptPrices({}).table([*table, other]) is None


def test_damaged_files_are_as_good_as_none(cache):
    KeptPrices({}).keep_table(graphs_with_times())
    (path,) = cache.glob("*.npz")
    whole = path.read_bytes()
    middle = len(whole) // 2
    for damaged in (b"", whole[:middle], whole[:300] + b"\0\1\2" + whole[303:]):
        path.write_bytes(damaged)
        assert not KeptPrices({})


def test_a_folder_that_cannot_be_written_to_costs_nothing_but_time(cache, monkeypatch):
    (cache / "file").touch()
    monkeypatch.setenv("HETSIM_CACHE", str(cache / "file" / "folder"))
    KeptPrices({}).keep_table(graphs_with_times())


@pytest.mark.parametrize("most", ["MOST_FILES", "MOST_BYTES"])
def test_the_files_used_longest_ago_are_removed(most, cache, monkeypatch):
    table = graphs_with_times()
    for number in range(3):
        KeptPrices({"number": number}).keep_table(table)
    for path in cache.glob("*.npz"):
        os.utime(path, ns=(0, 0))
    assert KeptPrices({"number": 1})  # looks at it
    size = next(cache.glob("*.npz")).stat().st_size
    monkeypatch.setattr(kept, "EVERY", 1)
    monkeypatch.setattr(kept, most, 2 if most == "MOST_FILES" else 2 * size)
    KeptPrices({"number": 3}).keep_table(table)
    assert [bool(KeptPrices({"number": n})) for n in range(4)] == [False, True, False, True]


def test_bounds_are_worked_out_once(monkeypatch):
    (cell,) = compose_grid(["family=layered", "family.n=12", "workload=poisson"]).cells
    scenario = cell.scenario
    first = world.unpartitioned(scenario).bounds(scenario)
    monkeypatch.setattr(world, "worlds", world._Memory())
    monkeypatch.setattr(world, "workload_bound", lambda *_: pytest.fail("worked out again"))
    assert world.unpartitioned(scenario).bounds(scenario) == first


class Drawer:
    """Draws what :class:`experiments.runs.pricing.Pricer` would; counts how often it is asked."""

    def __init__(self):
        self.asked = 0

    def draws(self, costs, count, seed):
        self.asked += 1
        rng = np.random.default_rng(seed)
        for _ in range(count):
            yield costs.scaled(rng.random(3))


@pytest.mark.parametrize("most", [world.MOST_DRAWN, 1])
def test_draws_come_back_bit_for_bit_and_many_are_drawn_anew(most, monkeypatch):
    monkeypatch.setattr(world, "MOST_DRAWN", most)
    table, drawer = graphs_with_times(), Drawer()
    found = []
    for key, seed in (("a", 1), ("a", 1), ("b", 1), ("a", 2)):
        one = world.World(key, next(iter(table)), None, table, [], drawer)
        found.append(one._drawn(drawer, 5, seed))
    assert drawer.asked == (3 if most > 1 else 4)
    for graph in table:
        for first, again in zip(found[0], found[1], strict=True):
            assert np.array_equal(first[graph].seconds, again[graph].seconds)
            assert np.array_equal(first[graph].in_range, again[graph].in_range)
        assert not np.array_equal(found[0][0][graph].seconds, found[3][0][graph].seconds)
