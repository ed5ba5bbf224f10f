"""What a validation is to run: the frozen preset, and the best of a sweep."""

import pytest

torch = pytest.importorskip("torch")

from experiments import sweep  # noqa: E402
from experiments.runs import catalog  # noqa: E402
from experiments.runs.results import load_results  # noqa: E402
from experiments.validation.contestants import plan_grid, plan_sweep_best  # noqa: E402
from simulator.errors import InvalidInput  # noqa: E402

FROZEN = (
    *("googlenet", "inception_v3", "squeezenet1_1", "densenet121", "resnet50", "mobilenet_v2"),
    *("bert_base", "gpt2", "t5_small", "lstm_cells", "gru_cells", "two_tower"),
)
"""A validation whose models change with its results proves nothing."""


def test_the_preset_is_frozen():
    preset = catalog.entry("experiment", "validation")
    assert tuple(preset.content["sweep"]["model"]) == FROZEN
    plan = plan_grid(["experiment=validation", "model=gpt2,googlenet"], ())
    assert [group.model for group in plan.groups] == ["gpt2", "googlenet"]
    assert plan.name == "validation"
    labels = {one.label for one in plan.groups[0].contestants}
    assert len(labels) == 14
    for group in plan.groups:
        assert {(one.label, one.jobs) for one in group.contestants} == {
            (label, jobs) for label in labels for jobs in (1, 4)
        }
        assert group.scenario.cluster.name == "cpu_1x_3x"
    assert len({one.key for group in plan.groups for one in group.contestants}) == plan.cases


def test_the_best_of_every_setting_of_a_sweep(home):
    schedulers = ["single_device", "heft", "olb", "fcfs", "mct"]
    where = ["--config-dir", str(home / "conf"), f"output_dir={home}"]
    words = ["model=tiny", "cluster=here", "name=s", "simulation.draws=0", "workers=1"]
    words += [f"scheduler={','.join(schedulers)}", "model.batch=4,8", "workload=single,concurrent"]
    assert sweep.main([*where, *words]) == 0
    results = load_results(home / "sweeps" / "s")
    plan = plan_sweep_best("s", 2, [f"output_dir={home}"], (home / "conf",))
    assert plan.cases == 2 * 4
    assert [group.model for group in plan.groups] == ["tiny, batch 4", "tiny, batch 8"]
    for group in plan.groups:
        for jobs, workload in ((1, "single"), (4, "concurrent")):
            rows = results[
                (results["batch"] == group.scenario.model.batch) & (results["workload"] == workload)
            ]
            best = rows.sort_values(["makespan_s", "scheduler"])["scheduler"].tolist()[:2]
            assert {one.label for one in group.contestants if one.jobs == jobs} == set(best)
    with pytest.raises(InvalidInput, match=r"There is no sweep with cells in .*t; known: s"):
        plan_sweep_best("t", 2, [f"output_dir={home}"], (home / "conf",))


def test_keys_know_the_profile_and_not_the_number_of_draws(home):
    words = ["model=tiny", "cluster=here", "scheduler=heft"]

    def key(*more):
        (group,) = plan_grid([*words, *more], (home / "conf",)).groups
        return group.contestants[0].key

    assert key("simulation.draws=5") == key("simulation.draws=0")
    assert key("simulation.discrepancy=0.03") == key()
    assert key() != key("scheduler.options.insertion=false")
    assert key() != key("simulation.movement=pull")
