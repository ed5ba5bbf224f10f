"""The panel's models are those that they are named after."""

import pytest

torch = pytest.importorskip("torch")

from scenarios.models.panel import EfficientNet, Panel  # noqa: E402


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_efficientnet_is_b0_without_its_classifier():
    """5,288,548 parameters (Tan and Le 2019: 5.3M), 1,281,000 of them in the classifier."""
    network = EfficientNet().eval()
    assert count(network) == 5_288_548 - 1_281_000
    with torch.inference_mode():
        assert network(torch.zeros(2, 3, 224, 224)).shape == (2, 1280, 1, 1)
        # where it strides it pads: 225, 113, 59, 29 and 17 pixels are read
        sizes = []
        for module in network.modules():
            if isinstance(module, torch.nn.Conv2d) and module.stride[0] > 1:
                module.register_forward_pre_hook(lambda _, x: sizes.append(x[0].shape[-1]))
        network(torch.zeros(1, 3, 224, 224))
    assert sizes == [225, 113, 59, 29, 17]


def test_the_other_parts_are_the_shipped_models():
    panel = Panel()
    assert count(panel.resnet) == 11_689_512
    assert count(panel.alexnet) == 61_100_840
    layer = 12 * 768**2 + 13 * 768
    assert count(panel.vit) == 86_567_656 - 11 * layer
