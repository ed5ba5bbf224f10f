import zlib

from hypothesis import given
from hypothesis import strategies as st

from cost_models.folds import FOLDS, fold_of, folds_of
from tests.cost_models.conftest import random_table

sizes = st.integers(1, 10_000)


def test_known_folds():
    """Written down: changing them would mix what was trained on with what is tested."""
    assert fold_of("linear", [(128, 768), (3072, 768)], [(128, 3072)], {}) == (
        zlib.crc32(b"gemm 3072 768") % 5
    )
    conv = [(1, 3, 224, 224), (64, 3, 7, 7)], [(1, 64, 112, 112)]
    assert fold_of("conv2d", *conv, {"stride": [2, 2], "groups": 1}) == 3
    assert fold_of("relu", [(5,)], [(5,)], {}) == 4


@given(sizes, sizes, sizes, sizes)
def test_matrix_products_of_one_weight_share_a_fold(m, other, k, n):
    expected = fold_of("linear", [(m, k), (n, k)], [(m, n)], {})
    assert fold_of("linear", [(other, k), (n, k), (n,)], [(other, n)], {}) == expected
    assert fold_of("addmm", [(n,), (m, k), (k, n)], [(m, n)], {}) == expected
    assert fold_of("mm", [(m, k), (k, n)], [(m, n)], {}) == expected


@given(sizes, sizes, sizes, st.integers(1, 64))
def test_attention_is_decided_by_the_length_of_the_keys(batch, heads, length, width):
    def fold(b, h, queries):
        query, key = (b, h, queries, width), (b, h, length, width)
        return fold_of("scaled_dot_product_attention", [query, key, key], [query], {})

    assert fold(batch, heads, length) == fold(1, 1, 1)


@given(sizes)
def test_attributes_count_and_their_order_does_not(n):
    shape = [(n, n)]
    first = fold_of("softmax", shape, shape, {"dim": 1, "a": 0})
    assert first == fold_of("softmax", shape, shape, {"a": 0, "dim": 1})
    assert 0 <= first < FOLDS


def test_folds_of_a_table_are_about_equal():
    folds = folds_of(random_table(300))
    counts = [int((folds == f).sum()) for f in range(FOLDS)]
    assert sum(counts) == 600
    assert min(counts) > 80
