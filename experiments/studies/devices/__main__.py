"""``python -m experiments.devices``."""

import sys

from experiments.studies.devices.command import main

sys.exit(main())
