import json
import math

import pytest

from cost_models.device_spec import REPORTED, SPECS, DeviceSpec, spec_of, spec_of_measured
from cost_models.roofline import Roofline
from simulator.errors import InvalidInput

BOX = DeviceSpec("box", {"float32": 1e12, "float16": 4e12}, 1e11, 1 << 33, 10)


def test_published_peaks_follow_from_units_and_clock():
    """Cores of a multiprocessor, two operations a cycle: within 5% of what the sheets state."""
    cores = {
        "tesla-p4": 128, "tesla-p100-pcie-16gb": 64, "tesla-v100-pcie-32gb": 64,
        "tesla-v100-sxm2-32gb": 64, "tesla-t4": 64, "nvidia-a100-pcie-40gb": 64,
        "nvidia-a100-80gb-pcie": 64, "nvidia-a100-sxm": 64, "nvidia-h100-sxm": 128,
        "nvidia-h200-sxm": 128, "nvidia-h100-pcie": 128, "rtx-a6000": 128, "nvidia-l4": 128, "nvidia-l40s": 128, "nvidia-a10": 128,
        "geforce-rtx-3090": 128, "geforce-rtx-4090": 128, "geforce-rtx-5090": 128, "jetson-orin-nano-8gb": 128,
        "jetson-agx-orin-64gb": 128,
    }  # fmt: skip
    assert set(cores) == set(SPECS)
    for name, spec in SPECS.items():
        assert spec.clock_hz is not None
        computed = 2 * cores[name] * spec.units * spec.clock_hz
        assert spec.peak("float32") == pytest.approx(computed, rel=0.05), name
        assert spec.source


def test_a_type_that_is_not_stated_takes_that_of_float32():
    assert BOX.peak("float16") == 4e12
    assert BOX.peak("bfloat16") == 1e12


def test_json_and_back():
    for spec in (BOX, *SPECS.values()):
        again = DeviceSpec.from_json(json.loads(json.dumps(spec.to_json())))
        assert again == spec
        assert hash(again) == hash(spec)


def test_its_roofline():
    roofline = Roofline.published(BOX, 1e-5)
    assert (roofline.bandwidth, roofline.overhead) == (1e11, 1e-5)
    assert roofline.flops_per_s == BOX.flops_per_s


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: spec_of("abacus"), "No specification of 'abacus'; known: tesla-p4"),
        (lambda: DeviceSpec("box", {"float16": 1e12}, 1e11, 1e9, 1), "needs a peak for float32"),
        (lambda: DeviceSpec("box", {"float32": 1e12}, 0, 1e9, 1), "above zero"),
        (lambda: DeviceSpec("box", {"float32": 1e12}, 1e9, 1e9, 1, math.nan), "above zero"),
        (lambda: DeviceSpec.from_json({"name": "box"}), "lacks or misstates"),
        (lambda: DeviceSpec.from_json(BOX.to_json() | {"units": "ten"}), "lacks or misstates"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


def test_measured_devices_are_found_by_what_drivers_call_them():
    assert set(REPORTED.values()) <= set(SPECS)
    assert not set(REPORTED) & set(SPECS)
    assert spec_of_measured("nvidia-h200") is SPECS["nvidia-h200-sxm"]
    assert spec_of_measured("nvidia-h200-awaited") is SPECS["nvidia-h200-sxm"]
    assert spec_of_measured("tesla-t4") is SPECS["tesla-t4"]
    assert spec_of_measured("intel-xeon-6-207-1core") is None
