import os

import pytest

from calibration import environment
from simulator.errors import InvalidInput

pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AMD EPYC", "amd-epyc"),
        ("AMD EPYC 7B13 64-Core Processor", "amd-epyc-7b13"),
        ("Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", "intel-xeon-platinum-8375c"),
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
    ],
)
def test_slug(name, expected):
    assert environment.slug(name) == expected


def test_device_name_says_threads_and_repeats(monkeypatch):
    monkeypatch.setattr(environment, "cpu_model", lambda: "AMD EPYC")
    assert environment.device_name("cpu") == "amd-epyc-1core"
    assert environment.device_name("cpu", 2, 3) == "amd-epyc-2core-3x"


@pytest.mark.parametrize("device", ["tpu", "cuda", "cuda:99", "gpu0"])
def test_unknown_device_is_refused_with_what_there_is(device):
    with pytest.raises(InvalidInput, match=rf"No device '{device}' here; this machine has cpu"):
        environment.check_device(device)


def test_core_that_is_not_there_is_refused():
    before = os.sched_getaffinity(0)
    with pytest.raises(InvalidInput, match="Core 4095 is not available"):
        environment.pin(4095)
    assert os.sched_getaffinity(0) == before


def test_caches_are_nested():
    assert 0 < environment.private_cache() <= environment.last_level_cache()


def test_versions_name_torch():
    import torch

    assert environment.versions()["torch"] == torch.__version__
