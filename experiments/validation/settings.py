"""Settings of ``python -m experiments.validate``, and which words of its command line are scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omegaconf import OmegaConf

from experiments.probes.machine_speed import check_speed
from experiments.runs import catalog
from experiments.runs.own_settings import key_of, read_own
from experiments.runs.this_machine import cluster_here
from simulator.errors import InvalidInput
from simulator.model.units import parse_seconds

VERBS = ("recheck", "seal", "check", "table")
"""Settings that ask for something else than measuring and reporting; at most one."""


@dataclass
class ValidateSettings:
    """What ``conf/validate.yaml`` holds; see there."""

    model: str
    scheduler: str
    cluster: list[str]
    warmup: int
    repeats: int
    seconds: float
    budget: str | None
    visits: int
    sweep: str | None
    top: int
    cores: list[int] | None
    limit: float
    held_out: bool
    speed: str
    recheck: str | None
    seal: str | None
    check: str | None
    table: str | None
    sealed_dir: str
    dispatch: str | None
    trust: bool

    def check_values(self) -> None:
        """Refuse numbers that make no validation.

        Raises:
            InvalidInput: names the key.
        """
        if self.warmup < 0 or self.repeats < 2:
            raise InvalidInput(
                f"warmup={self.warmup}, repeats={self.repeats}: give warmup >= 0 and repeats >= 2"
            )
        if not (self.seconds >= 0 and self.limit > 0):
            raise InvalidInput(
                f"seconds={self.seconds}, limit={self.limit}: give seconds >= 0 and limit > 0"
            )
        if self.visits < 1 or self.top < 1:
            raise InvalidInput(f"visits={self.visits}, top={self.top}: give both at least 1")
        if self.budget_s is not None and not self.budget_s > 0:
            raise InvalidInput(f"budget={self.budget}: give a time above 0, like 20min")
        check_speed(self.speed)
        verbs = [verb for verb in VERBS if getattr(self, verb) is not None]
        if len(verbs) > 1:
            raise InvalidInput(f"{verbs[0]}= and {verbs[1]}= are two commands; give one of them")
        if self.dispatch is not None and self.seal is None:
            raise InvalidInput(
                "dispatch= has a meaning with seal=NAME alone; elsewhere it is measured"
            )

        if self.trust and self.recheck is None and self.check is None and self.sweep is None:
            raise InvalidInput("trust=true has a meaning with recheck=, check= or sweep= alone")

    @property
    def dispatch_s(self) -> float | None:
        """The runner's stated overhead per operator in seconds; None: it is measured."""
        return None if self.dispatch is None else parse_seconds(self.dispatch, "dispatch")

    @property
    def budget_s(self) -> float | None:
        """The budget in seconds."""
        return None if self.budget is None else parse_seconds(self.budget, "budget")


def read_settings(overrides: Sequence[str]) -> tuple[ValidateSettings, list[str]]:
    """Settings of the command, and the overrides that describe scenarios, the defaults added.

    Raises:
        InvalidInput: a value of the wrong type or out of range.
    """
    document = OmegaConf.load(catalog.CONF / "validate.yaml")
    settings, rest = read_own(
        ValidateSettings, overrides, document, apart=("model", "scheduler", "cluster")
    )
    settings.check_values()
    named = {key_of(word) for word in rest}
    if any(getattr(settings, verb) is not None for verb in VERBS if verb != "seal"):
        foreign = [word for word in rest if key_of(word) != "output_dir"]
        if foreign:
            raise InvalidInput(f"'{foreign[0]}' has no meaning there: what is run is written down")
        return settings, rest
    if "experiment" not in named and settings.sweep is None:  # these say themselves what is run
        defaults = {"model": settings.model}
        if "partition" not in named:  # which says who executes its plan
            defaults["scheduler"] = settings.scheduler
        rest += [f"{group}={words}" for group, words in defaults.items() if group not in named]
        if "cluster" not in named:
            rest += cluster_here(settings.cluster)
    return settings, rest
