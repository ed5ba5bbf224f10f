"""Models that no calibration has seen, predicted by a profile and measured on one core.

    python -m tests.benchmarks.strangers [--profile NAME|FOLDER] [--again] [--lookup] [model ...]
    python -m tests.benchmarks.strangers --operators FILE [model ...]

The models are frozen (:mod:`tests.benchmarks.stranger_models`); no fit, set of operators or probe was made with them in
mind. Each is called as a module in fresh processes bound to one core, denormal numbers flushed, and executed operator
by operator in between; the profile's statistic is taken of both sides. What is simulated is one execution after
others of the same on a device of that profile, by the profile's default cost model: nothing is told of this hour.
Prints for each model the measured and the simulated time, the error, whether the 90% interval of the profile's draws
holds the measured one, how much of the time is in the measured range, and what the operators took in place over what
the module took; then mean, median, bias, worst and coverage, and how fast the machine was beside the calibration's
hour. ``--again`` takes the times that were measured last.

``--operators`` writes the models' operators and does nothing else: a copy of a calibration that goes on with them
(``calibrate out=COPY only=true operators=FILE``) is what somebody has who calibrates for models of their own;
``--lookup`` takes its measured times.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.runs.atomic import write_json
from experiments.runs.results import read_document
from simulator.errors import InvalidInput
from tests.benchmarks import end_to_end

if TYPE_CHECKING:
    from cost_models.profile import Profile
    from scenarios.model_config import ModelConfig

PROCESSES, EXECUTIONS, DRAWS = 3, 12, 500
MEASURED = Path("outputs/benchmarks/strangers.json")


class Simulated(NamedTuple):
    """Seconds that a profile says of one execution; ``low`` to ``high`` is the 90% interval, ``inside`` the share in range."""

    seconds: float
    low: float
    high: float
    inside: float


def profile_of(name: str | None) -> Profile:
    """The profile of a name or folder, also a calibration's; this processor's unless one is given."""
    from cost_models.profile import Profile

    folder = Path(name or "") / "profile"
    if name is not None and (folder / "profile.json").exists():
        return Profile.load(folder)
    return Profile.load(name or end_to_end.PROFILE)


def stranger(name: str) -> ModelConfig:
    """A model of the list.

    Raises:
        SystemExit: it has none of that name.
    """
    from tests.benchmarks.stranger_models import STRANGERS

    known = {config.name: config for config in STRANGERS}
    if name not in known:
        raise SystemExit(f"No stranger '{name}'; there are {', '.join(known)}")
    return known[name]


def measured_here(name: str) -> dict[str, Any]:
    """Seconds of the module's calls, of the operators in place and of the reference operator, in this process."""
    end_to_end.prepare_process()
    from calibration.reference import reference_times
    from scenarios.outputs import eagerly
    from tests.benchmarks.in_place import InPlace

    model = InPlace(stranger(name))
    before = reference_times(visits=10)
    calls = end_to_end.timed_calls(model.module, model.inputs)
    placed = np.empty((EXECUTIONS, len(model.graph)))
    with eagerly():
        for row in placed:

            def note(position: int, seconds: float, _: Sequence[Any], row: Any = row) -> None:
                row[position] = seconds

            model.execute(note)
    reference = [*before.tolist(), *reference_times(visits=10).tolist()]
    return {"calls": calls, "placed": placed[2:].tolist(), "reference": reference}


def simulated(config: ModelConfig, profile: Profile, lookup: bool = False) -> Simulated:
    """What a profile says of a model."""
    from experiments.runs.configs import CostModelConfig
    from experiments.runs.pricing import Pricer
    from scenarios.model_config import graph_of

    graph = graph_of(config)
    cluster = end_to_end.one_core(profile.reuse, profile.name)
    pricer = Pricer(cluster, {profile.name: profile}, CostModelConfig("default", lookup))
    table = pricer.price([graph])
    kept = end_to_end.left_by_the_cache(graph, table[graph], profile.reuse)
    seconds = table[graph].seconds[:, 0] * kept
    draws = [float(one[graph].seconds[:, 0] @ kept) for one in pricer.draws(table, DRAWS, 0)]
    low, high = np.percentile(draws, [5, 95])
    inside = table[graph].in_range
    known = np.ones(len(graph), bool) if inside is None else inside[:, 0]
    total = float(seconds.sum())
    return Simulated(total, float(low), float(high), float(seconds[known].sum()) / total)


def measure_all(names: Sequence[str], core: int) -> dict[str, list[dict[str, Any]]]:
    """What processes measured, by model: each measures all in turn, so that a slow while is slow for all."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(PROCESSES):
        print(
            f"process {number + 1} of {PROCESSES}: {len(names)} models", file=sys.stderr, flush=True
        )
        answer = end_to_end.in_process("tests.benchmarks.strangers", ("--measure", *names), core)
        for name in names:
            found[name].append(answer[name])
    write_json(MEASURED, {"processes": found})
    return found


def measured_before() -> dict[str, list[dict[str, Any]]]:
    """What the last command measured.

    Raises:
        SystemExit: nothing, or the file is damaged.
    """
    try:
        found: dict[str, list[dict[str, Any]]] = read_document(MEASURED)["processes"]
    except InvalidInput as error:
        raise SystemExit(f"{error}; leave --again out, and the models are measured") from None
    return found


def rows_of(
    found: dict[str, list[dict[str, Any]]], profile: Profile, quantile: float, lookup: bool = False
) -> dict[str, tuple[float, float, Simulated]]:
    """By model: seconds of the module, of its operators in place, and as simulated."""
    rows = {}
    for name, processes in found.items():
        calls = np.concatenate([process["calls"] for process in processes])
        placed = np.concatenate([np.sum(process["placed"], axis=1) for process in processes])
        said = simulated(stranger(name), profile, lookup)
        rows[name] = float(np.quantile(calls, quantile)), float(np.quantile(placed, quantile)), said
    return rows


def summary(rows: dict[str, tuple[float, float, Simulated]]) -> str:
    """Mean, median, bias and worst error, and coverage."""
    errors = np.array([said.seconds / took - 1 for took, _, said in rows.values()])
    held = np.mean([said.low <= took <= said.high for took, _, said in rows.values()])
    placed = np.array([said.seconds / place - 1 for _, place, said in rows.values()])
    off = np.abs(errors)
    return (
        f"{len(rows)} models: mean {off.mean():.1%}, median {np.median(off):.1%}, bias {errors.mean():+.1%}, worst "
        f"{errors[off.argmax()]:+.1%}; 90% interval holds {held:.0%}; against operators in place: mean "
        f"{np.abs(placed).mean():.1%}, bias {placed.mean():+.1%}"
    )


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    if arguments[:1] == ["--measure"]:
        print(json.dumps({name: measured_here(name) for name in arguments[1:]}))
        return 0
    from calibration.environment import cores_for
    from calibration.summary import STATISTICS
    from tests.benchmarks.stranger_models import STRANGERS

    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.strangers", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--profile", help="name or folder of a profile, or folder of a calibration")
    parser.add_argument("--again", action="store_true", help="take the times measured last")
    parser.add_argument("--lookup", action="store_true", help="take the profile's measured times")
    parser.add_argument("--operators", help="write the models' operators to this file")
    parser.add_argument("models", nargs="*")
    options = parser.parse_args(arguments)
    names = options.models or [config.name for config in STRANGERS]
    configs = [stranger(name) for name in names]
    if options.operators:
        from calibration.samples import write_samples
        from calibration.sampling import model_operators
        from scenarios.model_config import graph_of

        samples = model_operators((config.name, graph_of(config)) for config in configs)
        write_samples(options.operators, samples)
        print(f"{len(samples)} operators in {options.operators}")
        return 0
    profile = profile_of(options.profile)
    (core,) = cores_for(1)
    found = measured_before() if options.again else measure_all(names, core)
    found = {name: found[name] for name in names if name in found}
    rows = rows_of(found, profile, STATISTICS[profile.statistic or "minimum"], options.lookup)
    print(f"{profile.name}, {profile.model_name()}: simulated / measured - 1; core {core}")
    print(
        "| model | measured ms | simulated ms | error | 90% interval ms | in it | in range | in place / module |"
    )
    print("|---|--:|--:|--:|--:|---|--:|--:|")
    for name, (took, place, said) in rows.items():
        print(
            f"| {name} | {took * 1e3:.2f} | {said.seconds * 1e3:.2f} | {said.seconds / took - 1:+.1%} | "
            f"{said.low * 1e3:.2f}-{said.high * 1e3:.2f} | {'yes' if said.low <= took <= said.high else 'no'} | "
            f"{said.inside:.0%} | {place / took:.3f} |"
        )
    print(summary(rows))
    reference = [s for processes in found.values() for p in processes for s in p["reference"]]
    if calibrated := profile.provenance.get("reference_s"):
        now = float(np.quantile(reference, 0.1)) / calibrated
        print(
            f"the reference operator takes {now:.3f} times what it took when the profile was measured"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
