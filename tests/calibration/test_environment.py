import os

import pytest

from calibration import environment
from simulator.errors import InvalidInput

pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AMD EPYC", "amd-epyc"),
        ("AMD EPYC (family 25 model 1, AVX2)", "amd-epyc-25-1"),
        ("AMD EPYC 7B13 64-Core Processor (AVX2)", "amd-epyc-7b13"),
        ("Intel(R) Xeon(R) Processor @ 2.60GHz (family 6 model 143, AVX-512)", "intel-xeon-6-143"),
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


PROCESSOR = """\
processor\t: 0
cpu family\t: 25
model\t\t: {model}
model name\t: {name}
flags\t\t: fpu sse2 avx {flags}

processor\t: 1
model name\t: another
"""


@pytest.mark.parametrize(
    ("name", "model", "flags", "expected"),
    [
        ("AMD EPYC", 1, "avx2", "AMD EPYC (family 25 model 1, AVX2)"),
        ("AMD EPYC", 17, "avx2 avx512f", "AMD EPYC (family 25 model 17, AVX-512)"),
        (
            "Intel Xeon CPU @ 2.60GHz",
            143,
            "",
            "Intel Xeon CPU @ 2.60GHz (family 25 model 143, AVX)",
        ),
        ("AMD EPYC 7B13 64-Core Processor", 1, "avx2", "AMD EPYC 7B13 64-Core Processor (AVX2)"),
    ],
)
def test_processors_of_one_name_are_told_apart(tmp_path, monkeypatch, name, model, flags, expected):
    """Virtual machines of one cloud say `AMD EPYC` on processors of which one takes half as long for a SiLU."""
    (tmp_path / "cpuinfo").write_text(PROCESSOR.format(name=name, model=model, flags=flags))
    monkeypatch.setattr(environment, "_PROCESSORS", tmp_path / "cpuinfo")
    assert environment.cpu_model() == expected


def test_a_processor_that_nobody_describes_has_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "_PROCESSORS", tmp_path / "none")
    assert environment.cpu_model()


@pytest.mark.parametrize("device", ["tpu", "cuda", "cuda:99", "gpu0"])
def test_unknown_device_is_refused_with_what_there_is(device):
    with pytest.raises(InvalidInput, match=rf"No device '{device}' here; this machine has cpu"):
        environment.check_device(device)


def test_releases_are_those_that_torch_says():
    import torch

    found = environment.described("cpu")
    assert found["torch"] == torch.__version__
    assert found.get("cuda") == torch.version.cuda


def test_core_that_is_not_there_is_refused():
    before = os.sched_getaffinity(0)
    with pytest.raises(InvalidInput, match="Core 4095 is not available"):
        environment.pin(4095)
    assert os.sched_getaffinity(0) == before


def test_some_of_several_cores_missing_is_refused():
    before = os.sched_getaffinity(0)
    with pytest.raises(InvalidInput, match="Core 4095 is not available"):
        environment.pin([min(before), 4095])
    assert os.sched_getaffinity(0) == before


def test_a_core_for_each_thread(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5, 7})
    assert environment.cores_for(1) == [7]
    assert environment.cores_for(3) == [1, 5, 7]
    assert environment.cores_for(2, [5, 0]) == [0, 5]
    for threads, cores, message in (
        (5, None, "5 threads need as many cores"),
        (2, [1], "2 threads need as many cores"),
        (1, [3], "Core 3 is not available"),
    ):
        with pytest.raises(InvalidInput, match=message):
            environment.cores_for(threads, cores)


def test_threads_are_bound_only_where_there_are_several():
    assert environment.thread_variables(1) == {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    several = environment.thread_variables(2)
    assert (several["OMP_NUM_THREADS"], several["OMP_PROC_BIND"]) == ("2", "close")


def test_capacity_is_the_memory_of_this_machine():
    assert 2**28 < environment.capacity("cpu") < 2**50


def test_tf32_is_allowed_in_the_block_alone():
    import torch

    switches = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [switch.allow_tf32 for switch in switches]
    for tf32 in (True, False):
        with environment.matrix_precision("cuda:0", tf32):
            assert [switch.allow_tf32 for switch in switches] == [tf32, tf32]
        assert [switch.allow_tf32 for switch in switches] == before
        with environment.matrix_precision("cpu", tf32):
            assert [switch.allow_tf32 for switch in switches] == before


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        ("0x0000000000000000", ()),
        ("0x0000000000000001", ()),  # idle
        ("0x0000000000000004", ("power cap",)),
        ("0x0000000000000068", ("hardware slowdown", "thermal (software)", "thermal (hardware)")),
        ("[N/A]", ()),
    ],
)
def test_throttle_reasons_are_named(bits, reasons):
    assert environment.throttled_by({"clocks_event_reasons.active": bits}) == reasons
    assert environment.throttled_by({}) == ()


def test_clocks_are_read_from_drivers_new_and_old(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\ncase $2 in *clocks_event*) exit 2;; esac\n"
        "echo '1980 MHz, 2619 MHz, 1980 MHz, 40, 120.5 W, 535.1, 0x0000000000000004'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = environment.gpu_clocks("cuda:0")
    assert (found["clocks.sm"], found["driver_version"]) == ("1980 MHz", "535.1")
    assert environment.throttled_by(found) == ("power cap",)
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.gpu_clocks("cuda:0") == {}


def test_caches_are_nested():
    assert 0 < environment.private_cache() <= environment.last_level_cache()


def test_versions_name_torch():
    import torch

    assert environment.versions()["torch"] == torch.__version__
