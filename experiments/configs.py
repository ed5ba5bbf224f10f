"""What a config may hold: one schema a command, checked by Hydra, handed on as plain dataclasses."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from scenarios.arrivals import WorkloadConfig
from scenarios.cluster_config import ClusterConfig
from scenarios.model_config import ModelConfig
from simulator.context import CONTENTIONS, MOVEMENTS
from simulator.errors import InvalidInput

GROUPS = ("model", "cluster", "scheduler", "workload", "simulation", "cost_model")
"""Config groups of which a run takes exactly one entry each."""
NOISES = ("none", "lognormal", "measured")


@dataclass
class SchedulerConfig:
    """A scheduler and its constructor's arguments.

    Attributes:
        name: what tables call it.
        class_path: ``package.module.Class`` or ``path/to/file.py:Class``, the file relative to the
            current folder or to the user's config folder; None: the shipped scheduler ``name``.
        options: arguments by name.
    """

    name: str
    class_path: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    description: str = ""
    source: str = ""


@dataclass
class SimulationConfig:
    """How time passes.

    Attributes:
        movement: ``push`` or ``pull``.
        contention: ``none``, ``fifo``, or ``auto``: ``none`` for bare instances, whose edges say how
            long they take, ``fifo`` for everything else. Results record which it was.
        noise: of the actual times: ``none``, ``lognormal`` (of width ``sigma``) or ``measured`` (each
            operator's own measured spread).
        sigma: standard deviation of log seconds.
        draws: how often a run is repeated with drawn times for its interval; 0 for none.
    """

    movement: str = "push"
    contention: str = "auto"
    noise: str = "none"
    sigma: float | None = None
    draws: int = 200
    description: str = ""

    def check(self) -> None:
        """Refuse what the simulator does not know.

        Raises:
            InvalidInput: names the key, the value and what is known.
        """
        for key, value, known in (
            ("movement", self.movement, MOVEMENTS),
            ("contention", self.contention, ("auto", *CONTENTIONS)),
            ("noise", self.noise, NOISES),
        ):
            if value not in known:
                raise InvalidInput(
                    f"There is no simulation.{key}={value}; known: {', '.join(known)}"
                )
        if self.noise == "lognormal" and (self.sigma is None or not self.sigma >= 0):
            raise InvalidInput("simulation.noise=lognormal needs simulation.sigma, e.g. 0.05")
        if self.noise != "lognormal" and self.sigma is not None:
            raise InvalidInput(
                f"simulation.sigma has no meaning with simulation.noise={self.noise}; add "
                "simulation.noise=lognormal"
            )
        if self.draws < 0 or self.draws == 1:
            raise InvalidInput(
                f"simulation.draws={self.draws}: an interval needs at least 2 draws; 0 for none"
            )


@dataclass
class CostModelConfig:
    """Which fit of a profile's data gives the times."""

    name: str
    description: str = ""


@dataclass
class Seeds:
    """Three independent seeds: arrivals; noise and draws; schedulers that search."""

    workload: int = 0
    noise: int = 0
    search: int = 0


@dataclass
class Scenario:
    """What determines a simulation's result.

    Attributes:
        instance: a bare instance instead of a model and a cluster: a name in ``conf/instances`` or a
            path.
        strict: refuse predictions outside the range that was measured.
    """

    model: ModelConfig
    cluster: ClusterConfig
    scheduler: SchedulerConfig
    workload: WorkloadConfig
    simulation: SimulationConfig
    cost_model: CostModelConfig
    seed: Seeds = field(default_factory=Seeds)
    instance: str | None = None
    strict: bool = False
    output_dir: str = "outputs"

    def settled(self: S) -> S:
        """Itself with nothing left to be decided by what else it says.

        Raises:
            InvalidInput: the simulation's settings are unknown or contradict each other.
        """
        self.simulation.check()
        if self.simulation.contention != "auto":
            return self
        contention = "none" if self.instance is not None else "fifo"
        return replace(self, simulation=replace(self.simulation, contention=contention))

    def document(self) -> dict[str, Any]:
        """What decides the result, JSON-ready: without output folders, and without the model and
        the cluster where an instance takes their place.
        """
        document = {
            key: value
            for key, value in asdict(self).items()
            if key in Scenario.__dataclass_fields__ and key != "output_dir" and value is not None
        }
        if self.instance is not None:
            for key in ("model", "cluster", "cost_model"):
                del document[key]
        return document


S = TypeVar("S", bound=Scenario)


@dataclass
class SimulateConfig(Scenario):
    """``python -m experiments.simulate``. ``explain`` prints each decision."""

    explain: bool = False


@dataclass
class DescribeConfig(Scenario):
    """``python -m experiments.describe``."""


@dataclass
class SweepConfig(Scenario):
    """``python -m experiments.sweep``.

    Attributes:
        name: the folder in ``outputs/sweeps``; made of the grid unless given.
        sweep: axes of a preset: a config key or group -> its values, as a list or in Hydra's
            syntax (``"range(0,30)"``). The command line replaces an axis by naming its key.
        exclude: conditions; a combination that meets every key of one of them is left out.
        baseline: the scheduler that the comparison is relative to.
        traces: keep every cell's trace.
        dry_run: say what would be done.
        rerun: ``failed``, ``stale`` or ``all`` to simulate those again.
        workers: processes; as many as there are cores unless given.
    """

    name: str | None = None
    description: str = ""
    source: str = ""
    sweep: dict[str, Any] = field(default_factory=dict)
    exclude: list[Any] = field(default_factory=list)
    baseline: str | None = None
    traces: bool = False
    dry_run: bool = False
    rerun: str | None = None
    workers: int | None = None


SWEEP_ONLY = (
    "name",
    "description",
    "source",
    "sweep",
    "exclude",
    "baseline",
    "traces",
    "dry_run",
    "rerun",
    "workers",
    "output_dir",
)
"""Keys of a sweep that concern the sweep as a whole: no axes, and no part of a cell."""


def scheduler_label(config: SchedulerConfig, shipped: Mapping[str, Any] | None = None) -> str:
    """The scheduler's name with the options that differ from its entry: ``donf(pricing=per_edge)``.

    Args:
        config: the scheduler as configured.
        shipped: options of its entry in ``conf/scheduler``; None: the constructor's defaults.
    """
    defaults = dict(shipped) if shipped is not None else {}
    if shipped is None:
        from simulator.schedulers import available

        kind = available().get(config.class_path or config.name)
        if kind is not None:
            parameters = inspect.signature(kind).parameters.values()
            defaults = {p.name: p.default for p in parameters}
    changed = [
        f"{key}={value}"
        for key, value in config.options.items()
        if key not in defaults or defaults[key] != value
    ]
    return config.name + (f"({', '.join(changed)})" if changed else "")
