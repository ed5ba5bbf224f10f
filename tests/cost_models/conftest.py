"""Measurement tables whose times follow a law that is known here and nowhere in the project."""

import json

import numpy as np
import pandas as pd
import pytest

PEAK, BANDWIDTH, OVERHEAD = 5e10, 1e10, 2e-6


def linear_row(m: int, k: int, n: int, seconds: float | None = None, **more):
    inputs, outputs = ((m, k), (n, k)), ((m, n),)
    if seconds is None:
        work, moved = 2.0 * m * n * k, 4.0 * (m * k + n * k + m * n)
        # Efficiency falls for thin matrices: something for trees to learn.
        seconds = max(work / PEAK * (1 + 8 / m), moved / BANDWIDTH) + OVERHEAD
    row = {
        "device": "box",
        "kind": "linear",
        "dtype": "float32",
        "inputs": inputs,
        "outputs": outputs,
        "attributes": "{}",
        "seconds": seconds,
        "source": "test",
    }
    return row | more


def relu_row(elements: int, seconds: float | None = None, **more):
    if seconds is None:
        seconds = 8.0 * elements / BANDWIDTH + OVERHEAD
    shapes = ((elements,),)
    row = linear_row(1, 1, 1) | {
        "kind": "relu",
        "inputs": shapes,
        "outputs": shapes,
        "seconds": seconds,
    }
    return row | more


def random_table(rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    size = np.exp(rng.uniform(np.log(4), np.log(1024), (rows, 3))).astype(int)
    found = [linear_row(*map(int, row)) for row in size]
    found += [relu_row(int(row[0]) * int(row[1])) for row in size]
    return pd.DataFrame(found)


@pytest.fixture
def table() -> pd.DataFrame:
    return random_table(150)


@pytest.fixture(scope="session")
def measured_table() -> pd.DataFrame:
    """As the calibrator leaves it: cache states, spread, halves, architectures."""
    frame = random_table(120)
    rng = np.random.default_rng(7)
    frame["architectures"] = [
        [["a"], ["b"], ["a", "b"], ["c"], ["d"], []][i % 6] for i in range(240)
    ]
    warm = frame.assign(cache="warm", seconds=frame["seconds"] * 0.8)
    both = pd.concat([frame.assign(cache="graph"), warm], ignore_index=True)
    both["spread"] = 0.05
    both["repeats"] = 10
    both["statistic"] = "minimum"
    both["threads"] = 1
    for half in ("half_a_s", "half_b_s"):
        both[half] = both["seconds"] * np.exp(0.01 * rng.standard_normal(len(both)))
    both["versions"] = json.dumps({"torch": "2.13.0"})
    return both
