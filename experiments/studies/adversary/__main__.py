"""``python -m experiments.adversary``."""

import sys

from experiments.studies.adversary.command import main

sys.exit(main())
