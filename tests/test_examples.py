"""The notebooks in ``examples`` run from top to bottom."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
shells = pytest.importorskip("IPython.core.interactiveshell")
pytest.importorskip("torch")
NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def test_there_are_four():
    assert len(NOTEBOOKS) == 4


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    """In IPython's shell, which runs and shows cells as a kernel does, in this process."""
    monkeypatch.chdir(tmp_path)
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    shell = shells.InteractiveShell()
    for cell in notebook.cells:
        assert not cell.get("outputs")
        if cell.cell_type == "code":
            shell.run_cell(cell.source, store_history=False).raise_error()
