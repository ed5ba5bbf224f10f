"""How wrong cost models are on public GPU measurements, and how fast they are.

``python -m tests.benchmarks.cost_models [--cases NAME ...] [--json FILE]`` prints a table of case, reached,
target and what is published. ``HETSIM_DATASETS`` names the folder of the measurement tables
(``python -m calibration.public`` makes them from the sources). ``docs/cost_models.md`` says how to read it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibration.drift import DRIFTING, Drift, taken_off, without_drift
from calibration.launches import kernel_times
from cost_models.across_devices import AcrossDevices
from cost_models.boosted import Boosted, fit_groups
from cost_models.device_spec import spec_of, spec_of_measured
from cost_models.evaluation import Predicts, by_fold, relative_errors
from cost_models.features import feature_rows, in_group, matrix
from cost_models.folds import FOLDS, folds_of
from cost_models.interpolated import Interpolated
from cost_models.kind_groups import OWN_MODEL
from cost_models.model import Prediction
from cost_models.pricing import price_graphs
from cost_models.profile import Profile
from cost_models.roofline import Roofline
from cost_models.table import load
from experiments.runs.atomic import write_text
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, TensorSpec

FORMAT = "hetsim.benchmark.cost_models/1"
VARIABLE = "HETSIM_DATASETS"
SEED = 0
ELEMENTWISE = ("add", "div", "gelu", "mul", "pow", "relu", "tanh")
KERNELS: Mapping[str, tuple[tuple[str, ...], float, float]] = {
    # kinds, target and what plain XGBoost reaches on an easier split, mean APE in per cent
    "bmm": (("bmm",), 5.0, 5.3),
    "linear": (("linear",), 8.0, 8.2),
    "conv2d": (("conv2d",), 13.0, 15.1),
    "elementwise": (ELEMENTWISE, 1.7, 1.7),
    "softmax": (("softmax",), 2.6, 2.6),
    "layer_norm": (("layer_norm",), 2.6, 2.6),
}
BAD_LINEAR = "tesla-p4"
"""Its large linear layers disagree threefold with its other measurements."""
ABLATED = ("work", "tiles and waves", "alignment", "cache fit")
ABLATION_ROWS = 1_000
"""Of a sort of kernel on a device, drawn with :data:`SEED`, where groups of features are left out."""
CPU = "amd-epyc-25-17-1core"
MOST_ROWS = 20_000
"""Of a kind, all devices together, in the fits that leave a device out."""


@dataclass(frozen=True)
class Result:
    """A line of the table; errors in per cent, of rows that the model has not seen."""

    case: str
    device: str
    model: str
    rows: int
    median: float
    p90: float
    mean: float
    target: str = ""
    published: str = ""

    @property
    def line(self) -> str:
        """For the terminal."""
        return (
            f"{self.case:34} {self.device:22} {self.model:26} {self.rows:6} "
            f"{self.median:7.2f} {self.p90:7.2f} {self.mean:7.2f}  {self.target:18} {self.published}"
        )


HEADER = (
    f"{'case':34} {'device':22} {'model':26} {'rows':>6} {'median':>7} {'p90':>7} {'mean':>7}  "
    f"{'target':18} published"
)


@cache
def published(name: str) -> pd.DataFrame:
    """A measurement table of the folder that ``HETSIM_DATASETS`` names, in the order of measuring.

    Raises:
        InvalidInput: the variable is not set, or the file is not there.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise InvalidInput(
            f"{VARIABLE} does not name the folder of the public measurement tables; "
            "python -m calibration.public makes them"
        )
    return load(Path(folder) / f"{name}.parquet")


@cache
def dataset(name: str) -> pd.DataFrame:
    """:func:`published` without what the place in the table added to its times."""
    return without_drift(published(name))[0]


def rows_of_device(name: str, device: str, kinds: Collection[str] | None = None) -> pd.DataFrame:
    """A device's rows, of some kinds only if they are named."""
    table = dataset(name)
    chosen = table["device"] == device
    if kinds is not None:
        chosen &= table["kind"].isin(list(kinds))
    return table[chosen].reset_index(drop=True)


def rates(training: pd.DataFrame) -> Roofline:
    """Published rates of the rows' device; what a call costs is the fastest row."""
    spec = spec_of(str(training["device"].iloc[0]))
    return Roofline.published(spec, float(training["seconds"].min()))


Model = Callable[[pd.DataFrame], Predicts]
Rated = Callable[[pd.DataFrame], Roofline]
"""Gives training rows the roofline that times are held against."""


def boosted(**options: Any) -> Model:
    """The project's trees with options."""
    return lambda rows: Boosted.fitted(rows, roofline=rates(rows), seed=SEED, **options)


def interpolated(**options: Any) -> Model:
    """Trees and curves."""
    return lambda rows: Interpolated.fitted(rows, roofline=rates(rows), seed=SEED, **options)


def log_time(rows: pd.DataFrame) -> Predicts:
    """Trees on log(time) itself, of the project's features, groups and parameters."""
    device = spec_of_measured(str(rows["device"].iloc[0]))
    groups = fit_groups(
        rows["kind"].to_numpy(),
        rows["dtype"].to_numpy(),
        feature_rows(rows, device),
        np.zeros((len(rows), 2)),  # where nothing has work, every ratio is to the same constant
        rows["seconds"].to_numpy(),
        overhead=1.0,
        seed=SEED,
        only=None,
        own_model=OWN_MODEL,
        members=1,
        without=(),
        parameters={},
    )
    return Boosted(Roofline({"float32": 1e30}, 1e30), groups, device)


class CurvesAlone:
    """Curves without trees, where there is one; the bare roofline elsewhere."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.model = Interpolated.fitted(rows, roofline=rates(rows), rounds=1, max_depth=1)

    def predict(self, measurements: Any) -> np.ndarray:
        """float64[rows]: seconds."""
        full: Prediction = self.model.predict_in_full(measurements)
        trees = self.model.boosted.predict(measurements)
        on_curve = self.model.on_curve(measurements)
        # The prediction is the geometric mean of the two, so the curve's share follows.
        return np.where(on_curve, full.seconds**2 / trees, trees)


def held_out(table: pd.DataFrame, model: Model) -> pd.DataFrame:
    """Errors of every row, predicted without its fold."""

    def fit(rows: pd.DataFrame, kinds: Collection[str]) -> Predicts:
        return model(rows)

    return relative_errors(table, by_fold(table, fit))


def result(
    case: str, device: str, model: str, errors: pd.DataFrame, target: str = "", published: str = ""
) -> Result:
    """Of held-out errors."""
    error = 100 * errors["error"].to_numpy(dtype=np.float64)
    figures = np.median(error), np.quantile(error, 0.9), error.mean()
    return Result(case, device, model, len(error), *map(float, figures), target, published)


# -- cases --------------------------------------------------------------------------------------------


def gemm() -> Iterator[Result]:
    """Whole (n, k) held out."""
    for device in ("nvidia-h100-sxm", "nvidia-h200-sxm", "nvidia-a100-sxm"):
        table = rows_of_device("gemm_bf16_gpus", device)
        target = "" if "a100" in device else "median 2.2 p90 7.5"
        published = "3.63 / 14.7" if "h100" in device else ""
        errors = held_out(table, boosted())
        yield result("GEMM bf16, (n, k) held out", device, "boosted", errors, target, published)


def attention() -> Iterator[Result]:
    """Whole lengths held out; lengths beyond those of the other folds apart."""
    for device in ("nvidia-h100-sxm", "nvidia-h200-sxm"):
        whole = rows_of_device("attention_bf16_gpus", device)
        phases = np.array([json.loads(a)["phase"] for a in whole["attributes"]])
        for phase in ("context", "generation"):
            table = whole[phases == phase].reset_index(drop=True)
            for name, model in (
                ("interpolated", interpolated()),
                ("trees alone", boosted()),
                ("curves alone", CurvesAlone),
            ):
                errors = held_out(table, model)
                interior = _interior(table, errors)
                goal = "median 3.0" if name == "interpolated" and phase == "context" else ""
                known = "3.2" if goal and "h100" in device else ""
                case = f"{phase} attention, lengths between"
                yield result(case, device, name, errors[interior], goal, known)
                yield result(f"{phase} attention, ends", device, name, errors[~interior])
                if phase == "context":
                    possible = _possible(table, device)[errors["row"].to_numpy()]
                    if not possible.all():
                        chosen = errors[interior & possible]
                        yield result(f"{case}, possible", device, name, chosen)


def _interior(table: pd.DataFrame, errors: pd.DataFrame) -> np.ndarray:
    """bool[errors]: the row's length lies between lengths of other folds."""
    lengths = np.array([shapes[1][-2] for shapes in table["inputs"]])
    of_row, fold = lengths[errors["row"].to_numpy()], errors["group"].to_numpy()
    found = np.zeros(len(errors), dtype=bool)
    for group in np.unique(fold):
        others = of_row[fold != group]
        found |= (fold == group) & (of_row > others.min()) & (of_row < others.max())
    return found


def _possible(table: pd.DataFrame, device: str) -> np.ndarray:
    """bool[rows]: rows of shapes of which none is faster than the device's peak."""
    spec = spec_of(device)
    groups = [(s[0][1], s[1][1], s[0][3]) for s in table["inputs"]]
    # A causal pass needs half of what counts as its FLOPs.
    least = np.array(
        [
            2 * s[0][0] * s[0][1] * s[0][2] ** 2 * s[0][3] / spec.peak("bfloat16")
            for s in table["inputs"]
        ]
    )
    broken = {g for g, bad in zip(groups, table["seconds"] < least, strict=True) if bad}
    return np.array([group not in broken for group in groups])


def kernels() -> Iterator[Result]:
    """Shapes held out on all devices at once, a model for each device."""
    table = dataset("neusight_gpus")
    devices = sorted(table["device"].unique())
    for name, (kinds, target, known) in KERNELS.items():
        parts = []
        for device in devices:
            rows = rows_of_device("neusight_gpus", device, kinds)
            if len(rows):
                errors = held_out(rows, boosted())
                parts.append(errors)
                yield result(f"{name}, shapes held out", device, "boosted", errors)
        every = pd.concat(parts)
        goal, published = f"mean {target}", f"mean {known} (plain trees)"
        yield result(f"{name}, shapes held out", "all", "boosted", every, goal, published)


def drift() -> Iterator[Result]:
    """Convolutions as published, and without what their place in the table added to their times.

    The drift is estimated from the other folds as the trees are. ``place known``: added to what they
    predict and held against the published times.
    """
    table = published("neusight_gpus")
    table = table[table["kind"].isin(DRIFTING["neusight"])]
    case = "conv2d, shapes held out"
    for device, rows in table.groupby("device"):
        rows = rows.reset_index(drop=True)
        yield result(case, str(device), "as published", held_out(rows, boosted()))
        fold, known, taken = folds_of(rows), [], []
        for group in range(FOLDS):
            seen, held = rows[fold != group].reset_index(drop=True), fold == group
            found = Drift.fitted(seen)
            # Every fold is spread evenly over the table, so a share of its rows is one of the whole.
            added = replace(found, rows=len(rows)).at(np.flatnonzero(held))
            test = rows[held].reset_index(drop=True)
            predicted = boosted()(taken_off(seen, found)).predict(test)
            parts = pd.DataFrame({"row": np.arange(len(test)), "group": group})
            left = np.maximum(test["seconds"] - added, rows["seconds"].min())
            taken.append(
                relative_errors(test.assign(seconds=left), parts.assign(predicted=predicted))
            )
            known.append(relative_errors(test, parts.assign(predicted=predicted + added)))
        yield result(case, str(device), "place known", pd.concat(known))
        yield result(case, str(device), "drift taken off", pd.concat(taken), "mean 13.0")


def devices() -> Iterator[Result]:
    """A GPU left out entirely: only its data sheet is known. Times of kernels, launches taken off."""
    table = kernel_times(dataset("neusight_gpus"))
    for name, (kinds, _, _) in KERNELS.items():
        rows = table[table["kind"].isin(kinds)]
        if name == "linear":
            rows = rows[rows["device"] != BAD_LINEAR]
        if len(rows) > MOST_ROWS:
            rows = rows.sample(MOST_ROWS, random_state=SEED)
        rows = rows.reset_index(drop=True)
        for device in sorted(rows["device"].unique()):
            training = rows[rows["device"] != device].reset_index(drop=True)
            test = rows[rows["device"] == device].reset_index(drop=True)
            across = AcrossDevices.fitted(training, seed=SEED)
            roofline = Roofline.published(spec_of(device), across.overhead)
            models: dict[str, Predicts] = {
                "across devices": across.of(spec_of(device)),
                "roofline": Roofline.published(spec_of(device)),
                "roofline + overhead": roofline,
                "log-time trees": LogTimeAcross(training, spec_of(device).name),
            }
            held = pd.DataFrame({"row": np.arange(len(test)), "group": device})
            for label, model in models.items():
                errors = relative_errors(test, held.assign(predicted=model.predict(test)))
                goal = "below both others" if label == "across devices" else ""
                yield result(f"{name}, device left out", device, label, errors, goal)


class LogTimeAcross:
    """Trees on log(time) of all devices, with what their data sheets say as features."""

    def __init__(self, rows: pd.DataFrame, device: str) -> None:
        import xgboost

        self._device = device
        values = feature_rows(rows)
        self._names = sorted({name for row in values for name in row})
        data = np.hstack([matrix(values, self._names), self._sheet(rows["device"])])
        options = {"max_depth": 6, "learning_rate": 0.1, "colsample_bytree": 0.5, "nthread": 1}
        training = xgboost.QuantileDMatrix(data, label=np.log(rows["seconds"].to_numpy()))
        self._booster = xgboost.train({**options, "seed": SEED}, training, num_boost_round=200)

    @staticmethod
    def _sheet(names: Sequence[str] | pd.Series) -> np.ndarray:
        facts = []
        for name in names:
            spec = spec_of(name)
            facts.append(
                [np.log(spec.peak("float32")), np.log(spec.bandwidth), spec.units, spec.l2_bytes]
            )
        return np.array(facts, dtype=np.float32)

    def predict(self, measurements: Any) -> np.ndarray:
        """float64[rows]: seconds on the device that was left out."""
        data = matrix(feature_rows(measurements), self._names)
        sheet = self._sheet([self._device] * len(measurements))
        logs = self._booster.inplace_predict(np.hstack([data, sheet]))
        return np.exp(np.asarray(logs, dtype=np.float64))


def ablation() -> Iterator[Result]:
    """Groups of features off one by one, and other models, on whole (n, k) of one device."""
    table = rows_of_device("gemm_bf16_gpus", "nvidia-a100-sxm")
    models: dict[str, Model] = {"boosted": boosted(), "three members": boosted(members=3)}
    models |= {f"no {group}": boosted(without=[group]) for group in ABLATED}
    models |= {"trees on log(time)": log_time, "roofline": rates}
    for name, model in models.items():
        errors = held_out(table, model)
        yield result("GEMM bf16, (n, k) held out", "nvidia-a100-sxm", name, errors)


def groups() -> Iterator[Result]:
    """Groups of features off one by one on every sort of kernel of six devices.

    Of a GPU's sort of kernel :data:`ABLATION_ROWS` rows at random; of this project's CPU all rows of its
    profile. The last lines are means over a device's sorts, each counting the same.
    """
    every: dict[tuple[str, str], list[pd.DataFrame]] = {}
    for device, sort, table, rated in _ablation_tables():
        full: pd.DataFrame | None = None
        for name, model in _ablated(rated).items():
            if name.startswith("no ") and not _has_group(table, name[3:]):
                errors = full  # nothing is left out
            else:
                errors = held_out(table, model)
            assert errors is not None
            full = errors if full is None else full
            every.setdefault((device, name), []).append(errors)
            yield result(f"{sort}, shapes held out", device, name, errors)
    for (device, name), parts in every.items():
        lines = [result("", device, name, part) for part in parts]
        figures = ([getattr(line, key) for line in lines] for key in ("median", "p90", "mean"))
        rows = sum(line.rows for line in lines)
        yield Result("every sort alike", device, name, rows, *(float(np.mean(f)) for f in figures))


def _ablation_tables() -> Iterator[tuple[str, str, pd.DataFrame, Rated]]:
    """(device, sort of kernel, rows, what gives training rows their roofline)."""
    table = dataset("neusight_gpus")
    for device in sorted(table["device"].unique()):
        for sort, (kinds, _, _) in KERNELS.items():
            rows = rows_of_device("neusight_gpus", device, kinds)
            if len(rows) > ABLATION_ROWS:
                rows = rows.sample(ABLATION_ROWS, random_state=SEED).reset_index(drop=True)
            if len(rows) and (sort, device) != ("linear", BAD_LINEAR):
                yield device, sort, rows, rates
    profile = Profile.load(CPU)
    measured = profile.measurements
    assert measured is not None
    measured = measured[measured["cache"] == profile.cache].reset_index(drop=True)
    yield CPU, "all kinds", measured, lambda rows: profile.roofline


def _ablated(rated: Rated) -> dict[str, Model]:
    def without(*groups: str) -> Model:
        return lambda rows: Boosted.fitted(rows, roofline=rated(rows), seed=SEED, without=groups)

    return {
        "boosted": without(),
        **{f"no {group}": without(group) for group in ABLATED},
        "trees on log(time)": log_time,
        "roofline": rated,
    }


def _has_group(table: pd.DataFrame, group: str) -> bool:
    """Whether any row has a feature of a group."""
    device = spec_of_measured(str(table["device"].iloc[0]))
    # One of each kind and number of inputs has all the names that its like have.
    alike = table.assign(number=table["inputs"].map(len)).drop_duplicates(["kind", "number"])
    names = {name for row in feature_rows(alike, device) for name in row}
    return any(in_group(name, group) for name in names)


CASES: Mapping[str, Callable[[], Iterator[Result]]] = {
    "gemm": gemm,
    "attention": attention,
    "kernels": kernels,
    "drift": drift,
    "devices": devices,
    "ablation": ablation,
    "groups": groups,
}


# -- speed --------------------------------------------------------------------------------------------


PRICED_ON = ("amd-epyc-25-17-1core", "tesla-t4", "nvidia-h100-sxm", "jetson-orin-nano-8gb")


def thousand() -> DataflowGraph:
    """A graph of 1,000 operators, 250 of them distinct: products, convolutions and what streams."""
    rng = np.random.default_rng(SEED)
    operators = []
    for number in range(250):
        m, n, k = (int(v) for v in 2 ** rng.integers(4, 12, 3))
        x, weight, y = TensorSpec((m, k)), TensorSpec((n, k)), TensorSpec((m, n))
        image, taps = TensorSpec((1, 64, 28, 28)), TensorSpec((n, 64, 3, 3))
        after = TensorSpec((1, n, 28, 28))
        square = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}
        operators.append(
            [
                Operator(f"fc{number}", "linear", inputs=(x, weight), outputs=(y,)),
                Operator(f"relu{number}", "relu", inputs=(y,), outputs=(y,)),
                Operator(f"add{number}", "add", inputs=(y, y), outputs=(y,)),
                Operator(
                    f"c{number}",
                    "conv2d",
                    attributes=square,
                    inputs=(image, taps),
                    outputs=(after,),
                ),
            ][number % 4]
        )
    named = [replace(o, name=f"{o.name}_{n}") for n in range(4) for o in operators]
    none: list[list[int]] = [[] for _ in named]
    return DataflowGraph("thousand", named, [], none, none)


def speed() -> list[str]:
    """Processor time of fitting 20,000 rows, and of pricing a graph of 1,000 operators on 4 devices."""
    lines = []
    table = rows_of_device("gemm_bf16_gpus", "nvidia-h100-sxm")
    table = table.sample(20_000, random_state=SEED).reset_index(drop=True)
    began = time.process_time()
    Boosted.fitted(table, roofline=rates(table))
    seconds = time.process_time() - began
    lines.append(f"fitting 20,000 rows: {seconds:.1f} s of one core (target 60 s on 2)")
    profiles = {name: Profile.load(name) for name in PRICED_ON}
    taken = []
    for _ in range(6):
        graph = thousand()  # another object with the same contents, as a new study has
        began = time.process_time()
        price_graphs([graph], PRICED_ON, profiles, model="boosted")
        taken.append(1e3 * (time.process_time() - began))
    lines.append(
        f"pricing 1,000 operators on {len(PRICED_ON)} devices: {taken[0]:.0f} ms the first time, then "
        f"{np.median(taken[1:]):.1f} ms of one core (target 30 ms)"
    )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns 0, or 2 where there are no data."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cost_models")
    known = [*CASES, "speed"]
    parser.add_argument("--cases", nargs="+", choices=known, default=known)
    parser.add_argument("--json", type=Path, help="write the results to this file as well")
    chosen = parser.parse_args(arguments)
    found: list[Result] = []
    print("Errors in per cent of rows that the model has not seen")
    print(HEADER)
    try:
        for name in chosen.cases:
            if name == "speed":
                print(*speed(), sep="\n")
                continue
            for line in CASES[name]():
                print(line.line, flush=True)
                found.append(line)
    except InvalidInput as error:
        print(error)
        return 2
    if chosen.json:
        document = {"format": FORMAT, "results": [asdict(line) for line in found]}
        write_text(chosen.json, json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
