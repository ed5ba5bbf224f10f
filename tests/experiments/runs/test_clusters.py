"""Sweeps on Ray, on Dask and by submitit: the same folders as on this machine, whatever becomes of a worker."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments import sweep
from experiments.runs.clusters import Cluster
from experiments.runs.command import Invocation
from experiments.runs.pool import WorkerDiedError, work_through
from simulator.errors import InvalidInput

LIBRARIES = {"ray": "ray", "dask": "distributed", "submitit:local:2": "submitit"}
EVERY = [
    pytest.param(
        text,
        marks=pytest.mark.skipif(
            importlib.util.find_spec(library) is None, reason=f"{library} is not installed"
        ),
    )
    for text, library in LIBRARIES.items()
]
SWEEPS = Path("outputs/sweeps")
DEADLY = """
import os
from pathlib import Path
from simulator.context.scheduler import Scheduler

class Deadly(Scheduler):
    name = "deadly"

    def decide(self, context):
        with open("tried", "a") as file:
            file.write("x")
        os._exit(9)
"""


@pytest.fixture
def own(folder, monkeypatch):
    """A folder with schedulers of the user's own, one of which kills its process and one of which fails."""
    monkeypatch.setattr(sweep, "_report", lambda *_: None)
    (folder / "deadly.py").write_text(DEADLY)
    (folder / "failing.py").write_text(
        DEADLY.replace("os._exit(9)", "raise ValueError('no')")
    )
    for name in ("deadly", "failing"):
        (folder / "scheduler" / f"{name}.yaml").write_text(
            f"name: {name}\nclass_path: {name}.py:Deadly\ndescription: ends\n"
        )
    return folder


def cells(name):
    """By cell the files of its folder, without what differs from run to run."""
    found = {}
    for path in sorted((SWEEPS / name / "cells").glob("*/*")):
        content = path.read_bytes()
        if path.name == "result.json":
            document = json.loads(content)
            document.pop("wallclock", None)
            content = json.dumps(document)
        if path.name == "error.txt":
            content = content.splitlines()[-1]
        found[path.parent.name, path.name] = content
    return found


@pytest.mark.parametrize("workers", EVERY)
def test_a_cluster_leaves_what_this_machine_leaves_and_tries_a_lost_workers_cell_twice(
    own, capsys, workers
):
    words = ["--config-dir", str(own), "instance=topcuoglu,fork", "traces=true"]
    assert sweep.main([*words, "scheduler=heft,mine,failing", "name=here", "workers=1"]) == 1
    there = [*words, "scheduler=heft,mine,failing,deadly", "name=there"]
    there += [f"workers={workers}", "exclude=[{scheduler:deadly,instance:topcuoglu}]"]
    capsys.readouterr()
    assert sweep.main(there) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "1 of 7 cells are still to do: their process was killed" in out
    assert Path("tried").read_text().count("x") == 2 + 2  # two cells of "failing" here and there
    assert cells("there") == cells("here")
    assert len(list((SWEEPS / "there").glob("cells/*/trace.json"))) == 4
    assert not list((SWEEPS / "there").rglob(".*"))
    assert json.loads((SWEEPS / "there" / "manifest.json").read_text())["workers"] == workers
    # What is done is not done again, and the rest is.
    (own / "deadly.py").write_text(DEADLY.replace("os._exit(9)", "raise ValueError('no')"))
    found = sweep.plan_sweep(Invocation("experiments.sweep", (*there[2:],), (own,)))
    assert sorted(found.states.values()) == ["done"] * 4 + ["failed"] * 2 + ["missing"]
