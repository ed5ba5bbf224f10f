"""Whether the residuals of some architectures cover another one: ``python -m tests.benchmarks.coverage``.

For each architecture of a shipped table: the sum of its operators' measured times against draws around
times predicted without it, the draws being of the residuals of the other architectures alone. In
thirteen architectures the share inside a 90% interval is itself only known within about 8%.
"""

from __future__ import annotations

import sys

import numpy as np

from cost_models import evaluation
from cost_models.fitting import fitted_models
from cost_models.profile import Profile
from cost_models.table import identities
from cost_models.uncertainty import draw_factors, residuals_by_kind

MODEL = "boosted"
DRAWS = 2000
LEVEL = 0.9


def main(name: str) -> None:
    """One line for each architecture, and the share inside the interval."""
    profile = Profile.load(name)
    table = profile.measurements
    assert table is not None
    table = table[table["cache"] == profile.cache].reset_index(drop=True)

    def fit(rows, kinds):  # type: ignore[no-untyped-def]
        return fitted_models(rows, profile.roofline, (MODEL,), only=kinds)[MODEL]

    errors = evaluation.relative_errors(table, evaluation.by_architecture(table, fit))
    same = identities(table)
    inside, total = 0, 0
    logs = []
    print("architecture        operators  measured ms  predicted   5% to 95% of draws")
    for group, rows in errors.groupby("group"):
        others = errors[errors["group"] != group]
        # Kinds that few architectures have borrow from all kinds, as where folds are at hand.
        residuals = residuals_by_kind(others, others)
        predicted, kinds = rows["predicted"].to_numpy(), rows["kind"].tolist()
        identity = same[rows["row"].to_numpy()]
        sums = np.array(
            [
                predicted @ draw_factors(residuals, kinds, identity, np.random.default_rng([0, i]))
                for i in range(DRAWS)
            ]
        )
        measured = float(rows["seconds"].sum())
        low, high = np.quantile(sums, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        inside += low <= measured <= high
        total += 1
        logs.append(np.log(measured / np.median(sums)))
        mark = "" if low <= measured <= high else "  outside"
        print(
            f"{group!s:20}{len(rows):9}  {1e3 * measured:11.2f}  {1e3 * predicted.sum():9.2f}   "
            f"{1e3 * low:.2f} to {1e3 * high:.2f}{mark}",
            flush=True,
        )
    print(
        f"{inside} of {total} inside the {LEVEL:.0%} interval ({inside / total:.0%}); measured over the "
        f"draws' median: mean {np.mean(logs):+.1%}, standard deviation {np.std(logs):.1%}"
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "amd-epyc-1core")
