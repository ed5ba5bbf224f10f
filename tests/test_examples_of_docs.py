"""What the tutorial and the how-to pages show: schedulers that run, commands and columns that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hetsim
from experiments.runs.results import COLUMNS, TRAINING_COLUMNS
from hetsim.commands import COMMANDS, main
from hetsim.testing import check_scheduler
from simulator.schedulers import resolve

DOCS = Path(__file__).parents[1] / "docs"
FILE = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def written(page: str, folder: Path) -> None:
    """Write the files that a page shows, each named in its first line."""
    for name, text in FILE.findall((DOCS / page).read_text()):
        (folder / name).write_text(text)


@pytest.fixture
def shown(tmp_path):
    """A class of the files that a page shows."""

    def named(page: str, path: str):
        written(page, tmp_path)
        return resolve(f"{tmp_path}/{path}")

    return named


def test_the_static_example_is_heft(shown):
    page = "how_to/scheduler.md"
    mine = shown(page, "mine.py:MyHeft")
    check_scheduler(mine)
    own = hetsim.simulate("conf/instances/topcuoglu.json", scheduler=mine)
    assert own.makespan_s == 80.0  # Topcuoglu, Hariri, Wu 2002, figure 3
    assert own.explain() == hetsim.simulate("conf/instances/topcuoglu.json").explain()
    text = (DOCS / page).read_text()
    assert "\n".join(own.explain()[:3]) in text


def test_the_on_line_example_keeps_the_protocol(shown):
    check_scheduler(shown("how_to/scheduler.md", "online.py:Patient"))


def test_the_tutorials_scheduler_fails_as_it_says_and_passes_when_mended(shown, tmp_path):
    page = "tutorial.md"
    with pytest.raises(AssertionError) as raised:
        check_scheduler(shown(page, "greedy.py:Greedy"))
    assert " ".join(str(raised.value).split()) in " ".join((DOCS / page).read_text().split())
    mended = tmp_path / "mended.py"
    mended.write_text(
        (tmp_path / "greedy.py").read_text().replace("context.ready", "context.placeable")
    )
    check_scheduler(f"{mended}:Greedy")


def test_every_column_is_described():
    text = (DOCS / "reference" / "columns.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {
        *COLUMNS,
        *TRAINING_COLUMNS,
    }


PAGES = [
    DOCS.parent / "README.md",
    *(DOCS / name for name in ("tutorial.md", "trust.md")),
    *sorted((DOCS / "how_to").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_commands_of_a_page_exist(page):
    blocks = re.findall(r"^```bash\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    used = {name for text in blocks for name in re.findall(r"^hetsim (\w+)", text, re.MULTILINE)}
    assert used <= {*COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_console_command_knows_every_command(name, capsys):
    assert main([name, "--help"]) == 0
    assert f"experiments.{name}" in capsys.readouterr().out
