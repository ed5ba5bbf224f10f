"""What caches keep now: machines of a known curve, and predictions that take it."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from calibration import environment
from experiments.probes.cache_now import (
    DRAWN,
    CacheProbes,
    CacheRuns,
    all_runs,
    caches_json,
    caches_of,
    curves_json,
    curves_of,
)
from experiments.probes.overhead import Overhead
from experiments.runs.prepare import prepare
from experiments.validation.contestants import plan_grid
from experiments.validation.simulated_vs_measured import Prediction, interval_of
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.weight_hit_curve import ReuseCurve

MIB = float(1 << 20)
COUNTS = (1, 2, 3, 4, 6, 8)
SMALL, LARGE = ReuseCurve((8 * MIB,), (1.0,)), ReuseCurve((16 * MIB,), (1.0,))


def runs(*curves, kept=1.0, gone=3.0, taken=()):
    """A run on each of these machines, with operators of 4 MiB; of driven out ones a use leaves ``taken``."""
    pairs = tuple((4 * MIB, count) for count in COUNTS)
    seconds = [
        [gone - (gone - kept) * curve.share(weights * count) for weights, count in pairs]
        for curve in curves
    ]
    uses = [
        [gone - (gone - kept) * share for share in (*(1 - (1 - left) ** np.arange(8)), 1.0)]
        for left in taken
    ]
    return CacheRuns(
        pairs,
        np.array(seconds).reshape(len(curves), len(pairs)),
        np.array(uses).reshape(len(curves), -1 if curves else 0),
    )


def test_a_known_curve_is_found_and_so_is_what_else_might_have_been():
    """Of sixteen runs ten find a cache of 16 MiB and six one of 8: the lower quarter is of the larger one; of few
    of the samples drawn from them it is not.
    """
    found = runs(*[LARGE] * 10, *[SMALL] * 6).curves()
    assert len(found) == 1 + DRAWN
    assert [found[0].share(d * MIB) for d in (4, 16, 24, 32)] == [1.0, 1.0, 0.0, 0.0]
    assert {curve.share(16 * MIB) for curve in runs(*[LARGE] * 6).curves()} == {1.0}
    unsure = {curve.share(16 * MIB) for curve in runs(*[LARGE] * 5, *[SMALL] * 11).curves()}
    assert min(unsure) == 0.0
    assert max(unsure) > 0.5


def test_how_fast_weights_come_back_is_found_and_drawn_with_the_curve():
    curves = runs(*[LARGE] * 8, taken=[0.25] * 7 + [0.6]).curves()
    assert curves[0].taken == (0.25, 0.25, 0.25)
    assert max(curve.taken for curve in curves) > (0.25,)  # where the fast one was drawn twice
    assert {curve.taken for curve in runs(LARGE, LARGE).curves()} == {(1.0,)}


def test_where_nothing_is_saved_or_nothing_was_run_there_is_no_curve():
    assert runs(LARGE, LARGE, kept=2.0, gone=2.0).curves() == ()
    assert runs().curves() == ()


def test_runs_and_curves_come_back_from_files():
    caches = {"ram": runs(LARGE, SMALL, taken=(0.3, 0.5))}
    (again,) = caches_of(json.loads(json.dumps(caches_json(caches)))).values()
    assert again.pairs == caches["ram"].pairs
    assert (again.seconds == caches["ram"].seconds).all()
    assert (again.uses == caches["ram"].uses).all()
    curves = {"ram": caches["ram"].curves()}
    assert curves_of(json.loads(json.dumps(curves_json(curves)))) == curves
    document = caches_json({"ram": runs(LARGE, SMALL)})
    del document["ram"]["uses"]  # as releases wrote it that did not look
    assert caches_of(document)["ram"].uses.shape == (2, 0)
    empty = caches_of(json.loads(json.dumps(caches_json({"ram": runs()}))))
    assert empty["ram"].seconds.shape == (0, len(COUNTS))
    assert not empty["ram"].uses.size


def test_runs_of_all_visits_are_one_sample():
    joined = all_runs([{"ram": runs(LARGE)}, {}, {"ram": runs(SMALL, SMALL), "v": runs(SMALL)}])
    assert (joined["ram"].seconds == runs(LARGE, SMALL, SMALL).seconds).all()
    assert (joined["v"].seconds == runs(SMALL).seconds).all()


@pytest.mark.parametrize("first", [True, False])
def test_a_visit_without_runs_takes_nothing_from_another(first):
    probed, none = {"ram": runs(LARGE, SMALL, taken=(0.3, 0.5))}, {"ram": runs()}
    joined = all_runs([none, probed] if first else [probed, none])["ram"]
    assert (joined.uses == probed["ram"].uses).all()
    unlooked = all_runs([probed, {"ram": runs(SMALL)}])["ram"]
    assert unlooked.uses.shape == (3, 0)
    assert {curve.taken for curve in unlooked.curves()} == {(1.0,)}


def machine(cache):
    spaces = [MemorySpace("ram", cache=cache), MemorySpace("other", cache=cache)]
    return SimpleNamespace(
        cluster=Cluster("c", spaces, [Device("d", "ram")], host="ram"),
        specs=[SimpleNamespace(device="cpu", cores=())],
    )


def test_a_probe_runs_in_each_space_that_has_devices_and_a_cache(monkeypatch):
    """A small cache is claimed, so that it does not take long."""
    pytest.importorskip("torch")
    monkeypatch.setattr(environment, "cache", lambda device: 256 << 10)
    probes = CacheProbes(machine(SMALL))
    for _ in range(2):
        probes.run()
    (found,) = probes.runs().values()
    assert list(probes.runs()) == ["ram"]
    assert found.seconds.shape == (2, len(found.pairs))
    assert (found.seconds > 0).all()
    probes.clear()
    assert probes.runs()["ram"].seconds.shape == (0, len(found.pairs))
    assert CacheProbes(machine(None)).runs() == {}


def group(*words):
    (found,) = plan_grid(
        ["model=gru_cells", "scheduler=single_device", "cluster=cpu_1x_3x", *words], ()
    ).groups
    return found


def test_predictions_take_what_is_kept_now():
    """Cells whose weights are all kept, or none: what the profile says between its two states."""
    one = group()
    world, contestant = prepare(one.scenario, ()), one.contestants[0]
    all_kept, none = ({"ram": (ReuseCurve((d,), (1.0,)),)} for d in (1e12, 1.0))
    costs = world.costs[world.graph]
    cells = np.array([operator.kind == "gru_cell" for operator in world.graph.operators])
    assert costs.cached is not None
    saved = costs.seconds[:, 0] * (1 - costs.cached[:, 0])
    # The first cell of each of the four layers finds nothing.
    first = saved[cells][:4].sum()
    fast, slow = (
        Prediction(world, reuse=reuse).run(contestant, Overhead()).makespan
        for reuse in (all_kept, none)
    )
    assert slow == pytest.approx(costs.seconds[:, 0].sum())
    assert slow - fast == pytest.approx(saved[cells].sum() - first, rel=1e-6)
    said = Prediction(world).run(contestant, Overhead()).makespan
    assert fast < said < slow


def test_intervals_hold_what_might_have_been_kept(monkeypatch):
    """Draws that are all alike, of a cache that was found to keep all and in half of the samples nothing."""
    one = group("simulation.draws=40", "simulation.discrepancy=0")
    world, contestant = prepare(one.scenario, ()), one.contestants[0]
    monkeypatch.setattr(world, "draws", lambda scenario: [None] * scenario.simulation.draws)
    kept, gone = ReuseCurve((1e12,), (1.0,)), ReuseCurve((1.0,), (1.0,))
    fast, slow = (
        Prediction(world, reuse={"ram": (curve,)}).run(contestant, Overhead()).makespan
        for curve in (kept, gone)
    )
    unsure = Prediction(world, reuse={"ram": (kept, *[kept, gone] * 10)})
    run = unsure.run(contestant, Overhead())
    assert run.makespan == fast
    assert interval_of(unsure.draws(contestant, Overhead(), run)) == pytest.approx((fast, slow))
