"""One line for each thing there is."""

import pytest

from experiments import list as listing
from simulator.schedulers import available


def lines(capsys, *words):
    assert listing.main(list(words)) == 0
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_schedulers_have_a_line_each_with_description_and_source(capsys, folder):
    found = lines(capsys, "schedulers", "--wide", "--config-dir", str(folder))
    names = [line.split()[0] for line in found if line]
    assert set(available()) <= {*names, *" ".join(found[-1:]).replace(",", " ").split()}
    heft = next(line for line in found if line.startswith("  heft "))
    assert "10.1109/71.993206" in heft
    assert any("pip install 'hetsim[exact]'" in line for line in found)  # brackets are no markup
    assert any(line.startswith("  mine ") and "all on one" in line for line in found)


def group_of(found, name):
    """The heading above a name's line."""
    at = next(i for i, line in enumerate(found) if line.split()[:1] == [name])
    return next(line for line in reversed(found[:at]) if line.endswith(":") and line[0] != " ")


def test_schedulers_stand_under_their_family_and_the_users_own_last(capsys, folder):
    found = lines(capsys, "schedulers", "--config-dir", str(folder))
    for name, family in (
        ("heft", "list schedulers, static"),
        ("dynamic_heft", "list schedulers, on line"),
        ("min_min", "batch mode: all ready tasks together"),
        ("adon", "the DONF family, on line"),
        ("annealing", "search, static"),
        ("edge/random", "serving requests"),
        ("contention_free", "staged jobs"),
        ("mct", "on line, a task at a time"),
        ("single_device", "base lines"),
        ("mine", "yours"),
    ):
        assert group_of(found, name) == f"{family}:"
    assert [line for line in found if line.endswith(":")][-1] == "yours:"


@pytest.mark.parametrize("what", listing.WHAT)
def test_lists_take_at_most_100_columns_unless_asked_for_more(capsys, what):
    found = lines(capsys, what)
    assert max(map(len, found)) <= 100
    # Nothing is lost to the width.
    wide = " ".join(" ".join(lines(capsys, what, "--wide")).split())
    shown = found if what == "profiles" else found[:-2]
    assert set(" ".join(shown).split()) <= set(wide.split())


def test_models_stand_under_their_domain(capsys):
    found = lines(capsys, "models")
    assert group_of(found, "googlenet") == group_of(found, "multi_exit") == "images:"
    assert group_of(found, "gpt2") == group_of(found, "two_tower_lstm") == "text and sequences:"
    assert group_of(found, "two_tower") == "recommendation:"


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
    assert any(line.split()[:1] == [name] for line in lines(capsys, what))


def test_profiles_say_label_and_errors(capsys, folder):
    shown = lines(capsys, "profiles")
    found = {line.split()[0]: line.split() for line in shown}
    assert found["toy-core"][1:] == ["float32", "3", "unknown", "unknown"]
    for name, label in (
        ("toy-core", "measured by this project's calibrator"),
        ("toy-sheet", "datasheet alone, uncalibrated"),
        ("tesla-t4", "public, fitted to public measurements"),
        ("nvidia-l4", "datasheet alone, uncalibrated"),
    ):
        assert group_of(shown, name) == f"{label}:"


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
