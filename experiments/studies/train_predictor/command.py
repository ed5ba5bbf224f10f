r"""Train a load predictor, and hold it against simpler ones on time that it has not seen.

    python -m experiments.train_predictor workload=edge_streams cluster=edge_nodes \
        scheduler=edge/two_stage_lstm file=mine.safetensors
    python -m experiments.train_predictor loads=recorded.csv file=mine.safetensors

The loads are those that ``two_stage`` saw while it served the configured scenario (``record=loads.csv``
keeps them), or those in a CSV: ``time_s`` and a column for each node. Of every run the last part is held
out; no window reaches across. Writes the predictor, whole or not at all.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.comparison.statistics import Interval, bootstrap_mean, interval
from experiments.runs import atomic
from experiments.runs.cell import Runs, make_scheduler
from experiments.runs.command import Invocation, hydra_command
from experiments.runs.configs import Preset
from experiments.runs.console import print_validity
from experiments.runs.file_name import file_name
from experiments.runs.prepare import prepare
from experiments.runs.progress import progress_bar
from scenarios.serving.load_predictor import EPOCHS, HIDDEN, LoadNetwork, fit, split, windows
from scenarios.serving.load_records import LoadRecord, read_loads, write_loads
from simulator.errors import InvalidInput
from simulator.serving.dispatching import Dispatcher
from simulator.serving.two_stage import MovingAverage, Persistence, TwoStage

BLOCKS = 20
"""Stretches of held-out time, over all runs, whose errors are averaged: neighbours in time are alike."""
RESAMPLED = 2000
TRAINED = "lstm"


@dataclass
class TrainPredictorConfig(Preset):
    """``python -m experiments.train_predictor``. ``seed.search`` draws initial weights and batches.

    Attributes:
        file: where the predictor goes; into a folder of its own in ``output_dir`` unless given.
        loads: a CSV of loads, instead of simulating.
        record: a CSV for the loads that were simulated.
        rates: values of ``workload.rate`` to simulate, each; None: the workload's own.
        runs: of each rate, with ``seed.workload`` and the next ones.
        held_out: share of the time, the end of each run, that the errors are of.
        hidden, epochs: units, and how often all windows are seen at most.
    """

    file: str | None = None
    loads: str | None = None
    record: str | None = None
    rates: list[str] | None = None
    runs: int = 4
    held_out: float = 0.25
    hidden: int = HIDDEN
    epochs: int = EPOCHS


@dataclass(frozen=True)
class HeldOut:
    """Squared errors on held-out time.

    Attributes:
        errors: by predictor, the mean over each stretch of time; the same stretches for all.
        count: predictions of each.
    """

    errors: Mapping[str, np.ndarray]
    count: int

    def mean(self, name: str) -> float:
        """Mean squared error."""
        return float(self.errors[name].mean())

    def interval(self, name: str) -> Interval | None:
        """The 95% interval of it; None with a single stretch."""
        values = self.errors[name]
        return bootstrap_mean(values) if len(values) > 1 else None

    def gain(self, name: str) -> tuple[float, Interval | None]:
        """By how much the trained one's error is smaller, as a share of another's, and the 95%
        bootstrap interval of that over stretches; None with a single one.
        """
        own, other = self.errors[TRAINED], self.errors[name]
        share = 1.0 - self.mean(TRAINED) / (self.mean(name) or math.inf)
        if len(own) == 1:
            return share, None
        rows = np.random.default_rng(0).integers(len(own), size=(RESAMPLED, len(own)))
        below = other[rows].mean(axis=1)
        shares = 1.0 - own[rows].mean(axis=1) / np.where(below > 0, below, math.inf)
        return share, interval(shares)


def evaluate(
    network: LoadNetwork, trained_on: Sequence[np.ndarray], held_out: Sequence[np.ndarray]
) -> HeldOut:
    """Errors of a network, of persistence, of a moving average, and of the mean of the training time.

    Args:
        network: trained.
        trained_on: of each run float[samples, nodes], as the network was trained on.
        held_out: of each run what came after it.

    Raises:
        InvalidInput: the held-out time is too short for one window.
    """
    window, horizon = network.window, network.horizon
    mean = float(windows(trained_on, window, horizon)[1].mean())
    stretches: dict[str, list[float]] = {}
    per_run = max(1, BLOCKS // max(1, len(held_out)))
    count = 0
    for run in held_out:
        seen, right = windows([run], window, horizon)
        if not len(right):
            continue
        count += len(right)
        nodes = run.shape[1]
        for name, expected in {
            TRAINED: network.predict(seen),
            "persistence": Persistence().predict(seen),
            "ewma": MovingAverage().predict(seen),
            "training mean": np.full(len(right), mean),
        }.items():
            errors = ((expected - right) ** 2).reshape(-1, nodes).mean(axis=1)
            parts = np.array_split(errors, min(per_run, len(errors)))
            stretches.setdefault(name, []).extend(float(part.mean()) for part in parts)
    if not count:
        raise InvalidInput(
            f"No held-out run has the {window + horizon} samples that one prediction takes; record "
            "longer runs, or raise held_out"
        )
    return HeldOut({name: np.array(values) for name, values in stretches.items()}, count)


def recorded_loads(
    config: TrainPredictorConfig, config_dirs: Sequence[Path], console: Console
) -> tuple[LoadRecord, TwoStage, str]:
    """The loads that a scenario's selection saw, the selection, and in which world the devices were validated.

    A predictor that would have to be trained first is left out meanwhile.

    Raises:
        InvalidInput: the scheduler does not select in two stages, or the scenario cannot be run.
    """
    selected = config.scheduler.options.get("select")
    if not isinstance(selected, Mapping) or selected.get("name") != TwoStage.name:
        raise InvalidInput(
            f"Scheduler '{config.scheduler.name}' does not select in two stages, so it sees no loads; "
            "take scheduler=edge/two_stage_lstm, or options.select={name: two_stage}"
        )
    options = {**selected, "record": True}
    if ":" in str(options.get("predictor", "")):
        options["predictor"] = "none"
        options.pop("predictor_options", None)
    scheduler = replace(config.scheduler, options={**config.scheduler.options, "select": options})
    config = replace(config, scheduler=scheduler)
    make_scheduler(config.scheduler, config.seed.search, config_dirs)
    rates: Sequence[str | None] = config.rates or [None]
    runs: list[np.ndarray] = []
    selection: TwoStage | None = None
    nodes: tuple[str, ...] = ()
    validity = ""
    with progress_bar(console) as progress:
        task = progress.add_task("recording", total=len(rates) * config.runs)
        for rate in rates:
            for number in range(config.runs):
                one = replace(
                    config,
                    seed=replace(config.seed, workload=config.seed.workload + number),
                    workload=replace(config.workload, rate=rate or config.workload.rate),
                )
                world = prepare(one, config_dirs)
                recording = Runs(one, world, config_dirs)
                recording.nominal()
                assert isinstance(recording.scheduler, Dispatcher)
                found = recording.scheduler.selection
                assert isinstance(found, TwoStage)
                skipped = math.ceil(one.workload.warm_up_s / found.sample)
                runs.append(np.array(found.recorded[skipped:]).reshape(-1, len(found.nodes)))
                nodes = tuple(world.cluster.spaces[space].name for space in found.nodes)
                selection, validity = found, world.validity().line
                progress.advance(task)
    assert selection is not None
    return LoadRecord(selection.sample, nodes, runs), selection, validity


def train_command(config: TrainPredictorConfig, invocation: Invocation) -> None:
    """See the module docstring."""
    console = Console(highlight=False)
    config = config.settled()
    _check(config)
    if config.loads is not None:
        record, selection, validity = read_loads(config.loads), TwoStage(), ""
        # What else decided these loads is not known.
        options = {"sample": record.sample}
    else:
        record, selection, validity = recorded_loads(config, invocation.config_dirs, console)
        options = {
            name: getattr(selection, name) for name in ("sample", "average", "queue_capacity")
        }
    if config.record is not None:
        write_loads(config.record, record)
    trained_on, held_out = split(record.runs, config.held_out)
    with progress_bar(console) as progress:
        task = progress.add_task("training", total=config.epochs)

        def show(epoch: int, error: float) -> None:
            progress.update(task, completed=epoch, description=f"training: MSE {error:.3g}")

        network = fit(
            trained_on,
            window=selection.window,
            horizon=selection.horizon,
            hidden=config.hidden,
            epochs=config.epochs,
            seed=config.seed.search,
            options=options,
            notes={"command": invocation.command, "nodes": list(record.nodes)},
            progress=show,
        )
    result = evaluate(network, trained_on, held_out)
    folder = _folder(config)
    file = Path(config.file or folder / "predictor.safetensors")
    network.save(file)
    document = _document(result, record, file, config) | {"validity": validity}
    atomic.write_json(folder / "result.json", document)
    atomic.write_text(folder / "command.txt", invocation.command + "\n")
    _print(result, record, config, console)
    print_validity(validity, console)
    written = dict.fromkeys([str(file), *([config.record] if config.record else []), f"{folder}/"])
    console.print(f"wrote {', '.join(written)}", style="dim", soft_wrap=True, markup=False)


def _check(config: TrainPredictorConfig) -> None:
    if not 0 < config.held_out < 1:
        raise InvalidInput(f"held_out={config.held_out} is a share of the time; give 0.25, say")
    if config.runs < 1:
        raise InvalidInput(f"runs={config.runs}; give at least 1")
    if config.loads is not None and (config.record is not None or config.rates is not None):
        raise InvalidInput(
            "loads takes recorded loads, so that nothing is simulated; leave out record and rates"
        )


def _folder(config: TrainPredictorConfig) -> Path:
    source = Path(config.loads).stem if config.loads else config.cluster.name
    stamp = time.strftime("%Y%m%d_%H%M%S")
    folder = Path(config.output_dir) / "predictors" / f"{stamp}-{file_name(source)}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _document(
    result: HeldOut, record: LoadRecord, file: Path, config: TrainPredictorConfig
) -> dict[str, Any]:
    rows = {}
    for name in result.errors:
        spread = result.interval(name)
        rows[name] = {
            "mse": result.mean(name),
            "low": None if spread is None else spread.low,
            "high": None if spread is None else spread.high,
            "by_stretch": result.errors[name].tolist(),
        }
    return {
        "format": "hetsim.load_predictor_evaluation/1",
        "file": str(file),
        "held_out": config.held_out,
        "predictions": result.count,
        "sample_s": record.sample,
        "nodes": list(record.nodes),
        "runs": len(record.runs),
        "errors": rows,
    }


def _print(
    result: HeldOut, record: LoadRecord, config: TrainPredictorConfig, console: Console
) -> None:
    samples = sum(len(run) for run in record.runs)
    console.print(
        f"[bold]{result.count} predictions on the last {config.held_out:.0%} of "
        f"{len(record.runs)} {'run' if len(record.runs) == 1 else 'runs'}[/] "
        f"({len(record.nodes)} nodes, {samples} samples of {record.sample:g} s)"
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("predictor", "MSE", "95% interval", "lstm's is smaller by"):
        table.add_column(heading, justify="left" if heading == "predictor" else "right")
    for name in result.errors:
        spread = result.interval(name)
        text = "-" if spread is None else f"{spread.low:.3g} to {spread.high:.3g}"
        gain = ""
        if name != TRAINED:
            share, around = result.gain(name)
            gain = f"{share:.1%}"
            if around is not None:
                gain += f" [{around.low:.1%}, {around.high:.1%}]"
        table.add_row(name, f"{result.mean(name):.4g}", text, gain)
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return hydra_command(
        train_command,
        TrainPredictorConfig,
        "experiments.train_predictor",
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
