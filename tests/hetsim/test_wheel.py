"""A wheel brings configs and profiles with it, and runs the quick start outside the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_BYTES = 100_000_000
QUICK_START = """
import sys, hetsim
from hetsim.testing import check_scheduler

result = hetsim.compare("two_tower", cluster="cpu_1x_3x", schedulers=["heft", "fcfs"])
assert "heft" in result.verdict and "validated" in result.validity
check_scheduler("heft")
outside = [m.__file__ for m in sys.modules.values() if str(getattr(m, "__file__", "")).startswith(sys.argv[1])]
assert not [path for path in outside if ".venv" not in path], outside
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel's file and a folder in which it is installed, without what it depends on."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True)
    if "setuptools" in done.stderr and done.returncode:
        pytest.skip("setuptools is not installed here, which builds the wheel")
    assert not done.returncode, done.stderr
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return wheel, folder / "site"


def run(site, folder, *words):
    keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "HETSIM_CACHE", "LANG")}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**keep, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_quick_start_of_the_wheel(installed, tmp_path):
    wheel, site = installed
    assert wheel.stat().st_size <= MOST_BYTES
    done = run(site, tmp_path, "-c", QUICK_START, str(ROOT))
    assert not done.returncode, done.stderr
    words = ["devices", "model=two_tower", "profile=amd-epyc-25-17-1core,tesla-t4", "batch=1"]
    devices = run(site, tmp_path, "-m", "hetsim.commands", *words)
    assert "tesla-t4" in devices.stdout, devices.stderr
    shown = run(site, tmp_path, "-m", "hetsim.commands", "list", "profiles")
    assert "tesla-t4" in shown.stdout, shown.stderr
    missing = run(site, tmp_path, "-m", "hetsim.commands", "simulat")
    assert (missing.returncode, missing.stderr.splitlines()[0][:46]) == (
        2,
        "There is no command 'simulat'. Nearest: simula",
    )
