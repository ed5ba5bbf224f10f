"""The notebooks in ``examples`` run from top to bottom."""

from pathlib import Path

import pytest

nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("torch")
NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def test_there_are_four():
    assert len(NOTEBOOKS) == 4


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    shown = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    assert not [o for o in shown if o.get("name") == "stderr" and "Error" in o["text"]]
