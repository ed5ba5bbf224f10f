"""``python -m experiments.size``."""

import sys

from experiments.studies.size.command import main

sys.exit(main())
