"""Which parameters samples touch: drawn, or of a real data set; as a graph of samples on machines with links.

Each sample is an operator that reads the parameters that it touches, which are weights; nothing joins samples. What a worker
pulls and a server owns is for a partition to say (:mod:`scenarios.partition.parameter_server`). Machines have one device and a
memory of their own each, and a link to a switch that both directions share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scenarios.random_graphs.draws import Draws
from scenarios.random_graphs.shape import MOST_EDGES, MOST_TASKS, check_number, check_size
from scenarios.random_graphs.times import Times
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.planners.shares import whole_units

PATTERNS = ("power_law", "block_diagonal", "dense", "digits")
GREY_LEVELS = 17


@dataclass(frozen=True)
class ParameterAccess:
    """Samples and the parameters that they touch.

    Attributes:
        pattern: ``power_law``: each sample touches ``degree`` parameters, the n-th most popular with probability as
            n to the power of ``-skew``; ``block_diagonal``: as many blocks as devices, as large as these are fast, and ``degree``
            parameters of its block for each sample; ``dense``: all; ``digits``: scikit-learn's handwritten digits, a
            parameter for each grey level of each pixel (one-hot), of the inked pixels alone.
        samples, parameters: how many; of ``digits`` the first samples, and the parameters that there are.
        degree: parameters of a sample.
        skew: see there.
        parameter_size: bytes.
        link_bandwidths: bytes per second of the devices' links in turn.

    Raises:
        InvalidInput: an unknown pattern, or a number out of its range.
    """

    pattern: str
    samples: int
    parameters: int
    degree: int
    skew: float
    parameter_size: float
    link_bandwidths: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.pattern not in PATTERNS:
            raise InvalidInput(
                f"There is no family.pattern={self.pattern}; known: {', '.join(PATTERNS)}"
            )
        check_number("samples", self.samples, 1, MOST_TASKS)
        check_number("parameters", self.parameters, 1, MOST_EDGES)
        check_number("degree", self.degree, 1, self.parameters)
        check_number("skew", self.skew, 0, 10)
        check_number("parameter_size", self.parameter_size, 0, math.inf, above=True)
        if not self.link_bandwidths:
            raise InvalidInput(
                "family.link_bandwidths is empty; give at least one, e.g. ['1 Gbit/s']"
            )
        touched = self.parameters if self.pattern == "dense" else self.degree
        check_size(self.samples, self.samples * touched)

    def instance(
        self, name: str, times: Times, seed: int
    ) -> tuple[DataflowGraph, Cluster, CostTable]:
        """Samples that take ``times.task_s`` at speed 1, on machines of these speeds.

        Raises:
            InvalidInput: the devices have no speeds or samples no time, or there are more blocks than parameters.
        """
        if times.heterogeneity != "related" or times.task_s is None:
            raise InvalidInput(
                f"family={name} has devices of given speeds and samples of one time; give family.heterogeneity=related and "
                "family.task_time, e.g. 1ms"
            )
        devices = times.devices
        speeds = np.array([times.speeds[d % len(times.speeds)] for d in range(devices)])
        touched = self.touched(speeds / speeds.sum(), Draws(seed))
        count = self.parameters
        if self.pattern == "digits":
            count = 1 + max(map(max, touched))
        graph = DataflowGraph(
            name,
            [Operator(f"s{sample}", "sample") for sample in range(len(touched))],
            [Tensor(f"w{number}", "weight", self.parameter_size) for number in range(count)],
            touched,
            [()] * len(touched),
        )
        spaces = [MemorySpace(f"m{d}") for d in range(devices)]
        links = [
            Link(
                f"l{d}",
                (f"m{d}", "switch"),
                self.link_bandwidths[d % len(self.link_bandwidths)],
                half_duplex=True,
            )
            for d in range(devices)
        ]
        cluster = Cluster(
            f"{devices} machines",
            [*spaces, MemorySpace("switch")],
            [Device(f"P{d + 1}", f"m{d}") for d in range(devices)],
            links,
        )
        return graph, cluster, CostTable.of(graph, np.tile(times.task_s / speeds, (len(graph), 1)))

    def touched(self, shares: np.ndarray, draws: Draws) -> list[list[int]]:
        """For each sample the parameters that it touches, ascending.

        Args:
            shares: of the blocks.
            draws: what is random.
        """
        if self.pattern == "dense":
            return [list(range(self.parameters))] * self.samples
        if self.pattern == "digits":
            return self._digits()
        if self.pattern == "power_law":
            weight = np.arange(1, self.parameters + 1) ** -float(self.skew)
            ends = np.cumsum(weight / weight.sum())
            return [sorted(self._popular(ends, draws)) for _ in range(self.samples)]
        sizes = whole_units(shares, self.parameters)
        if sizes.min() < 1:
            raise InvalidInput(
                f"{self.parameters} parameters cannot be {len(shares)} blocks; give family.parameters more"
            )
        # Numbers say nothing of blocks.
        number = np.array(draws.distinct(self.parameters, self.parameters))
        blocks = np.split(number, np.cumsum(sizes)[:-1])
        block = np.repeat(np.arange(len(shares)), whole_units(shares, self.samples))
        block = block[draws.distinct(self.samples, self.samples)]
        return [
            sorted(members[draws.distinct(min(self.degree, len(members)), len(members))].tolist())
            for members in (blocks[b] for b in block)
        ]

    def _popular(self, ends: np.ndarray, draws: Draws) -> set[int]:
        chosen: set[int] = set()
        while len(chosen) < self.degree:
            drawn = np.searchsorted(ends, draws.uniform(self.degree), side="right").tolist()
            for number in drawn:
                if len(chosen) < self.degree:
                    chosen.add(min(number, self.parameters - 1))
        return chosen

    def _digits(self) -> list[list[int]]:
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise InvalidInput(
                "family.pattern=digits needs scikit-learn, which brings the digits: pip install 'hetsim[training]'"
            ) from None
        grey = load_digits().data.astype(np.int64)[: self.samples]
        number = np.arange(grey.shape[1]) * GREY_LEVELS + grey
        _, compact = np.unique(number[grey > 0], return_inverse=True)
        rows = np.nonzero(grey)[0]
        return [compact[rows == row].tolist() for row in range(len(grey))]
