"""``python -m experiments.train_exits``."""

import sys

from experiments.runs.help import answered

if not answered("train_exits"):
    from experiments.studies.train_exits.command import main

    sys.exit(main())
