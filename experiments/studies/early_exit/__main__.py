"""``python -m experiments.early_exit``."""

import sys

from experiments.studies.early_exit.command import main

sys.exit(main())
