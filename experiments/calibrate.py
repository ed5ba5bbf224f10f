"""Measure a device and fit its profile: ``python -m experiments.calibrate device=cpu budget=5min``.

Leaves ``outputs/calibration/<device>/<time>/`` with ``raw/`` (every sample), ``measurements.parquet``,
``profile/`` and ``report.html``. A run that was stopped, or that should become more exact, goes on
with ``out=<that folder>``. Where the device has neither Hydra nor XGBoost, measure there with
``python -m calibration.measure`` and fit here with ``step=fit out=<folder>``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from experiments import atomic
from experiments.command import Invocation, hydra_command
from experiments.simulate import make_console
from scenarios.model_config import ModelConfig
from simulator.errors import InvalidInput
from simulator.units import parse_seconds

if TYPE_CHECKING:
    from calibration.samples import OperatorSample
    from cost_models.profile import Profile

STEPS = ("measure", "fit", "all")
VISITS = 6
"""Visits that every operator should get; the budget decides how many operators that leaves."""
VISIT_SECONDS = {"cpu": 0.03, "cuda": 0.02}
"""What one visit took on average here (clearing the caches included) and is planned with."""


@dataclass
class CalibrateConfig:
    """What may be set.

    Attributes:
        device: ``cpu`` or ``cuda:<index>``.
        budget: how long to measure, such as ``5min``.
        step: ``measure``, ``fit``, or ``all``.
        out: folder to begin or to go on with; null makes a new one.
        name: the profile's name; null makes it from the device.
        model: a model whose operators are all measured, besides the project's own set, at the batch
            sizes ``batches``; null for none.
        operators: an operators file to measure instead of the project's set; ``training`` names the
            project's operators of training steps.
        training: measure those besides, also in a folder that was begun without them.
        operators_at_most: measure no more than so many; null lets the budget decide.
        dtypes: element types to measure operators of float32 in, of ``float32, tf32, float16,
            bfloat16`` (``tf32`` on CUDA devices); each counts as an operator of its own.
        cores: the cores to measure on, one a thread; null takes the last.
        threads: intra-op threads.
        rounds: visits of each process to every operator, if the budget is not used up before; null
            fills the budget.
        states: cache states, of ``graph,warm,cold``; null takes the device's usual ones.
        cache: the state that the profile prices.
        repeat_kernel: kernel runs in one call: 3 makes an honest device of a third the speed.
        statistic: ``minimum``, ``p10`` or ``median`` of an operator's samples.
        seed: of shuffles, data and trees.
    """

    device: str = "cpu"
    budget: str = "15min"
    step: str = "all"
    out: str | None = None
    name: str | None = None
    model: ModelConfig | None = None
    batches: list[int] = field(default_factory=lambda: [1, 2, 4, 8])
    operators: str | None = None
    training: bool = False
    operators_at_most: int | None = None
    dtypes: list[str] = field(default_factory=lambda: ["float32"])
    cores: list[int] | None = None
    threads: int = 1
    rounds: int | None = None
    states: str | None = None
    cache: str = "graph"
    repeat_kernel: int = 1
    statistic: str = "minimum"
    seed: int = 0
    output_dir: str = "outputs"
    description: str = ""

    def check(self) -> None:
        """Refuse what cannot be done.

        Raises:
            InvalidInput: names the key and what is known.
        """
        from calibration.summary import STATISTICS

        for key, value, known in (
            ("step", self.step, STEPS),
            ("statistic", self.statistic, tuple(STATISTICS)),
        ):
            if value not in known:
                raise InvalidInput(f"There is no {key}={value}; known: {', '.join(known)}")
        if self.step == "fit" and self.out is None:
            raise InvalidInput("step=fit needs out=<folder>, the folder of a measuring run")
        if self.operators_at_most is not None and self.operators_at_most < 1:
            raise InvalidInput("operators_at_most is at least 1")


def thinned(operators: Sequence[OperatorSample], count: int) -> list[OperatorSample]:
    """About ``count`` operators, evenly from each kind and at least four of it; order kept."""
    if len(operators) <= count:
        return list(operators)
    kinds: dict[str, list[int]] = {}
    for position, sample in enumerate(operators):
        kinds.setdefault(sample.operator.kind, []).append(position)
    kept: set[int] = set()
    for positions in kinds.values():
        share = max(min(4, len(positions)), round(len(positions) * count / len(operators)))
        kept.update(positions[i * len(positions) // share] for i in range(share))
    return [operators[position] for position in sorted(kept)]


def chosen_operators(config: CalibrateConfig, folder: Path) -> list[OperatorSample]:
    """What to measure: a begun folder's own operators, else the file's or the project's set.

    Operators of ``config.model`` are all kept; the others are thinned to what the budget allows.
    """
    from calibration.measure import SHIPPED_OPERATORS
    from calibration.samples import distinct, in_dtypes, read_samples

    begun = folder / "raw" / "operators.json"
    if begun.exists():
        training = _training_operators() if config.training else []
        return distinct([*read_samples(begun), *in_dtypes(training, config.dtypes)])
    asked = in_dtypes(_model_operators(config) if config.model else [], config.dtypes)
    if config.operators == "training":
        operators = _training_operators()
    else:
        operators = read_samples(config.operators or SHIPPED_OPERATORS)
        operators += _training_operators() if config.training else []
    operators = in_dtypes(operators, config.dtypes)
    seconds = parse_seconds(config.budget, "budget")
    each = VISITS * VISIT_SECONDS[config.device.partition(":")[0]] * config.repeat_kernel
    count = config.operators_at_most or max(100, int(seconds / each))
    return distinct([*asked, *thinned(operators, max(count - len(asked), 1))])


def _training_operators() -> list[OperatorSample]:
    from calibration.measure import SHIPPED_OPERATORS
    from calibration.samples import read_samples

    return read_samples(SHIPPED_OPERATORS.with_name("training_operators.json.gz"))


def _model_operators(config: CalibrateConfig) -> list[OperatorSample]:
    from calibration.sampling import model_operators
    from scenarios.model_config import graph_of

    model = config.model
    assert model is not None
    return model_operators((model.name, graph_of(model, batch)) for batch in config.batches)


def measure_step(config: CalibrateConfig, folder: Path, show: Callable[[str], None]) -> bool:
    """Measure into ``folder/raw``; returns False if it was interrupted."""
    from calibration import environment
    from calibration.measure import measure
    from calibration.plan import MeasurePlan
    from calibration.timing import default_states

    states = tuple(config.states.split(",")) if config.states else default_states(config.device)
    name = config.name or environment.device_name(
        config.device, config.threads, config.repeat_kernel
    )
    plan = MeasurePlan(
        config.device, name, states, config.threads, config.repeat_kernel, config.seed
    )
    operators = chosen_operators(config, folder)
    show(f"{len(operators)} operators on {name} for {config.budget}, into {folder}")
    outcome = measure(
        folder / "raw",
        plan,
        operators,
        parse_seconds(config.budget, "budget"),
        cores=config.cores,
        rounds=config.rounds,
        show=show,
    )
    for index, why in list(outcome.failed.items())[:5]:
        show(f"not measured: {operators[index].operator.name}: {why}")
    if outcome.complete_rounds < 2:
        show(
            "fewer than two complete rounds: times and A/A error are rough; go on with out=<folder>"
        )
    return not outcome.interrupted


def fit_step(config: CalibrateConfig, folder: Path, show: Callable[[str], None]) -> Profile:
    """Fit and evaluate the profile of a folder's samples; leaves table, profile and report.

    Raises:
        InvalidInput: the folder holds no samples.
    """
    from calibration import summary
    from calibration.folder import plan_of
    from cost_models import table as tables
    from cost_models.evaluation import cross_validate
    from cost_models.profile import Profile
    from cost_models.roofline import Roofline
    from experiments.calibration_report import write_report

    raw = folder / "raw" if (folder / "raw").is_dir() else folder
    plan = plan_of(raw)
    table = tables.load(summary.measurement_table(raw, config.statistic))
    tables.write(table, folder / "measurements.parquet")
    peaks = summary.peaks(raw)
    # A call that runs its kernel three times reaches a third of the rates of this machine.
    rates = {dtype: rate / plan.repeat_kernel for dtype, rate in peaks["flops_per_s"].items()}
    roofline = Roofline(
        rates,
        peaks["bandwidth_bytes_per_s"] / plan.repeat_kernel,
        peaks["call_overhead_s"] * plan.repeat_kernel,
    )
    cache = config.cache if config.cache in plan.states else plan.states[0]
    show(f"fitting {len(table)} rows, holding out architectures and folds")
    options = {"seed": config.seed}
    errors = cross_validate(table, roofline, cache, options, show)
    launches = [row["seconds"] for row in peaks["transfers"] if row["way"] == "launch"]
    profile = Profile.fitted(
        config.name or plan.name,
        table,
        roofline=roofline,
        cache=cache,
        errors=errors,
        options=options,
        transfers=peaks["transfers"],
        allocation=peaks["allocation"],
        corun=summary.corun(raw),
        capacity_bytes=peaks["capacity_bytes"],
        launch_overhead_s=launches[0] if launches else 0.0,
        deviations=summary.deviations(raw, cache, config.statistic),
        versions=json.loads(table["versions"].iloc[0]),
        provenance=provenance(raw),
    )
    profile.save(folder / "profile")
    write_report(folder, profile, errors, summary.drift(raw))
    return profile


def provenance(raw: Path) -> dict[str, Any]:
    """Where, when and how long was measured."""
    from calibration.folder import plan_of, process_records, read_raw

    records = process_records(raw)
    plan = plan_of(raw)
    timed = [r["finished"] - r["started"] for r in records if "finished" in r]
    return {
        "processor": records[0].get("gpu", records[0]["processor"]) if records else "",
        "date": time.strftime("%Y-%m-%d", time.gmtime(records[0]["started"])) if records else "",
        "minutes": round(sum(timed) / 60, 1),
        "processes": len(records),
        "samples": len(read_raw(raw)),
        "threads": plan.threads,
        "repeat_kernel": plan.repeat_kernel,
        "states": list(plan.states),
        "protocol": plan.protocol,
        "steady_allocator": all(r.get("steady_allocator", False) for r in records),
    }


def calibrate(config: CalibrateConfig, invocation: Invocation) -> None:
    """The command."""
    config.check()
    console = Console(stderr=True)
    folder = _folder(config)
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_text(folder / "command.txt", invocation.command + "\n")

    finished = True
    with console.status("", spinner="dots") as status:

        def show(line: str) -> None:
            status.update(line)
            if not console.is_terminal:
                console.print(line, highlight=False, soft_wrap=True)

        if config.step in ("measure", "all"):
            finished = measure_step(config, folder, show)
        profile = fit_step(config, folder, show) if finished and config.step != "measure" else None
    out = make_console()
    if not finished:
        out.print(
            f"stopped; everything measured is kept. Go on: {_again(config, folder)}", soft_wrap=True
        )
        raise KeyboardInterrupt
    if profile is None:
        out.print(f"wrote {folder}/raw; next: step=fit out={folder}", soft_wrap=True)
        return
    print_summary(profile, out)
    out.print(f"wrote {folder}/report.html and {folder}/profile", soft_wrap=True)
    out.print(
        f"to simulate with it: HETSIM_PROFILES={folder} and profile: {profile.name} in a cluster",
        soft_wrap=True,
    )


def print_summary(profile: Profile, out: Console) -> None:
    """The errors of the kinds with most operators."""
    held = profile.held_out.get("boosted", {})
    way = "architecture" if held.get("architecture") else "fold"
    table = Table(title=f"{profile.name}: error of predicted times, {way}s held out", box=None)
    for column in ("kind", "operators", "median", "mean", "p90", "A/A median"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for kind, row in list(held.get(way, {}).items())[:12]:
        cells = [_percent(row[key]) for key in ("median", "mean", "p90", "aa_median")]
        table.add_row(kind, f"{row['rows'] or 0:.0f}", *cells)
    out.print(table)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _folder(config: CalibrateConfig) -> Path:
    if config.out is not None:
        folder = Path(config.out)
        return folder.parent if folder.name == "raw" else folder
    from calibration import environment

    name = config.name or environment.device_name(
        config.device, config.threads, config.repeat_kernel
    )
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    return Path(config.output_dir) / "calibration" / name / stamp


def _again(config: CalibrateConfig, folder: Path) -> str:
    return f"python -m experiments.calibrate device={config.device} out={folder}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return hydra_command(
        calibrate,
        CalibrateConfig,
        "experiments.calibrate",
        arguments,
        config_name="calibrate",
        schema_name="calibrate_schema",
    )


if __name__ == "__main__":
    sys.exit(main())
