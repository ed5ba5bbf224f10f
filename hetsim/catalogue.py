"""What there is to choose from, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def _entries(group: str, config_dirs: Sequence[str | Path]) -> pd.DataFrame:
    import pandas as pd

    from experiments.runs import catalog

    folders = tuple(Path(folder).expanduser().resolve() for folder in config_dirs)
    rows = [(e.name, e.description, e.source) for e in catalog.entries(group, folders)]
    return pd.DataFrame(rows, columns=["name", "description", "source"]).set_index("name")


def schedulers(config_dirs: Sequence[str | Path] = ()) -> pd.DataFrame:
    """The schedulers by name: description and source.

    Args:
        config_dirs: folders of your own configs.

    Example:
        >>> import hetsim
        >>> "heft" in hetsim.schedulers().index
        True
    """
    return _entries("scheduler", config_dirs)


def models(config_dirs: Sequence[str | Path] = ()) -> pd.DataFrame:
    """The shipped models by name; see :func:`schedulers`."""
    return _entries("model", config_dirs)


def clusters(config_dirs: Sequence[str | Path] = ()) -> pd.DataFrame:
    """The shipped clusters by name; see :func:`schedulers`."""
    return _entries("cluster", config_dirs)


def devices() -> pd.DataFrame:
    """The profiles of devices by name.

    Returns:
        Columns ``label`` (``measured``, ``public`` or ``datasheet``), ``dtypes``, ``held_out_error`` (the median
        relative error on architectures left out of the fit; NaN where unknown) and ``aa_error`` (of a repeated
        measurement).

    Example:
        >>> import hetsim
        >>> hetsim.devices().loc["tesla-t4", "label"]
        'public'
    """
    import pandas as pd

    from cost_models.profile_files import available
    from experiments.list import held_out_error

    rows = []
    for name, entry in sorted(available().items()):
        held_out, floor = held_out_error(entry.document)
        dtypes = ", ".join(entry.document.get("dtypes", []))
        rows.append((name, entry.label, dtypes, held_out, floor))
    columns = ["name", "label", "dtypes", "held_out_error", "aa_error"]
    return pd.DataFrame(rows, columns=columns).set_index("name")
