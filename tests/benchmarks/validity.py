"""What the shipped validations came to, one row a run: ``python -m tests.benchmarks.validity``.

Writes ``docs/validation/summary.csv`` from the ``validation.json`` of each report; every result's line of validity is
made from it (:mod:`experiments.runs.validity`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cost_models.profile import Profile
from experiments.runs.atomic import write_text
from experiments.runs.validity import COLUMNS, SUMMARY, world_of
from simulator.support.csv_text import csv_text


def rows(folder: Path = SUMMARY.parent) -> list[list[Any]]:
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
            ]
        )
    return found


def main() -> None:
    """Write the summary."""
    write_text(SUMMARY, csv_text(COLUMNS, rows()))
    print(f"wrote {SUMMARY}")


if __name__ == "__main__":
    main()
