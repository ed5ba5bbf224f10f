"""``python -m experiments.flip``."""

import sys

from experiments.studies.flip.command import main

sys.exit(main())
