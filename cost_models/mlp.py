"""Small neural networks on log(time / time at the rates that such kernels reach): thesis 003's deep
operator model.

One network for each kind that multiplies matrices, one for all kinds that stream through memory, each
three hidden layers deep and trained on the logarithm of the time. Several are trained from different
initial weights and averaged; how far they disagree is the model's spread. A smooth function of the
logarithms of shapes, which trees are not: between measured shapes it interpolates.

PyTorch trains it; predicting needs NumPy alone.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from cost_models.base85 import b85decode
from cost_models.features import Values, feature_rows, matrix
from cost_models.kind_groups import SHARED, groups_of, rows_by_group
from cost_models.measured_range import MeasuredRange
from cost_models.model import Prediction, rows_to_fit
from cost_models.reached_rates import ReachedRates, terms_of
from cost_models.roofline import Roofline
from cost_models.table import Measurements, load
from simulator.errors import InvalidInput

OPTIONS: Mapping[str, float] = {
    "members": 4,
    "width": 64,
    "layers": 3,
    "steps": 600,
    "batch": 256,
    "learning_rate": 5e-3,
    "weight_decay": 1e-2,
}
_BEYOND = 4.0
"""Standardised features are cut here: no network knows what lies further out."""


@dataclass(frozen=True)
class _Network:
    """One group's networks: features, their standardisation, and the weights of all members.

    No ratio is believed that lies beyond ``furthest``, half a logarithm from the ends of those
    measured.

    ``weights[i]`` is float32[members, in, out], ``biases[i]`` float32[members, 1, out].
    """

    names: list[str]
    rates: ReachedRates
    coded: tuple[str, ...]
    measured: MeasuredRange
    mean: np.ndarray
    scale: np.ndarray
    centre: float
    unit: float
    furthest: tuple[float, float]
    weights: list[np.ndarray]
    biases: list[np.ndarray]

    def log_ratios(self, data: np.ndarray, kinds: np.ndarray) -> np.ndarray:
        """float64[members, rows]: log(time / time at the group's rates)."""
        there = _told(data, self.names)
        hidden = _standardised(there, self.mean, self.scale, kinds, self.coded)[None]
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = hidden @ weight + bias
            if layer < last:
                hidden = hidden / (1 + np.exp(-np.clip(hidden, -30, 30)))
        found: np.ndarray = hidden[..., 0].astype(np.float64) * self.unit + self.centre
        return np.clip(found, *self.furthest)


@dataclass
class MLP:
    """See the module docstring. Made by :meth:`fitted` or :meth:`from_json`."""

    roofline: Roofline
    networks: Mapping[str, _Network]
    name: str = field(default="mlp", init=False)

    @classmethod
    def fitted(
        cls,
        measurements: pd.DataFrame,
        *,
        roofline: Roofline | None = None,
        seed: int = 0,
        only: Collection[str] | None = None,
        **options: Any,
    ) -> MLP:
        """See :meth:`cost_models.model.CostModel.fitted`.

        Args:
            measurements: at least one row.
            roofline: of the device; estimated from the rows unless given.
            seed: of initial weights and batches.
            only: fit no more than what pricing these kinds needs; None fits all.
            options: ``members``, ``width`` and ``layers`` of the networks, ``steps``, ``batch``,
                ``learning_rate`` and ``weight_decay`` of their training; defaults :data:`OPTIONS`.

        Raises:
            InvalidInput: no rows, or an unknown option.
        """
        rows_to_fit(measurements)
        for name in options:
            if name not in OPTIONS:
                known = ", ".join(["seed", *OPTIONS])
                raise InvalidInput(f"The mlp model has no option '{name}'; known: {known}")
        settings = {**OPTIONS, **options}
        roofline = roofline or Roofline.fitted(measurements)
        seconds = measurements["seconds"].to_numpy(dtype=np.float64)
        terms = terms_of(measurements, roofline)
        kinds, dtypes = (measurements[c].to_numpy(dtype=object) for c in ("kind", "dtype"))
        values = feature_rows(measurements)
        networks = {}
        for label, rows in groups_of(kinds, dtypes, values, only).items():
            networks[label] = _trained(
                kinds[rows],
                [values[i] for i in rows],
                seconds[rows],
                terms[rows],
                roofline.overhead,
                settings,
                seed,
            )
        return cls(roofline, networks)

    def predict(self, measurements: Measurements) -> np.ndarray:
        """float64[rows]: seconds of every row of a table (``seconds`` is not looked at)."""
        return self.predict_in_full(measurements).seconds

    def predict_in_full(self, measurements: Measurements) -> Prediction:
        """Seconds, how far the members disagree, and whether a row lies in the measured range."""
        rows = load(measurements, timed=False)
        seconds = self.roofline.of_rows(rows)
        spread = np.full(len(rows), np.nan)
        inside = np.zeros(len(rows), dtype=bool)
        kinds, dtypes = (rows[c].to_numpy(dtype=object) for c in ("kind", "dtype"))
        values = feature_rows(rows)
        terms = terms_of(rows, self.roofline)
        shared = self.networks[SHARED].measured.kinds if SHARED in self.networks else ()
        by_group = rows_by_group(kinds, dtypes, terms[:, 0] > 0, self.networks, shared)
        for label, chosen in by_group.items():
            network = self.networks[label]
            data = matrix([values[i] for i in chosen], network.names)
            ratios = network.log_ratios(data, kinds[chosen])
            seconds[chosen] = network.rates.bare(terms[chosen]) * np.exp(ratios.mean(axis=0))
            if len(ratios) > 1:
                spread[chosen] = ratios.std(axis=0, ddof=1)
            inside[chosen] = network.measured.contains(kinds[chosen], data)
        return Prediction(seconds, spread, inside)

    def to_json(self) -> dict[str, Any]:
        """The model as a JSON object; weights are safetensors, gzipped, in base85."""
        from safetensors.numpy import save

        networks = {}
        for label, network in self.networks.items():
            tensors = {"mean": network.mean, "scale": network.scale}
            for layer, (weight, bias) in enumerate(
                zip(network.weights, network.biases, strict=True)
            ):
                tensors |= {f"weight_{layer}": weight, f"bias_{layer}": bias}
            data = gzip.compress(save(tensors), mtime=0)
            networks[label] = {
                "features": network.names,
                "coded": list(network.coded),
                **network.measured.to_json(),
                "rates": network.rates.to_json(),
                "centre": network.centre,
                "unit": network.unit,
                "furthest": list(network.furthest),
                "tensors": base64.b85encode(data).decode(),
            }
        return {"roofline": self.roofline.to_json(), "networks": networks}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> MLP:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: it is incomplete or damaged.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load as read

        networks = {}
        try:
            for label, entry in document["networks"].items():
                tensors = read(gzip.decompress(b85decode(entry["tensors"])))
                layers = range(sum(name.startswith("weight_") for name in tensors))
                networks[label] = _Network(
                    names=entry["features"],
                    coded=tuple(entry["coded"]),
                    measured=MeasuredRange.from_json(entry),
                    mean=tensors["mean"],
                    scale=tensors["scale"],
                    rates=ReachedRates.from_json(entry["rates"]),
                    centre=float(entry["centre"]),
                    unit=float(entry["unit"]),
                    furthest=(float(entry["furthest"][0]), float(entry["furthest"][1])),
                    weights=[tensors[f"weight_{layer}"] for layer in layers],
                    biases=[tensors[f"bias_{layer}"] for layer in layers],
                )
            return cls(Roofline.from_json(document["roofline"]), networks)
        except (
            KeyError,
            IndexError,
            TypeError,
            ValueError,
            AttributeError,
            OSError,
            EOFError,
            SafetensorError,
        ) as error:
            raise InvalidInput(f"The mlp model is incomplete or damaged ({error})") from None


def _told(data: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """float32[rows, features] in which a row has 0 of an element type or a word that it does not have.

    They are 1 where they apply and absent elsewhere, and an absent feature takes its mean, which is 1 then.
    """
    codes = np.array(["=" in name for name in names], dtype=bool)
    return np.where(codes & np.isnan(data), np.float32(0), data)


def _standardised(
    data: np.ndarray, mean: np.ndarray, scale: np.ndarray, kinds: np.ndarray, coded: Sequence[str]
) -> np.ndarray:
    """float32[rows, features + coded kinds]; an absent feature takes its mean."""
    scaled = np.nan_to_num((data - mean) / scale, nan=0.0)
    scaled = np.clip(scaled, -_BEYOND, _BEYOND)
    codes = np.array([[kind == known for known in coded] for kind in kinds], dtype=np.float32)
    return np.hstack([scaled, codes.reshape(len(data), len(coded))]).astype(np.float32)


def _trained(
    kinds: np.ndarray,
    values: Sequence[Values],
    seconds: np.ndarray,
    terms: np.ndarray,
    overhead: float,
    settings: Mapping[str, float],
    seed: int,
) -> _Network:
    """Train all members of one group at once, as batched matrix products."""
    import torch

    rates = ReachedRates.fitted(terms, seconds, overhead)
    target = np.log(seconds / rates.bare(terms))
    low, high = float(target.min()), float(target.max())
    names = sorted({name for row in values for name in row})
    data = matrix(values, names)
    measured = MeasuredRange.of(kinds, data)
    data = _told(data, names)
    deviation = np.nanstd(data, axis=0)
    told = deviation > 1e-6
    mean = np.nanmean(data, axis=0).astype(np.float32)
    # A feature that never changes tells nothing, and what it would be elsewhere even less.
    scale = np.where(told, deviation, np.inf).astype(np.float32)
    coded = measured.kinds if len(measured.kinds) > 1 else ()
    centre, unit = float(target.mean()), float(target.std()) or 1.0
    x = torch.from_numpy(_standardised(data, mean, scale, kinds, coded))
    y = torch.from_numpy(((target - centre) / unit).astype(np.float32))

    members, steps = int(settings["members"]), int(settings["steps"])
    width = [int(settings["width"])] * int(settings["layers"])
    generator = torch.Generator().manual_seed(seed)
    sizes = [x.shape[1], *width, 1]
    weights, biases = [], []
    for i, (before, after) in enumerate(pairwise(sizes)):
        gain = (2 / max(before, 1)) ** 0.5 if i < len(sizes) - 2 else 0.1 * (2 / before) ** 0.5
        drawn = torch.randn(members, before, after, generator=generator) * gain
        weights.append(drawn.requires_grad_())
        biases.append(torch.zeros(members, 1, after).requires_grad_())
    optimiser = torch.optim.AdamW(
        [
            {"params": weights, "weight_decay": float(settings["weight_decay"])},
            {"params": biases, "weight_decay": 0.0},
        ],
        lr=float(settings["learning_rate"]),
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, float(settings["learning_rate"]), total_steps=steps, pct_start=0.1
    )
    size = min(int(settings["batch"]), len(y))
    for _ in range(steps):
        rows = torch.randint(0, len(y), (members, size), generator=generator)
        hidden = x[rows]
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            hidden = torch.nn.functional.silu(torch.baddbmm(bias, hidden, weight))
        out = torch.baddbmm(biases[-1], hidden, weights[-1])[..., 0]
        # Quadratic near zero, linear far out: one misread kernel must not bend the rest.
        loss = torch.nn.functional.smooth_l1_loss(out, y[rows], beta=0.3, reduction="none")
        optimiser.zero_grad()
        loss.mean(dim=1).sum().backward()
        optimiser.step()
        schedule.step()
    return _Network(
        names,
        rates,
        coded,
        measured,
        mean,
        scale,
        centre,
        unit,
        (low - 0.5, high + 0.5),
        [weight.detach().numpy() for weight in weights],
        [bias.detach().numpy() for bias in biases],
    )
