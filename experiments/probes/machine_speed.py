"""How fast this machine is beside what its profiles say, by sorts of operators.

A host's other guests slow what works in the caches, what reads weights from memory, light operators and large
products by different factors, which are others an hour later. So a panel of operators
(:mod:`scenarios.models.panel`) is executed by the runner among the runs that a prediction is held against, and what
each sort of them takes over what the profiles say of the same operators is what all operators of that sort are
predicted to take longer. The preset has none of the models that parts of the panel come from.

Of a light operator and of one that moves activations part of the time is for code that has left the caches
(:mod:`experiments.probes.cold_calls`); the panel has such operators behind long ones and behind short ones. Of a
convolution part is for its traffic (:mod:`experiments.probes.traffic`), of which the panel has much and little.

Operators of a GPU that are launched and awaited one by one are no slower on it for that: what the runner needs to
launch one and to notice its end beyond what a measuring loop does is added to each, however long it is.

The statistic is of sums: of the times of all operators of a sort in a run, as a makespan is a sum. The 10th
percentile of a sum is larger than the sum of 10th percentiles, which is what a profile's times add up to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.timing import AWAITED
from cost_models.cached_graphs import weight_shares
from cost_models.features import known_work
from cost_models.profile import Profile, RowKey, row_keys
from cost_models.roofline import Roofline
from experiments.probes.cache_now import CacheRuns, Reuse, curves_json, curves_of
from experiments.probes.cold_calls import coldness
from experiments.probes.cooling_launches import cooling_curve
from experiments.probes.overhead import Corun, Overhead, with_overhead
from experiments.probes.panel import PANEL, beside_itself, panel_parts, run_seconds
from experiments.probes.probed_model import PROBED
from experiments.probes.slowness_fit import fitted
from experiments.probes.traffic import traffic_weight
from experiments.runs.configs import CostModelConfig
from experiments.runs.pricing import Pricer
from scenarios.model_config import graph_of
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.input_reuse_curve import ReadingCurve
from simulator.model.launch_cold_start import CoolingCurve
from simulator.model.operator import Operator
from simulator.model.workload import Workload

if TYPE_CHECKING:
    from simulator.model.trace import Trace

SPEEDS = ("now", "profile")
"""For which speed a validation predicts."""

SORTS = (
    "light",
    "activations",
    "weights",
    "arithmetic",
    "depthwise",
    "attention",
    "convolutions",
    "products",
)
"""What an operator's time goes into: being called, moving activations, reading weights, computing element by
element (a hyperbolic tangent, the largest of neighbours), or multiplying: in a depthwise convolution, in
attention, in another convolution, or in a product of matrices. A convolution of single pixels is a product, too, but
one library computes all convolutions and another products, and in models they take longer by what all convolutions
do (1.06 times what a profile says, products 1.01)."""

CALLED = ("light", "activations")
"""Sorts that take longer where their code has left the caches."""

WINDOWED = ("depthwise", "convolutions")
"""Sorts that take longer the more of their time they move."""

LIGHT_S = 3e-5
"""What a light operator takes at most: calling it, its code and its data not being at hand, is much of that."""

SLOW = 3.0
"""How many times as long as at its device's peak rates an operator takes at least that computes element by
element."""

RESAMPLES = 200
"""Of the panel's runs, drawn with replacement, that say how well they repeat themselves."""


def check_speed(speed: str) -> None:
    """Refuse what is not one of :data:`SPEEDS`.

    Raises:
        InvalidInput: names them.
    """
    if speed not in SPEEDS:
        raise InvalidInput(f"speed={speed}: give {' or '.join(SPEEDS)}")


def sorts_of(graph: DataflowGraph, profile: Profile, seconds: np.ndarray) -> np.ndarray:
    """int[operators]: the position in :data:`SORTS` of each operator of a graph on a device.

    Args:
        graph: any.
        profile: of the device, whose roofline decides.
        seconds: float64[operators] that it says.
    """
    shares = weight_shares(graph)
    found = [
        _sort_of(operator, key, own, float(took), profile.roofline)
        for operator, key, own, took in zip(
            graph.operators, row_keys(graph.operators), shares, seconds, strict=True
        )
    ]
    return np.array([SORTS.index(sort) for sort in found], dtype=np.int64)


def _sort_of(
    operator: Operator, key: RowKey, weights: float, seconds: float, roofline: Roofline
) -> str:
    kind, dtype = key[:2]
    operations, moved = known_work(*key)
    computing = operations / roofline.flops_per_s.get(dtype, roofline.flops_per_s["float32"])
    moving = moved / roofline.bandwidth
    if seconds <= LIGHT_S:
        return "light"
    if "conv" in kind and operator.attributes.get("groups", 1) > 1:
        return "depthwise"
    if "conv" in kind and max(_window(operator), default=1) > 1:
        return "convolutions"
    if moving >= computing and weights > 0.5:
        return "weights"
    if "attention" in kind:
        return "attention"
    if "conv" in kind:
        return "convolutions"
    if seconds > SLOW * max(computing, moving):
        return "arithmetic"
    return "products" if computing > moving else "activations"


def _window(operator: Operator) -> tuple[int, ...]:
    """What a convolution's weights span beside the channels."""
    shapes = [spec.shape for spec in operator.inputs if len(spec.shape) > 2]
    return tuple(shapes[-1][2:]) if len(shapes) > 1 else ()


@dataclass(frozen=True)
class MachineSpeed:
    """How much longer operators take than profiles say.

    Attributes:
        slowness: for each device by sort of operators; 1 is as long. Of :data:`CALLED` where their code is in
            the caches, of :data:`WINDOWED` where they move nothing.
        whole: for each device of all operators of the panel together.
        corun: fraction of its time that a task takes longer for each other busy device of its memory, or of the
            memories that share its bus, one for each memory then; None where that was not measured.
        cold: for each device seconds that an operator of :data:`CALLED` takes longer where the code that any
            operator needs is gone from the caches, and where its own kind's is.
        reuse: what the cache of a memory space keeps of weights, and what else it might have been found to keep;
            of a space that is not named what the profile says.
        plain: ``slowness`` with what cold code costs in it, as if it cost all operators of a sort alike.
        noise: standard deviation of the log of what the panel would be found to take longer if it had been
            run as often again.
        cooling: of each device, how many times its overhead the runner needs behind an operator of so many
            seconds (:mod:`experiments.probes.cooling_launches`); nothing where that was not measured.
        added: for each device seconds that any operator takes longer; nothing where that was not looked at.
        reading: of each device, what inputs cost that are not at hand (:mod:`experiments.probes.input_distance`);
            nothing where that was not looked at.
        traffic: for each device seconds that an operator of :data:`WINDOWED` takes longer for a second of
            :func:`experiments.probes.traffic.traffic_weight`; nothing where that was not told apart.
    """

    slowness: tuple[Mapping[str, float], ...]
    whole: tuple[float, ...] = ()
    corun: Corun = None
    noise: float = 0.0
    cold: tuple[tuple[float, float], ...] = ()
    plain: tuple[Mapping[str, float], ...] = ()
    reuse: Reuse = field(default_factory=dict)
    cooling: tuple[CoolingCurve | None, ...] = ()
    added: tuple[float, ...] = ()
    reading: tuple[ReadingCurve, ...] = ()
    traffic: tuple[float, ...] = ()

    def without_cold(self) -> MachineSpeed:
        """What it would be taken for if cold code were not told apart."""
        return replace(self, slowness=self.plain or self.slowness, cold=(), plain=())

    def factors(
        self, graph: DataflowGraph, profiles: Sequence[Profile], seconds: np.ndarray
    ) -> np.ndarray:
        """float64[operators, devices]: what a graph's times are to be multiplied by; for a sort that the
        panel has none of, as all of it.

        Args:
            graph: any.
            profiles: of the devices, in order.
            seconds: float64[operators, devices] that they say.
        """
        columns = []
        for device, (slowness, profile) in enumerate(zip(self.slowness, profiles, strict=True)):
            otherwise = self.whole[device] if self.whole else 1.0
            by_sort = np.array([slowness.get(sort, otherwise) for sort in SORTS])
            said = seconds[:, device]
            sorts = sorts_of(graph, profile, said)
            factors = by_sort[sorts]
            if self.cold:
                called = np.isin(sorts, _CALLED)
                longer = coldness(graph, said)[called] @ np.array(self.cold[device])
                factors[called] += longer / said[called]
            if self.traffic:
                windowed = np.isin(sorts, _WINDOWED)
                longer = self.traffic[device] * traffic_weight(graph, profile, said)[windowed]
                factors[windowed] += longer / said[windowed]
            if self.added:
                factors = factors + self.added[device] / said
            columns.append(factors)
        return np.stack(columns, axis=1)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "slowness": [dict(device) for device in self.slowness],
            "whole": list(self.whole),
            "corun": dict(self.corun) if isinstance(self.corun, Mapping) else self.corun,
            "noise": self.noise,
            "cold": [list(device) for device in self.cold],
            "plain": [dict(device) for device in self.plain],
            "reuse": curves_json(self.reuse),
            "cooling": [None if curve is None else curve.to_json() for curve in self.cooling],
            "added": list(self.added),
            "reading": [curve.to_json() for curve in self.reading],
            "traffic": list(self.traffic),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> MachineSpeed:
        """Read :meth:`to_json`'s form."""
        return cls(
            tuple(document["slowness"]),
            tuple(document["whole"]),
            document["corun"],
            document.get("noise", 0.0),  # was not looked at before
            tuple(tuple(device) for device in document.get("cold", ())),  # nor was this
            tuple(document.get("plain", ())),
            curves_of(document.get("reuse", {})),  # nor this
            cooling_of(document),
            tuple(document.get("added", ())),  # nor this
            reading_of(document),
            tuple(document.get("traffic", ())),  # nor this
        )


def cooling_of(speed: Mapping[str, Any]) -> tuple[CoolingCurve | None, ...]:
    """:attr:`MachineSpeed.cooling` in the form of :meth:`MachineSpeed.to_json`; nothing where it was not looked at."""
    curves = speed.get("cooling", ())
    return tuple(None if curve is None else CoolingCurve.from_json(curve) for curve in curves)


def reading_of(speed: Mapping[str, Any]) -> tuple[ReadingCurve, ...]:
    """:attr:`MachineSpeed.reading` in the form of :meth:`MachineSpeed.to_json`; nothing where it was not looked at."""
    return tuple(ReadingCurve.from_json(curve) for curve in speed.get("reading", ()))


_CALLED = [SORTS.index(sort) for sort in CALLED]
_WINDOWED = [SORTS.index(sort) for sort in WINDOWED]


def profiles_of(cluster: Cluster, profiles: Mapping[str, Profile]) -> list[Profile]:
    """The profile of each device of a cluster, in order."""
    return [profiles[str(device.profile)] for device in cluster.devices]


class PanelTimes:
    """What profiles say of the panel, to hold its runs against.

    Args:
        cluster: its devices name the profiles.
        profiles: by name.
        cost_model: which fit of them is taken for operators that were not measured.

    Attributes:
        operators: how many the panel has.
        run_s: seconds of :meth:`PanelRuns.run`, less what devices cost each other.
    """

    def __init__(
        self, cluster: Cluster, profiles: Mapping[str, Profile], cost_model: CostModelConfig
    ) -> None:
        self._cluster = cluster
        self._profiles = profiles_of(cluster, profiles)
        pricer = Pricer(cluster, profiles, replace(cost_model, lookup=True))
        # As a whole it does not stay in any cache, whatever its parts do.
        self._graph, probed = graph_of(PANEL), graph_of(PROBED)
        costs = pricer.price([self._graph, probed])
        self.operators = len(self._graph)
        self._said, self._probed = costs[self._graph].seconds, costs[probed].seconds
        self.run_s = run_seconds(self._said, cluster)

    def speed(
        self,
        alone: Sequence[Sequence[np.ndarray]],
        beside: Sequence[Sequence[np.ndarray]],
        statistic: Callable[[np.ndarray], float],
        overhead: float = 0.0,
        handover: float | None = None,
        caches: Mapping[str, CacheRuns] | None = None,
        gaps: np.ndarray | None = None,
    ) -> MachineSpeed:
        """How much longer the panel's runs took.

        Args:
            alone: of :class:`PanelRuns`.
            beside: of the same.
            statistic: of a run's seconds over the runs, as what is predicted is of its runs.
            overhead: the runner's for an operator, seconds.
            handover: of :class:`experiments.validation.simulated_vs_measured.Prediction`.
            caches: of the same as ``alone``.
            gaps: :meth:`PanelRuns.gap_seconds`.
        """
        slowness: list[Mapping[str, float]] = []
        plain: list[Mapping[str, float]] = []
        whole, cold, added, traffic = [], [], [], []
        for device, profile in enumerate(self._profiles):
            said = self._said[:, device]
            runs, sorts = np.array(alone[device]), sorts_of(self._graph, profile, said)
            total = statistic(runs.sum(axis=1))
            longer = total - float(said.sum())
            if profile.cache == AWAITED and longer >= 0:
                slowness.append({})
                plain.append({})
                cold.append((0.0, 0.0))
                whole.append(1.0)
                traffic.append(0.0)
                added.append(longer / self.operators)
                continue
            each = np.apply_along_axis(statistic, 0, runs)
            alike = _by_sort(runs, said, sorts, total, statistic)
            moved = traffic_weight(self._graph, profile, said)[:, np.newaxis]
            alike, (moving,) = _told_apart(_WINDOWED, moved, each, said, sorts, alike)
            by_sort, costs = _told_apart(_CALLED, self._coldness(said), each, said, sorts, alike)
            plain.append(alike)
            slowness.append(by_sort)
            cold.append((float(costs[0]), float(costs[1])))
            traffic.append(float(moving))
            whole.append(float(total / said.sum()))
            added.append(0.0)
        cooling = self._cooling(alone, gaps, whole, added)
        corun = self._corun(alone, beside, statistic, overhead, handover, cooling)
        noise = _noise(alone, statistic)
        found = {space: runs.curves() for space, runs in (caches or {}).items()}
        reuse = {space: curves for space, curves in found.items() if curves}
        return MachineSpeed(
            tuple(slowness),
            tuple(whole),
            corun,
            noise,
            tuple(cold),
            tuple(plain),
            reuse,
            cooling,
            tuple(added),
            traffic=tuple(traffic),
        )

    def _cooling(
        self,
        alone: Sequence[Sequence[np.ndarray]],
        gaps: np.ndarray | None,
        whole: Sequence[float],
        added: Sequence[float],
    ) -> tuple[CoolingCurve | None, ...]:
        """Of each device. Factors are of the overhead that is measured on a part of the panel
        (:mod:`experiments.probes.runner_overhead`), behind whose operators the mean is one.
        """
        if gaps is None or not gaps.size:
            return ()
        before = np.concatenate([rows[:-1] for rows in panel_parts().values()])
        after = np.concatenate([rows[1:] for rows in panel_parts().values()])
        return tuple(
            cooling_curve(
                np.array(runs)[:, before],
                mine[:, after],
                self._probed[:, device] * whole[device] + added[device],
            )
            for device, (runs, mine) in enumerate(zip(alone, gaps, strict=True))
        )

    def _coldness(self, said: np.ndarray) -> np.ndarray:
        """float64[operators, 2]: of each part as it is executed, by itself."""
        cold = np.empty((self.operators, 2))
        for part, rows in panel_parts().items():
            cold[rows] = coldness(part, said[rows])
        return cold

    def _corun(
        self,
        alone: Sequence[Sequence[np.ndarray]],
        beside: Sequence[Sequence[np.ndarray]],
        statistic: Callable[[np.ndarray], float],
        overhead: float,
        handover: float | None,
        cooling: Sequence[CoolingCurve | None],
    ) -> Corun:
        """What kernels of the fastest devices of each memory take longer while all others run, by the number of those
        that share its bus; what they wait for the interpreter is left to the simulation.
        """
        from calibration.one_by_one import OneByOne

        shared = self._beside_others()
        if not shared:
            return None
        times = np.stack([np.apply_along_axis(statistic, 0, np.array(r)) for r in alone], axis=1)
        totals = [statistic(np.array(runs).sum(axis=1)) for runs in alone]
        spaces = [replace(s, corun_slowdown=0.0, cache=None) for s in self._cluster.spaces]
        unhindered = with_overhead(
            replace(self._cluster, spaces=spaces), Overhead(overhead), handover, cooling=cooling
        )

        # Nobody chooses by what is believed.
        taken = CostTable({part: GraphCosts(times[rows]) for part, rows in panel_parts().items()})

        def simulated(jobs: Workload, devices: Sequence[int]) -> Trace:
            return simulate(jobs, unhindered, taken, OneByOne(devices))

        fastest = {space: self._fastest(totals, space) for space in shared}
        waited = dict.fromkeys(itertools.chain.from_iterable(fastest.values()), 0.0)
        for part, rows in panel_parts().items():
            together = beside_itself(part, self._cluster, times[rows].sum(axis=0).tolist())
            trace = simulated(together.jobs, together.devices)
            job = replace(together.jobs.jobs[0], arrival=0.0)
            for device in waited:
                by_itself = simulated(Workload([job]), [device]).makespan
                waited[device] += together.spans(trace, device).sum() - by_itself
        longer = {
            device: (statistic(np.array(beside[device]).sum(axis=1)) - totals[device] - more)
            / totals[device]
            for device, more in waited.items()
        }
        found = {
            self._cluster.spaces[space].name: max(0.0, float(np.mean([longer[d] for d in mine])))
            / shared[space]
            for space, mine in fastest.items()
        }
        return found if len(found) > 1 else next(iter(found.values()))

    def _beside_others(self) -> dict[int, int]:
        """The memory spaces whose devices are slowed by others, and of each by how many."""
        at, spaces = self._cluster.space_of, range(len(self._cluster.spaces))
        others = {
            space: sum(at.count(other) for other in bus) - 1
            for bus in self._cluster.buses
            for space in bus
        }
        return {space: others[space] for space in spaces if space in at and others[space] > 0}

    def _fastest(self, totals: Sequence[float], space: int) -> list[int]:
        """The fastest device of a memory space, and those in it that are equal to it: of equal ones the one that
        seemed faster alone would seem to be slowed more than it is.
        """
        inside = [d for d, home in enumerate(self._cluster.space_of) if home == space]
        fastest = self._cluster.devices[min(inside, key=lambda device: totals[device])]
        return [d for d in inside if self._cluster.devices[d].profile == fastest.profile]


def _told_apart(
    among: Sequence[int],
    more: np.ndarray,
    each: np.ndarray,
    said: np.ndarray,
    sorts: np.ndarray,
    plain: Mapping[str, float],
) -> tuple[dict[str, float], np.ndarray]:
    """A device's factors by sort, those of some sorts without what their operators take longer for something else, and
    the seconds of that for each unit.

    Args:
        among: these sorts.
        more: float64[operators, things].
        each: float64[operators] seconds that they took.
        said: float64[operators] seconds.
        sorts: int[operators].
        plain: the factors of all sorts, with all in them.
    """
    mine = np.isin(sorts, among)
    if not mine.any():
        return dict(plain), np.zeros(more.shape[1])
    kinds, groups = np.unique(sorts[mine], return_inverse=True)
    factors, costs = fitted(said[mine], each[mine], more[mine], groups)
    # The statistic of a run's whole time is not the sum of those of its operators: together they take what these
    # sorts do.
    together = float(factors[groups] @ said[mine] + (more[mine] @ costs).sum())
    scale = sum(plain[SORTS[i]] * said[sorts == i].sum() for i in kinds) / together
    without = {SORTS[i]: float(f * scale) for i, f in zip(kinds, factors, strict=True)}
    return {**plain, **without}, costs * scale


def _by_sort(
    runs: np.ndarray,
    said: np.ndarray,
    sorts: np.ndarray,
    total: float,
    statistic: Callable[[np.ndarray], float],
) -> dict[str, float]:
    """How many times as long as said each sort takes, so that together they take the statistic of all."""
    took = {i: statistic(runs[:, sorts == i].sum(axis=1)) for i in np.unique(sorts)}
    # The statistic of a run's whole time is not the sum of those of its parts.
    part = total / sum(took.values())
    return {SORTS[i]: float(t * part / said[sorts == i].sum()) for i, t in took.items()}


def _noise(
    alone: Sequence[Sequence[np.ndarray]], statistic: Callable[[np.ndarray], float]
) -> float:
    """By the bootstrap, the root mean square over the devices."""
    rng = np.random.default_rng(0)
    variances = []
    for runs in alone:
        totals = np.array(runs).sum(axis=1)
        picks = rng.integers(len(totals), size=(RESAMPLES, len(totals)))
        found = np.array([statistic(totals[pick]) for pick in picks])
        variances.append(np.var(np.log(found / found[0])))
    return float(np.sqrt(np.mean(variances)))
