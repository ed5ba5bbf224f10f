"""Commands: ``hetsim simulate ...`` is ``python -m experiments.simulate ...``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from experiments.runs.help import COMMANDS, answered
from simulator.errors import HetsimError


def main(arguments: Sequence[str] | None = None) -> int:
    """The console command ``hetsim``; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return 0
    name = words[0]
    if name not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(name, COMMANDS, n=1)
        hint = f"Nearest: {near[0]}. " if near else ""
        print(f"There is no command '{name}'. {hint}Known: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    if answered(name, words[1:]):
        return 0
    study = f"experiments.studies.{name}"
    home = f"{study}.command" if importlib.util.find_spec(study) else f"experiments.{name}"
    code: int = importlib.import_module(home).main(words[1:])
    return code


def _help() -> str:
    lines = [
        "usage: hetsim COMMAND [key=value ...]    (hetsim COMMAND --help says more)",
        "",
        *(
            line
            for name, said in COMMANDS.items()
            for line in wrap(
                said.about, 98, initial_indent=f"  {name:<18}", subsequent_indent=" " * 20
            )
        ),
        "",
        "examples:",
        "  hetsim simulate model=inception_v3 cluster=cpu2_gpu1 scheduler=heft",
        "  hetsim sweep name=paper1 model=googlenet,bert_base scheduler=heft,donf,fcfs",
    ]
    return "\n".join(lines)


def calibrate(device: str = "cpu", budget: str = "15min", out: str | Path | None = None) -> Path:
    """Measure a device of this machine and fit its profile.

    Args:
        device: ``cpu`` or ``cuda:0``.
        budget: of measuring, like ``15min``; fitting takes a few minutes more. An interrupted calibration goes on
            where it stopped.
        out: its folder; None: a new one in ``outputs/calibration``.

    Returns:
        The calibration's folder; ``profile/`` in it is what a cluster may name.

    Raises:
        HetsimError: the device cannot be measured.
    """
    from experiments import calibrate as command

    named = f"{device.replace(':', '')}-{time.strftime('%Y%m%d_%H%M%S')}"
    folder = Path("outputs", "calibration", named) if out is None else Path(out).expanduser()
    words = [f"device={device}", f"budget={budget}", f"out={folder}"]
    if command.main(words):
        raise HetsimError(f"calibrate {' '.join(words)} did not finish; what it printed says why")
    return folder


if __name__ == "__main__":
    sys.exit(main())
