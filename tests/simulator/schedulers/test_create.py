"""Schedulers by name, class path and file path."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator import schedulers
from simulator.context.scheduler import Scheduler
from simulator.errors import InvalidInput
from simulator.schedulers import available, create

MINE = """
from simulator.context.scheduler import Scheduler

class Mine(Scheduler):
    name = "mine"

    def __init__(self, speed=1):
        self.speed = speed

    def decide(self, context):
        for task in context.ready:
            context.place(task, 0)

class Helper:
    pass
"""


def test_available_names_every_scheduler_of_the_package() -> None:
    files = {path.stem for path in Path(schedulers.__file__).parent.glob("[!_]*.py")}
    assert set(available()) >= {
        "single_device",
        "fcfs",
        "donf",
        "donf2",
        "adon",
        "heft",
        "sufferage",
    }
    assert {kind.__module__.rpartition(".")[2] for kind in available().values()} == files
    for name, kind in available().items():
        assert issubclass(kind, Scheduler)
        assert (kind.name, kind.__doc__ is None) == (name, False)
        assert isinstance(create(name), kind)


def test_a_fresh_scheduler_each_time() -> None:
    assert create("heft") is not create("heft")


def test_unknown_name_lists_what_is_near() -> None:
    with pytest.raises(InvalidInput, match=r"No scheduler 'hefd'. Nearest: heft.* Known: adon, "):
        create("hefd")
    with pytest.raises(InvalidInput, match=r"No scheduler 'zzz'. Known: adon"):
        create("zzz")


def test_wrong_options_list_the_right_ones() -> None:
    with pytest.raises(InvalidInput, match=r"'heft' does not take .*'insert'.* it has: insertion"):
        create("heft", insert=True)
    with pytest.raises(InvalidInput, match="it has: alpha, pricing"):
        create("adon", beta=1)


def test_class_path() -> None:
    assert create("simulator.schedulers.heft.Heft", insertion=False).name == "heft"
    with pytest.raises(
        InvalidInput, match=r"Cannot import 'no\.such' for scheduler 'no\.such\.Thing'"
    ):
        create("no.such.Thing")
    with pytest.raises(
        InvalidInput, match=r"'simulator.model.cluster.Cluster' is not a scheduler: "
    ):
        create("simulator.model.cluster.Cluster")
    with pytest.raises(InvalidInput, match=r"heft.Nobody': nothing called 'Nobody'.* Heft"):
        create("simulator.schedulers.heft.Nobody")


def test_file_path(tmp_path: Path) -> None:
    file = tmp_path / "my_scheduler.py"
    file.write_text(MINE)
    scheduler = create(f"{file}:Mine", speed=3)
    assert (scheduler.name, vars(scheduler)["speed"]) == ("mine", 3)
    with pytest.raises(InvalidInput, match="'Helper' must be a subclass"):
        create(f"{file}:Helper")
    with pytest.raises(InvalidInput, match=r"there is no file .*absent\.py"):
        create(f"{tmp_path / 'absent.py'}:Mine")
