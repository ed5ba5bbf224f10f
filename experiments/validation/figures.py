"""The figures of a validation: a summary, and tables of cases, repeats, operators and kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.validation.cases import (
    Case,
    KindError,
    ModelValidation,
    Validation,
    against_itself,
    kind_errors,
    repeatability,
)
from experiments.validation.pairs import (
    Pair,
    by_draws,
    kendall_tau,
    pairs,
    regret,
    reliability,
)
from experiments.validation.verdict import verdict
from experiments.validation.waterfall import STEPS

if TYPE_CHECKING:
    import pandas as pd


def figures(validation: Validation) -> dict[str, Any]:
    """Every figure of the report, as ``validation.json`` has them."""
    return {
        "summary": summary(validation),
        "verdict": [
            {
                "what": line.what,
                "reached": line.reached,
                "itself": line.itself,
                "target": line.target,
                "holds": line.holds,
            }
            for line in verdict(validation.cases, against_itself(validation))
        ],
        "reliability": [vars(group) for group in reliability(pairs(validation.cases))],
        "cases": case_frame(validation).to_dict(orient="records"),
        "kinds": kind_frame(validation.models).to_dict(orient="records"),
    }


def summary(validation: Validation) -> dict[str, Any]:
    """The few figures that answer the question."""
    cases = validation.cases
    errors = np.array([case.error for case in cases])
    unseen = np.array([case.unseen_error for case in cases])
    intervals = [case for case in cases if np.isfinite(case.low_s)]
    found = pairs(cases)
    separate = [pair for pair in found if pair.separate]
    told_apart = [pair for pair in found if pair.told_apart]
    losses = list(regret(cases).values())
    slow, slowed, one_factor, without_cold = np.array(
        [
            (
                model.on_average(model.slowness),
                model.on_average(model.slowed),
                model.one_factor,
                model.without_cold,
            )
            for model in validation.models
            for _ in model.cases
        ]
    ).T
    steady = (1 + errors) * slow / slowed - 1
    unscaled = (1 + errors) / slowed - 1
    alike = (1 + errors) * one_factor / slowed - 1
    not_cold = (1 + errors) * without_cold / slowed - 1
    return {
        "cases": len(cases),
        "mean_absolute_error": float(np.abs(errors).mean()),
        "worst_absolute_error": float(np.abs(errors).max()),
        "mean_signed_error": float(errors.mean()),
        "mean_absolute_error_unseen": float(np.abs(unseen).mean()),
        "worst_absolute_error_unseen": float(np.abs(unseen).max()),
        "slowness": float(np.median(slow)),
        "mean_absolute_error_steady": float(np.abs(steady).mean()),
        "mean_signed_error_steady": float(steady.mean()),
        "at_speed": bool(np.allclose(slowed, slow)),
        "mean_absolute_error_unscaled": float(np.abs(unscaled).mean()),
        "mean_signed_error_unscaled": float(unscaled.mean()),
        "mean_absolute_error_one_factor": float(np.abs(alike).mean()),
        "mean_signed_error_one_factor": float(alike.mean()),
        "mean_absolute_error_without_cold": float(np.abs(not_cold).mean()),
        "mean_signed_error_without_cold": float(not_cold.mean()),
        "intervals": len(intervals),
        "covered": sum(case.covered for case in intervals),
        "pairs": len(found),
        "separate_pairs": len(separate),
        "separate_pairs_in_the_same_order": sum(pair.agrees for pair in separate),
        "pairs_told_apart": len(told_apart),
        "pairs_told_apart_in_the_same_order": sum(pair.agrees for pair in told_apart),
        "kendall_tau": kendall_tau(found),
        "mean_regret": float(np.mean(losses)),
        "worst_regret": float(np.max(losses)),
        **_by_draws(cases, separate),
    }


def _by_draws(cases: Sequence[Case], separate: Sequence[Pair]) -> dict[str, Any]:
    """Winners and regret by the means of the draws; nothing where draws were not kept of all cases."""
    if not all(len(case.draws_s) for case in cases):
        return {}
    losses = list(regret(cases, by_draws).values())
    return {
        "separate_pairs_in_the_same_order_by_draws": sum(pair.draws_agree for pair in separate),
        "mean_regret_by_draws": float(np.mean(losses)),
        "worst_regret_by_draws": float(np.max(losses)),
    }


def case_frame(validation: Validation) -> pd.DataFrame:
    """One row a case; errors and steps are shares of the measured makespan."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "model": case.model,
                "jobs": case.jobs,
                "scheduler": case.scheduler,
                "simulated_s": case.simulated_s,
                "low_s": case.low_s,
                "high_s": case.high_s,
                "unseen_s": case.unseen_s,
                "measured_s": case.measured_s,
                "measured_median_s": float(np.median(case.repeats_s)),
                "measured_p90_s": float(np.quantile(case.repeats_s, 0.9)),
                "repeats": len(case.repeats_s),
                "repeatability": repeatability(case, model.statistic),
                "error": case.error,
                "unseen_error": case.unseen_error,
                **{
                    f"{step.replace('-', '_')}_share": case.steps[step] / case.measured_s
                    for step in STEPS
                },
                **case.overhead.to_json(),
            }
            for model in validation.models
            for case in model.cases
        ]
    )


def repeat_frame(cases: Sequence[Case]) -> pd.DataFrame:
    """One row a measured run."""
    import pandas as pd

    rows = [
        (case.model, case.jobs, case.scheduler, number, makespan)
        for case in cases
        for number, makespan in enumerate(case.repeats_s.tolist())
    ]
    return pd.DataFrame(rows, columns=["model", "jobs", "scheduler", "repeat", "makespan_s"])


def operator_frame(models: Sequence[ModelValidation]) -> pd.DataFrame:
    """One row an operator on a device."""
    import pandas as pd

    rows = [
        (
            model.model,
            device,
            operator.name,
            operator.kind,
            model.predicted[number, column],
            model.alone[number, column],
        )
        for model in models
        for column, device in enumerate(model.devices)
        for number, operator in enumerate(model.graph.operators)
    ]
    columns = ["model", "device", "operator", "kind", "predicted_s", "measured_s"]
    return pd.DataFrame(rows, columns=columns)


def kind_frame(models: Sequence[ModelValidation]) -> pd.DataFrame:
    """One row a model, device and kind; ``all`` is every kind of a device together."""
    import pandas as pd

    return pd.DataFrame(
        [{"model": model.model, **vars(row)} for model in models for row in kinds_of(model)]
    )


def kinds_of(model: ModelValidation) -> list[KindError]:
    """Operator errors of a model by device and kind."""
    return kind_errors(model.graph, model.predicted, model.alone, model.devices)
