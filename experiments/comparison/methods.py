"""A paragraph for a methods section: what was simulated and how it was compared.

Built from what every cell recorded, not from what the sweep was asked to do: whatever differs between
cells is given with all its values, and only what was the same in every cell is stated as fixed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from experiments.comparison.answers import incomplete
from experiments.comparison.contests import GIVEN, Standings
from experiments.comparison.paired_tests import ALPHA, CORRECTION, METHOD
from experiments.comparison.pairs import PairTests
from experiments.comparison.statistics import SAME
from experiments.runs.configs import DecisionCostConfig, memory_text, noise_text
from experiments.runs.results import read_document
from simulator.errors import InvalidInput

_LABELS = {
    "measured": "measured by this project's calibrator",
    "public": "fitted to public data",
    "datasheet": "estimated from a data sheet, uncalibrated",
}
_PACKAGES = ("python", "numpy", "scipy", "simpy", "torch", "transformers", "xgboost-cpu", "xgboost")
_FOR_PEOPLE = ("description", "source")
_FEW = 12
_MOVEMENT = {
    "push": "push (a transfer starts as soon as the tensor exists and a reader is placed)",
    "pull": "pull (a task's inputs are fetched once all its predecessors have finished)",
}
_CONTENTION = {
    "none": "no contention on links",
    "fifo": "first-in-first-out queues on links",
    "fair": "max-min fair sharing of links",
}


@dataclass
class Recorded:
    """Every value that the cells of a sweep recorded, in the order of its first appearance.

    Attributes:
        cells: how many finished cells were read.
        config: flat key (``simulation.movement``) -> values, as JSON text.
        entries: group (``model``) -> its whole entries, as JSON text.
        schedulers: labels.
        profiles: (name, label, digest).
        facts: ``revision``, ``versions.numpy``, ``code``, ... -> values.
    """

    cells: int = 0
    config: dict[str, dict[str, int]] = field(default_factory=dict)
    entries: dict[str, dict[str, int]] = field(default_factory=dict)
    schedulers: dict[str, None] = field(default_factory=dict)
    profiles: dict[tuple[str, str, str], None] = field(default_factory=dict)
    facts: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, document: Mapping[str, Any]) -> None:
        """Take in the ``result.json`` of a finished cell."""
        self.cells += 1
        for group, entry in document.get("config", {}).items():
            _count(self.entries.setdefault(group, {}), json.dumps(entry, sort_keys=True))
        self.schedulers.setdefault(str(document["labels"]["scheduler"]))
        for profile in document.get("profiles", []):
            key = (str(profile["name"]), str(profile["label"]), str(profile.get("digest", "")))
            self.profiles.setdefault(key)
        facts = {f"versions.{k}": v for k, v in document.get("versions", {}).items()}
        facts |= {"revision": document.get("revision"), "code": document.get("key", {}).get("code")}
        for name, value in facts.items():
            _count(self.facts.setdefault(name, {}), str(value))

    def settle(self) -> None:
        """Spread the entries, each met once however many cells have it, into keys."""
        for group, entries in self.entries.items():
            for text, count in entries.items():
                for key, value in _flat(json.loads(text), group).items():
                    values = self.config.setdefault(key, {})
                    values[json.dumps(value)] = values.get(json.dumps(value), 0) + count

    def values(self, key: str) -> list[Any]:
        """What the cells had for a key; numbers by size."""
        found = [json.loads(text) for text in self.config.get(key, {})]
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in found)
        return sorted(found) if numbers else found

    def groups(self, name: str) -> list[Mapping[str, Any]]:
        """The distinct entries of a group."""
        return [json.loads(text) for text in self.entries.get(name, {})]


def read_cells(cells: Path, names: Iterable[str]) -> Recorded:
    """Read the ``result.json`` of the cells; those without one are left out."""
    recorded = Recorded()
    for name in names:
        path = cells / name / "result.json"
        if not path.is_file():
            continue
        try:
            document = read_document(path)
        except InvalidInput:
            continue
        if document.get("status") == "done" and "labels" in document:
            recorded.add(document)
    recorded.settle()
    return recorded


def methods(
    recorded: Recorded, standings: Standings, pairs: PairTests | None, baseline: str | None = None
) -> str:
    """The paragraph, in whole sentences, one line each.

    Args:
        recorded: what the cells say.
        standings: what is compared.
        pairs: the tests made; None where there was nothing to test.
        baseline: what they compare with.
    """
    sentences = [
        _tool(recorded),
        _work(recorded, standings),
        _clusters(recorded, standings),
        _rules(recorded, standings),
        _schedulers(recorded, standings),
        _seeds(recorded, standings),
        _statistics(standings, pairs, baseline),
        _left_out(recorded, standings),
    ]
    return "\n".join(sentence for sentence in sentences if sentence) + "\n"


def _tool(recorded: Recorded) -> str:
    facts = recorded.facts
    text = f"Schedules were simulated with hetsim {_either(facts.get('versions.hetsim', {}))}"
    revisions = [r for r in facts.get("revision", {}) if r != "None"]
    if revisions:
        commits = ", ".join(
            r[:12] + (" with changes" if r.endswith("+") else "") for r in revisions
        )
        text += f" (commit{'s' if len(revisions) > 1 else ''} {commits})"
    versions = [
        f"{'Python' if name == 'python' else name} {_either(facts[f'versions.{name}'])}"
        for name in _PACKAGES
        if f"versions.{name}" in facts
    ]
    text += f", {', '.join(versions)}." if versions else "."
    codes = [code for code in facts.get("code", {}) if code != "None"]
    if len(codes) > 1:
        text += f" The cells were made with {len(codes)} states of the code (the sweep's command makes it one)."
    return text


def _work(recorded: Recorded, standings: Standings) -> str:
    instances = recorded.entries.get("instance")
    text = ""
    if instances:
        names = sorted({contest.model for contest in standings.contests})
        text = f"Bare instances with given times: {_listed(names)}."
    others = [
        group
        for group in ("model", "family")
        if any(recorded.groups(group)) and not (instances and group == "model")
    ]
    for group in others:
        described = _entries(recorded, group)
        noun = "Models" if group == "model" else "Random families"
        text += f"{' ' if text else ''}{noun}: {described}."
    if not text:
        names = sorted({contest.model for contest in standings.contests})
        text = f"Models: {_listed(names)}."
    workloads = recorded.groups("workload")
    if workloads:
        text += f" Workload: {_entries(recorded, 'workload')}."
    return text


def _entries(recorded: Recorded, group: str) -> str:
    """Entries of a group by name, each with its settings; several values where they varied."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for entry in recorded.groups(group):
        by_name.setdefault(str(entry.get("name") or "unnamed"), []).append(entry)
    texts = []
    for name, entries in by_name.items():
        flat = [_flat(entry, "") for entry in entries]
        keys = dict.fromkeys(key for entry in flat for key in entry)
        shown = []
        for key in keys:
            if key in ("name", "target", "file") or key.startswith("inputs"):
                continue
            values = list(dict.fromkeys(json.dumps(entry.get(key)) for entry in flat))
            given = [json.loads(value) for value in values]
            if given in ([None], [""], [{}], [[]]):
                continue
            shown.append(f"{key.removeprefix('parameters.')} {_listed_values(given)}")
        texts.append(name + (f" ({', '.join(shown)})" if shown else ""))
    return _listed(texts)


def _clusters(recorded: Recorded, standings: Standings) -> str:
    settings = [s for s in standings.settings if s.cluster]
    if not settings:
        return ""
    named = dict.fromkeys(
        f"{s.cluster} ({s.profiles})" if s.profiles else s.cluster for s in settings
    )
    text = f"Clusters: {_listed(list(named))}."
    labels = dict.fromkeys(label for _, label, _ in recorded.profiles)
    known = [f"{label}: {_LABELS[label]}" for label in labels if label in _LABELS]
    if known:
        text += f" Operator times come from device profiles ({'; '.join(known)})"
        models = [m for m in {s.cost_model: None for s in settings} if m and m != GIVEN]
        told = ["each profile's own" if model == "default" else model for model in models]
        text += f" ({_listed(told)} cost model{'s' if len(told) > 1 else ''})." if told else "."
    changed = {name for name, _, _ in recorded.profiles}
    twice = [n for n in changed if len({d for m, _, d in recorded.profiles if m == n}) > 1]
    if twice:
        text += f" Not every cell used the same fit of {_listed(sorted(twice))}."
    return text


def _rules(recorded: Recorded, standings: Standings) -> str:
    """Movement, contention, memory, noise: each fixed, or all that it took."""
    simulations = recorded.groups("simulation")

    def values(attribute: str) -> list[str]:
        return list(dict.fromkeys(getattr(s, attribute) for s in standings.settings))

    parts = []
    for what, texts in (("movement", _MOVEMENT), ("contention", _CONTENTION)):
        parts.append(_varied(what, [texts.get(value, value) for value in values(what) if value]))
    memory = values("memory")
    if simulations:
        memory = list(dict.fromkeys(memory_text(entry) for entry in simulations))
    parts.append(_varied("memory", memory))
    noise = values("noise")
    if simulations:
        noise = list(dict.fromkeys(noise_text(entry) for entry in simulations))
    parts.append("no noise beyond the estimates" if noise == ["none"] else _varied("noise", noise))
    costs = values("decision_cost")
    if costs != ["none"]:
        parts.append(_varied("decision cost", costs))
    text = f"Data movement and time: {'; '.join(part for part in parts if part)}."
    known = {
        "movement",
        "contention",
        "memory",
        "weights",
        "noise",
        "sigma",
        "draws",
        "max_attempts",
    }
    known |= {"systematic.sigma", "stragglers.probability", "stragglers.factor", "stragglers.shape"}
    known |= {"drift.per_hour", "drift.sigma", "drift.time_constant"}
    known |= {f"decision_cost.{key}" for key in asdict(DecisionCostConfig())}
    more = []
    for key in recorded.config:
        name = key.removeprefix("simulation.")
        if not key.startswith("simulation.") or name in known:
            continue
        given = recorded.values(key)
        if len(given) > 1 or given[0] not in (None, [], {}, "", False):
            more.append(_varied(name, [json.dumps(value) for value in given]))
    strict = recorded.values("strict")
    if strict not in ([], [False]):
        more.append(_varied("strict", [str(value).lower() for value in strict]))
    return text + (f" Also: {'; '.join(more)}." if more else "")


def _schedulers(recorded: Recorded, standings: Standings) -> str:
    by_name: dict[str, dict[str, None]] = {}
    for entry in recorded.groups("scheduler"):
        options = entry.get("options") or {}
        text = ", ".join(f"{key}={_plain(value)}" for key, value in sorted(options.items()))
        by_name.setdefault(str(entry.get("name")), {}).setdefault(text)
    texts = [
        name + "".join(f" ({text})" for text in options if text)
        for name, options in by_name.items()
    ] or list(standings.schedulers)
    sources = {
        str(entry.get("name")): str(entry["source"])
        for entry in recorded.groups("scheduler")
        if entry.get("source")
    }
    text = f"Schedulers: {_listed(sorted(texts), many=True)}."
    if sources:
        text += " Sources: " + "; ".join(f"{n}: {s}" for n, s in sorted(sources.items())) + "."
    return text


def _seeds(recorded: Recorded, standings: Standings) -> str:
    parts = []
    for name, what in (
        ("workload", "workload"),
        ("noise", "noise and draws"),
        ("search", "search"),
    ):
        values = recorded.values(f"seed.{name}")
        if values:
            parts.append(f"{what} {_ranges(values)}")
    seeds = [contest.seeds for contest in standings.contests]
    text = f"Seeds: {', '.join(parts)}; " if parts else ""
    count = f"{seeds[0]}" if len(set(seeds)) == 1 else f"{min(seeds)} to {max(seeds)}"
    text += f"{count} paired seed{'s' if seeds != [1] * len(seeds) else ''} a model and setting"
    text = text[:1].upper() + text[1:]
    draws = sorted({contest.draws for contest in standings.contests})
    if not any(draws):
        return f"{text}; no draws of the predictors' error."
    number = f"{draws[0]}" if len(draws) == 1 else f"{draws[0]} to {draws[-1]}"
    return (
        f"{text}; makespan intervals hold the middle 95% of {number} draws of the predictors' held-out "
        "error, correlated within a (device, kind), and of noise, pooled over the seeds and the same "
        "for all schedulers."
    )


def _statistics(standings: Standings, pairs: PairTests | None, baseline: str | None) -> str:
    if pairs is None or not len(pairs.frame):
        return ""
    against = f"all schedulers were compared with {baseline}"
    if not baseline:
        against = "all pairs of schedulers were compared"
    few = int((pairs.frame["verdict"] == "too few").sum())
    return (
        f"Over all models and settings, {against} on n = {pairs.units} "
        f"{pairs.unit_text}: geometric mean of the makespan ratio with its 95% interval and "
        f"two-sided p-value ({METHOD}, seed 0), {CORRECTION} corrected over {len(pairs.frame)} tests at "
        f"{ALPHA:g}, and rank-biserial correlation; differences below {SAME:.0%} count as ties in win counts."
        + (
            f" {few} pairs had too few makespans to be tested (below {pairs.needed})."
            if few
            else ""
        )
    )


def _left_out(recorded: Recorded, standings: Standings) -> str:
    done = standings.cells - len(standings.failures)
    text = f"{done} of {standings.cells} runs finished."
    missing = done - recorded.cells
    if recorded.cells and missing > 0:
        text += f" What {missing} of them were made with is not recorded any more."
    elif not recorded.cells:
        text += " The cells' own records were not at hand: versions and parameters are not stated."
    return " ".join(
        [text, *(f"{note[:1].upper()}{note[1:]}." for note in incomplete(standings, _FEW))]
    )


def _varied(what: str, values: list[str]) -> str:
    if not values:
        return ""
    return f"{what} {values[0]}" if len(values) == 1 else f"{what} varied: {_listed(values)}"


def _listed_values(values: list[Any]) -> str:
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if numbers:
        return _ranges(values)
    return _listed([_plain(value) for value in values]) if len(values) > 1 else _plain(values[0])


def _ranges(values: list[Any]) -> str:
    """``0 to 29``, ``0.1, 1 and 10``."""
    values = sorted(values)
    whole = all(isinstance(value, int) for value in values)
    if whole and len(values) > 2 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]} to {values[-1]}"
    return _listed([f"{value:g}" if isinstance(value, float) else str(value) for value in values])


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _either(values: Mapping[str, int]) -> str:
    return " or ".join(values) if values else "of an unknown version"


def _listed(texts: list[str], many: bool = False) -> str:
    """``a, b and c``; of many the first, and how many more."""
    if len(texts) > _FEW and not many:
        return f"{', '.join(texts[:_FEW])} and {len(texts) - _FEW} more"
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _count(counts: dict[str, int], value: str) -> None:
    counts[value] = counts.get(value, 0) + 1


def _flat(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        return {
            name: leaf
            for key, entry in value.items()
            if key not in _FOR_PEOPLE
            for name, leaf in _flat(entry, f"{path}.{key}" if path else str(key)).items()
        }
    return {path: value}
