"""One colour, hatch, dash and marker per scheduler, unique within a sweep; a user's own scheduler stands out."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.comparison.names import proper
from experiments.plots.style import (
    COLOURS,
    DASHES,
    HATCHES,
    MARKERS,
    ONE_COLUMN,
    OWN,
    TWO_COLUMNS,
    shorten,
)
from simulator.errors import InvalidInput

MORE_COLOURS = (
    "#332288",  # indigo
    "#661100",  # brown
    "#44AA99",  # teal
    "#999933",  # olive
    "#882255",  # wine
    "#DDCC77",  # sand
    "#117733",  # dark green
    "#555555",  # dark grey
)
"""Tol's muted colours that are none of Okabe and Ito's, for sweeps of more than eight schedulers."""
OWN_COLOUR = "#D6006E"
"""The colour of the first scheduler that a user wrote; no shipped one has it."""
MORE_MARKERS = "<>phd8H"
MOST_LINES = 10
"""Schedulers drawn in colour where lines cross; the rest is grey."""
WIDTHS = {"column": ONE_COLUMN, "page": TWO_COLUMNS}
"""Inches of ``style=``."""

# The order gives colour and hatch; never reorder, only append.
SCHEDULERS = (
    *("heft", "fcfs", "donf", "sufferage", "cpop", "peft", "task_groups", "best device"),
    *("min_min", "olb", "donf2", "lookahead", "max_min", "mct", "met", "single_device"),
    *("sjf", "round_robin", "adon", "pets", "hcpt"),
    *("hsip", "etf", "dls", "mcp"),
    *("edf", "fcfs_batching", "dynamic_batching", "task_groups_plain", "deadline_accuracy"),
    *("deadline_accuracy_edf", "fcfs_own_random", "fcfs_smallest_least_loaded"),
    *("fcfs_own_least_loaded", "edf_earliest_finish", "deadline_accuracy_admission"),
    *("fcfs_own_round_robin", "task_groups_upload", "task_groups_upload_packing"),
    *("task_groups_packing", "task_groups_edge"),
    *("edge/power_of_two", "edge/two_stage_lstm", "edge/least_loaded_2s", "edge/random"),
    *("edge/two_stage_oracle", "edge/least_loaded_500ms", "edge/two_stage_thesis"),
    *("edge/least_loaded",),
)
_PALETTE = COLOURS + MORE_COLOURS
_ROOM = 64
"""Styles from which the hash of an unknown name chooses."""


@dataclass(frozen=True)
class Style:
    """How one scheduler looks in every figure.

    Attributes:
        own: whether the user wrote it: drawn thicker, on top, its name in bold.
    """

    colour: str
    hatch: str
    dash: Any
    marker: str
    own: bool = False

    @property
    def weight(self) -> float:
        """Factor on the widths of lines and the sizes of markers."""
        return 1.5 if self.own else 1.0


def _wish(name: str) -> Style:
    """What a scheduler looks like where no other one has its colour or its marker."""
    if name in SCHEDULERS:
        number = SCHEDULERS.index(name)
    else:
        number = zlib.crc32(name.encode()) % _ROOM
    row, column = divmod(number, len(COLOURS))
    shifted = (column + 3 * row) % len(HATCHES)
    return Style(
        _PALETTE[number % len(_PALETTE)],
        HATCHES[shifted],
        DASHES[(column + row) % len(DASHES)],
        MARKERS[shifted],
    )


def scheduler_styles(names: Iterable[str], own: Iterable[str] = ()) -> dict[str, Style]:
    """A style for each scheduler of one sweep.

    A scheduler of the library has a style of its own in every sweep, any other the one that the hash of its name
    chooses. Where two would share a colour or a marker, the later one in the library's table takes the next free:
    up to 16 schedulers have 16 colours, up to 15 have 15 markers; of up to 128 no two share colour and hatch.

    Args:
        names: all schedulers of the sweep, so that each looks the same in all of its figures.
        own: those that the user wrote; the first has a colour that no other can have.
    """
    own = sorted(set(own) & set(names))
    shipped = {name: number for number, name in enumerate(SCHEDULERS)}
    # The library's before a user's second one, who would take a colour of theirs.
    others = sorted(
        set(names) - set(own[:1]), key=lambda n: (shipped.get(n, len(shipped)), n not in own, n)
    )
    found: dict[str, Style] = {}
    colours: set[str] = set()
    markers: set[str] = set()
    looks: set[tuple[str, str]] = set()
    for name in [*own[:1], *others]:
        wish, mine = _wish(name), name in own
        wished = (OWN_COLOUR if name in own[:1] else wish.colour, *_PALETTE)
        pairs = [(c, h) for c in wished for h in (wish.hatch, *HATCHES) if (c, h) not in looks]
        free = [pair for pair in pairs if pair[0] not in colours] or pairs
        colour, hatch = free[0] if free else (wish.colour, wish.hatch)
        # Shipped schedulers keep their markers, whoever else is there.
        preferred = MORE_MARKERS + MARKERS if mine else wish.marker + MARKERS + MORE_MARKERS
        marker = next((m for m in preferred if m not in markers), wish.marker)
        found[name] = Style(colour, hatch, "-" if mine else wish.dash, marker, mine)
        colours.add(colour)
        markers.add(marker)
        looks.add((colour, hatch))
    return found


@dataclass(frozen=True)
class Look:
    """How the figures of one sweep look.

    Attributes:
        schedulers: all of the sweep.
        own: those that the user wrote.
        inches: width of every figure; None: each figure's usual one.
    """

    schedulers: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    inches: float | None = None

    @classmethod
    def of(cls, style: str | None, schedulers: Iterable[str], own: Iterable[str] = ()) -> Look:
        """The look that ``style=`` asks for.

        Raises:
            InvalidInput: there is no such style.
        """
        if style is not None and style not in WIDTHS:
            known = ", ".join(f"{name} ({inches:g} in)" for name, inches in WIDTHS.items())
            raise InvalidInput(f"There is no style={style}; known: {known}")
        return cls(tuple(schedulers), tuple(own), None if style is None else WIDTHS[style])

    def styles(self, names: Iterable[str]) -> dict[str, Style]:
        """A style for each name, the same in every figure of the sweep."""
        names = list(names)
        found = scheduler_styles({*self.schedulers, *names}, self.own)
        return {name: found[name] for name in names}

    def width(self, usual: float = TWO_COLUMNS) -> float:
        """Inches of a figure that is usually so wide."""
        return self.inches or usual

    @property
    def narrow(self) -> bool:
        """Whether figures are one column wide, whatever is usual."""
        return self.inches is not None and self.inches < TWO_COLUMNS


USUAL = Look()


def told_apart(
    names: Sequence[str], always: Iterable[str] = (), most: int = MOST_LINES
) -> tuple[list[str], list[str]]:
    """Schedulers drawn in colour and those in grey.

    Args:
        names: the best first.
        always: never grey.
        most: in colour.
    """
    kept = [name for name in names if name in set(always)]
    room = max(most - len(kept), 0)
    kept += [name for name in names if name not in kept][:room]
    return [n for n in names if n in kept], [n for n in names if n not in kept]


def grey_note(grey: Sequence[str]) -> str:
    """What a caption says of schedulers in grey."""
    return f"Grey: {len(grey)} more schedulers." if grey else ""


def scheduler_handle(name: str, style: Style, line: bool = True) -> Any:
    """A legend's entry of a scheduler: its line and marker."""
    from matplotlib.lines import Line2D

    return Line2D(
        [],
        [],
        gid=OWN if style.own else None,
        color=style.colour,
        linestyle=style.dash if line else "",
        linewidth=1.2 * style.weight,
        marker=style.marker,
        markersize=4 * style.weight,
        markeredgecolor="black",
        markeredgewidth=0.3,
        label=shorten(proper(name), 34),
    )


def name_rows(axis: Any, names: Sequence[str], styles: dict[str, Style], length: int = 24) -> None:
    """Names of schedulers at the ticks 0, 1, ... of an axis, a user's own in bold."""
    axis.set_ticks(range(len(names)), [shorten(proper(name), length) for name in names])
    # Panels that share the axis of another show no labels.
    for label, name in zip(axis.get_ticklabels(), names, strict=False):
        if name in styles and styles[name].own:
            label.set_fontweight("bold")
