"""What the shipped validations came to, one row a run: ``python -m tests.benchmarks.validity``.

Writes ``experiments/runs/validated.csv`` from the ``validation.json`` of each report in ``docs/validation``; every
result's line of validity is made from it (:mod:`experiments.runs.validity`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cost_models.profile import Profile
from experiments.runs.atomic import write_text
from experiments.runs.validity import COLUMNS, SUMMARY, world_of
from simulator.support.csv_text import csv_text
from simulator.support.shipped import CHECKOUT

REPORTS = CHECKOUT / "docs" / "validation"


def rows(folder: Path = REPORTS) -> list[list[Any]]:
    """A row for each report of a folder that kept its figures."""
    found: list[list[Any]] = []
    for path in sorted(folder.rglob("validation.json")):
        document = json.loads(path.read_text())
        cluster, figures = document["models"][0]["cluster"], document["summary"]
        names = sorted(cluster["labels"])
        computing = {device["space"] for device in cluster["devices"]}
        found.append(
            [
                str(path.parent.relative_to(folder)),
                world_of({Profile.load(name).is_gpu for name in names}, len(computing)),
                " ".join(names),
                len({model["model"] for model in document["models"]}),
                figures["cases"],
                round(figures["mean_absolute_error"], 4),
                round(figures["covered"] / figures["intervals"], 4),
                *splitting(document["cases"]),
            ]
        )
    return found


def splitting(cases: list[dict[str, Any]]) -> tuple[int, int, float]:
    """Settings with ``single_device``, those in which it was as fast as any, and what the others were to gain, in the
    mean; 0, 0, 1 without it.
    """
    settings: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for case in cases:
        settings.setdefault((case["model"], case["jobs"]), {})[case["scheduler"]] = case
    alone, promised = 0, []
    for by_scheduler in settings.values():
        if single := by_scheduler.get("single_device"):
            best = {
                key: min(c[key] for c in by_scheduler.values())
                for key in ("measured_s", "simulated_s")
            }
            alone += single["measured_s"] <= 1.02 * best["measured_s"]
            promised.append(single["simulated_s"] / best["simulated_s"])
    return len(promised), alone, round(sum(promised) / len(promised), 4) if promised else 1.0


def main() -> None:
    """Write the summary."""
    write_text(SUMMARY, csv_text(COLUMNS, rows()))
    print(f"wrote {SUMMARY}")


if __name__ == "__main__":
    main()
