"""Pictures that a notebook shows and that lie in files for a paper."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


class Picture:
    """A figure as files: a PDF with embedded fonts, a PNG, the drawn data as CSV, and its caption.

    A notebook shows the PNG.

    Attributes:
        paths: of the files.
        caption: what is drawn, of how much data, and by which statistic.
    """

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        texts = [path for path in paths if path.suffix == ".txt"]
        self.caption = texts[0].read_text().strip() if texts else ""

    @property
    def png(self) -> Path:
        """The path of the PNG."""
        return next(path for path in self.paths if path.suffix == ".png")

    def __repr__(self) -> str:
        return f"<Picture {', '.join(str(path) for path in self.paths)}>"

    def _repr_png_(self) -> bytes:
        return self.png.read_bytes()


def drawn(draw: Callable[[Path], list[Path]], stem: str | Path | None, name: str) -> Picture:
    """A picture that a function draws to a path without suffix.

    Args:
        draw: gets the path, returns those of its files.
        stem: where to; None: a new temporary folder.
        name: of the files there.
    """
    if stem is None:
        folder = Path(tempfile.mkdtemp(prefix="hetsim-"))
        try:
            return Picture(draw(folder / name))
        except BaseException:
            shutil.rmtree(folder)
            raise
    stem = Path(stem).expanduser()
    stem = stem.with_suffix("") if stem.suffix in (".pdf", ".png") else stem
    stem.parent.mkdir(parents=True, exist_ok=True)
    return Picture(draw(stem))
