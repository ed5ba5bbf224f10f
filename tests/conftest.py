"""What all tests share: the order in which they run, and that they can be interrupted."""

from __future__ import annotations

import gc
import signal

import pytest

from tests.examples import only_thoroughly


def pytest_configure() -> None:
    """Tests interrupt themselves and their children, which a caller that ignores Ctrl-C (a job in the
    background of a script, some runners of continuous integration) would have them ignore, too.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first, so that no worker is left with one of them when the others are done."""
    if not only_thoroughly(True):
        dear = pytest.mark.skip(reason="HETSIM_THOROUGH=1 alone runs it")
        for item in items:
            if item.get_closest_marker("thorough"):
                item.add_marker(dear)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """A tenth of the suite's time went into looking through modules and tests for garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
