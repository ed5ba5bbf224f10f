"""Settling a verdict: ``python -m experiments.calibrate settle=outputs/sweeps/X``.

Measures the operators that :mod:`experiments.settling.settle` names, adds them to a copy of the profiles' tables,
fits these again, and compares the two schedulers once more with measured times looked up. Leaves::

    settle.json                      what was found, before and after
    measured/<profile>/operators.json.gz, raw/    what was to be measured, and every sample
    profiles/<profile>/              the profile with what was measured; HETSIM_PROFILES finds it here

A profile of another device is measured there: its operators file and the command are printed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from experiments.calibrating.settings import CalibrateConfig
from experiments.comparison.rounding import percent, probability
from experiments.comparison.statistics import SEPARABLE, probability_shorter
from experiments.runs import atomic
from experiments.runs.command import Invocation
from experiments.runs.console import make_console, print_validity
from experiments.runs.file_name import file_name, own_folder
from experiments.runs.prepare import prepare
from experiments.runs.pricing import load_profiles
from experiments.runs.this_machine import differences_here
from experiments.settling.settle import (
    Candidate,
    Pair,
    Question,
    Settlement,
    kernels_text,
    on_gpu,
    question_of,
    settle,
    shapes_text,
)
from simulator.errors import HetsimError, InvalidInput
from simulator.model.units import parse_seconds

if TYPE_CHECKING:
    from calibration.samples import OperatorSample
    from cost_models.profile import Profile, RowKey

FORMAT = "hetsim.settle/1"
MOST_ROWS = 15
CALL_SECONDS = 180.0
"""Of one call of the measuring half: below what it would use to measure co-running as well."""
PROCESSES = 2
"""Of a call."""
START_SECONDS = {"cpu": 5.0, "cuda": 15.0}
"""Of a process, until it measures operators."""
ANCHORS = 8
"""Operators of the profile that are measured again, to see whether the device still is what it was."""
CHANGED = 0.1
"""A device whose anchors differ by more is not what it was: its new times do not go with the old."""


@dataclass(frozen=True)
class Again:
    """How the device compares with what it was when its profile was measured.

    Attributes:
        anchors: operators measured then and now.
        ratio: median of now / then; NaN without anchors.
    """

    anchors: int
    ratio: float


def settle_command(config: CalibrateConfig, invocation: Invocation) -> None:
    """``calibrate settle=...``: plan, measure, fit and compare, as ``step`` says."""
    assert config.settle is not None
    question = question_of(
        config.settle, config.pair, config.contest, invocation.config_dirs, config.trust
    )
    console = Console(stderr=True)
    out = make_console()
    with console.status("", spinner="dots") as status:

        def show(line: str) -> None:
            status.update(line)
            if not console.is_terminal:
                console.print(line, highlight=False, soft_wrap=True)

        found = settle(question, parse_seconds(config.budget, "budget"), show)
        profiles = load_profiles(found.question.scenarios[0].cluster, _cost_model(found))
        print_settlement(found, profiles, out)
        if config.step == "plan" or not found.choices:
            return
        folder = _folder(config, found.question)
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write_text(folder / "command.txt", invocation.command + "\n")
        atomic.write_json(folder / "settle.json", document_of(found))
        elsewhere = []
        for name in dict.fromkeys(choice.profile for choice in found.choices):
            place = folder / "measured" / own_folder(profiles[name].name)
            samples = samples_for(found, name)
            if config.step != "fit":
                check_protocol(profiles[name])
            _write_operators(place, samples)
            if not is_here(profiles[name], config):
                elsewhere.append((name, command_for(profiles[name], place, found)))
            elif config.step in ("measure", "all"):
                for text in differences_here(profiles, {name: config.device}):
                    console.print(f"[yellow]{text}: calibrate it anew[/yellow]", soft_wrap=True)
                measure_here(profiles[name], place, samples, found, config, show)
    for name, command in elsewhere:
        if not list(
            (folder / "measured" / own_folder(profiles[name].name) / "raw").glob("part-*.parquet")
        ):
            out.print(f"'{name}' is another device. Measure there: {command}", soft_wrap=True)
    if config.step == "measure" or not list(folder.glob("measured/*/raw/part-*.parquet")):
        out.print(f"wrote {folder}; next: {_next(config, folder)}", soft_wrap=True)
        return
    with console.status("fitting", spinner="dots"):
        again = {
            name: refit(profiles[name], folder, found)
            for name in dict.fromkeys(choice.profile for choice in found.choices)
            if list(
                (folder / "measured" / own_folder(profiles[name].name) / "raw").glob(
                    "part-*.parquet"
                )
            )
        }
        after, ahead = compare_again(found.question, folder / "profiles")
    atomic.write_json(
        folder / "settle.json",
        document_of(found)
        | {
            "after": {"probability": after, "ahead": ahead},
            "anchors": {name: vars(entry) for name, entry in again.items()},
        },
    )
    print_outcome(found, after, ahead, again, folder, out)


# -- measuring ----------------------------------------------------------------------------------------


def is_here(profile: Profile, config: CalibrateConfig) -> bool:
    """Whether a profile is of the asked device of this machine.

    Raises:
        InvalidInput: this machine has no such device.
    """
    from calibration import environment

    threads, repeat = _threads(profile), _repeat_kernel(profile)
    here = environment.device_name(config.device, threads, repeat)
    table = profile.measurements
    names = {profile.name} | (set() if table is None else set(table["device"].unique()))
    return here in names


def check_protocol(profile: Profile) -> None:
    """Refuse to add to a profile that was measured in another way.

    Raises:
        InvalidInput: says which, and what to do.
    """
    from calibration.timing import PROTOCOL

    protocol = profile.provenance.get("protocol", 1)
    if profile.measurements is not None and protocol != PROTOCOL:
        raise InvalidInput(
            f"'{profile.name}' was measured by protocol {protocol}, this release measures by protocol "
            f"{PROTOCOL}: times of the two do not go together. Calibrate it anew, and settle with that: "
            "python -m experiments.calibrate device=cpu|cuda:0 budget=15min"
        )


def _threads(profile: Profile) -> int:
    return int(profile.provenance.get("threads", 1))


def _repeat_kernel(profile: Profile) -> int:
    return int(profile.provenance.get("repeat_kernel", 1))


def samples_for(found: Settlement, profile: str) -> list[OperatorSample]:
    """The chosen operators of a profile, as the measuring half takes them."""
    from calibration.samples import OperatorSample
    from cost_models.profile import row_keys

    scenario = found.question.scenarios[0]
    graph = prepare(scenario, found.question.config_dirs).graph
    by_row: dict[RowKey, OperatorSample] = {}
    # What a cost model cannot tell apart is measured once; what is no single call is not chosen.
    for key, operator, reads in zip(
        row_keys(graph.operators), graph.operators, graph.reads, strict=True
    ):
        if operator.template is not None and key not in by_row:
            weights = tuple(i for i, t in enumerate(reads) if graph.tensors[t].role == "weight")
            by_row[key] = OperatorSample(operator, weights, (scenario.model.name,))
    return [by_row[choice.row] for choice in found.choices if choice.profile == profile]


def anchors_of(
    profile: Profile, samples: Sequence[OperatorSample], state: str | None
) -> list[OperatorSample]:
    """Operators of the project's set that the profile has measured in a cache state, of the kinds to be
    measured.
    """
    from calibration.measure import SHIPPED_OPERATORS
    from calibration.samples import read_samples
    from cost_models.profile import row_keys

    kinds = {sample.operator.kind for sample in samples}
    pool = [sample for sample in read_samples(SHIPPED_OPERATORS) if sample.operator.kind in kinds]
    known = profile.is_measured(row_keys([sample.operator for sample in pool]), state)
    pool = [sample for sample, there in zip(pool, known, strict=True) if there]
    count = min(ANCHORS, len(pool))
    return [pool[number * len(pool) // count] for number in range(count)]


def _write_operators(place: Path, samples: Sequence[OperatorSample]) -> None:
    from calibration.samples import write_samples

    write_samples(place / "operators.json.gz", samples)


def measure_here(
    profile: Profile,
    place: Path,
    samples: Sequence[OperatorSample],
    found: Settlement,
    config: CalibrateConfig,
    show: Callable[[str], None],
) -> None:
    """Measure operators, and a few that the profile has, into ``place/raw``.

    Raises:
        KeyboardInterrupt: it was interrupted; what was measured is kept.
    """
    from calibration.measure import measure
    from calibration.plan import MeasurePlan
    from calibration.samples import distinct
    from calibration.timing import default_states

    state = found.states[profile.name]
    states = (state,) if state else default_states(config.device)
    plan = MeasurePlan(
        config.device,
        profile.name,
        states,
        _threads(profile),
        _repeat_kernel(profile),
        config.seed,
    )
    operators = distinct([*samples, *anchors_of(profile, samples, state)])
    wanted = config.rounds or found.visits[profile.name]
    raw = place / "raw"
    expected = sum(c.seconds for c in found.choices if c.profile == profile.name)
    calls = max(1, math.ceil(2 * expected / CALL_SECONDS))
    show(f"{len(samples)} operators and {len(operators) - len(samples)} anchors on {profile.name}")
    for _ in range(calls):
        outcome = measure(
            raw,
            plan,
            operators,
            CALL_SECONDS,
            cores=config.cores,
            rounds=math.ceil(wanted / calls / PROCESSES),
            show=show,
        )
        for index, why in outcome.failed.items():
            show(f"not measured: {operators[index].operator.name}: {why}")
        if outcome.interrupted:
            raise KeyboardInterrupt


def command_for(profile: Profile, place: Path, found: Settlement) -> str:
    """The command that measures a profile's operators where its device is."""
    words = ["python", "-m", "calibration.measure"]
    words += ["--device", "cuda:0" if on_gpu(profile) else "cpu", "--name", profile.name]
    words += ["--operators", str(place / "operators.json.gz"), "--out", str(place / "raw")]
    rounds = math.ceil(found.visits[profile.name] / PROCESSES)
    words += ["--budget", f"{CALL_SECONDS:.0f}s", "--rounds", str(rounds)]
    if state := found.states[profile.name]:
        words += ["--states", state]
    if _threads(profile) != 1:
        words += ["--threads", str(_threads(profile))]
    if _repeat_kernel(profile) != 1:
        words += ["--repeat-kernel", str(_repeat_kernel(profile))]
    return shlex.join(words)


# -- fitting and comparing again ----------------------------------------------------------------------


def refit(profile: Profile, folder: Path, found: Settlement) -> Again:
    """Save the profile with what ``folder/measured`` holds for it; returns how its anchors compare.

    Its held-out error and residuals stay: a few operators more do not change what a model does with
    architectures that it has not seen.

    Raises:
        HetsimError: the device is not what it was, so that old and new times do not go together.
    """
    from calibration import summary
    from cost_models import table as tables
    from cost_models.fitting import fitted_models

    raw = folder / "measured" / own_folder(profile.name) / "raw"
    new = tables.load(summary.measurement_table(raw, profile.statistic or "minimum"))
    asked = {choice.row for choice in found.choices if choice.profile == profile.name}
    chosen = np.array([_row(entry) in asked for entry in new.to_dict("records")], dtype=bool)
    again = _compared(profile, new[~chosen], found.states[profile.name])
    if again.anchors and abs(again.ratio - 1) > CHANGED:
        raise HetsimError(
            f"{again.anchors} operators that '{profile.name}' has measured take {again.ratio:.2f} times as "
            "long now: looked-up times would not go with predicted ones. Where something else is running, "
            f"end it and go on with out={folder}; else calibrate the device anew"
        )
    new = new[chosen].reset_index(drop=True)
    base = profile.measurements
    table = tables.load(new if base is None else merged(base, new))
    model = profile.model_name(found.question.scenarios[0].cost_model.name)
    models, default = profile.models, profile.default
    # A correction of another device's profile is not fitted to a table alone; it stays.
    if base is not None and model in profile.models and model != "adapted":
        models, default = fitted_models(table, profile.roofline, (model,)), model
    spread = {str(k): float(v) for k, v in new.groupby("kind")["spread"].median().items()}
    replace(
        profile,
        models=models,
        default=default,
        table=table,
        spread={**spread, **profile.spread},
        provenance={**profile.provenance, "settled": {"operators": len(new), "for": _title(found)}},
    ).save(folder / "profiles" / own_folder(profile.name))
    return again


def _row(entry: Mapping[Any, Any]) -> tuple[Any, ...]:
    from cost_models.table import FEATURES

    return tuple(entry[column] for column in FEATURES)


def _compared(profile: Profile, anchors: pd.DataFrame, state: str | None) -> Again:
    from cost_models.table import FEATURES

    if not len(anchors):
        return Again(0, float("nan"))
    keys = list(zip(*(anchors[column] for column in FEATURES), strict=True))
    before = profile.price_rows(keys, model="roofline", cache=state, lookup=True).seconds
    return Again(len(keys), float(np.median(anchors["seconds"].to_numpy() / before)))


def merged(base: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """A measurement table with further rows.

    A row takes the place of one of the same operator in the same cache state, and its architectures; in
    another state both stay.
    """
    from cost_models.table import FEATURES

    def keys(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
        cache = frame["cache"] if "cache" in frame else [None] * len(frame)
        return list(zip(*(frame[column] for column in FEATURES), cache, strict=True))

    new, new_keys, old_keys = new.copy(), keys(new), keys(base)
    replaced = set(new_keys)
    if "architectures" in base:
        known: dict[tuple[Any, ...], set[str]] = {}
        for key, names in zip(old_keys, base["architectures"], strict=True):
            if key in replaced and names is not None:
                known.setdefault(key, set()).update(names)
        new["architectures"] = [
            sorted({*(names if names is not None else ()), *known.get(key, ())})
            for key, names in zip(new_keys, new["architectures"], strict=True)
        ]
    kept = base[[key not in replaced for key in old_keys]]
    frame = pd.concat([kept, new[[c for c in new if c in base or c != "cache"]]])
    frame = frame.reset_index(drop=True)
    for column in ("architectures", "versions"):
        if column in frame:
            # Where only one of the two has the column, pandas fills in NaN.
            values = [None if isinstance(value, float) else value for value in frame[column]]
            frame[column] = pd.Series(values, dtype=object)
    return frame


@contextlib.contextmanager
def profiles_in(folder: Path) -> Iterator[None]:
    """Find profiles in a folder before all others."""
    before = os.environ.get("HETSIM_PROFILES")
    os.environ["HETSIM_PROFILES"] = os.pathsep.join(
        [str(folder.resolve()), *filter(None, [before])]
    )
    try:
        yield
    finally:
        if before is None:
            del os.environ["HETSIM_PROFILES"]
        else:
            os.environ["HETSIM_PROFILES"] = before


def compare_again(question: Question, profiles: Path) -> tuple[float, float]:
    """P(win) of the first scheduler, and by what share it is ahead, with the profiles of a folder."""
    with profiles_in(profiles):
        first, second = Pair(question, lookup=True).draws()
    return probability_shorter(first, second), float((second - first).mean() / second.mean())


# -- words and files ----------------------------------------------------------------------------------


def print_settlement(found: Settlement, profiles: Mapping[str, Profile], out: Console) -> None:
    """The verdict as it stands, what makes it uncertain, what to measure and what to expect of it."""
    first, second = found.question.labels
    out.print(
        f"[bold]{found.question.contest}: {first} is {percent(found.ahead)} ahead of {second}, P(win) "
        f"{probability(found.now)}[/bold]"
    )
    print_validity(found.validity, out)
    if found.looked_up is not None:
        out.print(
            f"{found.known} of {found.operators} operators are measured already; looked up "
            f"(cost_model.lookup=true) P(win) {probability(found.looked_up)}"
        )
    out.print(
        f"of the difference's variance {found.from_noise:.0%} is noise between runs and what "
        f"simulation is off by, which no measuring narrows, and {1 - found.from_noise:.0%} is from operator times; as a normal distribution "
        f"P(win) {probability(found.normal)}; critical paths explain {found.linear:.2f} of its width",
        style="dim",
    )
    if not found.choices:
        settled = found.looked_up is not None and max(found.looked_up, 1 - found.looked_up)
        out.print(
            "looking them up settles it: cost_model.lookup=true"
            if settled and settled >= SEPARABLE
            else "no measuring would narrow it"
        )
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("measure", "shapes", "profile", "of the variance", "seconds"):
        right = heading in ("of the variance", "seconds")
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading != "shapes")
    for choice in found.choices[:MOST_ROWS]:
        table.add_row(
            choice.operator.kind,
            shapes_text(choice.operator),
            choice.profile,
            f"{choice.share:.1%}",
            f"{choice.seconds:.1f}",
        )
    if len(found.choices) > MOST_ROWS:
        rest_of = found.choices[MOST_ROWS:]
        table.add_row(
            f"... {len(rest_of)} more",
            "",
            "",
            f"{sum(c.share for c in rest_of):.1%}",
            f"{sum(c.seconds for c in rest_of):.1f}",
        )
    out.print(table)
    starts = sum(
        PROCESSES * START_SECONDS["cuda" if on_gpu(profiles[name]) else "cpu"]
        for name in {choice.profile for choice in found.choices}
    )
    out.print(
        f"[bold]{kernels_text(found.choices)}, {found.seconds:.0f} s and {starts:.0f} s to start: the "
        f"variance falls by {1 - found.after / found.variance:.0%}, P(win) {probability(found.now)} now, "
        f"{probability(found.expected)} expected[/bold]"
    )
    if found.question.others:
        others = "; ".join(found.question.others)
        out.print(f"open as well (contest=...): {others}", style="dim", soft_wrap=True)


def print_outcome(
    found: Settlement,
    after: float,
    ahead: float,
    again: Mapping[str, Again],
    folder: Path,
    out: Console,
) -> None:
    """What measuring did to the verdict."""
    first, second = found.question.labels
    winner, loser = (first, second) if after >= 0.5 else (second, first)
    p, by = (after, ahead) if after >= 0.5 else (1.0 - after, -ahead)
    out.print(
        f"[bold]measured and looked up: {winner} is {percent(by)} ahead of {loser}, P(win) "
        f"{probability(p)}[/bold] (before: {first} {probability(found.now)}; expected: "
        f"{probability(found.expected)})"
    )
    for name, entry in again.items():
        if not entry.anchors:
            continue
        out.print(
            f"{name}: {entry.anchors} operators measured then and now take {entry.ratio:.2f} times as long",
            style="dim",
            soft_wrap=True,
        )
    out.print(
        f"wrote {folder}/profiles; to simulate with them: HETSIM_PROFILES={folder}/profiles and "
        "cost_model.lookup=true",
        soft_wrap=True,
    )


def document_of(found: Settlement) -> dict[str, Any]:
    """``settle.json``, as far as it is known before measuring."""
    return {
        "format": FORMAT,
        "contest": found.question.contest,
        "schedulers": list(found.question.labels),
        "ahead": found.ahead,
        "probability": found.now,
        "probability_looked_up": found.looked_up,
        "probability_normal": found.normal,
        "probability_expected": found.expected,
        "variance_s2": found.variance,
        "variance_after_s2": found.after,
        "share_from_noise": found.from_noise,
        "linear_width": found.linear if math.isfinite(found.linear) else None,
        "measured_already": found.known,
        "operators": found.operators,
        "seconds": found.seconds,
        "visits": dict(found.visits),
        "states": dict(found.states),
        "choices": [_document_of(choice) for choice in found.choices],
    }


def _document_of(choice: Candidate) -> dict[str, Any]:
    kind, dtype, inputs, outputs, attributes = choice.row
    return {
        "profile": choice.profile,
        "name": choice.operator.name,
        "kind": kind,
        "dtype": dtype,
        "inputs": inputs,
        "outputs": outputs,
        "attributes": json.loads(attributes),
        "share": choice.share,
        "seconds": choice.seconds,
    }


def _title(found: Settlement) -> str:
    return f"{' against '.join(found.question.labels)} on {found.question.contest}"


def _cost_model(found: Settlement) -> Any:
    return found.question.scenarios[0].cost_model


def _folder(config: CalibrateConfig, question: Question) -> Path:
    if config.out is not None:
        return Path(config.out)
    name = file_name("-".join([question.contest, *sorted(question.labels)]))
    return Path(config.output_dir) / "settled" / name / time.strftime("%Y-%m-%d_%H-%M-%S")


def _next(config: CalibrateConfig, folder: Path) -> str:
    words = ["python", "-m", "experiments.calibrate", f"settle={config.settle}"]
    if config.pair is not None:
        words.append(f"pair={','.join(config.pair)}")
    if config.contest is not None:
        words.append(f"contest={config.contest}")
    if config.budget != CalibrateConfig.budget:
        words.append(f"budget={config.budget}")
    return shlex.join([*words, "step=fit", f"out={folder}"])
