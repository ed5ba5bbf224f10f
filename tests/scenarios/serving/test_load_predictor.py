"""The trained load predictor: known answers, the same network everywhere, files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from scenarios.serving.load_predictor import (
    HEADER,
    LoadNetwork,
    LstmPredictor,
    fit,
    load_network,
    split,
    windows,
)
from simulator.errors import InvalidInput
from simulator.serving.two_stage import TwoStage


def noisy_sine(samples: int, nodes: int, seed: int, noise: float = 0.1) -> np.ndarray:
    """A sine of 25 samples a period, each node with another phase, and white noise."""
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * (np.arange(samples)[:, None] / 25 + np.arange(nodes) / nodes)
    return 0.5 + 0.3 * np.sin(angle) + noise * rng.standard_normal((samples, nodes))


def errors(network: LoadNetwork, held_out: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is seen, what is right, and the network's squared errors."""
    seen, right = windows([held_out], network.window, network.horizon)
    return seen, right, (network.predict(seen) - right) ** 2


def test_it_beats_persistence_on_a_noisy_sine() -> None:
    loads = noisy_sine(600, 3, 1)
    (before,), (after,) = split([loads], 0.3)
    network = fit([before], epochs=20, seed=0)
    seen, right, wrong = errors(network, after)
    persistence = ((seen[:, -1] - right) ** 2).mean()
    # What nobody can predict: the noise in the mean of the next five.
    floor = 0.1**2 / network.horizon
    assert floor * 0.8 < wrong.mean() < 0.3 * persistence
    assert wrong.mean() < 3 * floor


def test_white_noise_teaches_it_the_mean() -> None:
    loads = np.random.default_rng(2).random((2000, 3))
    (before,), (after,) = split([loads], 0.3)
    network = fit([before], epochs=20, seed=0)
    _, right, wrong = errors(network, after)
    mean = windows([before], network.window, network.horizon)[1].mean()
    ratio = wrong.mean() / ((right - mean) ** 2).mean()
    assert 0.98 <= ratio <= 1.05


def test_the_same_seed_gives_the_same_network_whatever_was_drawn_before() -> None:
    torch = pytest.importorskip("torch")
    loads = [noisy_sine(300, 2, 3)]
    state = torch.random.get_rng_state()
    first = fit(loads, hidden=4, epochs=2, seed=5)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.rand(7)
    second, other = fit(loads, hidden=4, epochs=2, seed=5), fit(loads, hidden=4, epochs=2, seed=6)
    for name in ("into", "over", "bias", "out"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
        assert not np.array_equal(getattr(first, name), getattr(other, name))


def test_numpy_computes_what_torch_computes() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    hidden, window = 6, 9
    network = LoadNetwork(
        window=window,
        horizon=2,
        low=-1.0,
        high=3.0,
        into=rng.normal(size=4 * hidden).astype(np.float32),
        over=rng.normal(size=(hidden, 4 * hidden)).astype(np.float32),
        bias=rng.normal(size=4 * hidden).astype(np.float32),
        out=rng.normal(size=hidden + 1).astype(np.float32),
    )
    lstm = torch.nn.LSTM(1, hidden, batch_first=True)
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(torch.from_numpy(network.into[:, None]))
        lstm.weight_hh_l0.copy_(torch.from_numpy(network.over.T.copy()))
        lstm.bias_ih_l0.copy_(torch.from_numpy(network.bias))
        lstm.bias_hh_l0.zero_()
        history = rng.normal(size=(5, window + 3))  # the oldest three are not looked at
        scaled = torch.from_numpy(((history[:, 3:] + 1.0) / 4.0).astype(np.float32))
        states, _ = lstm(scaled[:, :, None])
        expected = states[:, -1].numpy() @ network.out[:-1] + network.out[-1]
    assert network.predict(history) == pytest.approx(expected * 4.0 - 1.0, rel=1e-4, abs=1e-5)
    assert network.predict(history[2:3])[0] == pytest.approx(network.predict(history)[2])


def test_windows_end_where_their_run_ends() -> None:
    first, second = np.arange(12.0).reshape(6, 2), 100 + np.arange(6.0).reshape(3, 2)
    seen, right = windows([first, second, first[:2]], 2, 1)
    assert seen.tolist() == [
        [0, 2], [1, 3], [2, 4], [3, 5], [4, 6], [5, 7], [6, 8], [7, 9],
        [100, 102], [101, 103],
    ]  # fmt: skip
    assert right.tolist() == [4, 5, 6, 7, 8, 9, 10, 11, 104, 105]
    before, after = split([first, second], 1 / 3)
    assert [len(run) for run in before] == [4, 2]
    assert after[0].tolist() == [[8, 9], [10, 11]]


@pytest.fixture
def network() -> LoadNetwork:
    rng = np.random.default_rng(0)
    return LoadNetwork(
        20, 5, 0.0, 1.0,
        rng.normal(size=8).astype(np.float32),
        rng.normal(size=(2, 8)).astype(np.float32),
        rng.normal(size=8).astype(np.float32),
        rng.normal(size=3).astype(np.float32),
        {"sample": 0.05},
        {"command": "x"},
    )  # fmt: skip


def test_a_file_gives_back_the_network(network: LoadNetwork, tmp_path: Path) -> None:
    path = network.save(tmp_path / "made" / "p.safetensors")
    again = load_network(path)
    history = np.random.default_rng(1).random((4, 20))
    assert np.array_equal(again.predict(history), network.predict(history))
    assert (again.options, again.notes) == (network.options, network.notes)
    assert network.save(tmp_path / "q").read_bytes() == path.read_bytes()
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["p.safetensors", "q"]
    assert path.read_bytes()[8:9] == b"{"  # a header in JSON, nothing pickled


def test_what_is_no_predictor_is_refused(network: LoadNetwork, tmp_path: Path) -> None:
    from safetensors.numpy import load, save

    path = tmp_path / "p.safetensors"

    def refused() -> str:
        with pytest.raises(InvalidInput) as caught:
            LstmPredictor(str(path))
        assert "python -m experiments.train_predictor" in str(caught.value)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "Cannot read" in refused()
    data = network.save(path).read_bytes()
    for end in (0, 5, 100, len(data) - 1):
        path.write_bytes(data[:end])
        assert "cut short" in refused()
    path.write_bytes(b"time_s,edge0\n0.05,0.1\n")
    assert "cut short" in refused()
    path.write_bytes(save({"w": np.zeros(3, dtype=np.float32)}))
    assert "holds no load predictor" in refused()
    tensors = load(data)

    def rewritten(description: object, **other: np.ndarray) -> None:
        text = description if isinstance(description, str) else json.dumps(description)
        path.write_bytes(save({**tensors, **other}, {HEADER: text}))

    good = {"format": 1, "window": 20, "horizon": 5, "low": 0.0, "high": 1.0}
    good |= {"options": {}, "notes": {}}
    rewritten({**good, "format": 9})
    assert "format 9" in refused()
    for bad in ("{", [], {"format": 1}, {**good, "low": "x"}, {**good, "options": 3}):
        rewritten(bad)
        assert "damaged" in refused()
    for key, value in (("window", 0), ("high", 0.0), ("high", float("nan"))):
        rewritten({**good, key: value})
        assert "damaged" in refused()
    rewritten(good, out=np.zeros(9, dtype=np.float32))
    assert "out is no finite" in refused()
    rewritten(good, bias=np.full(8, np.nan, dtype=np.float32))
    assert "bias is no finite" in refused()
    rewritten(good)
    LstmPredictor(str(path))


def test_a_selection_of_other_samples_is_refused(network: LoadNetwork, tmp_path: Path) -> None:
    file = str(network.save(tmp_path / "p"))
    name = "scenarios.serving.load_predictor:LstmPredictor"
    made = TwoStage(name, {"file": file})
    assert made.predictor is not None
    for option, value in (("sample", 0.1), ("window", 10), ("horizon", 3)):
        with pytest.raises(InvalidInput, match=f"trained for {option}"):
            TwoStage(name, {"file": file}, **{option: value})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="it has: file"):
        TwoStage(name, {"path": file})


def test_training_refuses_what_cannot_be(network: LoadNetwork) -> None:
    with pytest.raises(InvalidInput, match="at least 125 samples; the longest has 60"):
        fit([noisy_sine(60, 2, 0)])
    with pytest.raises(InvalidInput, match="finite"):
        fit([np.full((200, 2), np.nan)])
    with pytest.raises(InvalidInput, match="horizon 0"):
        fit([noisy_sine(200, 2, 0)], horizon=0)
    with pytest.raises(InvalidInput, match="units"):
        fit([noisy_sine(200, 2, 0)], hidden=0)
    with pytest.raises(InvalidInput, match="sees 20 samples; it was given 3"):
        network.predict(np.zeros((2, 3)))


def test_loads_that_never_change_are_predicted() -> None:
    network = fit([np.full((200, 2), 0.4)], epochs=1, hidden=2)
    assert network.predict(np.full((1, 20), 0.4)) == pytest.approx([0.4], abs=0.05)
