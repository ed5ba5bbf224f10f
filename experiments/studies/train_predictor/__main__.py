"""``python -m experiments.train_predictor``."""

import sys

from experiments.studies.train_predictor.command import main

sys.exit(main())
