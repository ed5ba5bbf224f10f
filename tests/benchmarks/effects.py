"""What each effect of a real machine is worth: saved validations simulated with it left out.

    python -m tests.benchmarks.effects [docs/validation/rome ...] [--every N]

For each folder and effect: the mean error of makespans and the winners named rightly (of pairs that measured more
than 5% apart), and their changes without the effect, in points. Every N-th case of each model counts (1 unless
given). Operator times are those that were saved; intervals are not drawn anew.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.validation.cases import Case
from experiments.validation.pairs import pairs
from experiments.validation.recheck import same_beliefs_s
from experiments.validation.saved import load_validation
from simulator.model.cluster import Cluster

DOCS = Path(__file__).parents[2] / "docs" / "validation"
FOLDERS = ("", "apart", "apart_turin", "busy", "h200", "rome", "turin", "turin_inputs", "xeon")


def without(*, links: bool = False, **values: Any) -> Callable[[Cluster], Cluster]:
    """A change of every device, and of every link, to these values."""

    def change(cluster: Cluster) -> Cluster:
        devices = [replace(device, **values) for device in cluster.devices]
        ways = [replace(link, **values) for link in cluster.links] if links else cluster.links
        return replace(cluster, devices=devices, links=ways)

    return change


def without_in_memory(**values: Any) -> Callable[[Cluster], Cluster]:
    """A change of every memory space to these values."""
    return lambda cluster: replace(
        cluster, spaces=[replace(space, **values) for space in cluster.spaces]
    )


def without_copy_launchers(cluster: Cluster) -> Cluster:
    """Transfers that need no launcher."""
    return replace(cluster, links=[replace(link, launcher=None) for link in cluster.links])


EFFECTS: dict[str, Callable[[Cluster], Cluster] | None] = {
    "launch locks": without(launcher=None, launch_handover=0.0, launch_passed=0, links=True),
    "hand-over": without(launch_handover=0.0, links=True),
    "passing": without(launch_passed=0, links=True),
    "cooling": without(launch_cooling=None),
    "launches per operator": without(launches=1),
    "waking": without(wake_cost=0.0),
    "weight caches": without_in_memory(cache=None),
    "far inputs": without(far_inputs=None),
    "traffic": without_in_memory(corun_slowdown=0.0),
    "copy launchers": without_copy_launchers,
    "discrepancy": None,
}
"""By name; None: operators take what was measured one by one, not what they take in a network."""


def judge(cases: list[Case]) -> tuple[float, float]:
    """Mean absolute error, and the share of separate pairs whose winner is named rightly."""
    known = [case for case in cases if not math.isnan(case.simulated_s)]
    separate = [pair for pair in pairs(known) if pair.separate]
    errors = [abs(case.error) for case in known]
    return float(np.mean(errors)), float(np.mean([pair.agrees for pair in separate]))


def effects(folder: Path, every: int) -> dict[str, tuple[float, float]]:
    """For each effect what :func:`judge` says without it; ``""`` has all of them."""
    validation, _ = load_validation(folder, [])
    found = {}
    for name in ("", *EFFECTS):
        cases = []
        for model in validation.models:
            chosen = list(zip(model.contestants, model.cases, strict=True))[::every]
            for contestant, case in chosen:
                change = EFFECTS[name] if name else None
                seconds = same_beliefs_s(
                    model, contestant, case, change=change, discrepancy=name != "discrepancy"
                )
                cases.append(replace(case, simulated_s=seconds))
        found[name] = judge(cases)
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    print("| validation | effect left out | mean error | change | winners | change |")
    print("|---|---|---|---|---|---|", flush=True)
    for folder in options.folders or [DOCS / name for name in FOLDERS]:
        found = effects(folder, options.every)
        error, winners = found.pop("")
        print(f"| {folder.name} | none | {error:.1%} | | {winners:.1%} | |")
        for name, (other, named) in found.items():
            change = f"{100 * (other - error):+.1f} | {named:.1%} | {100 * (named - winners):+.1f}"
            print(f"| {folder.name} | {name} | {other:.1%} | {change} |", flush=True)


if __name__ == "__main__":
    main()
