"""Code that is named by path: which files decide what it does, and that an edited one is imported anew."""

import importlib
import sys

import pytest

from simulator.errors import InvalidInput
from simulator.support import own_code

FILES = {
    "lab/__init__.py": "",
    "lab/core.py": "import json\nimport numpy\nfrom . import near\nfrom lab.deep.far import VALUE\n"
    "import simulator.clock\n\n\nclass Mine:\n    def value(self):\n        import lab.late\n"
    "        return near.VALUE, VALUE, lab.late.VALUE\n",
    "lab/near.py": "VALUE = 1\n",
    "lab/unused.py": "VALUE = 1\n",
    "lab/deep/__init__.py": "from importlib import import_module\nimport_module('lab.named')\n",
    "lab/deep/far.py": "VALUE = 2\n",
    "lab/late.py": "VALUE = 3\n",
    "lab/named.py": "",
}


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A user's package ``lab`` on the path."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "lab"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("pkg.mod.Name", ("", "pkg.mod", "Name")),
        ("pkg.mod:Name", ("", "pkg.mod", "Name")),
        ("some where/file.py:Name", ("some where/file.py", "", "Name")),
        ("heft", None),
        ("0.5ms", None),
        ("file.py:not a name", None),
        ("evil-module.Name", None),
        ("", None),
    ],
)
def test_what_is_a_class_path(text, parts):
    assert own_code.parse(text) == parts


def test_all_own_modules_that_are_imported_count_and_nothing_else(lab):
    """Not the standard library, installed packages, this project, nor what nobody imports."""
    found = own_code.sources("lab.core.Mine")
    assert found[0] == lab / "lab/core.py"
    assert {str(path.relative_to(lab)) for path in found} == {*FILES} - {"lab/unused.py"}
    assert "lab" not in sys.modules
    # The same file by its path: its neighbours by their names are not importable from there.
    assert own_code.sources(f"{lab / 'lab/core.py'}:Mine")[0] == found[0]
    assert own_code.sources("simulator.schedulers.heft.Heft") == []
    assert [path.name for path in own_code.sources("numpy.ndarray")] == ["__init__.py"]
    assert own_code.sources("no.such.Thing") == own_code.sources("heft") == []


@pytest.mark.parametrize("edited", ["lab/core.py", "lab/near.py", "lab/deep/far.py", "lab/late.py"])
def test_an_edited_module_is_imported_anew(lab, edited):
    first = own_code.load("lab.core.Mine", "mine")
    assert first().value() == (1, 2, 3)
    assert own_code.load("lab.core.Mine", "mine") is first
    path = lab / edited
    if edited == "lab/core.py":
        path.write_text(path.read_text().replace("return near.VALUE", "return 7"))
        expected = (7, 2, 3)
    else:
        path.write_text("VALUE = 7\n")
        names = ("lab/near.py", "lab/deep/far.py", "lab/late.py")
        expected = tuple(7 if name == edited else i for i, name in enumerate(names, 1))
    assert own_code.load("lab.core.Mine", "mine")().value() == expected
    assert not list(lab.rglob("*.pyc"))


def test_neighbours_of_equal_names_in_two_folders_are_two(tmp_path):
    for folder, value in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "part.py").write_text(f"VALUE = {value}\n")
        (tmp_path / folder / "mine.py").write_text(
            "from part import VALUE\n\n\ndef mine():\n    return VALUE\n"
        )
    before = list(sys.path)
    try:
        paths = [f"{tmp_path / folder / 'mine.py'}:mine" for folder in ("a", "b", "a")]
        assert [own_code.load(path, "mine")() for path in paths] == [1, 2, 1]
        (tmp_path / "b" / "part.py").write_text("VALUE = 9\n")
        assert [own_code.load(path, "mine")() for path in paths] == [1, 9, 1]
    finally:
        sys.path[:] = before
        sys.modules.pop("part", None)


def test_what_cannot_be_loaded_is_one_sentence(lab):
    (lab / "broken.py").write_text("1 / 0\n")
    for path, sentence in (
        ("heft", "^Scheduler 'x' is neither package.module.Name nor path/to/file.py:Name$"),
        (
            "no.such.Thing",
            "^Cannot import 'no.such' for scheduler 'x': no module named 'no'; for a file",
        ),
        (f"{lab}/absent.py:Thing", "^Scheduler 'x': there is no file .*absent.py$"),
        (
            "lab.core.Other",
            r"^Scheduler 'x': nothing called 'Other' to call there \(there is: Mine\)$",
        ),
        (f"{lab}/broken.py:Thing", "^Scheduler 'x': ZeroDivisionError: division by zero$"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            own_code.load(path, "scheduler 'x'")
    importlib.invalidate_caches()
