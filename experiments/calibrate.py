"""Measure a device and fit its profile: ``python -m experiments.calibrate device=cpu budget=5min``.

Leaves ``outputs/calibration/<device>/<time>/`` with ``raw/`` (every sample), ``measurements.parquet``,
``profile/`` and ``report.html``. A run that was stopped, or that should become more exact, goes on
with ``out=<that folder>``. Where the device has neither Hydra nor XGBoost, measure there with
``python -m calibration.measure`` and fit here with ``step=fit out=<folder>``. With ``settle=<sweep>``
it measures just what a verdict depends on (:mod:`experiments.settled`).
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from experiments import atomic
from experiments.command import Invocation, hydra_command
from experiments.pool import available_cores
from experiments.simulate import make_console
from scenarios.model_config import ModelConfig
from simulator.errors import InvalidInput
from simulator.units import parse_seconds

if TYPE_CHECKING:
    from calibration.samples import OperatorSample
    from cost_models.profile import Profile
    from cost_models.roofline import Roofline

STEPS = ("measure", "fit", "all", "plan")
MODELS = ("boosted", "mlp", "polynomial", "ensemble")
"""Cost models that a profile is fitted with unless others are asked for."""
BOOSTERS = 3
"""Boosters that are averaged: somewhat fewer large errors than of one, for three times the bytes."""
VISITS = 6
"""Visits that every operator should get; the budget decides how many operators that leaves."""
CLEARING_SECONDS = {"cpu": 0.0075, "cuda": 0.01}
KERNEL_SECONDS = {"cpu": 0.0097, "cuda": 0.01}
"""Of one visit on average, what comes before the calls and the calls themselves, which ``repeat_kernel``
multiplies: 17.1 ms a visit on an EPYC core and 36.5 ms on one that runs each kernel three times. A GPU's
have not been measured."""
ACTIVE_SECONDS, ACTIVE_TURNS = 240.0, 4
"""Of the budget for each choice of what to measure next, and the most choices."""
BEGUN = 0.6
"""Of operators and budget, measured before anything is chosen."""
LEAST_POOL, POOL = 3, 0.25
"""Operators to choose one from; if the project's set has fewer left, so many are drawn besides, times
its usual number of each kind."""


@dataclass
class CalibrateConfig:
    """What may be set.

    Attributes:
        device: ``cpu`` or ``cuda:<index>``.
        budget: how long to measure, such as ``5min``.
        step: ``measure``, ``fit``, or ``all``; with ``settle`` also ``plan``, which measures nothing.
        out: folder to begin or to go on with; null makes a new one.
        base: with ``step=fit``: a profile whose measurements are fitted again, with other models say.
        name: the profile's name; null makes it from the device.
        start: a similar device's profile to start from, measured, public or of a datasheet: with it a
            budget of a minute goes a long way (``cost_model=adapted``).
        active: measure next where the cost model is least sure (:mod:`experiments.active`); null does
            so for ``step=all`` and a budget above 8 minutes, unless ``operators`` says what to measure.
        model: a model whose operators are all measured, besides the project's own set, at the batch
            sizes ``batches``; null for none.
        operators: an operators file to measure instead of the project's set; ``training`` names the
            project's operators of training steps.
        training: measure those besides, also in a folder that was begun without them.
        settle: a sweep's or a run's folder: measure what tells two of its schedulers apart, within the
            budget, and compare them again.
        pair: with ``settle``: labels of the two; of a sweep the best and the first that is not separable
            from it unless given.
        contest: with ``settle``: which of the sweep's, by its label or model; the first open one unless
            given.
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
        models: cost models to fit.
        seed: of shuffles, data and trees.
    """

    device: str = "cpu"
    budget: str = "15min"
    step: str = "all"
    out: str | None = None
    base: str | None = None
    name: str | None = None
    start: str | None = None
    active: bool | None = None
    model: ModelConfig | None = None
    batches: list[int] = field(default_factory=lambda: [1, 2, 4, 8])
    operators: str | None = None
    training: bool = False
    settle: str | None = None
    pair: list[str] | None = None
    contest: str | None = None
    operators_at_most: int | None = None
    dtypes: list[str] = field(default_factory=lambda: ["float32"])
    cores: list[int] | None = None
    threads: int = 1
    rounds: int | None = None
    states: str | None = None
    cache: str = "graph"
    repeat_kernel: int = 1
    statistic: str = "p10"
    models: list[str] = field(default_factory=lambda: list(MODELS))
    seed: int = 0
    output_dir: str = "outputs"
    description: str = ""

    def check(self) -> None:
        """Refuse what cannot be done.

        Raises:
            InvalidInput: names the key and what is known.
        """
        from calibration.summary import STATISTICS
        from cost_models.model import model_class

        for key, value, known in (
            ("step", self.step, STEPS),
            ("statistic", self.statistic, tuple(STATISTICS)),
        ):
            if value not in known:
                raise InvalidInput(f"There is no {key}={value}; known: {', '.join(known)}")
        if self.settle is None:
            for key in ("pair", "contest"):
                if getattr(self, key) is not None:
                    raise InvalidInput(f"{key}= goes with settle=<folder of a sweep>")
            if self.step == "plan":
                raise InvalidInput("step=plan goes with settle=<folder of a sweep>")
        elif self.model is not None or self.operators is not None or self.base is not None:
            raise InvalidInput(
                "settle= chooses the operators and profiles itself; leave model=, operators= and base= out"
            )
        elif self.step == "fit" and self.out is None:
            raise InvalidInput("step=fit needs out=<folder>, the one that settle= measured into")
        if self.step == "fit" and self.out is None and self.base is None:
            raise InvalidInput(
                "step=fit needs out=<folder>, the folder of a measuring run, or base=<profile>"
            )
        if self.base is not None and self.step != "fit":
            raise InvalidInput("base=<profile> is fitted again: it goes with step=fit")
        for name in self.models:
            model_class(name)
        if self.start is not None:
            from cost_models.profile import Profile

            Profile.load(self.start)  # refuses an unknown one
        elif "adapted" in self.models:
            raise InvalidInput(
                "models=[adapted] needs start=<profile>, the device to start from, such as "
                "start=tesla-t4"
            )
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


def affordable(config: CalibrateConfig) -> int:
    """How many operators can be visited :data:`VISITS` times each within the budget."""
    if config.operators_at_most is not None:
        return config.operators_at_most
    sort = config.device.partition(":")[0]
    visit = CLEARING_SECONDS[sort] + config.repeat_kernel * KERNEL_SECONDS[sort]
    return max(100, int(parse_seconds(config.budget, "budget") / (VISITS * visit)))


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
    count = affordable(config)
    if turns(config):
        count = int(count * BEGUN)
    if config.start is not None:
        from cost_models.profile import Profile
        from experiments.few_shot import few_operators

        chosen = few_operators(operators, Profile.load(config.start), max(count - len(asked), 1))
        return distinct([*asked, *chosen])
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
    end = time.monotonic() + parse_seconds(config.budget, "budget")
    for turn in range(turns(config), -1, -1):
        left = end - time.monotonic()
        first = turn == turns(config)
        if not first:
            operators = [*operators, *more_operators(config, folder, operators, turn, show)]
            left = max(end - time.monotonic(), 1.0)
        outcome = measure(
            folder / "raw",
            plan,
            operators,
            left * BEGUN if first and turn else left / (turn + 1),
            cores=config.cores,
            rounds=config.rounds,
            show=show,
        )
        if outcome.interrupted:
            break
    for index, why in list(outcome.failed.items())[:5]:
        show(f"not measured: {operators[index].operator.name}: {why}")
    if outcome.complete_rounds < 2:
        show(
            "fewer than two complete rounds: times and A/A error are rough; go on with out=<folder>"
        )
    return not outcome.interrupted


def turns(config: CalibrateConfig) -> int:
    """How often what to measure next is chosen."""
    seconds = parse_seconds(config.budget, "budget")
    found = min(ACTIVE_TURNS, int(seconds * (1 - BEGUN) / ACTIVE_SECONDS))
    if config.active is None:
        usual = config.step == "all" and config.operators is None and config.rounds is None
        return found if usual and seconds > 2 * ACTIVE_SECONDS else 0
    return max(found, 1) if config.active else 0


def next_count(config: CalibrateConfig, operators: int, turn: int) -> int:
    """How many to choose, so that time and number of operators grow alike.

    Args:
        config: of the run.
        operators: of the run so far.
        turn: choices that are still to come.
    """
    share = (1 - BEGUN) / turns(config)
    return max(int(operators * share / (1 - share * (turn + 1))), 1)


def more_operators(
    config: CalibrateConfig,
    folder: Path,
    operators: Sequence[OperatorSample],
    turn: int,
    show: Callable[[str], None],
) -> list[OperatorSample]:
    """What to measure next, of the project's set or of new draws; with a model, of its kinds only.

    Args:
        config: of the run.
        folder: of the run, measured before.
        operators: those of the run so far.
        turn: choices that are still to come.
        show: called with a line of progress.
    """
    from calibration import summary
    from calibration.constructors import KINDS
    from calibration.folder import plan_of
    from calibration.measure import SHIPPED_OPERATORS
    from calibration.samples import distinct, in_dtypes, read_samples
    from calibration.sampling import sampled_operators
    from cost_models import table as tables
    from experiments.active import next_operators

    raw = folder / "raw"
    table = tables.load(summary.measurement_table(raw, config.statistic))
    plan = plan_of(raw)
    cache = config.cache if config.cache in plan.states else plan.states[0]
    table = table[table["cache"] == cache].reset_index(drop=True)
    asked = _model_operators(config) if config.model else operators
    kinds = {sample.operator.kind for sample in asked}
    show(f"choosing what to measure next, after {len(operators)} operators")
    measured = {sample.identity for sample in operators}

    def unmeasured(samples: Sequence[OperatorSample]) -> list[OperatorSample]:
        found = distinct(in_dtypes(samples, config.dtypes))
        return [s for s in found if s.identity not in measured and s.operator.kind in kinds]

    count = next_count(config, len(operators), turn)
    pool = unmeasured(read_samples(SHIPPED_OPERATORS))
    if len(pool) < LEAST_POOL * count:  # drawing takes longer than choosing
        drawn = sampled_operators(POOL, [k for k in KINDS if k in kinds], config.seed + 101 + turn)
        pool = distinct([*pool, *unmeasured(drawn)])
    return next_operators(table, roofline_of(raw), pool, count, config.seed + turn)


def roofline_of(raw: Path) -> Roofline:
    """The measured peaks of a folder."""
    from calibration import summary
    from calibration.folder import plan_of
    from cost_models.roofline import Roofline

    # A call that runs its kernel three times reaches a third of the rates of this machine.
    times = plan_of(raw).repeat_kernel
    peaks = summary.peaks(raw)
    rates = {dtype: rate / times for dtype, rate in peaks["flops_per_s"].items()}
    bandwidth = peaks["bandwidth_bytes_per_s"] / times
    return Roofline(rates, bandwidth, peaks["call_overhead_s"] * times)


@dataclass(frozen=True)
class Measured:
    """What a profile is fitted to, and what else was measured.

    Attributes:
        table: the measurement table.
        drift: the reference operator over time; no rows where that was not kept.
        described: fields of :class:`Profile` that are no fit: roofline, transfers, versions, ...
    """

    table: pd.DataFrame
    drift: pd.DataFrame
    described: Mapping[str, Any]


def measured_in(config: CalibrateConfig, folder: Path) -> Measured:
    """The samples of a folder.

    Raises:
        InvalidInput: the folder holds no samples.
    """
    from calibration import summary
    from calibration.folder import plan_of
    from cost_models import table as tables

    raw = folder / "raw" if (folder / "raw").is_dir() else folder
    plan = plan_of(raw)
    table = tables.load(summary.measurement_table(raw, config.statistic))
    peaks = summary.peaks(raw)
    roofline = roofline_of(raw)
    cache = config.cache if config.cache in plan.states else plan.states[0]
    launches = [row["seconds"] for row in peaks["transfers"] if row["way"] == "launch"]
    described = {
        "name": config.name or plan.name,
        "roofline": roofline,
        "cache": cache,
        "transfers": peaks["transfers"],
        "allocation": peaks["allocation"],
        "corun": summary.corun(raw),
        "reuse": summary.reuse(raw),
        "capacity_bytes": peaks["capacity_bytes"],
        "cache_bytes": peaks["cache_bytes"],
        "launch_overhead_s": launches[0] if launches else 0.0,
        "deviations": summary.deviations(raw, cache, config.statistic),
        "versions": json.loads(table["versions"].iloc[0]),
        "provenance": provenance(raw),
    }
    return Measured(table, summary.drift(raw), described)


def measured_for(base: str, name: str | None) -> Measured:
    """The measurements of a profile that is there already.

    Raises:
        InvalidInput: there is no such profile, or it comes without them.
    """
    from cost_models.profile import Profile

    profile = Profile.load(base)
    table = profile.measurements
    if table is None:
        raise InvalidInput(
            f"Profile '{profile.name}' comes without the measurements that it was fitted to, so it "
            "cannot be fitted again"
        )
    kept = ["label", "roofline", "transfers", "launch_overhead_s", "deviations", "allocation"]
    kept += ["corun", "reuse", "capacity_bytes", "cache_bytes", "versions", "provenance"]
    described = {key: getattr(profile, key) for key in kept}
    described |= {"name": name or profile.name, "cache": profile.cache or "graph"}
    return Measured(table, pd.DataFrame(), described)


def fit_step(config: CalibrateConfig, folder: Path, show: Callable[[str], None]) -> Profile:
    """Fit and evaluate the profile of a folder's samples; leaves table, profile and report.

    Raises:
        InvalidInput: the folder holds no samples.
    """
    from cost_models import table as tables
    from cost_models.evaluation import cross_validate
    from cost_models.profile import Profile
    from experiments.calibration_report import write_report

    if config.base is None:
        measured = measured_in(config, folder)
    else:
        measured = measured_for(config.base, config.name)
    table, described = measured.table, dict(measured.described)
    folder.mkdir(parents=True, exist_ok=True)
    tables.write(table, folder / "measurements.parquet")
    models = list(config.models)
    options: dict[str, dict[str, Any]] = {"boosted": {"members": BOOSTERS}}
    if config.start is not None:
        models = list(dict.fromkeys(["adapted", *models]))
        options["adapted"] = {"base": config.start}
    show(f"fitting {len(table)} rows, holding out architectures and folds")
    errors = cross_validate(
        table,
        described["roofline"],
        described["cache"] if "cache" in table else None,
        models,
        seed=config.seed,
        options=options,
        workers=available_cores(),
        show=show,
    )
    profile = Profile.fitted(
        described.pop("name"),
        table,
        errors=errors,
        models=models,
        seed=config.seed,
        options=options,
        show=show,
        **described,
    )
    profile.save(folder / "profile")
    learning = None
    if config.start is not None:
        learning = learned(config, profile, show)
    write_report(folder, profile, errors, measured.drift, learning)
    return profile


def throttled(raw: Path) -> str:
    """What held a GPU's clocks back, and the share of samples taken meanwhile: ``power cap 3.1%``."""
    from calibration import summary
    from calibration.folder import read_raw

    rows = summary.throttling(raw)
    samples = read_raw(raw).num_rows
    shares = (rows.groupby("reason")["samples"].sum() / max(samples, 1)).sort_values(
        ascending=False
    )
    return ", ".join(f"{reason} {share:.1%}" for reason, share in shares.items()) or "never"


def learned(config: CalibrateConfig, profile: Profile, show: Callable[[str], None]) -> pd.DataFrame:
    """How the error falls with the number of measurements, from ``config.start`` and from nothing."""
    from cost_models.learning_curve import learning_curve
    from cost_models.profile import Profile

    table = profile.measurements
    assert table is not None
    if profile.cache is not None:
        table = table[table["cache"] == profile.cache].reset_index(drop=True)
    start = Profile.load(str(config.start))
    return learning_curve(table, start, profile.roofline, seed=config.seed, show=show)


def provenance(raw: Path) -> dict[str, Any]:
    """Where, when and how long was measured."""
    from calibration.folder import plan_of, process_records, read_raw
    from calibration.summary import reference_seconds, reference_spread

    records = process_records(raw)
    plan = plan_of(raw)
    timed = [r["finished"] - r["started"] for r in records if "finished" in r]
    return {
        "processor": records[0].get("gpu", records[0]["processor"]) if records else "",
        "date": time.strftime("%Y-%m-%d", time.gmtime(records[0]["started"])) if records else "",
        "minutes": round(sum(timed) / 60, 1),
        "processes": len(records),
        "samples": len(read_raw(raw)),
        "reference_s": reference_seconds(raw),
        "reference_spread": reference_spread(raw),
        "threads": plan.threads,
        "repeat_kernel": plan.repeat_kernel,
        "states": list(plan.states),
        "protocol": plan.protocol,
        "throttled": throttled(raw),
        "steady_allocator": all(r.get("steady_allocator", False) for r in records),
    }


def calibrate(config: CalibrateConfig, invocation: Invocation) -> None:
    """The command."""
    config.check()
    if config.settle is not None:
        from experiments.settled import settle_command

        settle_command(config, invocation)
        return
    console = Console(stderr=True)
    folder = _folder(config)
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_text(folder / "command.txt", invocation.command + "\n")

    for text in same_device(config):
        console.print(f"[yellow]{text}[/yellow]", soft_wrap=True)
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


def same_device(config: CalibrateConfig) -> list[str]:
    """In what ``base`` and ``start``, where they are of this device, were measured with something else."""
    from cost_models.profile import Profile
    from experiments.this_machine import same_device_differences

    names = [name for name in (config.base, config.start) if name is not None]
    return [
        text
        for name in names
        for text in same_device_differences(Profile.load(name), config.device)
    ]


def print_summary(profile: Profile, out: Console) -> None:
    """The errors of the kinds with most operators, and of every model over all of them."""
    from experiments.calibration_report import main_model

    model = profile.default or main_model(profile.held_out)
    held = profile.held_out.get(model, {})
    way = "architecture" if held.get("architecture") else "fold"
    title = f"{profile.name}: error of times predicted by {model}, {way}s held out"
    table = Table(title=title, box=None)
    for column in ("kind", "operators", "median", "mean", "p90", "A/A median"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for kind, row in list(held.get(way, {}).items())[:12]:
        cells = [_percent(row[key]) for key in ("median", "mean", "p90", "aa_median")]
        table.add_row(kind, f"{row['rows'] or 0:.0f}", *cells)
    out.print(table)
    overall = {name: ways.get(way, {}).get("all") for name, ways in profile.held_out.items()}
    told = [
        f"{name} {_percent(row['median'])} / {_percent(row['mean'])}"
        for name, row in overall.items()
        if row
    ]
    out.print(f"median / mean over all: {', '.join(told)}", soft_wrap=True)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _folder(config: CalibrateConfig) -> Path:
    if config.out is not None:
        folder = Path(config.out)
        return folder.parent if folder.name == "raw" else folder
    from calibration import environment

    name = config.name or (
        Path(config.base).name
        if config.base
        else environment.device_name(config.device, config.threads, config.repeat_kernel)
    )
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    return Path(config.output_dir) / "calibration" / name / stamp


def _again(config: CalibrateConfig, folder: Path) -> str:
    return f"python -m experiments.calibrate device={config.device} out={folder}"


def _as_list(word: str) -> str:
    """``pair=heft,donf`` as the list that Hydra would otherwise take for several runs."""
    names = word.removeprefix("pair=")
    if names == word or names.startswith("["):
        return word
    # Commas within a label's parentheses part its options.
    labels = [label.replace('"', "") for label in re.split(r",(?![^(]*\))", names)]
    return "pair=[" + ",".join(f'"{label.strip()}"' for label in labels) + "]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    return hydra_command(
        calibrate,
        CalibrateConfig,
        "experiments.calibrate",
        [_as_list(word) for word in words],
        config_name="calibrate",
        schema_name="calibrate_schema",
    )


if __name__ == "__main__":
    sys.exit(main())
