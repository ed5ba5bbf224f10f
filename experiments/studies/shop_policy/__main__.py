"""``python -m experiments.shop_policy``."""

import sys

from experiments.runs.help import answered

if not answered("shop_policy"):
    from experiments.studies.shop_policy.command import main

    sys.exit(main())
