import numpy as np
import pandas as pd
import pytest

from calibration.launches import host_launch, kernel_times, launches
from cost_models.device_spec import spec_of
from cost_models.profile import SHORTEST_KERNEL, Profile
from cost_models.roofline import Roofline
from cost_models.table import load
from tests.calibration.test_drift import convolutions


def launched(rows: int, launch: float, device: str = "tesla-t4") -> pd.DataFrame:
    """Convolutions that take what the data sheet says, the shortest kernel and a launch."""
    table = load(convolutions(rows).assign(device=device))
    kernels = Roofline.published(spec_of(device), SHORTEST_KERNEL).of_rows(table)
    return table.assign(seconds=kernels + launch)


def test_the_shortest_calls_tell_the_launch():
    table = pd.concat(
        [launched(400, 50e-6), launched(400, 90e-6, "tesla-v100-pcie-32gb")], ignore_index=True
    )
    found = launches(table)
    assert found["tesla-t4"]["conv2d"] == pytest.approx(50e-6, rel=1e-3)
    assert found["tesla-v100-pcie-32gb"]["conv2d"] == pytest.approx(90e-6, rel=1e-3)
    kernels = kernel_times(table)
    # A call that is mostly launch says nothing of its kernel: by its work, whatever it took.
    assert kernels["seconds"].min() > 25e-6
    assert len(kernels) < len(table)
    slow = table.assign(seconds=table["seconds"] * 1.5)
    assert len(kernel_times(slow, found)) == len(kernels)
    own = kernels[kernels["device"] == "tesla-t4"]
    bare = Roofline.published(spec_of("tesla-t4"), SHORTEST_KERNEL).of_rows(own)
    assert own["seconds"].to_numpy() == pytest.approx(bare, rel=1e-3)


def test_times_of_kernels_are_left_as_they_are():
    table = launched(50, 50e-6).assign(source="aiconfigurator")
    assert launches(table) == {}
    pd.testing.assert_frame_equal(kernel_times(table), table)


def test_the_host_is_the_one_that_was_measured():
    assert host_launch() == Profile.load("nvidia-h200").launch_overhead_s > 0
    assert np.isfinite(host_launch())
