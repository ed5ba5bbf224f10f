"""``python -m experiments.early_exit``."""

import sys

from experiments.runs.help import answered

if not answered("early_exit"):
    from experiments.studies.early_exit.command import main

    sys.exit(main())
