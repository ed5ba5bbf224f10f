"""Task graphs as configs name them: a family or a file, and the devices that run it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from scenarios.graph_files import FORMS, read_graph
from scenarios.random_graphs import FAMILIES, Draws, Family, Times
from scenarios.training.parameter_access import ParameterAccess
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.units import parse_bandwidth, parse_bytes, parse_seconds

SERVERS = "parameter_server"
"""Generator of samples and the parameters that they touch (:mod:`scenarios.training.parameter_access`)."""
FILE = "file"
"""Generator of a config that gives devices to the graph of a file."""


@dataclass
class FamilyConfig:
    """A kind of task graph, drawn by ``seed.workload``, in place of a model and a cluster.

    Attributes:
        generator: one of :data:`scenarios.random_graphs.FAMILIES`; ``file``: the graph is read from a
            file, only its times are drawn; ``parameter_server``: samples and parameters; None: neither.
        devices, heterogeneity, speeds, beta, work_spread, data_spread, ccr, half_duplex, sharing: see
            :class:`scenarios.random_graphs.times.Times`.
        task_time: mean time of a task like ``1s``; ``bandwidth`` like ``1 GB/s``; see there.
        n, alpha, ...: parameters of the generator; those of other generators are None.
    """

    name: str = "none"
    generator: str | None = None
    n: int | None = None
    alpha: float | None = None
    degree: int | None = None
    p: float | None = None
    fat: float | None = None
    density: float | None = None
    regular: float | None = None
    jump: int | None = None
    mindata: int | None = None
    maxdata: int | None = None
    complexity: str | None = None
    parallel: float | None = None
    stages: int | None = None
    width: int | None = None
    length: int | None = None
    steps: int | None = None
    m: int | None = None
    tiles: int | None = None
    levels: int | None = None
    arity: int | None = None
    pattern: str | None = None
    samples: int | None = None
    parameters: int | None = None
    skew: float | None = None
    parameter_size: str | None = None
    link_bandwidths: list[str] | None = None
    jobs: int | None = None
    fetch_share: float | None = None
    share_spread: float | None = None
    writing: float | None = None
    devices: int = 3
    heterogeneity: str = "unrelated"
    speeds: list[float] | None = None
    beta: float | None = None
    work_spread: float = 0.0
    data_spread: float = 0.0
    ccr: float | None = None
    task_time: str | None = None
    bandwidth: str | None = None
    half_duplex: bool = False
    sharing: str = "processor"
    description: str = ""
    source: str = ""

    @property
    def drawn(self) -> bool:
        """Whether there is a graph, or at least its times, to draw."""
        return self.generator is not None

    @property
    def of_file(self) -> bool:
        """Whether the graph is read from a file."""
        return self.generator == FILE

    def family(self) -> Family:
        """The generator with its parameters.

        Raises:
            InvalidInput: it is unknown, lacks a parameter, or has one that it does not take.
        """
        kind = FAMILIES.get(self.generator or "")
        if kind is None:
            near = get_close_matches(str(self.generator), FAMILIES, n=3)
            hint = f"Nearest: {', '.join(near)}. " if near else ""
            raise InvalidInput(
                f"Family '{self.name}' has unknown generator '{self.generator}'. {hint}Known: "
                f"{', '.join((*FAMILIES, SERVERS, FILE))}"
            )
        return kind(**self._complete(kind))

    def access(self) -> ParameterAccess:
        """Samples and parameters, of the generator :data:`SERVERS`.

        Raises:
            InvalidInput: as :meth:`family`.
        """
        given = self._complete(ParameterAccess)
        what = f"of family '{self.name}'"
        given["parameter_size"] = parse_bytes(given["parameter_size"], f"parameter size {what}")
        given["link_bandwidths"] = tuple(
            parse_bandwidth(text, f"link bandwidth {what}") for text in given["link_bandwidths"]
        )
        return ParameterAccess(**given)

    def times(self) -> Times:
        """The devices.

        Raises:
            InvalidInput: a parameter is out of its range, or a quantity ambiguous.
        """
        for key, value, without in (
            ("speeds", self.speeds, "unrelated"),
            ("beta", self.beta, "related"),
        ):
            if (
                value is None
                and self.heterogeneity in ("unrelated", "related", "both")
                and (self.heterogeneity != without)
            ):
                raise InvalidInput(f"family.heterogeneity={self.heterogeneity} needs family.{key}")
        return Times(
            devices=self.devices,
            heterogeneity=self.heterogeneity,
            speeds=(1.0,) if self.speeds is None else tuple(self.speeds),
            beta=self.beta or 0.0,
            work_spread=self.work_spread,
            data_spread=self.data_spread,
            ccr=self.ccr,
            task_s=_parsed(parse_seconds, self.task_time, f"task time of family '{self.name}'"),
            bandwidth=_parsed(
                parse_bandwidth, self.bandwidth, f"bandwidth of family '{self.name}'"
            ),
            half_duplex=self.half_duplex,
            sharing=self.sharing,
        )

    def check(self) -> None:
        """Refuse what could not be drawn.

        Raises:
            InvalidInput: says what.
        """
        if self.of_file:
            self._given(())
        elif self.generator == SERVERS:
            self.access()
        else:
            self.family()
        self.times()

    def document(self) -> dict[str, Any]:
        """What decides the graph and its times, JSON-ready."""
        meaningless = {
            "unrelated": ("speeds", "sharing"),
            "related": ("beta", "sharing"),
            "both": ("sharing",),
            "dedicated": ("speeds", "beta"),
        }.get(self.heterogeneity, ())
        return {
            key: value
            for key, value in vars(self).items()
            if value is not None and key not in ("description", "source", *meaningless)
        }

    def _complete(self, kind: Callable[..., Any]) -> dict[str, Any]:
        wanted = list(inspect.signature(kind).parameters)
        given = self._given(wanted)
        for key in wanted:
            if key not in given:
                raise InvalidInput(f"Family '{self.name}' needs family.{key}")
        return given

    def _given(self, wanted: Sequence[str]) -> dict[str, Any]:
        """The generator's own parameters, those that are none of the devices'; only wanted ones."""
        names = [entry.name for entry in dataclasses.fields(self)]
        own = names[2 : names.index("devices")]
        given = {key: value for key in own if (value := getattr(self, key)) is not None}
        for key in given:
            if key not in wanted:
                takes = f"takes {', '.join(wanted)}" if wanted else "reads the graph as it is"
                raise InvalidInput(
                    f"family.{key} has no meaning for '{self.generator}', which {takes}"
                )
        return given


def draw_instance(
    config: FamilyConfig,
    seed: int = 0,
    path: str | Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[DataflowGraph, Cluster, CostTable]:
    """Draw a graph, its devices and times; the same for the same config and seed, everywhere.

    Args:
        config: which.
        seed: at least 0.
        path: the file of the graph where the config's generator is ``file``.
        say: called with one line where the file does not say how large tasks or edges are: what was taken.

    Raises:
        InvalidInput: a parameter is missing, out of its range or of another family, or the file is
            none that can be read.
    """
    config.check()
    times = config.times()
    if config.generator == SERVERS:
        return config.access().instance(config.name, times, seed)
    if not config.of_file:
        return times.instance(config.name, config.family().draw(Draws(seed)), seed)
    if path is None:
        raise InvalidInput(f"family={config.name} needs the graph's file, instance=FILE: {FORMS}")
    shape = read_graph(path)
    if shape.notes:
        say(f"{path}: {'; '.join(shape.notes)}")
    try:
        return times.instance(Path(path).stem, shape, seed)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _parsed(parse: Callable[[str, str], float], text: str | None, what: str) -> float | None:
    return None if text is None else parse(text, what)
