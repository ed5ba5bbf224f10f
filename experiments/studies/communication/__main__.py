"""``python -m experiments.communication``."""

import sys

from experiments.runs.help import answered

if not answered("communication"):
    from experiments.studies.communication.command import main

    sys.exit(main())
