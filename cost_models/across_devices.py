"""One model of several devices, to be asked about one that was not measured.

What is learnt is how far a kernel stays from the roofline of its device's data sheet, from features
that a data sheet makes comparable: times at the peak rates, waves of tiles over the device's units, the
working set against its cache. Given the data sheet of another device, the same trees price it.

Trees know no more than the sizes that they were shown, and small kernels stay far from a roofline for reasons that
large ones do not have. So a kernel that is larger than any measured one of its kind and type, by its time at published
rates, takes the trees' share for as much of it as was measured, and the rest at the rates that large kernels reach on
the median device (:class:`LargeRates`).

float16 and bfloat16 run on the same units at the same rates (on the H200 they differ by 1% in the mean, convolutions by 7%)
and count as one type. Kinds that stream through memory know no type at all: their bytes say it.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cost_models.boosted import Boosted, fit_groups
from cost_models.device_spec import SPECS, DeviceSpec
from cost_models.features import Values, feature_rows
from cost_models.kind_groups import OWN_MODEL
from cost_models.model import Prediction
from cost_models.profile_files import SHIPPED
from cost_models.reached_rates import terms_of
from cost_models.roofline import Roofline
from cost_models.table import Measurements, load
from simulator.errors import InvalidInput
from simulator.support.atomic_io import write_whole

FLOOR = 0.01
"""The quantile of a device's times that is taken for what every kernel costs."""
PARAMETERS: Mapping[str, Any] = {"max_depth": 6, "rounds": 200, "colsample_bytree": 0.5}
LARGE = 1e-4
"""Seconds at published rates from which a kernel is large."""
BOUND = 4.0
"""A product is bound by arithmetic if that takes so many times as long as its traffic."""
FEWEST = 5
"""Large kernels of a kind that a device's share is taken from."""
STREAMS = "streams"
PRODUCTS = "products"
FIT = SHIPPED / "across_devices.json.gz"
"""The fit that comes with the project, one for all devices."""


@dataclass(frozen=True)
class LargeRates:
    """The share of published rates that large kernels reach.

    Attributes:
        shares: of the bandwidth, ``streams``; and of the peak, by ``kind type`` and ``products type``.
    """

    shares: Mapping[str, float]

    @classmethod
    def measured(
        cls,
        devices: np.ndarray,
        kinds: np.ndarray,
        types: np.ndarray,
        terms: np.ndarray,
        seconds: np.ndarray,
    ) -> LargeRates:
        """The median device's median share.

        Args:
            devices: of each row.
            kinds: of each row.
            types: of each row; empty of what streams.
            terms: float64[rows, 2] of :func:`cost_models.reached_rates.terms_of`.
            seconds: float64[rows].
        """  # fmt: skip
        at_peak = terms.max(axis=1)
        streams = types == ""
        large = (at_peak > LARGE) & (streams | (terms[:, 0] > BOUND * terms[:, 1]))
        rows = pd.DataFrame(
            {
                "device": devices,
                "label": np.where(streams, STREAMS, [f"{k} {t}" for k, t in zip(kinds, types, strict=True)]),
                "pooled": np.where(streams, STREAMS, [f"{PRODUCTS} {t}" for t in types]),
                "share": at_peak / seconds,
            }
        )[large]  # fmt: skip
        shares = {}
        for column in ("label", "pooled"):
            for label, own in rows.groupby(column)["share"]:
                by_device = own.groupby(rows["device"]).agg(["median", "size"])
                known = by_device.loc[by_device["size"] >= FEWEST, "median"]
                if len(known):
                    shares[str(label)] = round(min(float(known.median()), 1.0), 3)
        return cls(shares)

    def seconds(self, kinds: np.ndarray, types: np.ndarray, terms: np.ndarray) -> np.ndarray:
        """float64[rows]: the longer of arithmetic and traffic at these shares."""
        of = self.shares
        peak = np.array(
            [of.get(f"{k} {t}", of.get(f"{PRODUCTS} {t}", 1.0)) for k, t in zip(kinds, types, strict=True)]
        )  # fmt: skip
        found: np.ndarray = np.maximum(terms[:, 0] / peak, terms[:, 1] / of.get(STREAMS, 1.0))
        return found


class AcrossDevices:
    """Trees fitted to several devices. Made by :meth:`fitted`; :meth:`of` is what predicts.

    Attributes:
        trees: their features are relative to a device.
        overhead: seconds that every call of them takes.
        large: rates of large kernels.
        reach: by ``kind type`` the largest measured kernel, seconds at published rates.
    """

    def __init__(
        self, trees: Boosted, overhead: float, large: LargeRates, reach: Mapping[str, float]
    ) -> None:
        self.trees = trees
        self.overhead = overhead
        self.large = large
        self.reach = reach

    @classmethod
    def fitted(
        cls,
        measurements: pd.DataFrame,
        *,
        specs: Mapping[str, DeviceSpec] = SPECS,
        seed: int = 0,
        only: Collection[str] | None = None,
        own_model: int = OWN_MODEL,
        **parameters: Any,
    ) -> AcrossDevices:
        """Fit to a valid measurement table of two devices or more.

        Args:
            measurements: rows of all of them.
            specs: data sheets by device.
            seed: of row and column sampling.
            only: fit no more than what pricing these kinds needs.
            own_model: rows that a kind needs for trees of its own.
            parameters: of XGBoost, and ``rounds``; defaults :data:`PARAMETERS`.

        Raises:
            InvalidInput: fewer than two devices, or one without a data sheet.
        """
        devices = sorted(measurements["device"].unique())
        if len(devices) < 2:
            raise InvalidInput("A model across devices needs measurements of at least 2")
        for name in devices:
            if name not in specs:
                raise InvalidInput(f"Device '{name}' has no data sheet; known: {', '.join(specs)}")
        measurements = alike(measurements)
        values: list[Values] = [{}] * len(measurements)
        terms = np.empty((len(measurements), 2))
        labels = measurements["device"].to_numpy()
        seconds = measurements["seconds"].to_numpy()
        # The least: a device whose launches were taken off its times has lost its short kernels.
        overhead = float(min(np.quantile(seconds[labels == name], FLOOR) for name in devices))
        for name in devices:
            chosen = np.flatnonzero(labels == name)
            rows, spec = measurements.iloc[chosen], of_alike(specs[name])
            terms[chosen] = terms_of(rows, Roofline.published(spec, overhead))
            for position, row in zip(
                chosen.tolist(), feature_rows(rows, spec, relative=True), strict=True
            ):
                values[position] = row
        kinds = measurements["kind"].to_numpy(dtype=object)
        types = types_of(measurements, terms)
        values = [
            {name: value for name, value in row.items() if not name.startswith("dtype=")}
            if type_ == ""
            else row
            for row, type_ in zip(values, types, strict=True)
        ]
        groups = fit_groups(
            kinds,
            np.where(types == "", "float32", types),
            values,
            terms,
            seconds,
            overhead=overhead,
            seed=seed,
            only=only,
            own_model=own_model,
            members=1,
            without=("absolute",),
            parameters={**PARAMETERS, **parameters},
        )
        first = of_alike(specs[devices[0]])
        reached = pd.Series(terms.max(axis=1)).groupby(_keys(kinds, types)).max()
        return cls(
            Boosted(Roofline.published(first, overhead), groups, first, True),
            overhead,
            LargeRates.measured(labels, kinds, types, terms, seconds),
            {str(key): float(f"{value:.3g}") for key, value in reached.items()},
        )

    def of(self, device: DeviceSpec) -> OnDevice:
        """The model of a device, from its data sheet alone. Shares the trees."""
        return OnDevice(self, device)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "trees": self.trees.to_json(),
            "overhead_s": self.overhead,
            "large": dict(self.large.shares),
            "reach_s": dict(self.reach),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> AcrossDevices:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: it is incomplete or damaged.
        """
        try:
            return cls(
                Boosted.from_json(document["trees"]),
                float(document["overhead_s"]),
                LargeRates({str(k): float(v) for k, v in document["large"].items()}),
                {str(k): float(v) for k, v in document["reach_s"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(
                f"The model across devices is incomplete or damaged ({error})"
            ) from None

    def save(self, path: Path = FIT) -> Path:
        """Write it, whole or not at all."""
        text = json.dumps(self.to_json(), separators=(",", ":"))
        write_whole(path, gzip.compress(text.encode(), mtime=0))
        return path


@functools.cache
def shipped() -> tuple[AcrossDevices, str]:
    """The fit that comes with the project, and the sha256 of its file.

    Raises:
        InvalidInput: its file is missing or damaged.
    """
    try:
        content = FIT.read_bytes()
        document = json.loads(gzip.decompress(content))
    except (OSError, EOFError, ValueError) as error:
        raise InvalidInput(f"{FIT} is missing or damaged ({error}); install hetsim again") from None
    return AcrossDevices.from_json(document), hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class OnDevice:
    """What a model across devices says of one device. A cost model.

    Attributes:
        across: what was learnt from others.
        device: its data sheet.
    """

    across: AcrossDevices
    device: DeviceSpec
    name: str = field(default="across_devices", init=False)

    def predict(self, measurements: Measurements) -> np.ndarray:
        """float64[rows]: seconds of every row of a table (``seconds`` is not looked at)."""
        return self.predict_in_full(measurements).seconds

    def predict_in_full(self, measurements: Measurements) -> Prediction:
        """Seconds; in range is what the trees have in range on the devices that they were fitted to."""
        rows = alike(load(measurements, timed=False))
        spec = of_alike(self.device)
        roofline = Roofline.published(spec, self.across.overhead)
        trees = Boosted(roofline, self.across.trees.groups, spec, relative=True)
        found = trees.predict_in_full(rows)
        terms = terms_of(rows, roofline)
        kinds, types = rows["kind"].to_numpy(dtype=object), types_of(rows, terms)
        reach = np.array([self.across.reach.get(key, 0.0) for key in _keys(kinds, types)])
        at_peak = terms.max(axis=1)
        share = np.minimum(1.0, reach / np.maximum(at_peak, 1e-12))
        large = self.across.large.seconds(kinds, types, terms) + self.across.overhead
        seconds = share * found.seconds + (1.0 - share) * large
        return Prediction(seconds, found.spread, found.in_range & (share == 1.0))

    def to_json(self) -> dict[str, Any]:
        """The device and the digest of the trees, which are one file for all (:func:`shipped`)."""
        return {"device": self.device.to_json(), "fit": shipped()[1]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> OnDevice:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: it is incomplete or damaged.
        """
        if not isinstance(document.get("device"), Mapping):
            raise InvalidInput("The model across devices does not say of which device it is")
        across, fit = shipped()
        if document.get("fit") != fit:
            raise InvalidInput(
                "The profile was made with another fit across devices than this release has; make it again: "
                "python -m experiments.datasheets FOLDER"
            )
        return cls(across, DeviceSpec.from_json(document["device"]))

    @classmethod
    def fitted(
        cls,
        measurements: pd.DataFrame,
        *,
        roofline: Roofline | None = None,
        seed: int = 0,
        only: Collection[str] | None = None,
        device: DeviceSpec | None = None,
        **options: Any,
    ) -> OnDevice:
        """The shipped fit asked about the table's device: nothing of the table is learnt.

        Args:
            measurements: at least one row.
            roofline: published rates are taken.
            seed: nothing is drawn.
            only: of all kinds.
            device: its data sheet; that of the table's device unless given.
            options: there are no others.

        Raises:
            InvalidInput: an option, or no data sheet is known.
        """
        from cost_models.device_spec import spec_of_measured

        if options:
            raise InvalidInput(
                f"The model across devices has no option '{min(options)}'; known: device"
            )
        name = str(measurements["device"].iloc[0]) if "device" in measurements else "?"
        spec = device or spec_of_measured(name)
        if spec is None:
            raise InvalidInput(
                f"No data sheet of '{name}' is known, which a model across devices asks for; known: "
                f"{', '.join(SPECS)}"
            )
        return cls(shipped()[0], spec)


HALF = ("float16", "bfloat16")


def alike(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows whose 16-bit types are one, bfloat16."""
    return rows.assign(dtype=rows["dtype"].replace("float16", "bfloat16"))


def of_alike(spec: DeviceSpec) -> DeviceSpec:
    """A data sheet on which bfloat16 is what it states of either 16-bit type."""
    known = [spec.flops_per_s[dtype] for dtype in HALF[::-1] if dtype in spec.flops_per_s]
    if not known:
        return spec
    return replace(spec, flops_per_s={**spec.flops_per_s, "bfloat16": known[0]})


def types_of(rows: pd.DataFrame, terms: np.ndarray) -> np.ndarray:
    """object[rows]: the element type of what multiplies matrices; empty of what streams."""
    return np.where(terms[:, 0] > 0, rows["dtype"].to_numpy(dtype=object), "")


def _keys(kinds: np.ndarray, types: np.ndarray) -> np.ndarray:
    return np.array(
        [f"{kind} {type_}" for kind, type_ in zip(kinds, types, strict=True)], dtype=object
    )
