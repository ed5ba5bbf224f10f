"""Labels as names of files, and names that people give to folders."""

from __future__ import annotations

import re
import zlib

from simulator.errors import InvalidInput

LONGEST = 80
"""Characters of a name; file systems take 255 bytes for all that it becomes a part of."""

_NAME = re.compile(r"(?!\.+$)[\w.=+-]+")


def file_name(label: str) -> str:
    """A label as part of a file's name, which leads into no other folder."""
    name = re.sub(r"[^\w.=,+]+", "_", label).strip("_").lstrip(".")
    if len(name) > LONGEST:
        name = f"{name[: LONGEST - 9]}_{zlib.crc32(label.encode()):08x}"
    return name or "unnamed"


def own_folder(name: str) -> str:
    """A name as that of a folder: itself where it can be, else as :func:`file_name` has it."""
    return name if _NAME.fullmatch(name) and len(name) <= LONGEST else file_name(name)


def folder_name(key: str, name: str) -> str:
    """A name that is to be a folder's, as it is.

    Args:
        key: the setting that gave it.
        name: what it says.

    Raises:
        InvalidInput: it would lead elsewhere, or is no name for a folder.
    """
    if not _NAME.fullmatch(name) or len(name) > LONGEST:
        raise InvalidInput(
            f"{key}={name} names a folder: letters, digits and . _ - = + only, not dots alone, at most "
            f"{LONGEST} characters"
        )
    return name
