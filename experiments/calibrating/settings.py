"""What may be set of a calibration, and what of it cannot be."""

from __future__ import annotations

from dataclasses import dataclass, field

from scenarios.model_config import ModelConfig
from simulator.errors import InvalidInput

STEPS = ("measure", "fit", "all", "plan")
MODELS = ("boosted",)
"""Cost models that a profile is fitted with unless others are asked for: they can be later, with ``step=fit``."""


@dataclass
class CalibrateConfig:
    """What may be set.

    Attributes:
        device: ``cpu`` or ``cuda:<index>``.
        budget: how long to measure, such as ``5min``.
        step: ``measure``, ``fit``, or ``all``; with ``settle`` also ``plan``, which measures nothing.
        out: folder to begin or to go on with; null makes a new one.
        base: with ``step=fit``: a profile whose measurements are fitted again, with other models say.
        name: the profile's name; null makes it from the device.
        start: a similar device's profile to start from, measured, public or of a datasheet: with it a
            budget of a minute goes a long way (``cost_model=adapted``).
        active: measure next where the cost model is least sure (:mod:`experiments.calibrating.active`); null does
            so for ``step=all`` and a budget above 8 minutes, unless ``operators`` says what to measure.
        model: a model whose operators are all measured, besides the project's own set, at the batch
            sizes ``batches``; null for none.
        operators: an operators file to measure instead of the project's set; ``training`` names the
            project's operators of training steps.
        only: of the folder ``out`` that was begun, measure those of ``model`` and of the file ``operators``
            alone on; the others are kept.
        training: measure those besides, also in a folder that was begun without them.
        settle: a sweep's or a run's folder: measure what tells two of its schedulers apart, within the
            budget, and compare them again.
        pair: with ``settle``: labels of the two; of a sweep the best and the first that is not separable
            from it unless given.
        contest: with ``settle``: which of the sweep's, by its label or model; the first open one unless
            given.
        trust: with ``settle``: run code that the sweep's or run's folder names, and nothing else does.
        operators_at_most: measure no more than so many; null lets the budget decide.
        dtypes: element types to measure operators of float32 in, of ``float32, tf32, float16,
            bfloat16`` (``tf32`` on CUDA devices); each counts as an operator of its own.
        cores: the cores to measure on, one a thread; null takes the last.
        threads: intra-op threads.
        rounds: visits of each process to every operator, if the budget is not used up before; null
            fills the budget.
        states: cache states, of ``graph,warm,cold`` and on GPUs ``awaited``; null takes the device's usual ones.
        cache: the state that the profile prices; null takes ``graph`` if that was measured. ``awaited`` makes one of
            operators that are launched and awaited, as the hardware runner executes them.
        repeat_kernel: kernel runs in one call: 3 makes an honest device of a third the speed.
        statistic: ``minimum``, ``p10`` or ``median`` of an operator's samples.
        models: cost models to fit.
        seed: of shuffles, data and trees.
    """

    device: str = "cpu"
    budget: str = "15min"
    step: str = "all"
    out: str | None = None
    base: str | None = None
    name: str | None = None
    start: str | None = None
    active: bool | None = None
    model: ModelConfig | None = None
    batches: list[int] = field(default_factory=lambda: [1, 2, 4, 8])
    operators: str | None = None
    only: bool = False
    training: bool = False
    settle: str | None = None
    pair: list[str] | None = None
    contest: str | None = None
    trust: bool = False
    operators_at_most: int | None = None
    dtypes: list[str] = field(default_factory=lambda: ["float32"])
    cores: list[int] | None = None
    threads: int = 1
    rounds: int | None = None
    states: str | None = None
    cache: str | None = None
    repeat_kernel: int = 1
    statistic: str = "p10"
    models: list[str] = field(default_factory=lambda: list(MODELS))
    seed: int = 0
    output_dir: str = "outputs"
    description: str = ""

    def check(self) -> None:
        """Refuse what cannot be done.

        Raises:
            InvalidInput: names the key and what is known.
        """
        from calibration.summary import STATISTICS
        from cost_models.model import model_class

        for key, value, known in (
            ("step", self.step, STEPS),
            ("statistic", self.statistic, tuple(STATISTICS)),
        ):
            if value not in known:
                raise InvalidInput(f"There is no {key}={value}; known: {', '.join(known)}")
        if self.settle is None:
            for key in ("pair", "contest"):
                if getattr(self, key) is not None:
                    raise InvalidInput(f"{key}= goes with settle=<folder of a sweep>")
            if self.trust:
                raise InvalidInput("trust=true goes with settle=<folder of a sweep>")
            if self.step == "plan":
                raise InvalidInput("step=plan goes with settle=<folder of a sweep>")
        elif self.model is not None or self.operators is not None or self.base is not None:
            raise InvalidInput(
                "settle= chooses the operators and profiles itself; leave model=, operators= and base= out"
            )
        elif self.step == "fit" and self.out is None:
            raise InvalidInput("step=fit needs out=<folder>, the one that settle= measured into")
        if self.step == "fit" and self.out is None and self.base is None:
            raise InvalidInput(
                "step=fit needs out=<folder>, the folder of a measuring run, or base=<profile>"
            )
        if self.base is not None and self.step != "fit":
            raise InvalidInput("base=<profile> is fitted again: it goes with step=fit")
        if self.only and (self.out is None or (self.model is None and self.operators is None)):
            raise InvalidInput(
                "only=true goes on with some operators of a folder: give it (out=) and model= or operators="
            )
        for name in self.models:
            model_class(name)
        if self.start is not None:
            from cost_models.profile import Profile

            Profile.load(self.start)  # refuses an unknown one
        elif "adapted" in self.models:
            raise InvalidInput(
                "models=[adapted] needs start=<profile>, the device to start from, such as "
                "start=tesla-t4"
            )
        if self.operators_at_most is not None and self.operators_at_most < 1:
            raise InvalidInput("operators_at_most is at least 1")
