"""Faults as configs describe them."""

from __future__ import annotations

import pytest

from scenarios.fault_config import FaultConfig, build_faults
from simulator.engine.faults import Fault, Faults, RandomFaults
from simulator.errors import InvalidInput


def test_times_and_mean_times() -> None:
    configs = [
        FaultConfig("device_failure", "gpu", start="10ms", end="30ms", memory_lost=False),
        FaultConfig("link_degradation", "pcie", start="1s", factor=0.5),
        FaultConfig("device_failure", mtbf="2s", mttr="50ms"),
    ]
    assert build_faults(configs, None) == Faults(
        (
            Fault("device_failure", "gpu", 0.01, 0.03, memory_lost=False),
            Fault("link_degradation", "pcie", 1.0, factor=0.5),
        ),
        (RandomFaults("device_failure", 2.0, 0.05),),
        None,
    )
    assert not build_faults([])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (FaultConfig("device_failure", "gpu"), "either start .and end., or mtbf and mttr"),
        (FaultConfig("device_failure", "gpu", start="1s", mtbf="1s"), "needs either start"),
        (FaultConfig("device_failure", start="1s"), r"faults\[0\] .* needs where"),
        (FaultConfig("device_failure", "gpu", end="1s"), "lacks start"),
        (FaultConfig("device_failure", mtbf="1s"), "lacks mttr"),
        (FaultConfig("device_failure", mttr="1s"), "lacks mtbf"),
        (FaultConfig("device_failure", "gpu", start="10"), r"start of simulation.faults\[0\]"),
    ],
)
def test_refused(config: FaultConfig, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        build_faults([config])
