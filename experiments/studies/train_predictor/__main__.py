"""``python -m experiments.train_predictor``."""

import sys

from experiments.runs.help import answered

if not answered("train_predictor"):
    from experiments.studies.train_predictor.command import main

    sys.exit(main())
