"""A validation says when a model computes with denormal numbers."""

import pytest

torch = pytest.importorskip("torch")

from experiments.validation.denormals import DenormalNumbers  # noqa: E402


def test_a_share_of_denormal_numbers_is_named():
    with DenormalNumbers() as numbers:
        x = torch.full((100,), 1e-35)
        (x * 1e-5).view(10, 10)
    assert numbers.share == pytest.approx(100 / 200)
    flushed, not_flushed = numbers.sentence("deep", True), numbers.sentence("deep", False)
    assert flushed.startswith("0.5 of the numbers that 'deep' computes are denormal: ")
    assert "torch.set_flush_denormal(True)" in flushed
    assert "this processor cannot take them for zero" in not_flushed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_ordinary_numbers_are_not_named(dtype):
    with DenormalNumbers() as numbers:
        # Smaller numbers of this type are widened before they are computed with.
        torch.tensor([0, 1e-6, 3]).to(dtype)
        torch.zeros(3, dtype=dtype)
    assert numbers.sentence("plain", True) is None
