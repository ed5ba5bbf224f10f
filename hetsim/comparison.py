"""Schedulers compared on models of one cluster, by the rule that every table follows."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.runs.cell import run_scenario
from hetsim.picture import Picture, drawn
from hetsim.run import Run
from hetsim.scenarios import SchedulerLike, scenarios_of
from scenarios.cluster_config import ClusterConfig
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

    from experiments.comparison.contests import Standings


def compare(
    model: Any,
    cluster: str | Path | Mapping[str, Any] | ClusterConfig | None = None,
    schedulers: Sequence[SchedulerLike] = ("heft", "donf", "fcfs"),
    *,
    inputs: Any = None,
    baseline: str | None = None,
    settings: Mapping[str, Any] | None = None,
    config_dirs: Sequence[str | Path] = (),
) -> Comparison:
    """Simulate every scheduler on the same models, cluster and draws, and say which is best and how sure that is.

    Args:
        model: as :func:`hetsim.simulate` takes it, or a list of such.
        cluster: as :func:`hetsim.simulate` takes it.
        schedulers: each as :func:`hetsim.simulate` takes it.
        inputs: example inputs of a module.
        baseline: the scheduler that the verdict compares with; None: your own class, else ``fcfs``, else the next best.
        settings: any value of the command line by its key.
        config_dirs: folders of your own configs.

    Raises:
        InvalidInput: something of this cannot be used; one sentence says what and what can.

    Example:
        >>> import hetsim
        >>> result = hetsim.compare("googlenet", cluster="cpu_1x_3x", schedulers=["heft", "fcfs"])
        >>> list(result.table()["scheduler"])
        ['heft', 'fcfs']
    """
    runs: list[Run] = []
    models = model if isinstance(model, list) else [model]
    for one in models:
        found, folders = scenarios_of(one, cluster, schedulers, inputs, settings, config_dirs)
        runs += [Run(run_scenario(scenario, folders), folders) for scenario in found]
    kinds = [s[0] if isinstance(s, tuple) else s for s in schedulers]
    labels = [run.scheduler for run in runs[: len(kinds)]]
    own = [label for kind, label in zip(kinds, labels, strict=True) if isinstance(kind, type)]
    return Comparison(runs, baseline or next(iter(own), None), own)


class Comparison:
    """Several schedulers on the same models, devices and draws.

    Attributes:
        runs: one :class:`hetsim.Run` for each model and scheduler, in the order in which they were asked for.
        baseline: the scheduler that verdicts compare with; None: ``fcfs``, else the next best.
    """

    def __init__(
        self, runs: list[Run], baseline: str | None = None, own: Sequence[str] = ()
    ) -> None:
        from experiments.comparison.answers import check_baseline
        from experiments.comparison.leaderboard import standings
        from experiments.runs.results import row_of, table_of

        self.runs = runs
        self.baseline = baseline
        self._own = tuple(own)
        rows = [row_of(run.outcome.result()) for run in runs]
        labels = [(row["model"], row["batch"], row["scheduler"]) for row in rows]
        for label in labels:
            if labels.count(label) > 1:
                raise InvalidInput(
                    f"Two schedulers are called '{label[2]}' on {label[0]}; give one a name of its own"
                )
        self._standings: Standings = standings(table_of(rows).to_pandas())
        check_baseline(self._standings, baseline)

    @property
    def verdict(self) -> str:
        """A sentence a model: who beats whom by how much, or that they are not separable.

        "Beats" stands where the two-sided 95% interval of the difference leaves 0 out, and nowhere else.
        """
        from experiments.comparison.answers import answers, label_lines

        return "\n".join([*label_lines(self._standings), *answers(self._standings, self.baseline)])

    @property
    def validity(self) -> str:
        """Whether devices like these were validated together, and how far off they were."""
        from experiments.comparison.answers import validity_lines

        return "\n".join(validity_lines(self._standings))

    def table(self) -> pd.DataFrame:
        """One row a model and scheduler, the best first: makespan and its 95% interval in seconds, how it compares with
        the best device, the lower bound and the baseline, and P(best).
        """
        from experiments.comparison.contests import SETTING
        from experiments.comparison.tables import main_frame

        frame = main_frame(self._standings, self.baseline)
        return frame[[c for c in frame if c not in SETTING] + [c for c in frame if c in SETTING]]

    def plot(self, path: str | Path | None = None, style: str | None = None) -> Picture:
        """Draw makespans with their intervals, the best device and the lower bound.

        Args:
            path: of the files, without suffix; None: a temporary folder.
            style: ``column`` (3.33 inches) or ``page`` (7 inches).
        """
        from experiments.comparison.contests import BEST_DEVICE
        from experiments.plots.looks import Look
        from experiments.plots.makespan import draw_makespans

        found = self._standings
        look = Look.of(style, [*found.schedulers, BEST_DEVICE], self._own)
        return drawn(
            lambda stem: draw_makespans(found, found.contests, stem, look), path, "makespans"
        )

    def __getitem__(self, scheduler: str) -> Run:
        """The run of a scheduler; of several models the first one's."""
        for run in self.runs:
            if run.scheduler == scheduler:
                return run
        raise KeyError(f"{scheduler}; there are {', '.join(run.scheduler for run in self.runs)}")

    def __repr__(self) -> str:
        from rich.console import Console

        from experiments.comparison.terminal import terminal_table
        from experiments.runs.console import WIDTH

        console = Console(file=io.StringIO(), width=WIDTH, highlight=False, color_system=None)
        for line in terminal_table(self._standings, self.baseline):
            console.print(line, soft_wrap=True)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        return str(text).rstrip()

    def _repr_html_(self) -> str:
        from html import escape

        from experiments.comparison.tables import main_table

        table = main_table(self._standings)
        head = "".join(f"<th>{escape(text)}</th>" for text in table.headings)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>"
            for row in table.rows
        )
        lines = f"{self.verdict}\n{self.validity}".strip().splitlines()
        words = "<br>".join(escape(line) for line in lines)
        return f"<p>{words}</p><table><tr>{head}</tr>{body}</table>"
