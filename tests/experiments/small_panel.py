"""The panel and the probed model with operators of the same sorts, but few and small: tracing and loading the whole
takes longer than what is tested with them.
"""

from torch import nn

from scenarios.models import alexnet, panel, resnet


class EfficientNet(panel.EfficientNet):
    STAGES = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2))


class Panel(panel.Panel):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.resnet = resnet.ResNet(resnet.BasicBlock, (1, 1, 1, 1), 10)
        self.efficientnet = EfficientNet()
        self.vit = nn.Sequential(nn.Flatten(), nn.LayerNorm(3 * 64 * 64), nn.Linear(3 * 64 * 64, 8))
        self.alexnet = alexnet.AlexNet(10, 64)
        self.deep = nn.Sequential(nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 1))
