"""Which rows a fitted function sees, and which it prices."""

import numpy as np
import pytest

from cost_models.kind_groups import SHARED, groups_of, rows_by_group


def rows(*parts):
    """kinds, dtypes and features of so many rows of (kind, dtype, whether it multiplies)."""
    kinds, dtypes, values = [], [], []
    for kind, dtype, multiplies, count in parts:
        kinds += [kind] * count
        dtypes += [dtype] * count
        values += [{"flops": 3.0 if multiplies else -1.0}] * count
    return np.array(kinds, dtype=object), np.array(dtypes, dtype=object), values


def counts(found):
    return {label: len(chosen) for label, chosen in found.items()}


def test_the_element_type_with_most_rows_has_a_function_of_its_own_besides():
    kinds, dtypes, values = rows(
        ("linear", "float32", True, 50),
        ("linear", "bfloat16", True, 30),
        ("relu", "float32", False, 20),
        ("relu", "tf32", False, 45),
    )
    found = groups_of(kinds, dtypes, values, own_model=40)
    assert counts(found) == {"linear": 80, "linear@float32": 50, SHARED: 65, f"{SHARED}@tf32": 45}
    assert set(dtypes[found["linear@float32"]]) == {"float32"}
    assert set(kinds[found[f"{SHARED}@tf32"]]) == {"relu"}
    assert counts(groups_of(kinds, dtypes, values, only={"linear"}, own_model=40)) == {
        "linear": 80, "linear@float32": 50,
    }  # fmt: skip


@pytest.mark.parametrize("other", ["int64", "bool", "float32"])
def test_copies_of_integers_make_no_element_type(other):
    kinds, dtypes, values = rows(("cat", "float32", False, 60), ("cat", other, False, 30))
    assert counts(groups_of(kinds, dtypes, values)) == {SHARED: 90}


def test_too_few_rows_of_a_type_have_none():
    kinds, dtypes, values = rows(
        ("linear", "float32", True, 39),
        ("linear", "tf32", True, 38),
        ("linear", "float16", True, 3),
    )
    assert counts(groups_of(kinds, dtypes, values, own_model=40)) == {"linear": 80}


def test_every_row_is_priced_by_one_group():
    kinds, dtypes, values = rows(
        ("linear", "float32", True, 3),
        ("linear", "bfloat16", True, 2),
        ("relu", "float32", False, 4),
        ("sigmoid", "tf32", False, 1),
        ("matmul", "float32", True, 5),  # never measured, and no streaming kind tells of it
    )
    multiplies = np.array([row["flops"] > 0 for row in values])
    labels = ["linear", "linear@float32", SHARED, f"{SHARED}@float32"]
    found = rows_by_group(kinds, dtypes, multiplies, labels, ["relu"])
    assert counts(found) == {"linear@float32": 3, "linear": 2, f"{SHARED}@float32": 4, SHARED: 1}
    assert not set(np.concatenate(list(found.values()))) & set(np.flatnonzero(kinds == "matmul"))


def test_a_profile_from_before_prices_all_types_alike():
    kinds, dtypes, _ = rows(("linear", "float32", True, 3), ("linear", "tf32", True, 2))
    found = rows_by_group(kinds, dtypes, np.ones(5, dtype=bool), ["linear"], ())
    assert counts(found) == {"linear": 5}
