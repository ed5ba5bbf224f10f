"""Labels as names of files."""

from __future__ import annotations

import re


def file_name(label: str) -> str:
    """A label as part of a file's name."""
    return re.sub(r"[^\w.=,+]+", "_", label).strip("_")
