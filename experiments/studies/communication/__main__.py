"""``python -m experiments.communication``."""

import sys

from experiments.studies.communication.command import main

sys.exit(main())
