"""The strangers: architectures that are not shipped and that no calibration has seen, frozen before the first run.

:data:`STRANGERS` lists small configurations of ``transformers`` and of the modules below. They are there to say how
well a calibrated profile predicts models that nobody chose for it (``python -m tests.benchmarks.strangers``): no fit,
no set of operators and no probe may be made with them in mind.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from scenarios.model_config import InputConfig, ModelConfig

# -- modules that transformers does not have -----------------------------------------------------------


def _conv(i: int, o: int, k: int = 3, act: Any = nn.ReLU, **options: Any) -> nn.Sequential:
    options.setdefault("padding", k // 2)
    return nn.Sequential(nn.Conv2d(i, o, k, bias=False, **options), nn.BatchNorm2d(o), act())


class UNet(nn.Module):
    """Encoder and decoder with skip connections; bilinear upsampling (Ronneberger 2015)."""

    def __init__(self, width: int = 20) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        pairs = [*zip([3, *widths], widths, strict=False)]
        self.down = nn.ModuleList(nn.Sequential(_conv(i, o), _conv(o, o)) for i, o in pairs)
        self.up = nn.ModuleList(
            nn.Sequential(_conv(o + i, i), _conv(i, i)) for i, o in reversed(pairs[1:])
        )
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of every pixel."""
        skips = []
        for number, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if number else x)
            skips.append(x)
        for block, skip in zip(self.up, reversed(skips[:-1]), strict=True):
            x = functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = block(torch.cat([x, skip], 1))
        return self.head(x)


class Mixer(nn.Module):
    """MLP-mixer (Tolstikhin 2021)."""

    def __init__(self, width: int = 200, tokens: int = 81, depth: int = 5) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)

        def mlp(size: int, hidden: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, size))

        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.mixes = nn.ModuleList(
            mlp(*sizes) for _ in range(depth) for sizes in ((tokens, 104), (width, 4 * width))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Features of an image."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        for number, (norm, mix) in enumerate(zip(self.norms, self.mixes, strict=True)):
            y = norm(x)
            x = x + (mix(y) if number % 2 else mix(y.transpose(1, 2)).transpose(1, 2))
        return x.mean(1)


class TCN(nn.Module):
    """Dilated causal 1-d convolutions (Bai 2018)."""

    def __init__(self, width: int = 88, depth: int = 6) -> None:
        super().__init__()
        self.first = nn.Conv1d(12, width, 1)
        self.convs = nn.ModuleList(
            nn.Conv1d(width, width, 3, dilation=2**i) for i in range(depth) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        """A sequence of features."""
        x = self.first(x)
        for number in range(len(self.convs) // 2):
            y = x
            for conv in self.convs[2 * number : 2 * number + 2]:
                y = functional.relu(conv(functional.pad(y, (2 * 2**number, 0))))
            x = functional.relu(x + y)
        return x


class SEResNeXt(nn.Module):
    """Grouped bottlenecks with squeeze and excitation (Xie 2017, Hu 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(3, 40, 5, stride=2)
        self.blocks = nn.ModuleList()
        last = 40
        for width, stride in ((80, 1), (80, 1), (160, 2), (160, 1), (320, 2), (320, 1)):
            half = width // 2
            self.blocks.append(
                nn.ModuleList([
                    nn.Sequential(_conv(last, half, 1), _conv(half, half, stride=stride, groups=10),
                                  nn.Conv2d(half, width, 1, bias=False), nn.BatchNorm2d(width)),
                    nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width // 8, 1), nn.ReLU(),
                                  nn.Conv2d(width // 8, width, 1), nn.Sigmoid()),
                    nn.Conv2d(last, width, 1, stride, bias=False),
                ])
            )  # fmt: skip
            last = width
        self.head = nn.Linear(last, 90)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of an image."""
        x = functional.max_pool2d(self.stem(x), 3, 2, 1)
        for block in self.blocks:
            body, gate, short = block.children()
            y = body(x)
            x = functional.relu(y * gate(y) + short(x))
        return self.head(x.mean((2, 3)))


class Generator(nn.Module):
    """DCGAN's generator: transposed convolutions (Radford 2015)."""

    def __init__(self, width: int = 36) -> None:
        super().__init__()
        sizes = [100, 8 * width, 4 * width, 2 * width, width]
        layers: list[nn.Module] = []
        for number, (i, o) in enumerate(pairwise(sizes)):
            stride, padding = (2, 1) if number else (1, 0)
            layers += [
                nn.ConvTranspose2d(i, o, 4, stride, padding, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(),
            ]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        """An image for every vector of noise."""
        return self.layers(x[:, :, None, None])


class KeywordNet(nn.Module):
    """Depthwise-separable 1-d convolutions over spectra."""

    def __init__(self, width: int = 136, depth: int = 7) -> None:
        super().__init__()
        self.first = nn.Conv1d(40, width, 5, 2, 2)
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv1d(width, width, 9, padding=4, groups=width, bias=False),
                    nn.Conv1d(width, width, 1, bias=False),
                    nn.BatchNorm1d(width),
                    nn.ReLU6(),
                )
                for _ in range(depth)
            )
        )
        self.head = nn.Linear(width, 35)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of a recording."""
        return self.head(self.blocks(self.first(x)).mean(2))


class ShuffleNet(nn.Module):
    """Split channels, convolve a half, shuffle (Ma 2018)."""

    def __init__(self, width: int = 116, depth: int = 6) -> None:
        super().__init__()
        half = width // 2
        self.stem = _conv(3, width, 3, stride=4)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                _conv(half, half, 1),
                _conv(half, half, 3, nn.Identity, groups=half),
                _conv(half, half, 1),
            )
            for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Features of an image."""
        x = self.stem(x)
        for block in self.blocks:
            one, two = x.chunk(2, 1)
            x = torch.cat([one, block(two)], 1)
            n, c, h, w = x.shape
            x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        return x.mean((2, 3))


class Detector(nn.Module):
    """Darknet-like: leaky ReLU, a spatial pyramid, nearest upsampling and two heads (Redmon 2018)."""

    def __init__(self, width: int = 18) -> None:
        super().__init__()

        def leaky(i: int, o: int, k: int = 3, stride: int = 1) -> nn.Sequential:
            return _conv(i, o, k, lambda: nn.LeakyReLU(0.1), stride=stride)

        self.one = nn.Sequential(leaky(3, width), leaky(width, 2 * width, 3, 2), leaky(2 * width, width, 1),
                                 leaky(width, 4 * width, 3, 2), leaky(4 * width, 4 * width, 3, 2))  # fmt: skip
        self.two = nn.Sequential(leaky(4 * width, 8 * width, 3, 2), leaky(8 * width, 4 * width, 1))
        self.mix = leaky(16 * width, 8 * width, 1)
        self.back = leaky(8 * width, 2 * width, 1)
        self.heads = nn.ModuleList([nn.Conv2d(8 * width, 21, 1), nn.Conv2d(6 * width, 21, 1)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes on two grids."""
        fine = self.one(x)
        coarse = self.two(fine)
        pools = [functional.max_pool2d(coarse, k, 1, k // 2) for k in (5, 9, 13)]
        coarse = self.mix(torch.cat([coarse, *pools], 1))
        up = functional.interpolate(self.back(coarse), scale_factor=2, mode="nearest")
        return self.heads[0](coarse), self.heads[1](torch.cat([fine, up], 1))


class PointNet(nn.Module):
    """The same layers on every point, then the largest of each feature (Qi 2017)."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (3, 56, 56, 120, 600)
        self.points = nn.Sequential(
            *(
                nn.Sequential(nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU())
                for i, o in pairwise(sizes)
            )
        )
        self.head = nn.Sequential(nn.Linear(600, 280), nn.ReLU(), nn.Linear(280, 40))

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a cloud of points, log-softmaxed."""
        return functional.log_softmax(self.head(self.points(x).amax(2)), -1)


class SuperResolution(nn.Module):
    """Sub-pixel convolution (Shi 2016) with PReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 44, 5, padding=2), nn.PReLU(44), nn.Conv2d(44, 26, 3, padding=1),
                                  nn.PReLU(26), nn.Conv2d(26, 9, 3, padding=1), nn.PixelShuffle(3))  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """An image three times as wide."""
        return self.body(x)


class AudioCoder(nn.Module):
    """Strided and transposed 1-d convolutions with ELU and group norms, as neural audio codecs have."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv1d(1, 24, 7, padding=3)]
        for i, o, s in ((24, 48, 2), (48, 96, 4), (96, 144, 5)):
            layers += [nn.ELU(), nn.GroupNorm(4, i), nn.Conv1d(i, o, 2 * s, s, s // 2)]
        for i, o, s in ((144, 96, 5), (96, 48, 4), (48, 24, 2)):
            layers += [nn.ELU(), nn.GroupNorm(4, i), nn.ConvTranspose1d(i, o, 2 * s, s, s // 2)]
        self.layers = nn.Sequential(*layers, nn.ELU(), nn.Conv1d(24, 1, 7, padding=3), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        """The sound again."""
        return self.layers(x)


class GraphAttention(nn.Module):
    """Attention over a dense adjacency (Velickovic 2018), by einsum."""

    def __init__(self, nodes: int = 190, width: int = 92, heads: int = 4, depth: int = 3) -> None:
        super().__init__()
        self.adjacency = nn.Buffer(torch.eye(nodes).bool() | (torch.arange(nodes) % 3 == 0))
        self.heads, self.width = heads, width // heads
        self.maps = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.ends = nn.ParameterList(
            nn.Parameter(torch.randn(heads, width // heads)) for _ in range(2 * depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Features of the nodes."""
        for number, mapped in enumerate(self.maps):
            h = mapped(x).unflatten(-1, (self.heads, self.width))
            one, two = (torch.einsum("bnhd,hd->bhn", h, e) for e in self.ends[2 * number :][:2])
            scores = functional.leaky_relu(one[..., None] + two[..., None, :], 0.2)
            weights = scores.masked_fill(~self.adjacency, -1e9).softmax(-1)
            x = functional.elu(torch.einsum("bhnm,bmhd->bnhd", weights, h).flatten(2))
        return x


class ConvGRU(nn.Module):
    """A recurrent cell whose gates are convolutions, over a few frames."""

    def __init__(self, width: int = 28) -> None:
        super().__init__()
        self.width = width
        self.gates = nn.Conv2d(3 + width, 2 * width, 3, padding=1)
        self.new = nn.Conv2d(3 + width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """The state after the last frame; ``x`` is [batch, frames, 3, h, w]."""
        state = x.new_zeros(x.shape[0], self.width, *x.shape[3:])
        for frame in x.unbind(1):
            gates = torch.sigmoid(self.gates(torch.cat([frame, state], 1)))
            reset, update = gates.chunk(2, 1)
            new = torch.tanh(self.new(torch.cat([frame, reset * state], 1)))
            state = (1 - update) * state + update * new
        return state


def torch_encoder() -> nn.Module:
    """Torch's own transformer encoder."""
    layer = nn.TransformerEncoderLayer(304, 8, 1100, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


def transformers_model(model: str, config: dict[str, Any], part: str = "") -> nn.Module:
    """A model of ``transformers`` from its class name and its configuration's values; a part of it where one is named."""
    from scenarios.models.transformer import library

    library(model)
    import transformers

    cls = getattr(transformers, model)
    options = dict(config)
    made = cls(cls.config_class(**options))
    return made.get_submodule(part) if part else made


# -- the list -------------------------------------------------------------------------------------------


def _own(
    name: str, target: str, *shape: int, dtype: str = "float32", **arguments: Any
) -> ModelConfig:
    return ModelConfig(
        name,
        f"tests.benchmarks.stranger_models.{target}",
        arguments=arguments,
        inputs=[InputConfig(list(shape), dtype)],
    )


def _library(name: str, model: str, shape: tuple[int, ...], dtype: str = "float32", part: str = "",
             keyword: str | None = None, high: int = 1000, **config: Any) -> ModelConfig:  # fmt: skip
    return ModelConfig(
        name,
        "tests.benchmarks.stranger_models.transformers_model",
        arguments={"model": model, "config": config, "part": part},
        inputs=[InputConfig(list(shape), dtype, high if dtype == "int64" else None, keyword)],
    )


_SDPA: dict[str, Any] = {"attn_implementation": "hetsim_unmasked_sdpa"}
_CACHE: dict[str, Any] = {"use_cache": False}

STRANGERS: tuple[ModelConfig, ...] = (
    _own("unet", "UNet", 1, 3, 112, 112, width=22),
    _own("mlp_mixer", "Mixer", 2, 3, 144, 144),
    _own("tcn", "TCN", 3, 12, 400),
    _own("se_resnext", "SEResNeXt", 1, 3, 168, 168),
    _own("dcgan_generator", "Generator", 3, 100),
    _own("keyword_net", "KeywordNet", 2, 40, 196),
    _own("shufflenet", "ShuffleNet", 1, 3, 200, 200),
    _own("detector", "Detector", 1, 3, 160, 160),
    _own("pointnet", "PointNet", 2, 3, 700),
    _own("super_resolution", "SuperResolution", 1, 1, 90, 90),
    _own("audio_coder", "AudioCoder", 1, 1, 8000),
    _own("graph_attention", "GraphAttention", 2, 190, 92),
    _own("conv_gru", "ConvGRU", 1, 5, 3, 50, 50),
    _own("torch_encoder", "torch_encoder", 2, 70, 304),
    _library("llama", "LlamaModel", (1, 72), "int64", hidden_size=336, intermediate_size=904, num_hidden_layers=4,
             num_attention_heads=6, num_key_value_heads=3, vocab_size=3000, **_SDPA, **_CACHE),
    _library("distilbert", "DistilBertModel", (2, 60), "int64", dim=360, hidden_dim=1400, n_layers=3, n_heads=6,
             vocab_size=3000, **_SDPA),
    _library("albert", "AlbertModel", (1, 90), "int64", hidden_size=456, embedding_size=104, intermediate_size=1500,
             num_hidden_layers=4, num_attention_heads=6, vocab_size=3000, **_SDPA),
    _library("opt", "OPTModel", (1, 84), "int64", hidden_size=288, ffn_dim=1176, num_hidden_layers=4,
             num_attention_heads=6, word_embed_proj_dim=288, vocab_size=3000, max_position_embeddings=128,
             **_SDPA, **_CACHE),
    _library("clip_text", "CLIPTextModel", (3, 44), "int64", hidden_size=312, intermediate_size=1208,
             num_hidden_layers=4, num_attention_heads=6, vocab_size=3000, max_position_embeddings=64, eos_token_id=2,
             **_SDPA),
    _library("whisper_encoder", "WhisperModel", (1, 80, 280), part="encoder", d_model=232, encoder_layers=4,
             encoder_attention_heads=4, encoder_ffn_dim=900, max_source_positions=140, vocab_size=3000,
             decoder_layers=1, decoder_attention_heads=4, decoder_ffn_dim=64, pad_token_id=0, bos_token_id=1,
             eos_token_id=2, decoder_start_token_id=1, **_SDPA),
    _library("gpt_neox", "GPTNeoXModel", (1, 100), "int64", hidden_size=272, intermediate_size=1000,
             num_hidden_layers=4, num_attention_heads=4, vocab_size=3000, max_position_embeddings=128, **_SDPA, **_CACHE),
    _library("segformer", "SegformerModel", (1, 3, 160, 160), hidden_sizes=[24, 48, 120, 192], depths=[2, 2, 2, 2],
             num_attention_heads=[1, 2, 4, 6]),
    _library("swin", "SwinModel", (1, 3, 168, 168), image_size=168, patch_size=4, window_size=7, embed_dim=60,
             depths=[2, 2, 2], num_heads=[3, 6, 12]),
    _library("convnext", "ConvNextModel", (1, 3, 152, 152), hidden_sizes=[56, 112, 224, 440], depths=[2, 2, 4, 2]),
    _library("efficientnet", "EfficientNetModel", (2, 3, 144, 144), width_coefficient=0.9, depth_coefficient=0.8,
             hidden_dim=1152, image_size=144),
    _library("regnet", "RegNetModel", (2, 3, 136, 136), hidden_sizes=[36, 108, 252, 504], depths=[1, 2, 3, 1],
             groups_width=36, embedding_size=28),
    _library("poolformer", "PoolFormerModel", (1, 3, 160, 160), hidden_sizes=[56, 104, 240, 400], depths=[2, 2, 2, 2]),
    _library("mobilevit", "MobileViTModel", (1, 3, 160, 160), image_size=160, hidden_sizes=[108, 132, 180],
             neck_hidden_sizes=[14, 28, 56, 88, 112, 144, 560]),
    _library("wav2vec2", "Wav2Vec2Model", (1, 6000), hidden_size=264, num_hidden_layers=2, num_attention_heads=4,
             intermediate_size=960, conv_dim=[72, 72, 72, 72, 72], conv_stride=[5, 4, 2, 2, 2],
             conv_kernel=[10, 8, 4, 4, 4], num_conv_pos_embeddings=32, num_conv_pos_embedding_groups=8, **_SDPA),
)  # fmt: skip
