import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.device_spec import DeviceSpec
from cost_models.quantisation import MOST_WAVES, TILES, product_of, tile_values

BOX = DeviceSpec("box", {"float32": 1e12}, 1e11, 1 << 33, units=10)
sizes = st.integers(1, 5000)


@pytest.mark.parametrize(
    ("kind", "inputs", "output", "attributes", "product"),
    [
        ("linear", ((2, 8, 32), (64, 32)), (2, 8, 64), {}, (1, 16, 64, 32)),
        ("addmm", ((64,), (16, 32), (32, 64)), (16, 64), {}, (1, 16, 64, 32)),
        ("bmm", ((4, 16, 32), (4, 32, 64)), (4, 16, 64), {}, (4, 16, 64, 32)),
        # 2 x 5 x 5 pixels by 6 channels a group, summed over 3 x 3 taps of 4 channels.
        ("conv2d", ((2, 8, 5, 5), (12, 4, 3, 3)), (2, 12, 5, 5), {"groups": 2}, (2, 50, 6, 36)),
        ("relu", ((5,),), (5,), {}, None),
    ],
)
def test_products(kind, inputs, output, attributes, product):
    assert product_of(kind, inputs, (output,), attributes) == product


def test_waves_of_a_known_product():
    # 300 x 200 in tiles of 128 x 128: 3 x 2 = 6 tiles on 10 units, six tenths of one wave.
    found = tile_values("linear", ((300, 32), (200, 32)), ((300, 200),), {}, BOX)
    assert found["tile_count_128x128"] == math.log2(6)
    assert found["wave_count_128x128"] == 1
    assert found["wave_full_128x128"] == pytest.approx(0.6)
    assert found["tile_used_128x128"] == pytest.approx(300 * 200 / (6 * 128 * 128))
    # 32 x 32: 10 x 7 = 70 tiles are exactly seven waves.
    assert (found["wave_count_32x32"], found["wave_full_32x32"]) == (7, 1.0)


def test_heads_that_share_their_keys_share_a_block():
    query, key = (2, 8, 100, 64), (2, 2, 100, 64)
    found = tile_values("scaled_dot_product_attention", (query, key, key), (query,), {}, BOX)
    # 2 x 2 pairs of batch and key head, 100 x 4 rows in blocks of 128.
    assert found["tile_count_packed"] == math.log2(4 * 4)
    assert found["tile_count_64"] == math.log2(16 * 2)


@given(sizes, sizes, sizes)
def test_tiles_cover_the_product_and_waves_the_tiles(m, n, k):
    found = tile_values("linear", ((m, k), (n, k)), ((m, n),), {}, BOX)
    for rows, columns in TILES:
        name = f"{rows}x{columns}"
        tiles = round(2 ** found[f"tile_count_{name}"])
        assert tiles * rows * columns >= m * n
        assert 0 < found[f"tile_used_{name}"] <= 1
        assert 0 < found[f"wave_full_{name}"] <= 1
        assert found[f"wave_count_{name}"] == min(math.ceil(tiles / 10), MOST_WAVES)


def test_what_is_empty_or_no_product_has_no_tiles():
    assert tile_values("linear", ((0, 3), (4, 3)), ((0, 4),), {}, BOX) == {}
    assert tile_values("relu", ((5,),), ((5,),), {}, BOX) == {}
