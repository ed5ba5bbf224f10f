"""``python -m experiments.flip``."""

import sys

from experiments.runs.help import answered

if not answered("flip"):
    from experiments.studies.flip.command import main

    sys.exit(main())
