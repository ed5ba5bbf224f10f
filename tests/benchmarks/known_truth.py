"""What a simulator without error would reach in a saved validation, for the machine does not repeat itself.

    python -m tests.benchmarks.known_truth [FOLDER]

Predicts every case by the statistic over all of its repeats, and holds that against the statistic over as many
drawn from them with replacement. Prints the means over the draws of what the verdict counts. A low quantile of
few repeats differs less between such draws than between measurements, so this is the kinder bound; the other
one, even repeats against odd ones, stands beside the verdict.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

DRAWS = 60


def main(arguments: Sequence[str]) -> int:
    """Print the line."""
    from experiments.validation.cases import statistic_of
    from experiments.validation.pairs import pairs, regret
    from experiments.validation.saved import load_validation

    folder = Path(arguments[0] if arguments else "docs/validation")
    validation, _ = load_validation(folder)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        cases = []
        for model in validation.models:
            for case in model.cases:
                drawn = rng.choice(case.repeats_s, len(case.repeats_s))
                again = float(statistic_of(drawn, model.statistic))
                cases.append(replace(case, simulated_s=case.measured_s, measured_s=again))
        separate = [pair.agrees for pair in pairs(cases) if pair.separate]
        errors = [abs(case.error) for case in cases]
        losses = list(regret(cases).values())
        found.append((np.mean(errors), np.mean(separate), np.mean(losses)))
    error, agreeing, loss = np.mean(found, axis=0)
    print(
        f"{len(validation.cases)} cases, {DRAWS} draws: mean error {error:.1%}, right winner in "
        f"{agreeing:.1%} of the pairs that differ, mean regret {loss:.1%}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
