"""``python -m experiments.adversary``."""

import sys

from experiments.runs.help import answered

if not answered("adversary"):
    from experiments.studies.adversary.command import main

    sys.exit(main())
