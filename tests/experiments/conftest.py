"""A user's own folder: a small model, a cluster, a scheduler, profiles; nothing of the project's."""

import os
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from cost_models.profile import Profile
from cost_models.roofline import Roofline
from cost_models.uncertainty import Residuals
from experiments.runs.atomic import write_text
from scenarios.model_config import InputConfig

MODEL = """
import torch

class Branches(torch.nn.Module):
    '''Three branches of two linear layers each, added up.'''

    def __init__(self, width: int = 8):
        super().__init__()
        self.branches = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.ReLU(), torch.nn.Linear(width, 4))
            for _ in range(3)
        )

    def forward(self, x):
        return self.branches[0](x) + self.branches[1](x) + self.branches[2](x)
"""

SCHEDULER = """
from simulator.context.scheduler import Scheduler

class Mine(Scheduler):
    '''Everything on the device of that number.'''

    name = "mine"

    def __init__(self, device: int = 0, seed: int = -1):
        self.device, self.seed = device, seed

    def decide(self, context):
        for task in context.ready:
            context.place(task, self.device)
            if context.explain:
                context.explain(f"{context.label(task)} with seed {self.seed}")
"""

CONFIGS = {
    "model/branches.yaml": """
name: branches
description: three branches
target: branches.py:Branches
arguments: {width: 8}
inputs:
  - {shape: [batch, 4], dtype: float32}
batch: 2
""",
    "scheduler/mine.yaml": """
name: mine
class_path: mine.py:Mine
description: all on one
options: {device: 0}
""",
    "cluster/box.yaml": """
name: box
description: two cores and a card
host: ram
spaces: {ram: {}, vram: {per_device: true}}
devices:
  cpu: {profile: toy-core, space: ram, count: 2}
  gpu: {profile: toy-card, space: vram}
links:
  pcie: {ends: [ram, vram], bandwidth: 1 GB/s, latency: 1us}
""",
}
PROBED_SHAPES = [[1, 3, 64, 64]]
PANEL_SHAPES = [
    [1, 3, 64, 64],
    [1, 64, 32, 32],
    [1, 3, 64, 64],
    [1, 3, 64, 64],
    [1, 3, 64, 64],
    [1, 64, 27, 27],
    [1, 1024],
]
FORK = '{"cost": [[2, 4], [6, 3], [6, 3], [2, 4]], "edges": [[0, 1, 1], [0, 2, 1], [1, 3, 1], [2, 3, 1]]}'


SAVEFIG = Figure.savefig


def _save_roughly(figure: Figure, *files, **options) -> None:
    """All of it is drawn, once instead of twice, as it lies and at few dots; no fonts are embedded."""
    figure.set_layout_engine("none")
    with matplotlib.rc_context({"pdf.use14corefonts": True}):
        SAVEFIG(figure, *files, **(options | {"dpi": 50}))


@pytest.fixture(scope="session", autouse=True)
def rough_figures():
    """Laying figures out takes most of a small report's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", _save_roughly)
        yield


@pytest.fixture(scope="session", autouse=True)
def short_panel():
    """How fast this machine is decides no test, so the panel of operators runs once, or a few times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.probes.panel.LEAST_RUNS", 1)
        patch.setattr("experiments.probes.panel.SHARE", 0.0)
        patch.setattr("experiments.validation.sealing.PANEL_RUNS", 2)
        yield


@pytest.fixture
def small_images(monkeypatch):
    """The panel and the probed model run operators of the same sorts on small images."""
    from experiments.probes.panel import PANEL, panel_parts
    from experiments.probes.probed_model import PROBED
    from scenarios.models import panel
    from tests.experiments import small_panel

    for config, shapes in ((PANEL, PANEL_SHAPES), (PROBED, PROBED_SHAPES)):
        monkeypatch.setattr(config, "inputs", [InputConfig([*shape]) for shape in shapes])
    monkeypatch.setattr(panel, "EfficientNet", small_panel.EfficientNet)
    monkeypatch.setattr(panel, "Panel", small_panel.Panel)
    panel_parts.cache_clear()
    yield
    panel_parts.cache_clear()


@pytest.fixture(scope="module")
def whole_figures(rough_figures):
    """For the tests that look at figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", SAVEFIG)
        yield


@pytest.fixture(scope="session")
def _graphs(tmp_path_factory):
    """One cache of graphs, and one model, for all processes of the session: tracing takes seconds."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # each has a folder of its own in the session's
        root = root.parent
    graphs = root / "graphs"
    graphs.mkdir(exist_ok=True)
    if not (graphs / "branches.py").exists():
        write_text(graphs / "branches.py", MODEL)
    return graphs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch, _graphs) -> Path:
    """The user's folder; profiles ``toy-core`` (measured) and ``toy-card`` (of two labels) too."""
    root = tmp_path / "mine"
    for name, text in CONFIGS.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "branches.py").symlink_to(_graphs / "branches.py")  # a model is known by where it lies
    (root / "mine.py").write_text(SCHEDULER)
    (root / "instances").mkdir()
    (root / "instances" / "fork.json").write_text(FORK)
    monkeypatch.setenv("HETSIM_PROFILES", str(root / "profiles"))
    monkeypatch.setenv("HETSIM_CACHE", str(_graphs))
    # Three architectures, off by -10%, 0 and 10%, and their operators by up to 5% around that.
    rows = [
        {"group": name, "log_residual": bias + within}
        for name, bias in (("a", -0.1), ("b", 0.0), ("c", 0.1))
        for within in np.linspace(-0.05, 0.05, 33)
    ]
    residuals = {"roofline": {"*": Residuals.of(pd.DataFrame(rows))}}
    spread = dict.fromkeys(("linear", "relu", "add"), 0.02)
    for name, label, rate in (
        ("toy-core", "measured", 1e9),
        ("toy-card", "measured", 4e9),
        ("toy-sheet", "datasheet", 4e9),
    ):
        Profile(
            name,
            label,
            Roofline({"float32": rate}, rate, 1e-6),
            residuals=residuals if label == "measured" else {},
            spread=spread if name == "toy-core" else {},
            # Every other call takes twice as long.
            deviations={"*": (0.0, float(np.log(2)))} if name == "toy-core" else {},
        ).save(root / "profiles" / name)
    monkeypatch.chdir(tmp_path)
    return root


@pytest.fixture(scope="session")
def machine(tmp_path_factory) -> Path:
    """Profiles of this machine and a model: each read, traced and priced once."""
    pytest.importorskip("torch")
    from tests.experiments.own_machine import make_machine

    return make_machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def home_as_others_see_it(tmp_path: Path, monkeypatch, machine, _graphs) -> Path:
    """The folder of :mod:`tests.experiments.own_machine`, for other processes, too: nothing is patched."""
    from tests.experiments.own_machine import make_home

    monkeypatch.setenv("HETSIM_PROFILES", str(machine / "profiles"))
    monkeypatch.setenv("HETSIM_CACHE", str(_graphs))
    return make_home(tmp_path, machine)


@pytest.fixture
def home(home_as_others_see_it, small_images) -> Path:
    """That folder; what a validation executes besides is small."""
    return home_as_others_see_it


@pytest.fixture
def no_figures(monkeypatch):
    """Drawing takes most of a small validation's time and is tested elsewhere."""
    from experiments.validation import report as validation_report

    for name in ("draw_cases", "draw_pairs", "draw_waterfall", "draw_stacked"):
        monkeypatch.setattr(validation_report, name, lambda *_, **__: [])
