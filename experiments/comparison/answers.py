"""What a comparison comes to, in sentences: who wins, by how much, how sure, and what is left out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from experiments.comparison.bootstrap import METHOD
from experiments.comparison.contests import GIVEN, Contest, Setting, Standing, Standings
from experiments.comparison.rounding import figure, listed, number, percent, probability, time_unit
from experiments.comparison.statistics import SAME, Comparison, interval
from simulator.errors import InvalidInput

DEFAULT_BASELINE = "fcfs"
_USUAL_COST_MODELS = ("default", GIVEN, "")


def baseline_of(contest: Contest, baseline: str | None) -> Standing | None:
    """What the best scheduler of a contest is compared with.

    The baseline asked for; else ``fcfs``, else the next after the best, as where that is the best itself.
    """
    if len(contest.standings) < 2:
        return None
    chosen = contest.find(baseline or DEFAULT_BASELINE)
    return contest.standings[1] if chosen is None or chosen is contest.best else chosen


def check_baseline(standings: Standings, baseline: str | None) -> None:
    """Refuse a baseline that no contest has.

    Raises:
        InvalidInput: names those there are.
    """
    if baseline is not None and baseline not in standings.schedulers:
        known = ", ".join(standings.schedulers)
        raise InvalidInput(f"No scheduler '{baseline}' to compare with; this sweep has: {known}")


def answers(standings: Standings, baseline: str | None = None) -> list[str]:
    """A sentence for each contest in which schedulers differ; one sentence if they do in none."""
    sentences = [
        f"{standings.label(contest, True)}: {answer(contest, baseline)}"
        for contest in standings.contests
        if contest.verdict is None and len(contest.standings) > 1
    ]
    if not sentences and standings.contests:
        if any(len(contest.standings) > 1 for contest in standings.contests):
            sentences = ["no scheduler stands out: all are within 1% of one another on every model"]
        else:
            sentences = ["one scheduler: nothing to compare; add others with scheduler=a,b"]
    return sentences


def answer(contest: Contest, baseline: str | None = None) -> str:
    """Who wins, by how much, how sure, and who cannot be told apart from the winner."""
    reference = baseline_of(contest, baseline)
    assert reference is not None
    best = contest.best
    text = verdict_text(best.scheduler, reference.scheduler, contest.against(best, reference))
    if contest.seeds > 1:
        over_seeds = contest.against(best, reference).seeds_interval
        if over_seeds is not None:
            ends = f"[{number(over_seeds.low)}, {number(over_seeds.high)}]"
            text += f", mean of {contest.seeds} seeds {ends}"
    near = [s.scheduler for s in contest.standings if s.separable is False and s is not reference]
    if near:
        text += f"; {listed([best.scheduler, *near])} not separable"
    if contest.speedup(best) < 1.0 + SAME:
        text += f"; none is faster than {contest.best_device} alone"
    return text


def verdict_text(first: str, second: str, result: Comparison) -> str:
    """One scheduler against another: ``heft beats fcfs by 21% [18, 24], P(win) > .99``.

    ``beats`` stands only where the interval leaves 0 out (:attr:`Comparison.verdict`); else they are not separable, or,
    without draws and seeds, nobody can tell. Whoever is ahead comes first.
    """
    if result.estimate < 0:
        return verdict_text(second, first, result.turned)
    by = f"{percent(result.estimate)}{_range(result)}"
    if result.separable:
        text = f"{first} beats {second} by {by}"
    else:
        why = "not separable" if result.separable is False else "no interval: cannot tell"
        text = f"{first} is {by} ahead of {second}, {why}"
    if result.probability is None:
        return text
    if result.separable:
        return f"{text}, P(win) {probability(result.probability, spaced=True)}"
    return f"{text} (P(win) {probability(result.probability)})"


def _range(result: Comparison) -> str:
    if result.interval is None:
        return ""
    return f" [{number(result.interval.low)}, {number(result.interval.high)}]"


def validity_lines(standings: Standings) -> list[str]:
    """In which world the devices were validated: one line, or one for each group of clusters that share it.

    Without a GPU all methods of a cluster share it; a plan over processors and GPUs has its own.
    """
    return validity_by_cluster(
        # The longest says all that shorter ones say.
        (contest.setting.cluster, max((s.validity for s in contest.standings), key=len, default=""))
        for contest in standings.contests
    )


def validity_by_cluster(lines: Iterable[tuple[str, str]]) -> list[str]:
    """One line for each group of clusters that share it, of clusters and their lines."""
    clusters: dict[str, dict[str, None]] = {}
    for cluster, line in lines:
        if line:
            clusters.setdefault(line, {}).setdefault(cluster)
    if len(clusters) < 2:
        return [f"validity: {line}" for line in clusters]
    return [f"validity of {listed([*names])}: {line}" for line, names in clusters.items()]


def as_sentences(texts: Sequence[str]) -> list[str]:
    """Texts that begin with a capital and end with a stop."""
    return [f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in texts if text]


_LABEL = re.compile(r"\((measured|public|datasheet)")


def label_lines(standings: Standings) -> list[str]:
    """What must be known first where devices of different labels are compared, with the interval of the ratio.

    Within a cluster the ratio is of a model on each device alone, the first one's; of clusters whose labels differ from
    the first one's, of the best schedulers on the first model. One line, or none.
    """
    if not standings.contests:
        return []
    first = standings.contests[0]
    found: dict[str, str] = {}
    for contest in standings.contests:
        for part in filter(None, contest.best.compared.split("; ")):
            found.setdefault(part.partition(": ")[0], f"{part} on {contest.model}")
    lines = list(found.values())
    seen = {_labels(first.setting.profiles)}
    for other in standings.contests:
        mine, theirs = (_labels(c.setting.profiles) for c in (first, other))
        same_work = (other.model, other.batch) == (first.model, first.batch)
        if mine and theirs and theirs not in seen and same_work:
            seen.add(theirs)
            lines.append(_clusters_compared(first, mine, other, theirs))
    return [f"different labels are compared: {'; '.join(lines)}"] if lines else []


def _labels(profiles: str) -> str:
    """``datasheet and measured``."""
    found = sorted(set(_LABEL.findall(profiles)))
    return listed(found) if found else ""


def _clusters_compared(a: Contest, a_labels: str, b: Contest, b_labels: str) -> str:
    unknown = dict.fromkeys([*a.interval_without, *b.interval_without])
    ends = f"(nobody knows the error of {', '.join(unknown)})" if unknown else "(no draws)"
    if 0 < len(a.best.draws) == len(b.best.draws) and not unknown:
        around = interval(b.best.draws / a.best.draws)
        ends = f"[{around.low:.2g}, {around.high:.2g}]"
    return (
        f"{b.setting.cluster} ({b_labels}) against {a.setting.cluster} ({a_labels}): "
        f"{b.best.makespan_s / a.best.makespan_s:.2g} {ends} of its time on {b.model}"
    )


def same(contest: Contest, factor: float | None = None, unit: str = "") -> str:
    """Why there is nothing to choose in a contest whose verdict is not None."""
    if factor is None:
        factor, unit = time_unit([contest.best.makespan_s])
    makespan = contest.best.makespan_s * factor
    count, where = len(contest.standings), f"{figure(makespan)} {unit}"
    if contest.spread < 1e-9:
        return f"{count} schedulers all take {where}: {contest.verdict}"
    within = max(math.ceil(1e3 * contest.spread - 1e-9) / 10, 0.1)
    return f"{count} schedulers within {within:g}% of {where}: {contest.verdict}"


def rules(setting: Setting) -> str:
    """How a setting moves data and what else is not as usual: ``push, fifo``."""
    contention = setting.contention if setting.contention != "none" else "no contention"
    parts = [
        setting.workload if setting.workload != "single" else "",
        setting.movement,
        contention,
        f"noise {setting.noise}" if setting.noise != "none" else "",
        f"memory {setting.memory}" if setting.memory != "unlimited" else "",
        f"decisions cost {setting.decision_cost}" if setting.decision_cost != "none" else "",
        setting.cost_model if setting.cost_model not in _USUAL_COST_MODELS else "",
    ]
    return ", ".join(part for part in parts if part)


def cautions(standings: Standings, most: int = 6) -> list[str]:
    """Sentences on cells that are missing or stale; at most ``most`` cells are named."""
    notes = incomplete(standings, most)
    without = sorted({name for contest in standings.contests for name in contest.interval_without})
    if without:
        notes.append(
            f"the interval leaves out the unknown error of {', '.join(without)}: it is too narrow"
        )
    biased = [
        standings.label(contest, True)
        for contest in standings.contests
        if any(standing.biased for standing in contest.standings)
    ]
    if biased:
        notes.append(
            f"makespan outside its own interval ({listed(biased)}): a profile's times are known to be "
            "off to one side; go by the interval"
        )
    left_out = sum(contest.seeds_left_out for contest in standings.contests)
    if left_out:
        notes.append(f"{left_out} seeds left out: not every scheduler of their model finished them")
    notes += [
        f"{standings.label(contest, True)}: {', '.join(contest.absent)} left out, no seed in common "
        "with the rest"
        for contest in standings.contests
        if contest.absent
    ]
    return notes


def incomplete(standings: Standings, most: int = 6) -> list[str]:
    """Which cells of a sweep are missing and which are stale, by name; empty where none is.

    Args:
        standings: of the sweep.
        most: how many are named; the rest is counted.
    """
    notes = []
    if standings.missing:
        done = standings.cells - len(standings.failures)
        notes.append(
            f"not complete: {standings.cells + len(standings.missing)} cells were asked for, {done} are "
            f"done, {len(standings.failures)} failed, {len(standings.missing)} are missing: "
            f"{_first_of(standings.missing, most)}"
        )
    if standings.stale:
        notes.append(
            f"{len(standings.stale)} cells are stale (*), made before something changed: "
            f"{_first_of(standings.stale, most)}"
        )
    return notes


def _first_of(texts: tuple[str, ...], most: int) -> str:
    more = f"; and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + more


def interval_note(standings: Standings) -> str:
    """What the intervals are made of."""
    draws = sorted({contest.draws for contest in standings.contests})
    if not any(draws):
        known = any(s.interval for c in standings.contests for s in c.standings)
        if not known and any(s.span for c in standings.contests for s in c.standings):
            return f"interval: of the mean over the seeds, {METHOD}; no draws"
        return "interval: of each cell's own draws" if known else "no interval: no draws"
    seeds = sorted({contest.seeds for contest in standings.contests})
    each = f"{draws[0]}" if len(draws) == 1 else f"{draws[0]} to {draws[-1]}"
    note = f"interval: predictor error (correlated by kind) + noise, {each} draws"
    if seeds[-1] > 1:
        note += (
            f" pooled over {seeds[-1] if len(seeds) == 1 else f'{seeds[0]} to {seeds[-1]}'} seeds"
        )
    return note
