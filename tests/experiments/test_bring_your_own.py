"""Models and schedulers that are not the project's, named on the command line, in every command that takes them."""

import re
import shlex
from pathlib import Path

import pytest

from experiments import compare, describe, simulate, sweep, validate
from experiments.runs.grid import compose_grid
from experiments.runs.results import load_results, read_document
from experiments.studies.adversary.command import main as adversary
from experiments.studies.flip import command as flip
from tests.experiments.own_machine import newest

PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "model.md").read_text()
SCHEDULER = """
from dataclasses import dataclass
from neighbour import FIRST
from simulator.context.scheduler import Scheduler


@dataclass
class Mine(Scheduler):
    device: int = FIRST

    def decide(self, context):
        for task in context.ready:
            context.place(task, self.device)


class Faulty(Mine):
    def decide(self, context):
        return len(context.ready) / 0


class Twice(Mine):
    def decide(self, context):
        for task in [*context.ready, *context.ready]:
            context.place(task, 0)
"""
NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (torch.nn.Conv2d(3, 2, 64, stride=64) for _ in range(2))

    def forward(self, x):
        return self.a(x).relu() + self.b(x).tanh()


class Faulty(Net):
    def forward(self, x):
        return x[self.nothing]


class Unmade(Net):
    def __init__(self):
        super().__init__()
        self.size = {}["size"]
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with two files of schedulers that hold the same classes, and one of models."""
    monkeypatch.chdir(tmp_path)
    for name in ("mine.py", "others/mine.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SCHEDULER)
        (tmp_path / name).with_name("neighbour.py").write_text("FIRST = 0\n")
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def words_of_page() -> list[str]:
    """What docs/how_to/model.md says that names a model of one's own."""
    (line,) = re.findall(
        r"^hetsim describe .*?(model=from_class (?:.*\\\n)*.*)$", PAGE, re.MULTILINE
    )
    return shlex.split(line.replace("\\\n", ""))


def test_the_pages_model_in_every_command(own, folder, capsys):
    words = ["--config-dir", str(folder), *words_of_page(), "cluster=box"]
    assert describe.main(words) == 0
    two = [*words, "simulation.draws=0", "scheduler=heft,mine.py:Mine"]
    assert sweep.main([*two, "name=study", "workers=1", "baseline=mine.py:Mine"]) == 0
    assert set(load_results("outputs/sweeps/study")["model"]) == {"net"}
    assert compare.main(["outputs/sweeps/study", "baseline=mine.py:Mine"]) == 0
    assert flip.main([*two, "limit=1.2", "least_share=0.9"]) == 0
    capsys.readouterr()
    # The search changes given times; a model's are predicted.
    assert adversary(two) == 2
    assert "A traced model's times are predicted" in capsys.readouterr().err
    # What Hydra calls missing is said in one sentence.
    assert sweep.main(["--config-dir", str(folder), "model=from_class", "cluster=box"]) == 2
    assert "model.name has no default" in capsys.readouterr().err


def test_the_pages_model_and_a_scheduler_on_hardware(own, home, no_figures, capsys):
    words = [*words_of_page(), "cluster=here", "scheduler=fcfs,mine.py:Mine"]
    few = ["repeats=2", "seconds=0", "warmup=0", "speed=profile", "cores=[0,0]"]
    folders = ["--config-dir", str(home / "conf"), f"output_dir={home}"]
    assert validate.main([*folders, *few, *words]) == 0
    labels = {path.name for path in newest(home).rglob("*Mine*")}
    assert labels, "a case is called as its class"


def test_a_class_is_a_scheduler_like_any_other(own, capsys):
    words = ["instance=topcuoglu", "scheduler=mine.py:Mine"]
    assert simulate.main([*words, "scheduler.options.device=1"]) == 0
    assert "with Mine(device=1): makespan 130" in capsys.readouterr().out
    (folder,) = (own / "outputs" / "runs").iterdir()
    assert "-Mine_device=1-" in folder.name
    # Nothing is left of heft's options.
    assert read_document(folder / "result.json")["config"]["scheduler"]["options"] == {"device": 1}
    assert simulate.main([*words, "scheduler.options.devise=1"]) == 2
    assert "does not take these options" in capsys.readouterr().err
    assert simulate.main([*words, "scheduler.options.device=first"]) == 2
    assert "an option device that is a whole number, not 'first'" in capsys.readouterr().err
    assert simulate.main(["instance=peft", "scheduler.class_path=mine.py:Mine"]) == 0
    assert "with Mine: " in capsys.readouterr().out


def test_the_headline_is_of_ones_own_scheduler(own, capsys):
    """Unless a baseline is given, the best is held against what the user wrote."""
    words = ["instance=topcuoglu", "scheduler=heft,mine.py:Mine,fcfs", "name=headline"]
    assert sweep.main(words) == 0
    assert re.search(r"topcuoglu: heft beats Mine by \d+%", capsys.readouterr().out)
    assert compare.main(["outputs/sweeps/headline", "baseline=fcfs"]) == 0
    assert re.search(r"topcuoglu: heft beats fcfs by \d+%", capsys.readouterr().out)


def test_a_file_whose_path_has_such_characters(own, capsys):
    (own / "a b,(c)=d").mkdir()
    for name in ("mine.py", "neighbour.py"):
        (own / "a b,(c)=d" / name).write_text((own / name).read_text())
    assert simulate.main(["instance=peft", "scheduler=a b,(c)=d/mine.py:Mine"]) == 2
    (shown,) = re.findall(r"'(scheduler=\"[^']+)'", capsys.readouterr().err)
    assert simulate.main(["instance=peft", shown]) == 0
    grid = compose_grid(["instance=peft", f"{shown},heft"])
    assert [cell.scenario.scheduler.name for cell in grid.cells] == ["Mine", "heft"]


def test_two_classes_of_one_name_stay_two(own):
    texts = ["mine.py:Mine", "others/mine.py:Mine", "./mine.py:Mine", "heft"]
    grid = compose_grid(["instance=peft", f"scheduler={','.join(texts)}"])
    names = [cell.scenario.scheduler.name for cell in grid.cells]
    assert names == [f"Mine@{own.name}/mine.py", "Mine@others/mine.py", "heft"]
    assert len({cell.hash for cell in grid.cells}) == 3
    for cell in grid.cells:  # each repeats alone
        (alone,) = compose_grid(cell.overrides).cells
        assert alone.hash == cell.hash
    # One that calls itself like a shipped one is no other's namesake.
    (own / "new.py").write_text(
        "from mine import Mine\nclass New(Mine):\n    name = 'heft'\n", encoding="utf-8"
    )
    grid = compose_grid(["instance=peft", "scheduler=heft,new.py:New"])
    assert [cell.scenario.scheduler.name for cell in grid.cells] == ["heft", "heft@new.py"]


def test_options_of_a_class_are_an_axis_like_others(own):
    grid = compose_grid(["instance=peft", "scheduler=mine.py:Mine", "scheduler.options.device=0,1"])
    assert [c.scenario.scheduler.options for c in grid.cells] == [{"device": 0}, {"device": 1}]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mine.py", "names no class in a file; write path/to/file.py:Class"),
        ("mine.py:Nobody", "(there is: Mine, Faulty, Twice)"),
        ("absent.py:Mine", "absent.py:Mine': there is no file"),
        ("no.such.Mine", "no module named 'no'"),
        ("mine:Mine", "your own: package.module.Class or path/to/file.py:Class"),
        ("broken.py:Mine", "broken.py, line 2"),
        ("unfinished.py:Mine", "does not define decide"),
    ],
)
def test_a_class_that_is_none_is_one_sentence(name, sentence, own, capsys):
    (own / "broken.py").write_text("x = 1\ny = (\n")
    (own / "unfinished.py").write_text(
        "from simulator.context.scheduler import Scheduler\nclass Mine(Scheduler): pass\n"
    )
    for command in (simulate, sweep):
        assert command.main(["instance=peft", f"scheduler={name}"]) == 2
        error = capsys.readouterr().err
        assert sentence in error
        assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Faulty", "line 18, in decide: `return len(context.ready) / 0`: ZeroDivisionError"),
        ("Twice", "line 24, in decide: `context.place(task, 0)`: "),
    ],
)
def test_an_error_in_decide_begins_with_the_users_line(name, line, own, capsys):
    words = ["instance=peft", f"scheduler=mine.py:{name}"]
    assert simulate.main(words) == 2
    assert capsys.readouterr().err.startswith(f"{own}/mine.py, {line}")
    assert sweep.main([*words, "name=study", "workers=1"]) == 1
    assert load_results("outputs/sweeps/study")["error"][0].startswith(f"{own}/mine.py, {line}")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Faulty", "line 16, in forward: `return x[self.nothing]`: "),
        ("Unmade", 'line 22, in __init__: `self.size = {}["size"]`: '),
    ],
)
def test_an_error_in_a_module_begins_with_the_users_line(name, line, own, folder, capsys):
    words = [word.replace(":Net", f":{name}") for word in words_of_page()]
    assert describe.main(["--config-dir", str(folder), *words, "cluster=box"]) == 2
    assert capsys.readouterr().err.startswith(f"{own}/net.py, {line}")
