import json

import numpy as np
import pandas as pd
import pytest

from cost_models.across_devices import AcrossDevices, LargeRates, OnDevice, alike, of_alike
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


@pytest.mark.parametrize(
    "name", ["tesla-v100-pcie-32gb", "tesla-t4", "tesla-p100-pcie-16gb", "nvidia-a100-80gb-pcie"]
)
@pytest.mark.parametrize(("channels", "size"), [(64, 224), (256, 56)])
def test_a_bias_is_not_the_mark_of_a_gpu(name, channels, size):
    """The H200 alone was measured with a bias, and it reaches less of its peak: every GPU was told twice the time."""
    plane, weights = (32, channels, size, size), (channels, channels, 3, 3)
    plain = json.dumps({"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1})
    rows = pd.DataFrame(
        {"kind": "conv2d", "dtype": "float32", "inputs": [(plane, weights), (plane, weights, (channels,))]}
        | {"outputs": [(plane,)] * 2, "attributes": plain}
    )  # fmt: skip
    without, with_bias = OnDevice.fitted(pd.DataFrame({"device": [name]})).predict(rows)
    assert with_bias == pytest.approx(without, rel=0.01)


def test_refusals():
    with pytest.raises(InvalidInput, match="at least 2"):
        AcrossDevices.fitted(load(measured("small", 20)), specs=SPECS)
    table = pd.concat([measured("small", 20), measured("middle", 20)], ignore_index=True)
    with pytest.raises(InvalidInput, match="'middle' has no data sheet"):
        AcrossDevices.fitted(load(table), specs={"small": SPECS["small"]})


def rated(shares: dict[str, float]) -> LargeRates:
    """Large kernels of three devices: products of the first type bound by arithmetic, and what streams."""
    rows = [
        (device, kind, type_, terms, max(terms) / share)
        for device, share in shares.items()
        for kind, type_, terms in (
            ("linear", "float32", (2e-3, 1e-5)),
            ("relu", "", (0.0, 1e-3)),
            ("relu", "", (0.0, 1e-6)),  # too small to tell
            ("linear", "bfloat16", (2e-3, 2e-3)),  # bound by neither
        )
        for _ in range(5)
    ]
    devices, kinds, types, terms, seconds = zip(*rows, strict=True)
    columns = (np.array(column, dtype=object) for column in (devices, kinds, types))
    return LargeRates.measured(*columns, np.array(terms), np.array(seconds))


def test_large_kernels_reach_the_median_devices_share():
    rates = rated({"a": 0.5, "b": 0.75, "c": 0.9})
    assert rates.shares == {
        "streams": 0.75, "linear float32": 0.75, "products float32": 0.75
    }  # fmt: skip
    kinds, types = (np.array(c, dtype=object) for c in (["conv2d", "relu"], ["float32", ""]))
    found = rates.seconds(kinds, types, np.array([[3e-3, 1e-3], [0.0, 3e-3]]))
    assert found == pytest.approx([4e-3, 4e-3])


def test_beyond_what_was_measured_is_at_the_rates_of_large_kernels():
    """Twice the largest measured kernel is half the trees' and half of those rates."""
    table = load(pd.concat([measured(n) for n in ("small", "middle")], ignore_index=True))
    across = AcrossDevices.fitted(table, specs=SPECS, rounds=5)
    (reach,) = across.reach.values()
    assert across.reach == {"linear float32": reach}
    spec = SPECS["other"]
    huge = pd.DataFrame([linear_row(1 << 20, 4096, 4096, 1.0)])
    at_peak = 2 * 4096**2 * (1 << 20) / spec.peak("float32")
    found = across.of(spec).predict_in_full(huge)
    trees = across.trees.groups
    alone = type(across.trees)(
        Roofline.published(spec, across.overhead), trees, spec, relative=True
    ).predict(huge)
    large = at_peak / across.large.shares["linear float32"] + across.overhead
    share = reach / at_peak
    assert share < 0.05
    assert found.seconds == pytest.approx(share * alone + (1 - share) * large)
    assert not found.in_range[0]


def test_both_16_bit_types_are_one():
    spec = DeviceSpec("x", {"float32": 1e12, "float16": 8e12}, 1e11, 1e9, 10)
    assert of_alike(spec).peak("bfloat16") == 8e12
    rows = pd.DataFrame({"dtype": ["float16", "bfloat16", "float32"]})
    assert list(alike(rows)["dtype"]) == ["bfloat16", "bfloat16", "float32"]


def test_a_fit_is_read_as_it_was_written():
    table = load(pd.concat([measured(n) for n in ("small", "middle")], ignore_index=True))
    across = AcrossDevices.fitted(table, specs=SPECS, rounds=5)
    again = AcrossDevices.from_json(across.to_json())
    test = load(measured("other", 20))
    models = (fit.of(SPECS["other"]) for fit in (across, again))
    one, other = (model.predict(test) for model in models)
    assert one == pytest.approx(other)
    with pytest.raises(InvalidInput, match="incomplete or damaged"):
        AcrossDevices.from_json({"trees": {}})


def test_a_profile_knows_the_fit_that_it_was_made_with():
    model = OnDevice.fitted(pd.DataFrame({"device": ["nvidia-l4"]}))
    document = model.to_json()
    assert OnDevice.from_json(document).device == model.device
    with pytest.raises(InvalidInput, match="another fit across devices"):
        OnDevice.from_json({**document, "fit": "0"})
    with pytest.raises(InvalidInput, match="of which device"):
        OnDevice.from_json({})
    with pytest.raises(InvalidInput, match="No data sheet of 'abacus'"):
        OnDevice.fitted(pd.DataFrame({"device": ["abacus"]}))
    with pytest.raises(InvalidInput, match="no option 'rounds'"):
        OnDevice.fitted(pd.DataFrame({"device": ["nvidia-l4"]}), rounds=3)
