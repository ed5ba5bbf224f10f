"""``python -m experiments.train_exits``."""

import sys

from experiments.studies.train_exits.command import main

sys.exit(main())
