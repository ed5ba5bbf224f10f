import json

import numpy as np
import pandas as pd
import pytest

from cost_models.correlation import measured
from cost_models.device_spec import SPECS, spec_of
from cost_models.profile import Profile
from cost_models.profile_files import SHIPPED
from experiments import public_profiles
from experiments.datasheets import PUBLISHED
from experiments.public_profiles import OPTIONS, PROFILES, RESIDUALS, main
from simulator.model.operator import Operator, TensorSpec
from tests.cost_models.conftest import linear_row

MOST_BYTES = 1_500_000
MOST_RESIDUAL_BYTES = 250_000


def linear(m: int, k: int, n: int, dtype: str) -> Operator:
    specs = (TensorSpec((m, k), dtype), TensorSpec((n, k), dtype))
    return Operator("fc", "linear", inputs=specs, outputs=(TensorSpec((m, n), dtype),))


def test_every_device_has_one_profile():
    assert not set(PROFILES) & set(PUBLISHED)
    assert set(PROFILES) | set(PUBLISHED) <= set(SPECS)
    assert len(PUBLISHED) >= 12


@pytest.mark.parametrize("name", PROFILES)
def test_shipped(name):
    """Small, without rows, and saying where it comes from and how wrong it is."""
    profile = Profile.load(name)
    assert profile.label == "public"
    assert profile.measurements is None
    assert sum(path.stat().st_size for path in (SHIPPED / name).iterdir()) < MOST_BYTES
    assert {"source", "licence", "rows", "kinds", "peaks"} <= set(profile.provenance)
    assert "@" in profile.provenance["source"]
    assert profile.versions
    for kind, rows in profile.provenance["kinds"].items():
        error = profile.held_out["boosted"]["fold"][kind]
        assert error["rows"] == rows
        assert error["median"] < 0.5 * profile.held_out["roofline"]["fold"][kind]["median"]
        assert profile.residuals["boosted"][kind].rows > 0
    assert (SHIPPED / name / "residuals.parquet").stat().st_size < MOST_RESIDUAL_BYTES
    rows = profile.residual_rows
    assert rows is not None
    # Which row of the data that was, a hash does not say; how wrong the trees were, it does.
    assert list(rows) == ["operator", "kind", "group", "boosted", "roofline"]
    assert set(rows["kind"]) == set(profile.provenance["kinds"])
    assert len(rows) <= 1.05 * RESIDUALS  # a few operators were measured twice
    median = np.abs(np.expm1(-rows["boosted"])).groupby(rows["kind"]).median()
    for kind, value in median.items():
        stated = profile.held_out["boosted"]["fold"][kind]["median"]
        assert value == pytest.approx(stated, rel=0.15, abs=0.001)


@pytest.mark.parametrize(
    ("one", "other", "kind", "least"),
    [
        ("tesla-t4", "tesla-v100-pcie-32gb", "conv2d", 0.3),
        ("nvidia-h100-sxm", "nvidia-h200-sxm", "linear", 0.1),
    ],
)
def test_gpus_err_about_the_same_operators(one, other, kind, least):
    rows = {name: Profile.load(name).residual_rows for name in (one, other)}
    found = measured(rows, dict.fromkeys(rows, "boosted")).of(one, other, kind)
    assert found.rows > 700
    assert found.own > least


@pytest.mark.parametrize("name", ["nvidia-h100-sxm", "nvidia-h200-sxm", "nvidia-a100-sxm"])
def test_what_was_not_measured_takes_the_fit_across_devices_and_is_extrapolated(name):
    profile = Profile.load(name)
    spec = spec_of(name)
    half, single = (linear(512, 4096, 4096, dtype) for dtype in ("bfloat16", "float32"))
    norm = Operator(
        "norm", "layer_norm", inputs=(TensorSpec((512, 4096), "bfloat16"),),
        outputs=(TensorSpec((512, 4096), "bfloat16"),),
    )  # fmt: skip
    priced = profile.price([half, single, norm], model="boosted")
    assert list(priced.in_range) == [True, False, False]
    fit = profile.price([half, single, norm], model="across_devices").seconds
    assert list(priced.seconds[1:]) == pytest.approx(list(fit[1:]))
    assert priced.seconds[0] != fit[0]
    # No product is faster than the device's peak.
    assert priced.seconds[0] > 2 * 512 * 4096 * 4096 / spec.peak("bfloat16")


def test_a_product_that_is_none_of_the_measured_kinds_takes_the_fit_across_devices():
    profile = Profile.load("tesla-t4")
    shape = TensorSpec((8, 12, 512, 64))
    attention = Operator("a", "scaled_dot_product_attention", inputs=(shape,) * 3, outputs=(shape,))
    priced, fit = (profile.price([attention], model=m) for m in ("boosted", "across_devices"))
    assert not priced.in_range[0]
    assert priced.seconds[0] == pytest.approx(fit.seconds[0])
    # As uncertain as on a GPU left out of that fit.
    own = profile.residuals_for()
    kind = "scaled_dot_product_attention"
    assert own.get(kind) == profile.residuals_for("across_devices").get(kind)
    assert own["*"] == profile.residuals_for("across_devices")["*"]


def test_launches_are_apart():
    """A call of the smallest addition took 26 us; its kernel does not, and its launch is one host's."""
    profile = Profile.load("tesla-t4")
    shape = TensorSpec((16, 16))
    add = Operator(
        "a", "add", attributes={"scalar": False}, inputs=(shape, shape), outputs=(shape,)
    )
    kernel = profile.price([add]).seconds[0]
    assert kernel < 1e-5 < profile.launch_in_times["add"] < 5e-5
    assert profile.launch_overhead_s == Profile.load("nvidia-h200").launch_overhead_s


def table(device: str, kind: str, dtype: str, rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(len(device))
    sizes = np.exp(rng.uniform(np.log(64), np.log(4096), (rows, 3))).astype(int)
    found = [linear_row(*map(int, size), dtype=dtype) | {"device": device} for size in sizes]
    return pd.DataFrame(found).assign(kind=kind)


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(public_profiles, "OPTIONS", OPTIONS | {"rounds": 10})
    parts = [table(d, "linear", "float32") for d in ("tesla-t4", "tesla-p100-pcie-16gb")]
    parts[0].loc[:, "seconds"] += 1e-4  # above the floor of what a roofline is compared with
    pd.concat(parts).to_parquet(tmp_path / "neusight_gpus.parquet")
    table("nvidia-h200-sxm", "linear", "bfloat16").to_parquet(tmp_path / "gemm_bf16_gpus.parquet")
    words = [str(tmp_path), "--out", str(tmp_path / "out"), "--only"]
    assert main([*words, "nvidia-h200-sxm"]) == 0
    document = json.loads((tmp_path / "out/nvidia-h200-sxm/profile.json").read_text())
    assert document["label"] == "public"
    assert document["provenance"]["kinds"] == {"linear": 60}
    assert document["dtypes"] == ["bfloat16"]
    assert "three times slower" in document["provenance"]["note"]
    assert not (tmp_path / "out/nvidia-h200-sxm/measurements.parquet").exists()
    assert len(Profile.load(tmp_path / "out/nvidia-h200-sxm").residual_rows) == 60
    assert main([*words, "nvidia-a100-sxm"]) == 2
    assert "has no rows of 'nvidia-a100-sxm'" in capsys.readouterr().err
    assert main([str(tmp_path / "nowhere")]) == 2
