"""Proper names and units in place of identifiers; what is unknown is left alone."""

import pytest

from experiments.comparison.names import axis_label, proper, value_label


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("family.ccr", "communication-to-computation ratio"),
        ("model.ccr", "communication-to-computation ratio"),
        ("workload.rate", "arrival rate [1/s]"),
        ("workload.deadline", "relative deadline [s]"),
        ("cluster.links.uplink.bandwidth", "link bandwidth [Mbit/s]"),
        ("estimate error", "standard deviation of log estimate errors"),
        ("scheduler.options.look_ahead", "look ahead"),
    ],
)
def test_axes_are_named_with_their_unit(key, label):
    assert axis_label(key) == label


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("workload.rate", "80/s", "80"),
        ("workload.rate", "120/min", "2"),
        ("workload.deadline", "200ms", "0.2"),
        ("x.bandwidth", "1 Gbit/s", "1000"),
        ("family.ccr", 0.1, "0.1"),
        ("workload.rate", "fast", "fast"),
        ("scheduler.options.pricing", "per_edge", "per_edge"),
    ],
)
def test_values_are_in_the_unit_that_the_axis_says(key, value, shown):
    assert value_label(key, value) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("heft", "HEFT"),
        ("min_min", "Min-Min"),
        ("dynamic_heft", "dynamic HEFT"),
        ("best device", "best device"),
        ("inception_v3 x4, cpu_1x_3x push", "Inception-v3 x4, cpu_1x_3x push"),
        ("daggen(ccr=0.1, beta=1)", "DAGGEN (CCR 0.1, β 1)"),
        ("donf(pricing=per_edge)", "DONF (pricing per_edge)"),
        ("poisson(rate=80/s)", "poisson (rate 80/s)"),
        ("Mine", "Mine"),
        ("my_heft2", "my_heft2"),
        ("edge/least_loaded", "edge/least loaded"),
    ],
)
def test_labels(text, shown):
    assert proper(text) == shown
