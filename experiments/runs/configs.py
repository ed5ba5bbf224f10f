"""What a config may hold: one schema a command, checked by Hydra, handed on as plain dataclasses."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from scenarios.arrivals import WorkloadConfig
from scenarios.cluster_config import ClusterConfig
from scenarios.family_config import FamilyConfig
from scenarios.fault_config import FaultConfig, build_faults
from scenarios.graph_files import FORMS
from scenarios.model_config import ModelConfig
from simulator.context.scheduling import MOVEMENTS
from simulator.engine.decision_cost import DecisionCost
from simulator.engine.run import ENGINES
from simulator.errors import InvalidInput
from simulator.links.registry import contentions
from simulator.memory.registry import WEIGHTS, memories
from simulator.model.noise import LogNormalNoise, Stragglers, registered
from simulator.model.units import parse_seconds

GROUPS = (
    *("model", "cluster", "scheduler", "partition", "workload", "simulation", "cost_model"),
    "family",
)
"""Config groups of which a run takes exactly one entry each."""
CHARGES = ("stated", "wallclock")
NOISES = ("none", "lognormal", "measured", "empirical", "systematic", "stragglers", "drift")


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
class PartitionConfig:
    """A partitioner decides where graphs are cut and what runs where (:mod:`scenarios.partition`).

    Attributes:
        name: what tables call it; ``none``: graphs stay as they are.
        class_path: ``package.module.Class`` or ``path/to/file.py:Class``, a subclass of
            :class:`scenarios.partition.partitioner.Partitioner`.
        options: its arguments by name.
    """

    name: str = "none"
    class_path: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    description: str = ""
    source: str = ""

    @property
    def partitions(self) -> bool:
        """Whether there is a partitioner."""
        return self.class_path is not None


@dataclass
class SystematicConfig:
    """Errors of prediction: one factor for each (profile, kind), the same in the whole run.

    Attributes:
        sigma: standard deviation of log factors; None: what each profile's held-out architectures
            say of each kind.
    """

    sigma: float | None = None


@dataclass
class StragglersConfig:
    """Tasks that now and then take several times as long.

    Attributes:
        probability: of a task to straggle.
        factor: by which its time grows; the least factor where there is a ``shape``.
        shape: tail index of a Pareto distribution of the factor, above 1; None: always ``factor``.
    """

    probability: float | None = None
    factor: float | None = None
    shape: float | None = None


@dataclass
class DriftConfig:
    """Devices whose speed changes over time, taken at each job's arrival.

    Attributes:
        per_hour: relative change of all times in an hour, compounded: 0.02 is 2% slower.
        sigma: standard deviation of the log factors by which each device wanders on its own.
        time_constant: of that wandering, like ``10min``.
    """

    per_hour: float | None = None
    sigma: float | None = None
    time_constant: str | None = None


@dataclass
class DecisionCostConfig:
    """What a decision of the scheduler costs in simulated time; nothing unless a part is given.

    Attributes:
        charge: ``stated``: the sum of the parts; ``wallclock``: what this machine takes, so that no run
            can be repeated.
        per_decision, per_task, per_pair: like ``10us``, see :mod:`simulator.engine.decision_cost`.
    """

    charge: str = "stated"
    per_decision: str | None = None
    per_task: str | None = None
    per_pair: str | None = None

    @property
    def parts(self) -> dict[str, str]:
        """What is given of the model, as written."""
        keys = ("per_decision", "per_task", "per_pair")
        return {key: value for key in keys if (value := getattr(self, key)) is not None}

    def build(self) -> DecisionCost | None:
        """The cost; None if decisions cost nothing.

        Raises:
            InvalidInput: names the key, the value and what is known.
        """
        if self.charge not in CHARGES:
            raise InvalidInput(
                f"There is no simulation.decision_cost.charge={self.charge}; known: "
                f"{', '.join(CHARGES)}"
            )
        if self.charge == "wallclock":
            if self.parts:
                raise InvalidInput(
                    f"simulation.decision_cost.{next(iter(self.parts))} has no meaning with "
                    "simulation.decision_cost.charge=wallclock; leave one of both out"
                )
            return DecisionCost(wallclock=True)
        if not self.parts:
            return None

        def seconds(key: str) -> float:
            return parse_seconds(self.parts.get(key, "0s"), f"simulation.decision_cost.{key}")

        return DecisionCost(seconds("per_decision"), seconds("per_task"), seconds("per_pair"))


@dataclass
class SimulationConfig:
    """How time passes.

    Attributes:
        movement: ``push`` or ``pull``.
        contention: ``none``, ``fifo``, ``fair``, or ``auto``: ``none`` for bare instances and drawn
            graphs, whose edges say how long they take, ``fifo`` for everything else. Results record which it was.
        engine: ``engine``, or ``evaluator`` for plans of static schedulers that are whole before the run, by compiled
            loops (:mod:`simulator.engine.evaluated`); the trace is the same.
        noise: of the actual times: ``none``, or any of these joined by ``+``: ``lognormal`` (of width
            ``sigma``), ``measured`` (each operator's own measured spread), ``empirical`` (measured
            calls of the kind), ``systematic``, ``stragglers``, ``drift``.
        sigma: standard deviation of log seconds of ``lognormal``.
        systematic, stragglers, drift: of the noise of that name.
        memory: ``limited`` keeps every memory space within its capacity, ``unlimited`` ignores it.
        weights: ``resident`` where they are read, or loaded ``on_demand`` from the host memory.
        draws: how often a run is repeated with drawn times for its interval; 0 for none.
        discrepancy: standard deviation of the log of what a schedule's makespan is off by beyond its operators'
            times, in draws of predictors' errors (:mod:`experiments.runs.discrepancy`); 0 for none.
        horizon: the run ends then, like ``60s``; what is not done stays in the system. None: it ends
            when all jobs are done.
        faults: what breaks, see :mod:`scenarios.fault_config`; random ones are drawn by ``seed.noise``.
        decision_cost: what decisions cost in simulated time.
        max_attempts: executions of a task, or transfers that a failing memory called off, after which a job
            fails if faults ask for another; null for no limit.
    """

    movement: str = "push"
    contention: str = "auto"
    engine: str = "engine"
    noise: str = "none"
    sigma: float | None = None
    systematic: SystematicConfig = field(default_factory=SystematicConfig)
    stragglers: StragglersConfig = field(default_factory=StragglersConfig)
    drift: DriftConfig = field(default_factory=DriftConfig)
    memory: str = "unlimited"
    weights: str = "resident"
    draws: int = 200
    discrepancy: float = 0.015
    horizon: str | None = None
    faults: list[FaultConfig] = field(default_factory=list)
    max_attempts: int | None = 4
    decision_cost: DecisionCostConfig = field(default_factory=DecisionCostConfig)
    description: str = ""

    @property
    def horizon_s(self) -> float | None:
        """The horizon in seconds."""
        return None if self.horizon is None else parse_seconds(self.horizon, "simulation.horizon")

    @property
    def noises(self) -> tuple[str, ...]:
        """The names in ``noise``, none of them ``none``."""
        return tuple(name for name in self.noise.split("+") if name != "none")

    @property
    def replaces_predictor_error(self) -> bool:
        """Whether the noise brings a systematic error, so that draws need no predictor error."""
        return "systematic" in self.noises

    def check(self) -> None:
        """Refuse what the simulator does not know.

        Raises:
            InvalidInput: names the key, the value and what is known.
        """
        for key, value, known in (
            ("movement", self.movement, MOVEMENTS),
            ("contention", self.contention, ("auto", *contentions())),
            ("engine", self.engine, ENGINES),
            ("memory", self.memory, memories()),
            ("weights", self.weights, WEIGHTS),
            *(("noise", name, (*NOISES, *registered())) for name in self.noise.split("+")),
        ):
            if value not in known:
                raise InvalidInput(
                    f"There is no simulation.{key}={value}; known: {', '.join(known)}"
                )
        self._check_noise()
        if self.horizon_s is not None and not 0 < self.horizon_s < math.inf:
            raise InvalidInput(f"simulation.horizon={self.horizon} must be above 0")
        build_faults(self.faults, self.max_attempts)
        self.decision_cost.build()
        if self.draws < 0 or self.draws == 1:
            raise InvalidInput(
                f"simulation.draws={self.draws}: an interval needs at least 2 draws; 0 for none"
            )
        if not 0 <= self.discrepancy < 1:
            raise InvalidInput(
                f"simulation.discrepancy={self.discrepancy} is a standard deviation of log makespans, e.g. "
                "0.015; 0 for none"
            )

    def _check_noise(self) -> None:
        names = self.noise.split("+")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None or ("none" in names and len(names) > 1):
            raise InvalidInput(
                f"simulation.noise={self.noise}: "
                + (f"'{twice}' stands twice" if twice else "'none' cannot be joined with others")
            )
        given = {
            "sigma": self.sigma,
            **{
                f"{name}.{key}": value
                for name in ("systematic", "stragglers", "drift")
                for key, value in vars(getattr(self, name)).items()
            },
        }
        for key, value in given.items():
            owner = "lognormal" if key == "sigma" else key.partition(".")[0]
            if value is not None and owner not in names:
                added = owner if self.noise == "none" else f"{self.noise}+{owner}"
                raise InvalidInput(
                    f"simulation.{key} has no meaning with simulation.noise={self.noise}; add "
                    f"simulation.noise={added}"
                )
        for name, key, example in (
            ("lognormal", "sigma", "0.05"),
            ("stragglers", "stragglers.probability", "0.01"),
            ("stragglers", "stragglers.factor", "5"),
        ):
            if name in names and given[key] is None:
                raise InvalidInput(
                    f"simulation.noise={self.noise} needs simulation.{key}, e.g. {example}"
                )
        # Refused now what is out of range, not once a model is traced and priced.
        if self.sigma is not None:
            LogNormalNoise(self.sigma)
        if self.stragglers.probability is not None and self.stragglers.factor is not None:
            Stragglers(self.stragglers.probability, self.stragglers.factor, self.stragglers.shape)
        drift = self.drift
        if "drift" in names and drift.per_hour is None and drift.sigma is None:
            raise InvalidInput(
                f"simulation.noise={self.noise} needs simulation.drift.per_hour, e.g. 0.02, or "
                "simulation.drift.sigma and simulation.drift.time_constant, e.g. 0.05 and 10min"
            )
        if (drift.sigma is None) != (drift.time_constant is None):
            raise InvalidInput(
                "simulation.drift.sigma and simulation.drift.time_constant belong together; give "
                "both, e.g. 0.05 and 10min"
            )

    @property
    def memory_text(self) -> str:
        """See :func:`memory_text`."""
        return memory_text(asdict(self))

    @property
    def decision_cost_text(self) -> str:
        """See :func:`decision_cost_text`."""
        return decision_cost_text(asdict(self))

    @property
    def noise_text(self) -> str:
        """See :func:`noise_text`."""
        return noise_text(asdict(self))


def memory_text(simulation: Mapping[str, Any]) -> str:
    """What tables call a simulation's memory: ``limited, weights on demand``. Runs made before it
    could be limited do not say so.
    """
    memory: str = simulation.get("memory", "unlimited")
    on_demand = simulation.get("weights", "resident") == "on_demand"
    return memory + (", weights on demand" if on_demand else "")


def decision_cost_text(simulation: Mapping[str, Any]) -> str:
    """What tables call a simulation's decision cost: ``10us/decision + 1us/task``. Runs made before
    decisions could cost anything do not say so.
    """
    given = DecisionCostConfig(**simulation.get("decision_cost") or {})
    if given.charge == "wallclock":
        return "wall clock, not reproducible"
    return (
        " + ".join(f"{value}/{key.removeprefix('per_')}" for key, value in given.parts.items())
        or "none"
    )


def noise_text(simulation: Mapping[str, Any]) -> str:
    """The noise with its parameters: ``lognormal(sigma=0.05)+drift(per_hour=0.02)``.

    Parameters stand in alphabetical order.

    Args:
        simulation: the part of a result's config.
    """
    shown = []
    for name in simulation["noise"].split("+"):
        values = simulation.get(name) or {}
        if name == "lognormal":
            values = {"sigma": simulation.get("sigma")}
        text = ", ".join(
            f"{key}={value}" for key, value in sorted(values.items()) if value is not None
        )
        shown.append(f"{name}({text})" if text else name)
    return "+".join(shown)


@dataclass
class CostModelConfig:
    """Which fit of a profile's data gives the times.

    Attributes:
        lookup: operators that were themselves measured, in the cache state that is priced, take their
            measured time and the error of a repeated measurement.
    """

    name: str
    lookup: bool = False
    description: str = ""


def cost_model_text(cost_model: Mapping[str, Any]) -> str:
    """What tables call a cost model: ``boosted``, or ``boosted+lookup``. Runs made before times could
    be looked up do not say so.
    """
    name: str = cost_model["name"]
    return name + ("+lookup" if cost_model.get("lookup") else "")


@dataclass
class Seeds:
    """Three independent seeds: graphs that are drawn, and arrivals; noise and draws; schedulers that
    search.
    """

    workload: int = 0
    noise: int = 0
    search: int = 0


@dataclass
class Scenario:
    """What determines a simulation's result.

    Attributes:
        instance: a bare instance instead of a model and a cluster: a name in ``conf/instances`` or a
            path; or a file of a graph without times.
        family: a graph that is drawn instead of these, where it has a generator; or the times of such
            a file.
        strict: refuse predictions outside the range that was measured.
        keep: ``figures`` counts requests when they leave and forgets them, so that a run takes as much
            memory as it has requests at once; None keeps the whole trace.
    """

    model: ModelConfig
    cluster: ClusterConfig
    scheduler: SchedulerConfig
    workload: WorkloadConfig
    simulation: SimulationConfig
    cost_model: CostModelConfig
    family: FamilyConfig = field(default_factory=FamilyConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    seed: Seeds = field(default_factory=Seeds)
    instance: str | None = None
    strict: bool = False
    keep: str | None = None
    output_dir: str = "outputs"

    @property
    def bare(self) -> bool:
        """Whether times are given with the graph, instead of predicted for a model on a cluster."""
        return self.instance is not None or self.family.drawn

    def settled(self: S) -> S:
        """Itself with nothing left to be decided by what else it says.

        Raises:
            InvalidInput: the simulation's settings are unknown or contradict each other, or a graph
                cannot be drawn as the family says.
        """
        self.simulation.check()
        self._check_kept()
        self._check_family()
        if self.family.drawn:
            self.family.check()
            if self.instance is not None and not self.family.of_file:
                raise InvalidInput(
                    f"family={self.family.name} and instance={self.instance} each say which graph "
                    "runs; leave one of them out"
                )
            if self.instance is None and self.family.of_file:
                raise InvalidInput(
                    f"family={self.family.name} gives devices to the graph of a file; name it: "
                    f"instance=FILE, {FORMS}"
                )
        if self.simulation.contention != "auto":
            return self
        contention = "none" if self.bare else "fifo"
        return replace(self, simulation=replace(self.simulation, contention=contention))

    def _check_family(self) -> None:
        if self.family.drawn:
            return
        for key, value in vars(self.family).items():
            if key not in ("name", "description", "source") and value != getattr(
                FamilyConfig(), key
            ):
                raise InvalidInput(
                    f"family.{key}={value} has no meaning without a family; name one, such as family=daggen"
                )

    def _check_kept(self) -> None:
        if self.keep is None:
            return
        if self.keep != "figures":
            raise InvalidInput(
                f"There is no keep={self.keep}; known: figures, or null for the trace"
            )
        simulation = self.simulation
        for what, wrong in (
            (
                f"workload={self.workload.name}, whose jobs are no requests",
                not self.workload.serves,
            ),
            (f"simulation.engine={simulation.engine}", simulation.engine != "engine"),
            (f"partition={self.partition.name}", self.partition.partitions),
        ):
            if wrong:
                raise InvalidInput(f"keep=figures cannot be had with {what}; leave one of both out")

    def document(self) -> dict[str, Any]:
        """What decides the result, JSON-ready: without output folders, and without the model and
        the cluster where an instance or a drawn graph takes their place.
        """
        document = {
            key: value
            for key, value in contents(self).items()
            if key in Scenario.__dataclass_fields__ and key != "output_dir" and value is not None
        }
        del document["family"]
        if not self.partition.partitions:
            del document["partition"]
        if self.family.drawn:
            document["family"] = self.family.document()
        if self.bare:
            for key in ("model", "cluster", "cost_model"):
                del document[key]
        return document


def contents(value: Any) -> Any:
    """A config as mappings and lists; ``dataclasses.asdict`` without a copy of every leaf."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: contents(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {key: contents(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [contents(entry) for entry in value]
    return value


S = TypeVar("S", bound=Scenario)


@dataclass
class Preset(Scenario):
    """What an entry of ``conf/experiment`` may say of itself, in the schema of every command.

    Attributes:
        command: that it is for, like ``experiments.size``; see :mod:`experiments.runs.presets`.
    """

    command: str | None = None
    description: str = ""
    source: str = ""


@dataclass
class SimulateConfig(Preset):
    """``python -m experiments.simulate``.

    Attributes:
        explain: print each decision.
        save_instance: a file for the drawn graph with its times, in the form that ``instance`` reads.
        export: a file for what ran, for other tools: ``.et`` (Chakra) or ``.json`` (WfFormat).
    """

    explain: bool = False
    save_instance: str | None = None
    export: str | None = None


@dataclass
class DescribeConfig(Preset):
    """``python -m experiments.describe``.

    Attributes:
        features: a file for the features of the model's operators, as Parquet.
        advise: say where each phase of the model should run, by features alone.
        profile: a file for the layers of the model by closed forms, as Parquet or CSV.
    """

    features: str | None = None
    profile: str | None = None
    advise: bool = False


@dataclass
class SweepConfig(Preset):
    """``python -m experiments.sweep``.

    Attributes:
        name: the folder in ``outputs/sweeps``; made of the grid unless given.
        sweep: axes of a preset: a config key or group -> its values, as a list or in Hydra's
            syntax (``"range(0,30)"``). The command line replaces an axis by naming its key.
        exclude: conditions; a combination that meets every key of one of them is left out.
        baseline: the scheduler that the comparison is relative to.
        traces: keep every cell's trace.
        dry_run: say what would be done.
        rerun: what is simulated again: ``stale`` cells, whose code or profiles changed; ``failed`` ones too;
            ``all``; or ``none``.
        workers: processes, as many as there are cores unless given; or a cluster
            (:mod:`experiments.runs.clusters`).
        style: width of the report's figures: ``column`` (3.33 inches) or ``page`` (7); each its usual one unless given.
    """

    name: str | None = None
    sweep: dict[str, Any] = field(default_factory=dict)
    exclude: list[Any] = field(default_factory=list)
    baseline: str | None = None
    traces: bool = False
    dry_run: bool = False
    rerun: str = "stale"
    workers: int | str | None = None
    style: str | None = None


SWEEP_ONLY = (
    "name",
    "command",
    "description",
    "source",
    "sweep",
    "exclude",
    "baseline",
    "traces",
    "dry_run",
    "rerun",
    "workers",
    "style",
    "output_dir",
)
"""Keys of a sweep that concern the sweep as a whole: no axes, and no part of a cell."""


def scheduler_label(
    config: SchedulerConfig | PartitionConfig, shipped: Mapping[str, Any] | None = None
) -> str:
    """The name of a scheduler, or of a partition, with the options that differ from its entry:
    ``donf(pricing=per_edge)``.

    Args:
        config: as configured.
        shipped: options of its entry in ``conf``; None: the constructor's defaults.
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
