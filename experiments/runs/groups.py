"""Which family a scheduler belongs to, and which domain a model: headings of lists.

A scheduler's follows from the class that it is made of, so that a scheduler of one's own has one, too; a model's from
the words of its description.
"""

from __future__ import annotations

from simulator import schedulers
from simulator.errors import HetsimError

FAMILIES: dict[str, tuple[str, ...]] = {
    "base lines": ("SingleDevice", "RandomDevice", "RoundRobin", "Olb", "Fcfs"),
    "the DONF family, on line": ("Donf",),
    "serving requests": ("Dispatcher",),
    "staged jobs": ("OneAtATime", "DelayStage"),
    "search, static": ("SearchPlanner",),
    "list schedulers, static": ("OrderedPlanner", "PairPlanner", "ListPlanner"),
    "list schedulers, on line": ("RankedReadyList", "ReadyPairs"),
    "batch mode: all ready tasks together": ("BatchMode",),
    "on line, a task at a time": (
        "ArrivalOrder",
        "ReadyList",
        "WorkStealing",
        "CacheAffinity",
        "Priority",
    ),
}
"""By heading the classes whose subclasses stand under it; the first heading that fits."""
OTHERS = "plans, placements and wrappers"
DOMAINS: dict[str, tuple[str, ...]] = {
    "recommendation": ("recommendation", "retrieval"),
    "images": ("image", "cnn"),
    "text and sequences": ("transformers", "lstm", "gru", "text"),
}
"""By heading words of a description, in lower case."""
YOUR_MODELS = "yours, and from files"


def family_of(name_or_class_path: str) -> str:
    """The heading of a scheduler."""
    try:
        kind = schedulers.resolve(name_or_class_path)
    except HetsimError:  # of a user's own that cannot be imported
        return OTHERS
    bases = {base.__name__ for base in kind.__mro__}
    return next((family for family, of in FAMILIES.items() if bases & {*of}), OTHERS)


def domain_of(description: str) -> str:
    """The heading of a model."""
    words = description.lower()
    found = (domain for domain, of in DOMAINS.items() if any(word in words for word in of))
    return next(found, YOUR_MODELS)
