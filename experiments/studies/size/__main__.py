"""``python -m experiments.size``."""

import sys

from experiments.runs.help import answered

if not answered("size"):
    from experiments.studies.size.command import main

    sys.exit(main())
