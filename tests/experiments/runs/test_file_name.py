"""Names stay in their folders."""

import pytest

from experiments.runs.file_name import LONGEST, file_name, folder_name, own_folder
from simulator.errors import InvalidInput

WRONG = ["", ".", "..", "...", "../x", "/x", "a/b", "a\\b", "a\0b", "a b", "x" * 300]


@pytest.mark.parametrize("name", WRONG)
def test_a_folder_is_not_given_such_a_name(name):
    with pytest.raises(InvalidInput, match="names a folder: letters, digits and"):
        folder_name("name", name)


@pytest.mark.parametrize("name", ["paper1", "v1.2", ".hidden", "a=b", "x" * LONGEST])
def test_a_folders_name_is_kept(name):
    assert folder_name("name", name) == own_folder(name) == name


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("named", [file_name, own_folder])
def test_a_label_becomes_one_name(tmp_path, name, named):
    path = tmp_path / named(name)
    path.mkdir()
    assert path.resolve().parent == tmp_path
    assert path.name not in ("", ".", "..")
    assert len(path.name) <= LONGEST


def test_long_labels_that_differ_stay_apart():
    assert file_name("x" * 200 + "a") != file_name("x" * 200 + "b")
