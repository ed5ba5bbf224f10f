"""``python -m experiments.shop_policy``."""

import sys

from experiments.studies.shop_policy.command import main

sys.exit(main())
