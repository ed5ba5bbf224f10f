"""The import rules: what may import what, and what is not loaded until it is needed.

``experiments -> {scenarios, calibration} -> cost_models -> simulator``; scenarios and calibration do not
know each other. Within ``experiments`` commands stand on packages that import one way, too.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT: dict[str, set[str]] = {
    "simulator": set(),
    "cost_models": {"simulator"},
    "scenarios": {"cost_models", "simulator"},
    "calibration": {"cost_models", "simulator"},
    "experiments": {"scenarios", "calibration", "cost_models", "simulator"},
    "hetsim": {"experiments", "scenarios", "calibration", "cost_models", "simulator"},
}
WITHIN_EXPERIMENTS: dict[str, set[str]] = {
    "runs": set(),
    "comparison": {"runs"},
    "probes": {"runs"},
    "calibrating": {"runs"},
    "settling": {"calibrating", "comparison", "runs"},
    "validation": {"comparison", "probes", "runs"},
    "serving_validation": {"validation", "probes", "runs"},
    "studies": {"comparison", "runs"},
}
"""Its packages, below the commands. Reports draw with ``plots``, which know what they draw."""
WITHIN_SIMULATOR = (
    *("errors", "clock", "support", "model", "links", "context", "devices", "memory", "analysis"),
    *("engine", "planners", "serving", "schedulers"),
)
"""Its modules and packages, lowest first; each imports those before it, also for types alone."""
NEVER: dict[str, set[str]] = {
    "simulator": {"torch", "xgboost", "pandas", "transformers", "hydra", "omegaconf"},
    "cost_models": {"torch", "transformers", "hydra", "omegaconf", "simpy"},
    "scenarios": {"simpy", "hydra", "omegaconf", "xgboost"},
    "calibration": {"simpy", "hydra", "omegaconf", "xgboost", "transformers"},
    "experiments": set(),
    "hetsim": {"torch", "xgboost", "simpy"},
}
"""Not even inside a function."""
EXCEPT = {("cost_models/mlp.py", "torch"), ("scenarios/verification.py", "calibration")}
"""What trains a network needs torch; what predicts with it does not, and so imports it late. A traced graph is
executed beside its module by the code that makes operators runnable everywhere, which knows no scenarios."""

THIRD_PARTY = [
    "hydra",
    "jinja2",
    "matplotlib",
    "networkx",
    "numba",
    "omegaconf",
    "pandas",
    "rich",
    "scipy",
    "simpy",
    "sklearn",
    "transformers",
    "xgboost",
]


def files(folder: str) -> list[Path]:
    """Every module of a top-level folder."""
    return sorted((ROOT / folder).rglob("*.py"))


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import statement, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports name their package in full"
            yield node.lineno, node.module or ""


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_point_one_way(folder: str) -> None:
    found = files(folder)
    assert found
    allowed = MAY_IMPORT[folder] | {folder}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in found
        for line, module in imported(path)
        for top in [module.partition(".")[0]]
        if (top in MAY_IMPORT and top not in allowed) or top == "tests" or top in NEVER[folder]
        if (str(path.relative_to(ROOT)), top) not in EXCEPT
    ]
    assert not wrong


def test_every_folder_of_modules_has_its_rule() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == {*MAY_IMPORT, "tests"}


def test_every_package_within_experiments_has_its_rule() -> None:
    packages = {path.parent.name for path in ROOT.glob("experiments/*/__init__.py")}
    assert packages == {*WITHIN_EXPERIMENTS, "plots"}


@pytest.mark.parametrize("package", WITHIN_EXPERIMENTS)
def test_imports_within_experiments_point_one_way(package: str) -> None:
    allowed = {package, "plots"} | WITHIN_EXPERIMENTS[package]
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in files(f"experiments/{package}")
        for line, module in imported(path)
        if module.startswith("experiments.") and module.split(".")[1] not in allowed
    ]
    assert not wrong


def test_imports_within_the_simulator_point_one_way() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in files("simulator")
        if (own := path.relative_to(ROOT).with_suffix("").parts[1]) != "__init__"
        for line, module in imported(path)
        if module.startswith("simulator.")
        and WITHIN_SIMULATOR.index(module.split(".")[1]) > WITHIN_SIMULATOR.index(own)
    ]
    assert not wrong


def test_no_modules_of_the_simulator_import_each_other() -> None:
    """Not for types either; packages hand names on, so their own files are left out."""
    graph = networkx.DiGraph(
        (".".join(path.relative_to(ROOT).with_suffix("").parts), module)
        for path in files("simulator")
        if path.stem != "__init__"
        for _, module in imported(path)
    )
    assert not [sorted(c) for c in networkx.strongly_connected_components(graph) if len(c) > 1]


def test_the_simulator_has_few_rooms_and_no_large_ones() -> None:
    entries = [p for p in (ROOT / "simulator").iterdir() if p.name != "__pycache__"]
    assert len(entries) <= 14
    long = [p.name for p in files("simulator") if len(p.read_text().splitlines()) > 700]
    assert not long


def modules(folder: str) -> list[str]:
    """Dotted names of all modules of a folder."""
    names = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files(folder))
    return [name.removesuffix(".__init__") for name in names]


BLOCKING = """
import importlib, sys

blocked = set(sys.argv[1].split(","))

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Finder())
for name in sys.argv[2].split(","):
    importlib.import_module(name)
"""


def run_blocked(blocked: list[str], names: list[str], more: str = "") -> None:
    """Import modules in a fresh interpreter in which some packages cannot be imported."""
    command = [sys.executable, "-c", BLOCKING + more, ",".join(blocked), ",".join(names)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]


def test_the_simulator_loads_without_torch_xgboost_and_pandas() -> None:
    run_blocked(
        ["torch", "xgboost", "pandas", "hydra", "matplotlib", "scipy"], modules("simulator")
    )


def test_the_evaluator_loads_numba_on_first_use_only() -> None:
    names = ["simulator", "simulator.engine.run", "simulator.engine.evaluator"]
    run_blocked(["numba", "llvmlite"], names)


def test_schedulers_load_without_simpy_hydra_and_xgboost() -> None:
    more = "from simulator.schedulers import available, create\nassert len(available()) >= 7\n"
    more += "for name in available(): create(name)\n"
    blocked = ["simpy", "hydra", "omegaconf", "xgboost", "torch", "numba"]
    run_blocked(blocked, ["simulator.schedulers"], more)


def test_measuring_and_running_need_torch_numpy_and_pyarrow_only() -> None:
    # torch itself brings networkx and sympy; the rule is about what this project asks for.
    blocked = [name for name in THIRD_PARTY if name != "networkx"]
    more = """
import calibration.measure
calibration.measure.environment.described("cpu")
assert "torch" not in sys.modules  # the measuring processes alone wait for it
for name in ("transfers", "timing", "kernels", "peaks", "samples", "sampling", "runner"):
    importlib.import_module(f"calibration.{name}")
from simulator.schedulers import create
create("heft")
sys.meta_path.pop(0)  # drawing asks whether they are there: they are not
sys.modules.update(dict.fromkeys(blocked))
calibration.sampling.draw("linear", 2)
"""
    run_blocked(blocked, ["calibration.measure"], more)


def test_cost_models_load_without_torch() -> None:
    run_blocked(["torch", "simpy", "hydra"], modules("cost_models"))


def test_bare_instances_need_no_torch(tmp_path: Path) -> None:
    """torch is an optional extra: an instance is scheduled without it, and without xgboost."""
    path = tmp_path / "two.json"
    path.write_text('{"cost": [[2, 3], [4, 1]], "edges": [[0, 1, 0.5]]}')
    more = f"""
from scenarios import load_instance
from simulator import simulate
from simulator.schedulers import create
graph, cluster, costs = load_instance({str(path)!r})
assert simulate(graph, cluster, costs, create("heft")).makespan == 3.5
"""
    run_blocked(["torch", "xgboost", "pandas", "hydra"], ["scenarios"], more)
