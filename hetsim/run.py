"""One simulated run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.runs.cell import Outcome, run_scenario
from hetsim.picture import Picture, drawn
from hetsim.scenarios import SchedulerLike, scenarios_of
from scenarios.cluster_config import ClusterConfig
from simulator.errors import InvalidInput
from simulator.model.trace import Trace
from simulator.model.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd


def simulate(
    model: Any,
    cluster: str | Path | Mapping[str, Any] | ClusterConfig | None = None,
    scheduler: SchedulerLike = "heft",
    *,
    inputs: Any = None,
    settings: Mapping[str, Any] | None = None,
    config_dirs: Sequence[str | Path] = (),
) -> Run:
    """Simulate one model on one cluster under one scheduler.

    Args:
        model: a name of :func:`hetsim.models`, a ``torch.nn.Module`` (with ``inputs``), a
            :class:`hetsim.DataflowGraph`, or the file of a traced graph or of a bare instance.
        cluster: a name of :func:`hetsim.clusters`, a YAML file, a mapping of its form, or what
            :func:`hetsim.load_cluster` gives.
        scheduler: a name of :func:`hetsim.schedulers`, a subclass of :class:`hetsim.Scheduler`, a class path, or one
            of these with its options: ``("donf", {"pricing": "per_edge"})``.
        inputs: example inputs of a module: a tensor, a list of tensors, or a mapping for keyword arguments.
        settings: any value of the command line by its key: ``{"model.batch": 8, "simulation.contention": "fair"}``.
        config_dirs: folders of your own configs.

    Raises:
        InvalidInput: something of this cannot be used; one sentence says what and what can.

    Example:
        >>> import hetsim
        >>> run = hetsim.simulate("googlenet", cluster="cpu_1x_3x", scheduler="heft")
        >>> run.makespan_s > 0
        True
    """
    [scenario], folders = scenarios_of(model, cluster, [scheduler], inputs, settings, config_dirs)
    return Run(run_scenario(scenario, folders), folders)


class Run:
    """One simulated run.

    Attributes:
        outcome: scenario, world, trace and draws, as commands have them.
        figures: all metrics as ``result.json`` holds them, seconds and bytes.
    """

    def __init__(self, outcome: Outcome, config_dirs: tuple[Path, ...] = ()) -> None:
        self.outcome = outcome
        self._config_dirs = config_dirs
        self.figures: Mapping[str, Any] = outcome.figures

    @property
    def makespan_s(self) -> float:
        """Seconds from the first arrival to the last finish, at the believed times."""
        return float(self.figures["makespan_s"])

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """The 95% interval of the makespan in seconds; None where times are given and certain."""
        low, high = self.figures["makespan_low_s"], self.figures["makespan_high_s"]
        return None if low is None else (float(low), float(high))

    @property
    def scheduler(self) -> str:
        """The scheduler's label, with the options that differ from its defaults."""
        return self.outcome.label

    @property
    def validity(self) -> str:
        """Whether devices like these were validated together, and how far off they were; empty for given times."""
        return self.outcome.validity.line

    @property
    def trace(self) -> Trace:
        """The trace: columns of executions, transfers and jobs.

        Raises:
            InvalidInput: the run was told to keep figures alone.
        """
        if self.outcome.trace is None:
            raise InvalidInput(
                "This run kept figures alone (keep=figures); leave that out for a trace"
            )
        return self.outcome.trace

    def tasks(self) -> pd.DataFrame:
        """One row an execution: operator, kind, device, slot, and when it was ready, placed, started and finished (s)."""
        import pandas as pd

        trace, table = self.trace, pd.DataFrame(dict(self.trace.tasks))
        named = [trace.operator(j, o) for j, o in zip(table["job"], table["operator"], strict=True)]
        table["operator"] = [name for name, _ in named]
        table["kind"] = [kind for _, kind in named]
        table["device"] = [trace.devices[i] for i in table["device"]]
        return table

    def table(self) -> pd.DataFrame:
        """One row a device: profile and label, executions, busy seconds, utilisation, energy in joules where known."""
        import pandas as pd

        cluster, rows = self.outcome.world.cluster, []
        for device in cluster.devices:
            figure = self.figures["devices"][device.name]
            rows.append(
                {
                    "device": device.name,
                    "profile": device.profile,
                    "label": cluster.labels.get(device.profile or "", "given"),
                    "tasks": figure["tasks"],
                    "busy_s": figure["busy_s"],
                    "utilisation": figure["utilisation"],
                    "energy_j": _sum(figure["energy_busy_j"], figure["energy_idle_j"]),
                }
            )
        return pd.DataFrame(rows)

    def why_idle(self, device: str | None = None) -> pd.DataFrame:
        """Why devices' slots were idle: a row for each device and cause, the largest first.

        Args:
            device: one alone; None: all.

        Returns:
            Columns ``device``, ``cause`` (``no_work``: nothing was ready; ``decision``: work was ready and not placed
            here; ``link``, ``data``: an input waited for its link, or was on its way; ``memory``; ``overhead``;
            ``down``), ``seconds`` of slots, ``share`` of the device's idle time.

        Raises:
            InvalidInput: the cluster has no such device.
        """
        import pandas as pd

        known = self.figures["devices"]
        if device is not None and device not in known:
            raise InvalidInput(
                f"There is no device '{device}'; this cluster has {', '.join(known)}"
            )
        rows = []
        for name in known if device is None else [device]:
            seconds = known[name]["idle_s"]
            whole = sum(seconds.values())
            rows += [
                {"device": name, "cause": cause, "seconds": value, "share": value / whole}
                for cause, value in sorted(seconds.items(), key=lambda item: -item[1])
                if value > 0
            ]
        return pd.DataFrame(rows, columns=["device", "cause", "seconds", "share"])

    def explain(self) -> list[str]:
        """The scheduler's decisions, one line each, as ``explain=true`` prints them."""
        lines: list[str] = []
        run_scenario(self.outcome.scenario, self._config_dirs, lines.append)
        return lines

    def gantt(self, path: str | Path | None = None) -> Picture:
        """Draw who executed what when, the critical path, and what devices waited for.

        Args:
            path: of the files, without suffix; None: a temporary folder.
        """
        from experiments.plots.gantt import describe, draw_gantt

        trace, line = self.trace, self.validity
        caption = f"{describe(trace)}. Validity: {line}." if line else None
        return drawn(lambda stem: draw_gantt(trace, stem, caption=caption), path, "gantt")

    def perfetto(self, path: str | Path) -> Path:
        """Write the trace for https://ui.perfetto.dev; returns its path."""
        from experiments.runs.perfetto import write_perfetto

        path = Path(path).expanduser()
        write_perfetto(self.trace, path)
        return path

    def __repr__(self) -> str:
        world = self.outcome.world
        interval = self.interval_s
        span = "" if interval is None else " [95%: {} to {}]".format(*map(format_seconds, interval))
        text = f"{world.graph.name} on {world.cluster.name} with {self.scheduler}: {format_seconds(self.makespan_s)}{span}"
        return f"<Run {text}{f'; {self.validity}' if self.validity else ''}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<p>{escape(repr(self)[5:-1])}</p>{self.table().to_html(index=False)}"


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
