"""``python -m experiments.strategies``."""

import sys

from experiments.studies.strategies.command import main

sys.exit(main())
