"""Training: what separate heads leave alone, what weights mean, weights in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulator.errors import InvalidInput

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from scenarios.serving.exit_training import (  # noqa: E402
    WAYS,
    Training,
    digits,
    load_weights,
    outcomes,
    save_weights,
    train,
    train_heads,
    train_jointly,
)

SMALL = Training(widths=(4, 8, 8), pools=(1, 2), grid=2, epochs=2)


@pytest.fixture(scope="module")
def data():
    return digits(0)


def test_digits_are_split_without_overlap(data) -> None:
    assert len(data.train_labels) + len(data.test_labels) == 1797
    assert len(data.test_labels) == round(0.3 * 1797)
    assert data.train_images.min() == 0
    assert data.train_images.max() == 1
    whole = {image.tobytes() for image in data.train_images.numpy()}
    both = sum(image.tobytes() in whole for image in data.test_images.numpy())
    assert both == 0
    again, other = digits(0), digits(1)
    assert torch.equal(again.test_images, data.test_images)
    assert not torch.equal(other.test_images, data.test_images)
    with pytest.raises(InvalidInput, match="leaves no images on one side"):
        digits(0, 0.0)


@pytest.mark.parametrize("seed", [0, 3])
def test_separate_training_leaves_the_final_exit_exactly_as_the_plain_network(data, seed) -> None:
    plain = SMALL.network(seed)
    train_jointly(plain, data, SMALL, {3: 1.0}, seed)
    separate = train("separate", data, SMALL, seed)
    with torch.no_grad():
        expected, found = plain(data.test_images), separate(data.test_images)
    assert torch.equal(expected[-1], found[-1])
    # The other heads have learned in the meantime.
    for untrained, trained in zip(expected[:-1], found[:-1], strict=True):
        assert not torch.equal(untrained, trained)
        right = [(x.argmax(1) == data.test_labels).float().mean() for x in (untrained, trained)]
        assert right[1] > right[0]


def test_heads_learn_without_touching_the_blocks(data) -> None:
    network = SMALL.network(0)
    before = {k: v.clone() for k, v in network.state_dict().items()}
    train_heads(network, data, SMALL, 0)
    changed = {k for k, v in network.state_dict().items() if not torch.equal(v, before[k])}
    assert changed == {f"heads.{n}.2.{part}" for n in (1, 2) for part in ("weight", "bias")}


def test_the_ways_begin_alike_and_end_apart(data) -> None:
    logits = []
    for way in WAYS:
        network = train(way, data, SMALL, 0)
        with torch.no_grad():
            logits.append(network(data.test_images)[-1])
    assert not torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[1], logits[2])
    with pytest.raises(InvalidInput, match="no way of training 'both'; known: separate, joint"):
        train("both", data, SMALL, 0)


def test_training_repeats(data) -> None:
    first, second = (outcomes(train("joint", data, SMALL, 1), data) for _ in range(2))
    np.testing.assert_array_equal(first.confidence, second.confidence)
    assert ((first.confidence > 0.1 - 1e-9) & (first.confidence <= 1)).all()


def test_weights_come_back_from_the_file(data, tmp_path: Path) -> None:
    network = train("joint", data, SMALL, 0)
    save_weights(network, tmp_path / "w.safetensors")
    again = load_weights(SMALL, tmp_path / "w.safetensors")
    np.testing.assert_array_equal(
        outcomes(again, data).confidence, outcomes(network, data).confidence
    )
    with pytest.raises(InvalidInput, match="has no weights of this network"):
        load_weights(Training(), tmp_path / "w.safetensors")
    with pytest.raises(InvalidInput, match=r"none\.safetensors"):
        load_weights(SMALL, tmp_path / "none.safetensors")
    (tmp_path / "torn.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(InvalidInput, match="is no safetensors file"):
        load_weights(SMALL, tmp_path / "torn.safetensors")
