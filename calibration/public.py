"""Public GPU measurements in the form of this project's measurement table.

``python -m calibration.public neusight CHECKOUT TABLE.parquet`` or
``python -m calibration.public aiconfigurator CHECKOUT TABLE.parquet --only h100_sxm/vllm/0.19.0`` converts
a checkout of one of two repositories, so that anyone can repeat the fits of the ``public`` profiles:

* sitar-lab/NeuSight (MIT; Lee et al. 2025, https://doi.org/10.1145/3669940.3707265): CSV files below
  ``scripts/asplos/data/dataset/train/collect/<kind>/<torch version>/<device>.csv``, float32 kernels, the
  mean of the fastest 5 of 25 calls, launch overhead included, in milliseconds;
* ai-dynamo/aiconfigurator (Apache-2.0): CSV or Parquet files ``gemm_perf``, ``context_attention_perf``,
  ``generation_attention_perf`` below ``systems/data/<system>/<framework>/<version>/``, in milliseconds.
  They are in Git LFS: ``git lfs pull`` fetches them.

Needs pandas and pyarrow only.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from cost_models.table import write
from simulator.errors import InvalidInput

Shape = tuple[int, ...]
Row = Mapping[str, Any]
Made = tuple[list[Shape], Shape, dict[str, Any]]
"""Inputs, output and attributes of a row."""
_LFS = b"version https://git-lfs"


@dataclass
class Found:
    """Rows of a table as they are collected, and what was left out and why."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)

    def leave_out(self, why: str, count: int) -> None:
        """Count rows that do not enter the table."""
        if count:
            self.left_out[why] = self.left_out.get(why, 0) + count

    def add(
        self, device: str, kind: str, dtype: str, made: Made, milliseconds: float, source: str
    ) -> None:
        """One measured operator."""
        inputs, output, attributes = made
        self.rows.append(
            {
                "device": device,
                "kind": kind,
                "dtype": dtype,
                "inputs": inputs,
                "outputs": [output],
                "attributes": json.dumps(attributes),
                "seconds": milliseconds * 1e-3,
                "source": source,
            }
        )


# -- NeuSight -----------------------------------------------------------------------------------------


def _streamed(inputs: int) -> Callable[[Row], Made]:
    def made(row: Row) -> Made:
        shape = row["B"], row["H"]
        return [shape] * inputs, shape, {}

    return made


def _scalar(row: Row) -> Made:
    shape = row["B"], row["H"]
    return [shape], shape, {"scalar": True}


def _layer_norm(row: Row) -> Made:
    shape = row["B"], row["H"]
    return [shape, (row["H"],), (row["H"],)], shape, {}


def _bmm(row: Row) -> Made:
    # The columns are named as the loops were: N is summed over.
    batch, m, k, n = row["B"], row["M"], row["N"], row["K"]
    return [(batch, m, k), (batch, k, n)], (batch, m, n), {}


def _linear(row: Row) -> Made:
    batch, m, k, n = row["B"], row["M"], row["N"], row["K"]
    return [(batch, m, k), (n, k)], (batch, m, n), {}


def _convolution(row: Row) -> Made:
    batch, channels, kernels = row["B"], row["Input_Channel"], row["Output_Channel"]
    taps, size, stride, padding = (
        row[c] for c in ("Kernel_Szie", "Input_Size", "Stride", "Padding")
    )
    after = (size + 2 * padding - taps) // stride + 1
    attributes = {
        "stride": [stride, stride],
        "padding": [padding, padding],
        "dilation": [1, 1],
        "groups": 1,
    }
    inputs: list[Shape] = [(batch, channels, size, size), (kernels, channels, taps, taps)]
    return inputs, (batch, kernels, after, after), attributes


_BH, _BMNK = ("B", "H"), ("B", "M", "N", "K")
_NEUSIGHT: Mapping[str, tuple[str, tuple[str, ...], Callable[[Row], Made]]] = {
    **{kind: (kind, _BH, _streamed(2)) for kind in ("add", "mul", "div", "pow")},
    **{f"{kind}u": (kind, _BH, _scalar) for kind in ("add", "mul", "div", "pow")},
    **{kind: (kind, _BH, _streamed(1)) for kind in ("gelu", "relu", "tanh", "softmax")},
    "ln": ("layer_norm", _BH, _layer_norm),
    "bmm": ("bmm", _BMNK, _bmm),
    "linear": ("linear", _BMNK, _linear),
    "conv": (
        "conv2d",
        ("B", "Input_Channel", "Output_Channel", "Kernel_Szie", "Input_Size", "Stride", "Padding"),
        _convolution,
    ),
}
"""By folder: canonical kind, the columns that hold its dimensions, and what they mean."""


def neusight(checkout: Path, *, skip_bad: bool = False) -> Found:
    """Every kernel of a NeuSight checkout.

    Args:
        checkout: the repository, or its folder ``collect``.
        skip_bad: leave out rows without a valid time instead of refusing the file.

    Raises:
        InvalidInput: no such folder, a file that is no whole CSV, or a kind that is not known.
    """
    below = checkout / "scripts/asplos/data/dataset/train/collect"
    root = below if below.is_dir() else checkout
    files = sorted(root.glob("*/*/*.csv"))
    if not files:
        raise InvalidInput(
            f"No NeuSight measurements below {checkout}; expected "
            "scripts/asplos/data/dataset/train/collect/KIND/VERSION/DEVICE.csv"
        )
    found = Found()
    for path in files:
        folder = path.parts[-3]
        if folder not in _NEUSIGHT:
            raise InvalidInput(
                f"{path}: '{folder}' is no kind of NeuSight's that is known: {', '.join(_NEUSIGHT)}"
            )
        kind, dimensions, shape_of = _NEUSIGHT[folder]
        frame = _timed(_read(path, (*dimensions, "Latency")), "Latency", path, skip_bad, found)
        device = path.stem.lower().replace(" ", "-")
        for *sizes, latency in _rows(frame, dimensions, "Latency", path):
            made = shape_of(dict(zip(dimensions, sizes, strict=True)))
            found.add(device, kind, "float32", made, latency, "neusight")
    return found


# -- aiconfigurator -----------------------------------------------------------------------------------

_DTYPES = {"bfloat16": "bfloat16", "bf16": "bfloat16", "float16": "float16", "fp16": "float16"}
_ATTENTION = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "step")


def _gemm(row: Row) -> Made:
    m, n, k = row["m"], row["n"], row["k"]
    return [(m, k), (n, k)], (m, n), {}


def _context(row: Row) -> Made:
    batch, heads, width, length = (row[c] for c in ("batch_size", "num_heads", "head_dim", "isl"))
    query = batch, heads, length, width
    keys = batch, row["num_key_value_heads"] or heads, length, width
    return [query, keys, keys], query, {"is_causal": True, "phase": "context"}


def _generation(row: Row) -> Made:
    batch, heads, width = (row[c] for c in ("batch_size", "num_heads", "head_dim"))
    query = batch, heads, 1, width
    # The token of this step attends to all that came before it and to itself.
    keys = batch, row["num_key_value_heads"] or heads, row["isl"] + row["step"], width
    return [query, keys, keys], query, {"is_causal": True, "phase": "generation"}


_TABLES: Mapping[str, tuple[str, str, tuple[str, ...], str, Callable[[Row], Made]]] = {
    "gemm_perf": ("gemm", "linear", ("m", "n", "k"), "gemm_dtype", _gemm),
    "context_attention_perf": (
        "attention", "scaled_dot_product_attention", _ATTENTION, "attn_dtype", _context,
    ),
    "generation_attention_perf": (
        "attention", "scaled_dot_product_attention", _ATTENTION, "attn_dtype", _generation,
    ),
}  # fmt: skip
"""By file: its name in ``source``, canonical kind, columns of dimensions and of the element type."""


def aiconfigurator(checkout: Path, *, only: Sequence[str] = (), skip_bad: bool = False) -> Found:
    """Half-precision matrix products and attention of an aiconfigurator checkout.

    Args:
        checkout: the repository, or its folder ``systems/data``.
        only: ``system``, ``system/framework`` or ``system/framework/version``; all by default. The
            same GPU differs by a median of 2 to 8% between versions, so fit one at a time.
        skip_bad: leave out rows without a valid time instead of refusing the file.

    Raises:
        InvalidInput: no such folder or system, a file that was not fetched from Git LFS or is no
            whole table.
    """
    inside = ("src/aiconfigurator/systems/data", "systems/data")
    root = next((checkout / part for part in inside if (checkout / part).is_dir()), checkout)
    files = sorted(
        path
        for path in root.glob("*/*/*/*")
        if path.stem in _TABLES and path.suffix in (".txt", ".csv", ".parquet")
    )
    chosen = [path for path in files if not only or _named(path, only)]
    if not chosen:
        known = sorted({"/".join(path.parts[-4:-1]) for path in files})
        raise InvalidInput(
            f"No aiconfigurator measurements of {', '.join(only) or 'any system'} below {checkout}"
            + (f"; there are {', '.join(known)}" if known else "")
        )
    found = Found()
    for path in chosen:
        if path.suffix != ".parquet" and path.with_suffix(".parquet") in chosen:
            continue  # the same rows in the older form
        system, framework, version = path.parts[-4:-1]
        name, kind, dimensions, element, shape_of = _TABLES[path.stem]
        frame = _read(path, (*dimensions, element, "latency"))
        if "window_size" in frame:
            # A sliding window is another operator.
            full = ~(pd.to_numeric(frame["window_size"], errors="coerce").fillna(0) > 0)
            found.leave_out("with a sliding window", int((~full).sum()))
            frame = frame[full]
        half = frame[element].isin(list(_DTYPES))
        if "kv_cache_dtype" in frame:
            half &= frame["kv_cache_dtype"].isin(list(_DTYPES))
        found.leave_out("of other element types", int((~half).sum()))
        frame = _timed(frame[half], "latency", path, skip_bad, found)
        device = f"nvidia-{system.replace('_', '-')}"
        source = f"aiconfigurator/{system}/{name}/{framework}/{version}"
        dtypes = [_DTYPES[value] for value in frame[element]]
        for dtype, (*sizes, latency) in zip(
            dtypes, _rows(frame, dimensions, "latency", path), strict=True
        ):
            made = shape_of(dict(zip(dimensions, sizes, strict=True)))
            found.add(device, kind, dtype, made, latency, source)
    return found


def _named(path: Path, only: Sequence[str]) -> bool:
    parts = path.parts[-4:-1]
    return any(
        tuple(name.strip("/").split("/")) == parts[: name.strip("/").count("/") + 1]
        for name in only
    )


# -- files --------------------------------------------------------------------------------------------


def _read(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """A CSV or Parquet file that has these columns."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_LFS))
        if start == _LFS:
            raise InvalidInput(f"{path} is a pointer into Git LFS; fetch it: git lfs pull")
        if path.suffix == ".parquet":
            frame = pq.read_table(path).to_pandas()
        else:
            frame = pd.read_csv(path)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"{path} is no CSV file ({reason}); was it truncated?") from None
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"{path} cannot be read ({reason}); was it truncated?") from None
    missing = [column for column in columns if column not in frame]
    if missing:
        raise InvalidInput(
            f"{path} lacks the column '{missing[0]}'; it has {', '.join(map(str, frame.columns))}"
        )
    return frame


def _timed(
    frame: pd.DataFrame, column: str, path: Path, skip_bad: bool, found: Found
) -> pd.DataFrame:
    """Rows with a finite time above zero."""
    times = pd.to_numeric(frame[column], errors="coerce").to_numpy(dtype=np.float64)
    good = np.isfinite(times) & (times > 0)
    if not good.all() and not skip_bad:
        first = int(np.flatnonzero(~good)[0])
        raise InvalidInput(
            f"{path}: row {first + 1} has {column} = {frame[column].iloc[first]}; a time is finite and "
            "above zero. Was the file truncated? --skip-bad leaves such rows out"
        )
    found.leave_out("without a valid time", int((~good).sum()))
    return frame[good].assign(**{column: times[good]})


def _rows(
    frame: pd.DataFrame, dimensions: Sequence[str], time: str, path: Path
) -> Iterator[tuple[Any, ...]]:
    """Dimensions as whole numbers, then the time, of every row."""
    numbers = frame[list(dimensions)].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    bad = ~(np.isfinite(numbers) & (numbers == np.floor(numbers)) & (numbers >= 0)).all(axis=1)
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise InvalidInput(
            f"{path}: row {first + 1} has no whole numbers in {', '.join(dimensions)}; was it truncated?"
        )
    for sizes, seconds in zip(numbers.astype(np.int64).tolist(), frame[time].tolist(), strict=True):
        yield (*sizes, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns 0, or 2 for a bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m calibration.public",
        description="Convert public GPU measurements into one measurement table.",
    )
    parser.add_argument("source", choices=["neusight", "aiconfigurator"])
    parser.add_argument("checkout", type=Path, help="the repository's folder")
    parser.add_argument("table", type=Path, help="the Parquet file to write")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="SYSTEM[/FRAMEWORK[/VERSION]]",
        help="aiconfigurator: which measurements",
    )  # fmt: skip
    parser.add_argument(
        "--skip-bad", action="store_true", help="leave out rows without a valid time"
    )
    chosen = parser.parse_args(arguments)
    try:
        if chosen.source == "neusight":
            if chosen.only:
                raise InvalidInput("--only is for aiconfigurator")
            found = neusight(chosen.checkout, skip_bad=chosen.skip_bad)
        else:
            found = aiconfigurator(chosen.checkout, only=chosen.only, skip_bad=chosen.skip_bad)
        if not found.rows:
            raise InvalidInput(f"No rows below {chosen.checkout} fit; left out: {found.left_out}")
        write(pd.DataFrame(found.rows), chosen.table)
    except (InvalidInput, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for why, count in found.left_out.items():
        print(f"left out {count} rows {why}")
    print(f"{len(found.rows)} rows: {chosen.table}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
