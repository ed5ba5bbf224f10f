"""Garbage is looked for less often while a command runs, and as before once it has ended."""

import gc

import pytest

from experiments.runs.command import report_errors
from experiments.runs.garbage import FEWEST_NEW
from simulator.errors import InvalidInput


@pytest.mark.parametrize("error", [None, InvalidInput("a mistake")])
def test_the_threshold_holds_for_the_command_alone(error):
    before, seen = gc.get_threshold(), []

    def run():
        seen.append(gc.get_threshold()[0])
        if error is not None:
            raise error

    report_errors(run)
    assert seen == [FEWEST_NEW]
    assert gc.get_threshold() == before
