"""Files that come with the project."""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def find_file(name: str) -> Path:
    """A path relative to the current folder or, if nothing is there, to the project's."""
    path = Path(name).expanduser()
    shipped = CHECKOUT / path
    return shipped if not path.exists() and shipped.exists() else path
