"""The examples of docs/architecture.md run, and register what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulator.devices import effects
from simulator.engine import faults
from simulator.links import registry as links
from simulator.memory import registry as memory
from simulator.model import noise

TEXT = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
PARTS = {"halved": links, "throttled": effects, "storm": faults, "most": memory, "doubled": noise}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.split("\n")[0])
def test_an_example_registers_its_part(example: str) -> None:
    exec(compile(example, "architecture.md", "exec"), {})
    (name,) = (name for name in PARTS if f'register("{name}"' in example)
    PARTS[name].unregister(name)


def test_there_is_an_example_of_each_part() -> None:
    assert len(EXAMPLES) == len(PARTS)
