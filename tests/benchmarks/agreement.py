"""The headline figure, of the shipped validations: ``python -m tests.benchmarks.agreement``.

Writes ``docs/validation/fig_agreement.png`` (and .pdf, .csv, .txt to the folder given as an argument) from the
``cases.csv`` of each report. A processor is there with its first full run; grey is what does not reach the target yet.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

import pandas as pd

from experiments.plots.agreement import draw_agreement
from experiments.runs.validity import SUMMARY

REPORTS = (".", "xeon", "rome", "turin", "h200")
TARGET = 0.06
"""Mean error that docs/validation.md asks for."""
_PROFILE = re.compile(r"(amd-epyc|intel-xeon)-(\d+)-(\d+)-1core")
_MAKERS = {"amd-epyc": "AMD EPYC", "intel-xeon": "Intel Xeon"}


def hardware(profiles: str) -> str:
    """``AMD EPYC (family 25, model 17)`` of the profiles of a report."""
    match = _PROFILE.search(profiles)
    assert match is not None, profiles
    maker, family, model = match.groups()
    if "nvidia-h200" in profiles:
        return f"{_MAKERS[maker]} and NVIDIA H200"
    return f"{_MAKERS[maker]} ({family}-{model})"


def cases(folder: Path = SUMMARY.parent) -> pd.DataFrame:
    """Every case of the reports, with the hardware that ran it."""
    summary = pd.read_csv(folder / "summary.csv").set_index("report")
    frames = []
    for report in REPORTS:
        row = summary.loc[report]
        frame = pd.read_csv(folder / report / "cases.csv")
        frames.append(
            frame.assign(hardware=hardware(row["profiles"]), reached=row["mean_error"] <= TARGET)
        )
    columns = ["hardware", "reached", "model", "jobs", "scheduler", "simulated_s", "measured_s"]
    return pd.concat(frames, ignore_index=True)[[*columns, "repeatability"]]


def main() -> None:
    """Draw it."""
    with tempfile.TemporaryDirectory() as temporary:
        paths = draw_agreement(cases(), Path(temporary) / "fig_agreement")
        for path in paths:
            folders = [Path(sys.argv[1])] if len(sys.argv) > 1 else []
            folders += [SUMMARY.parent] if path.suffix in (".png", ".txt") else []
            for folder in folders:
                folder.mkdir(parents=True, exist_ok=True)
                print(f"wrote {shutil.copy(path, folder)}")


if __name__ == "__main__":
    main()
