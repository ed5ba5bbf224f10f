"""Proper names, symbols and units of what figures and LaTeX tables show.

Identifiers (``family.ccr``, ``min_min``) stay in CSV files and on the command line. What has no entry keeps its
identifier, so that a user's own names are never changed.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from scenarios.networks import link_bandwidth
from simulator.errors import InvalidInput
from simulator.model.units import parse_bytes, parse_rate, parse_seconds


class Quantity(NamedTuple):
    """A quantity that a sweep varies.

    Attributes:
        name: in words, for axes.
        symbol: short, for labels of several quantities.
        unit: in which values are shown; empty for numbers and words.
    """

    name: str
    symbol: str
    unit: str = ""


QUANTITIES = {
    "ccr": Quantity("communication-to-computation ratio", "CCR"),
    "n": Quantity("number of tasks", "n"),
    "beta": Quantity("heterogeneity of devices β", "β"),
    "heterogeneity": Quantity("heterogeneity", "heterogeneity"),
    "fat": Quantity("width of the graph (fat)", "fat"),
    "density": Quantity("density of edges", "density"),
    "regular": Quantity("regularity of levels", "regularity"),
    "jump": Quantity("levels that an edge spans", "jump"),
    "p": Quantity("probability of an edge", "p"),
    "alpha": Quantity("shape of the graph α", "α"),
    "devices": Quantity("number of devices", "devices"),
    "tiles": Quantity("tiles a side", "tiles"),
    "m": Quantity("order of the matrix", "m"),
    "work_spread": Quantity("spread of task times", "work spread"),
    "data_spread": Quantity("spread of data sizes", "data spread"),
    "task_time": Quantity("mean task time", "task time", "s"),
    "half_duplex": Quantity("half-duplex links", "half duplex"),
    "rate": Quantity("arrival rate", "rate", "1/s"),
    "deadline": Quantity("relative deadline", "deadline", "s"),
    "period": Quantity("period", "period", "s"),
    "think": Quantity("think time", "think time", "s"),
    "cv": Quantity("coefficient of variation of gaps", "CV"),
    "clients": Quantity("number of clients", "clients"),
    "jobs": Quantity("number of jobs", "jobs"),
    "max_batch": Quantity("largest batch", "largest batch"),
    "batch": Quantity("batch size", "batch"),
    "bandwidth": Quantity("link bandwidth", "bandwidth", "Mbit/s"),
    "latency": Quantity("link latency", "latency", "s"),
    "capacity": Quantity("memory capacity", "capacity", "GB"),
    "count": Quantity("number of devices", "count"),
    "slots": Quantity("slots of the device", "slots"),
    "sigma": Quantity("standard deviation of log errors", "σ"),
    "estimate error": Quantity("standard deviation of log estimate errors", "σ"),
    "cost_model": Quantity("cost model", "cost model"),
    "decision_cost": Quantity("decision cost", "decision cost"),
}  # fmt: skip
"""By the last part of a configuration key, or by a factor's name: the one table of names."""

_PARSERS = {
    "1/s": (parse_rate, 1.0),
    "s": (parse_seconds, 1.0),
    "Mbit/s": (link_bandwidth, 8e-6),
    "GB": (parse_bytes, 1e-9),
}
_ACRONYMS = {
    *("adon", "cpop", "dls", "donf", "donf2", "edf", "etf", "fcfs", "hcpt", "heft", "hsip", "lru", "mcp"),
    *("mct", "met", "olb", "peft", "pets", "sjf", "lstm", "gru", "fft"),
}  # fmt: skip
_WORDS = {
    *("single", "device", "best", "round", "robin", "work", "stealing", "task", "groups", "batching"),
    *("dynamic", "cache", "affinity", "deadline", "accuracy", "admission", "plain", "upload", "packing"),
    *("light", "memory", "own", "random", "smallest", "least", "loaded", "earliest", "finish", "edge"),
    *("eviction", "placement", "tier", "contention", "free", "delay", "stage", "cells", "at", "once"),
    *("lookahead", "sufferage", "one", "cpu", "none", "systematic", "gaussian", "elimination", "tree"),
    *("in", "out", "fork", "join", "series", "parallel"),
}  # fmt: skip
_NAMES = {
    "min_min": "Min-Min",
    "max_min": "Max-Min",
    "sufferage": "Sufferage",
    "lookahead": "Lookahead",
    "annealing": "simulated annealing",
    "genetic": "genetic algorithm",
    "daggen": "DAGGEN",
    "erdos_renyi": "Erdős–Rényi",
    "cholesky": "Cholesky",
    "gaussian_elimination": "Gaussian elimination",
    "stencil_1d": "1-D stencil",
    "stencil_2d": "2-D stencil",
    "alexnet": "AlexNet",
    "bert_base": "BERT-base",
    "densenet121": "DenseNet-121",
    "googlenet": "GoogLeNet",
    "gpt2": "GPT-2",
    "inception_v3": "Inception-v3",
    "mobilenet_v2": "MobileNetV2",
    "resnet18": "ResNet-18",
    "resnet34": "ResNet-34",
    "resnet50": "ResNet-50",
    "squeezenet1_1": "SqueezeNet 1.1",
    "t5_small": "T5-small",
    "two_tower": "two-tower",
    "two_tower_lstm": "two-tower LSTM",
    "vgg16": "VGG-16",
    "vit_b_16": "ViT-B/16",
    "wide_and_deep": "Wide & Deep",
}
_TOKEN = re.compile(r"(?P<base>[^\s(),/]+)(?P<options>\([^()]*=[^()]*\))?")


def quantity(key: str) -> Quantity:
    """What a configuration key or a factor is called; of an unknown one its last part in words."""
    found = QUANTITIES.get(key) or QUANTITIES.get(key.rpartition(".")[2])
    if found is not None:
        return found
    words = key.rpartition(".")[2].replace("_", " ")
    return Quantity(words, words)


def axis_label(key: str) -> str:
    """``arrival rate [1/s]``: the name with its unit."""
    found = quantity(key)
    return f"{found.name} [{found.unit}]" if found.unit else found.name


def value_label(key: str, value: Any) -> str:
    """A value as an axis shows it: ``80`` of ``80/s`` where the axis says the unit, words without underscores."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    parser = _PARSERS.get(quantity(key).unit)
    if parser is not None:
        parse, factor = parser
        try:
            return f"{parse(text, key) * factor:.6g}"
        except InvalidInput:
            pass
    return proper(text)


def proper(text: str) -> str:
    """A label with proper names in place of identifiers: ``DAGGEN (CCR 0.1, β 0.5)`` of ``daggen(ccr=0.1, beta=0.5)``."""
    return _TOKEN.sub(_replaced, text)


def _replaced(match: re.Match[str]) -> str:
    base = _name(match["base"])
    if not match["options"]:
        return base
    options = [part.partition("=") for part in match["options"][1:-1].split(",")]
    return f"{base} ({', '.join(_option(key.strip(), value.strip()) for key, _, value in options)})"


def _option(key: str, value: str) -> str:
    found = quantity(key)
    shown = value_label(key, value)
    if found.unit and shown != value:
        # 80/s, not 80 1/s.
        shown += found.unit[1:] if found.unit.startswith("1/") else f" {found.unit}"
    return f"{found.symbol} {shown}"


def _name(word: str) -> str:
    if word in _NAMES:
        return _NAMES[word]
    parts = word.split("_")
    if not all(part in _ACRONYMS | _WORDS for part in parts):
        return word
    return " ".join(part.upper() if part in _ACRONYMS else part for part in parts)


__all__ = ["QUANTITIES", "Quantity", "axis_label", "proper", "quantity", "value_label"]
