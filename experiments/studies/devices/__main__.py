"""``python -m experiments.devices``."""

import sys

from experiments.runs.help import answered

if not answered("devices"):
    from experiments.studies.devices.command import main

    sys.exit(main())
