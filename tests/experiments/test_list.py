"""One line for each thing there is."""

import pytest

from experiments import list as listing
from simulator.schedulers import available


def lines(capsys, *words):
    assert listing.main(list(words)) == 0
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_schedulers_have_a_line_each_with_description_and_source(capsys, folder):
    found = lines(capsys, "schedulers", "--config-dir", str(folder))
    names = [line.split()[0] for line in found]
    assert names[0] == "name"
    assert set(available()) <= {*names, *" ".join(found[-1:]).replace(",", " ").split()}
    heft = next(line for line in found if line.startswith("heft "))
    assert "10.1109/71.993206" in heft
    assert any("pip install 'hetsim[exact]'" in line for line in found)  # brackets are no markup
    assert any(line.startswith("mine (yours)") and "all on one" in line for line in found)


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("models", "resnet50"),
        ("clusters", "cpu2_gpu1"),
        ("instances", "topcuoglu"),
        ("families", "daggen"),
    ],
)
def test_other_groups_too(capsys, what, name):
    assert any(line.startswith(name + " ") for line in lines(capsys, what))


def test_profiles_say_label_and_errors(capsys, folder):
    found = {line.split()[0]: line.split() for line in lines(capsys, "profiles")[1:]}
    assert found["toy-core"][1:] == ["measured", "float32", "3", "unknown", "unknown"]
    assert found["toy-sheet"][1] == "datasheet"
    assert found["tesla-t4"][1] == "public"
    assert found["nvidia-l4"][1] == "datasheet"


def test_held_out_error_stands_beside_the_repetition():
    document = {
        "held_out": {"boosted": {"architecture": {"all": {"median": 0.05, "aa_median": 0.01}}}}
    }
    assert listing.held_out_error(document) == (0.05, 0.01)
    assert listing.held_out_error({}) == (None, None)


def test_a_damaged_file_of_the_users_is_named(capsys, folder):
    (folder / "scheduler" / "bad.yaml").write_text("name: [")
    assert listing.main(["schedulers", "--config-dir", str(folder)]) == 2
    assert "bad.yaml" in capsys.readouterr().err
