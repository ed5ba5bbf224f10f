"""The methods paragraph: what varied is never said to be fixed, what was fixed is said."""

import copy

import pytest

from experiments.comparison.leaderboard import standings
from experiments.comparison.methods import Recorded, methods, read_cells
from experiments.comparison.pairs import compare_pairs
from tests.experiments.synthetic_sweep import grid_rows

DOCUMENT = {
    "status": "done",
    "labels": {"scheduler": "heft"},
    "config": {
        "model": {
            "name": "daggen",
            "batch": 1,
            "parameters": {"ccr": 0.1, "fat": 0.5},
            "description": "for people",
            "target": "x.y",
        },
        "cluster": {"name": "c"},
        "workload": {"name": "single", "jobs": 1},
        "scheduler": {"name": "heft", "options": {"insertion": True}, "source": "Topcuoglu 2002"},
        "simulation": {
            "movement": "push",
            "contention": "fifo",
            "noise": "none",
            "memory": "unlimited",
            "weights": "resident",
            "draws": 0,
            "horizon": None,
            "faults": [],
        },
        "seed": {"workload": 0, "noise": 0, "search": 0},
        "strict": False,
    },
    "versions": {"hetsim": "0.1.0", "python": "3.11.7", "numpy": "2.4.6"},
    "revision": "0123456789abcdef",
    "profiles": [{"name": "amd-epyc-25-17-1core", "label": "measured", "digest": "d1"}],
    "key": {"code": "c1"},
}


def changed(*path_values):
    document = copy.deepcopy(DOCUMENT)
    for path, value in path_values:
        *parents, last = path.split("/")
        node = document
        for key in parents:
            node = node[key]
        node[last] = value
    return document


def recorded(*documents):
    found = Recorded()
    for document in documents:
        found.add(document)
    found.settle()
    return found


def paragraph(*documents, axes=None, seeds=(0,)):
    axes = {"scheduler": ["heft", "donf"], **(axes or {})}
    table = standings(*grid_rows(lambda *_: 1.0, axes, seeds))
    return methods(recorded(*documents), table, compare_pairs(table.instances))


def test_what_was_fixed_is_said():
    text = paragraph(DOCUMENT, changed(("config/seed/workload", 1)), seeds=(0, 1))
    for part in (
        "hetsim 0.1.0 (commit 0123456789ab), Python 3.11.7, numpy 2.4.6.",
        "Models: daggen (batch 1, ccr 0.1, fat 0.5).",
        "Clusters: c (2x amd-epyc-25-17-1core (measured)).",
        "measured: measured by this project's calibrator) (boosted cost model).",
        "movement push",
        "contention first-in-first-out queues on links",
        "memory unlimited",
        "no noise beyond the estimates",
        "heft (insertion=true)",
        "heft: Topcuoglu 2002",
        "Seeds: workload 0 and 1, noise and draws 0, search 0; 2 paired seeds",
        "means of random subsets, Hartigan (1969), seed 0",
        "Bonferroni corrected over 1 tests at 0.05",
    ):
        assert part in text, part
    assert "varied" not in text
    assert "for people" not in text


@pytest.mark.parametrize(
    ("path", "value", "fixed", "both"),
    [
        ("config/model/parameters/ccr", 10, "ccr 0.1,", "ccr 0.1 and 10"),
        (
            "config/simulation/memory",
            "limited",
            "memory unlimited;",
            "memory varied: unlimited and limited",
        ),
        ("config/simulation/horizon", "2s", "horizon 2s", 'horizon varied: null and "2s"'),
        ("config/seed/search", 5, "search 0;", "search 0 and 5"),
        ("config/strict", True, "strict true.", "strict varied: false and true"),
        (
            "config/scheduler/options",
            {"insertion": False},
            "x",
            "(insertion=true) (insertion=false)",
        ),
        ("versions/numpy", "2.5.0", "numpy 2.4.6.", "numpy 2.4.6 or 2.5.0"),
        (
            "revision",
            "fedcba9876543210+",
            "(commit ",
            "commits 0123456789ab, fedcba987654 with changes",
        ),
        ("key/code", "c2", "x", "made with 2 states of the code"),
        ("config/workload/jobs", 9, "jobs 1)", "jobs 1 and 9"),
    ],
)
def test_what_varied_is_never_claimed_as_fixed(path, value, fixed, both):
    text = paragraph(DOCUMENT, changed((path, value)))
    assert both in text
    assert fixed == "x" or fixed not in text


def test_labels_of_the_results_vary_too():
    text = paragraph(axes={"simulation.contention": ["none", "fifo"]})
    assert (
        "contention varied: no contention on links and first-in-first-out queues on links" in text
    )
    assert "versions and parameters are not stated" in text


def test_profiles_of_one_name_that_were_fitted_twice():
    other = changed(
        ("profiles", [{"name": "amd-epyc-25-17-1core", "label": "measured", "digest": "d2"}])
    )
    assert "Not every cell used the same fit of amd-epyc-25-17-1core." in paragraph(DOCUMENT, other)
    assert "Not every cell" not in paragraph(DOCUMENT, DOCUMENT)


def test_two_sweeps_do_not_share_a_paragraph():
    one = paragraph(DOCUMENT)
    other = paragraph(changed(("config/model/parameters/ccr", 10)))
    assert "ccr 0.1" in one
    assert "ccr 0.1" not in other
    assert "ccr 10" in other


def test_cells_without_a_record_are_said(tmp_path):
    import json

    for name, text in (
        ("a", json.dumps(DOCUMENT)),
        ("b", "{broken"),
        ("c", '{"status": "failed"}'),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(text)
    found = read_cells(tmp_path, ["a", "b", "c", "d"])
    assert found.cells == 1
    table = standings(*grid_rows(lambda *_: 1.0, {"scheduler": ["heft", "donf"]}, (0,)))
    text = methods(found, table, None)
    assert "2 of 2 runs finished. What 1 of them were made with is not recorded any more." in text
    assert "Hartigan" not in text
