import numpy as np
import pandas as pd
import pytest

from cost_models.across_devices import AcrossDevices
from cost_models.device_spec import DeviceSpec
from cost_models.roofline import Roofline
from cost_models.table import load
from simulator.errors import InvalidInput
from tests.cost_models.conftest import linear_row

SPECS = {
    name: DeviceSpec(name, {"float32": rate}, bandwidth, 1 << 34, units, l2_bytes=4e6)
    for name, rate, bandwidth, units in (
        ("small", 2e12, 1e11, 10),
        ("middle", 6e12, 3e11, 30),
        ("large", 1.2e13, 4e11, 60),
        ("other", 8e12, 2e11, 40),
    )
}


def measured(name: str, rows: int = 300) -> pd.DataFrame:
    """Times of one law: whole waves of 64 x 64 tiles at half the peak, after 20 us."""
    spec = SPECS[name]
    rng = np.random.default_rng(5)
    found = []
    for m, k, n in np.exp(rng.uniform(np.log(16), np.log(2048), (rows, 3))).astype(int):
        waves = np.ceil(np.ceil(m / 64) * np.ceil(n / 64) / spec.units)
        tile = 2 * 64 * 64 * k / (spec.peak("float32") / spec.units / 2)
        row = linear_row(int(m), int(k), int(n), 2e-5 + waves * tile)
        found.append(row | {"device": name})
    return pd.DataFrame(found)


def test_a_device_that_was_never_measured():
    """From its data sheet it is nearer than its roofline, and within the law's own steps."""
    table = load(pd.concat([measured(n) for n in ("small", "middle", "large")], ignore_index=True))
    across = AcrossDevices.fitted(table, specs=SPECS)
    test = load(measured("other"))
    model = across.of(SPECS["other"])
    error = np.abs(model.predict(test) / test["seconds"] - 1)
    roofline = Roofline.published(SPECS["other"], across.overhead)
    bare = np.abs(roofline.predict(test) / test["seconds"] - 1)
    assert across.overhead == pytest.approx(2e-5, rel=0.5)
    assert error.mean() < 0.15
    assert error.mean() < 0.5 * bare.mean()


def test_refusals():
    with pytest.raises(InvalidInput, match="at least 2"):
        AcrossDevices.fitted(load(measured("small", 20)), specs=SPECS)
    table = pd.concat([measured("small", 20), measured("middle", 20)], ignore_index=True)
    with pytest.raises(InvalidInput, match="'middle' has no data sheet"):
        AcrossDevices.fitted(load(table), specs={"small": SPECS["small"]})
