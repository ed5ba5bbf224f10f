"""Training a multi-exit network on scikit-learn's digits, jointly or one head after another.

Jointly: one run minimises ``sum_n w_n L_n`` over the blocks and all heads. Separately: the blocks and the
final exit first, then each other head alone on the frozen blocks' features; the final exit then answers
exactly as without any heads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from scenarios.models.multi_exit import MultiExit, build
from simulator.errors import InvalidInput

WAYS: Mapping[str, str] = {
    "separate": "blocks and final exit first, then each head alone on frozen features",
    "joint": "all together, every head's loss with weight 1",
    "joint_depth": "all together, the head after block n of L with weight n / L",
}


@dataclass(frozen=True)
class Training:
    """How to train.

    Attributes:
        widths, pools: of the network, see :class:`scenarios.models.multi_exit.MultiExit`.
        grid: of a head's averages.
        epochs: passes over the training images.
        head_epochs: the same of heads that are trained alone, which costs little; None: as many, so that
            a head sees as many images in all ways.
        rate, head_rate: of Adam, for blocks and for heads.
        batch: images of a step.
        test_share: of the images that are held out.
    """

    widths: Sequence[int] = (8, 8, 16, 16, 32, 32, 64, 64)
    pools: Sequence[int] = (2, 4, 6)
    grid: int = 4
    epochs: int = 20
    head_epochs: int | None = None
    rate: float = 3e-3
    head_rate: float = 1e-2
    batch: int = 64
    test_share: float = 0.3

    def network(self, seed: int) -> MultiExit:
        """A network with random weights and a head after every block."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            found = build(self.widths, self.pools, channels=1, image_size=8, grid=self.grid)
        assert isinstance(found, MultiExit)
        return found


@dataclass(frozen=True)
class Digits:
    """Images float32[samples, 1, 8, 8] from 0 to 1 with their labels int64[samples]."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor


@dataclass(frozen=True)
class Outcomes:
    """What a trained network answers to held-out images.

    Attributes:
        confidence: float64[samples, exits], the largest softmax probability.
        correct: bool[samples, exits].
    """

    confidence: np.ndarray
    correct: np.ndarray


def digits(seed: int, test_share: float = 0.3) -> Digits:
    """scikit-learn's 1797 handwritten digits (Alpaydin, Kaynak 1998), split at random.

    Raises:
        InvalidInput: scikit-learn is not installed, or a share that leaves one part empty.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InvalidInput(
            "Training needs scikit-learn, which brings the digits: pip install 'hetsim[training]'"
        ) from None
    found = load_digits()
    count = len(found.target)
    held_out = round(test_share * count)
    if not 0 < held_out < count:
        raise InvalidInput(f"A test share of {test_share} leaves no images on one side")
    order = np.random.default_rng([seed, 5]).permutation(count)
    images = torch.tensor(found.images[order] / 16.0, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(found.target[order], dtype=torch.int64)
    return Digits(images[held_out:], labels[held_out:], images[:held_out], labels[:held_out])


def train(way: str, data: Digits, training: Training, seed: int) -> MultiExit:
    """A trained network, in evaluation mode.

    Raises:
        InvalidInput: an unknown way.
    """
    if way not in WAYS:
        raise InvalidInput(f"There is no way of training '{way}'; known: {', '.join(WAYS)}")
    network = training.network(seed)
    count = len(training.widths)
    if way == "separate":
        train_jointly(network, data, training, {count: 1.0}, seed)
        train_heads(network, data, training, seed)
        return network
    weights = {n: 1.0 if way == "joint" else n / count for n in range(1, count + 1)}
    train_jointly(network, data, training, weights, seed)
    return network


def train_jointly(
    network: MultiExit, data: Digits, training: Training, weights: Mapping[int, float], seed: int
) -> None:
    """Minimise ``sum_n w_n L_n`` over the blocks and the heads that have a weight; others stay."""
    heads = itertools.chain.from_iterable(network.heads[str(n)].parameters() for n in weights)
    optimizer = torch.optim.Adam(
        [
            {"params": list(network.blocks.parameters()), "lr": training.rate},
            {"params": list(heads), "lr": training.head_rate},
        ]
    )
    steps = _Steps(len(data.train_labels), training.batch, training.epochs, seed)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps.total)
    network.train()
    for rows in steps:
        x, labels = data.train_images[rows], data.train_labels[rows]
        loss = torch.zeros(())
        for number, block in enumerate(network.blocks, 1):
            x = block(x)
            if number in weights:
                loss = loss + weights[number] * functional.cross_entropy(
                    network.heads[str(number)](x), labels
                )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    network.eval()


def train_heads(network: MultiExit, data: Digits, training: Training, seed: int) -> None:
    """Train every head but the last alone; blocks and final exit stay as they are."""
    network.eval()
    features = _features(network, data.train_images)
    for number in network.exits[:-1]:
        head = network.heads[str(number)]
        optimizer = torch.optim.Adam(head.parameters(), training.head_rate)
        steps = _Steps(
            len(data.train_labels), training.batch, training.head_epochs or training.epochs, seed
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps.total)
        head.train()
        for rows in steps:
            logits = head(features[number - 1][rows])
            loss = functional.cross_entropy(logits, data.train_labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        head.eval()


class _Steps:
    """Rows of every step: all images once in each epoch, in an order of its own."""

    def __init__(self, count: int, batch: int, epochs: int, seed: int) -> None:
        self._count, self._batch, self._epochs = count, batch, epochs
        self._seed = seed
        self.total = epochs * math.ceil(count / batch)

    def __iter__(self) -> Iterator[torch.Tensor]:
        rng = np.random.default_rng([self._seed, 6])
        for _ in range(self._epochs):
            yield from torch.from_numpy(rng.permutation(self._count)).split(self._batch)


def _features(network: MultiExit, images: torch.Tensor) -> list[torch.Tensor]:
    """Outputs of every block, without gradients."""
    found = []
    with torch.no_grad():
        x = images
        for block in network.blocks:
            x = block(x)
            found.append(x)
    return found


def outcomes(network: MultiExit, data: Digits) -> Outcomes:
    """What every exit says of the held-out images."""
    network.eval()
    with torch.no_grad():
        logits = torch.stack(network(data.test_images), 1)
    confidence, answer = functional.softmax(logits.double(), 2).max(2)
    correct = answer == data.test_labels[:, None]
    return Outcomes(confidence.numpy(), correct.numpy())


def save_weights(network: nn.Module, path: Path) -> None:
    """Write a network's weights, as safetensors."""
    save_file({name: value.contiguous() for name, value in network.state_dict().items()}, path)


def load_weights(training: Training, path: Path) -> MultiExit:
    """A network with the weights of :func:`save_weights`, in evaluation mode.

    Raises:
        InvalidInput: there is no such file, or it is of another network.
    """
    network = training.network(0)
    try:
        network.load_state_dict(load_file(path))
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"{path} has no weights of this network: {reason}") from None
    except Exception as error:  # safetensors' own class derives from Exception alone
        raise InvalidInput(f"{path} is no safetensors file: {error}") from None
    network.eval()
    return network
