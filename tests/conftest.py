"""What all tests share: the order in which they run."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first, so that no worker is left with one of them when the others are done."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
