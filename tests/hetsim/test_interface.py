"""The Python interface: objects where commands take names, the same results, readable answers."""

import subprocess
import sys

import pandas as pd
import pytest

import hetsim
from experiments.runs.catalog import CONF
from experiments.runs.cell import run_scenario
from hetsim.testing import check_scheduler

torch = pytest.importorskip("torch")
SHIPPED = "two_tower"
CLUSTER, DRAWS = "cpu_1x_3x", {"simulation.draws": 10}


class Greedy(hetsim.Scheduler):
    """Every ready task at once to the device that would be free first."""

    def decide(self, context):
        for task in [*context.ready, *context.lost]:
            seconds = context.seconds(task)
            able = [d for d, s in enumerate(seconds) if s < float("inf")]
            context.place(task, min(able, key=lambda d: (context.available(d) + seconds[d], d)))


class Net(torch.nn.Module):
    def __init__(self, branches=5):
        super().__init__()
        self.branches = torch.nn.ModuleList(torch.nn.Linear(256, 512) for _ in range(branches))

    def forward(self, x):
        return torch.cat([torch.relu(branch(x)) for branch in self.branches], 1)


@pytest.fixture(scope="module")
def result():
    model, x = Net(), torch.ones(64, 256)
    schedulers = ["heft", ("donf", {"pricing": "per_edge"}), "round_robin", Greedy]
    return hetsim.compare(model, CLUSTER, schedulers, inputs=[x], settings=DRAWS)


def test_a_module_and_a_class_are_compared_like_shipped_ones(result):
    table = result.table()
    assert set(table["scheduler"]) == {"heft", "donf(pricing=per_edge)", "round_robin", "Greedy"}
    assert list(table.columns[:4]) == ["model", "batch", "scheduler", "rank"]
    assert (table["model"] == "Net").all()
    assert result.baseline == "Greedy"
    assert result.verdict.splitlines()[-1].startswith("Net")
    assert "validated" in result.validity
    assert result["heft"].scheduler == "heft"
    with pytest.raises(KeyError, match=r"Greedy"):
        result["nothing"]


def test_what_a_module_gives_is_what_its_graph_and_its_file_give(result, tmp_path):
    import json

    graph = hetsim.trace(Net(), (torch.ones(64, 256),), name="Net")
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(graph.to_json()))
    for model in (graph, path):
        run = hetsim.simulate(model, CLUSTER, "heft", settings=DRAWS)
        assert run.makespan_s == result["heft"].makespan_s
        assert run.interval_s == result["heft"].interval_s


def test_a_result_shows_itself(result, tmp_path):
    text, html = repr(result), result._repr_html_()
    assert "Greedy" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "<table>" in html
    assert "Greedy" in html
    picture = result.plot(tmp_path / "figure.pdf")
    assert (tmp_path / "figure.pdf").exists()
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert "lower bound" in picture.caption
    run = result["heft"]
    assert "Net on cpu_1x_3x with heft" in repr(run)
    assert run.table().to_html(index=False) in run._repr_html_()


def test_a_run_says_why_devices_are_idle(result, tmp_path):
    run = result["heft"]
    idle = run.why_idle()
    for device, rows in idle.groupby("device"):
        assert rows["share"].sum() == pytest.approx(1)
        assert rows["seconds"].is_monotonic_decreasing
        busy = run.table().set_index("device").loc[device, "busy_s"]
        assert rows["seconds"].sum() + busy == pytest.approx(run.trace.end)
    with pytest.raises(hetsim.InvalidInput, match="no device 'gpu'; this cluster has"):
        run.why_idle("gpu")
    assert len(run.tasks()) == len(run.trace.executions["task"])
    assert run.explain()
    assert run.perfetto(tmp_path / "trace.json").stat().st_size


def test_a_command_gives_the_same(tmp_path):
    from experiments.runs.grid import compose_grid

    words = [f"model={SHIPPED}", f"cluster={CLUSTER}", "scheduler=donf", "simulation.draws=0"]
    [cell] = compose_grid(words).cells
    run = hetsim.simulate(SHIPPED, CLUSTER, "donf", settings={"simulation.draws": 0})
    assert run.makespan_s == run_scenario(cell.scenario).figures["makespan_s"]


def test_a_cluster_is_a_name_a_file_a_mapping_or_what_was_read(tmp_path):
    path = CONF / "cluster" / f"{CLUSTER}.yaml"
    read = hetsim.load_cluster(path)
    spans = {
        hetsim.simulate(SHIPPED, cluster, "heft", settings={"simulation.draws": 0}).makespan_s
        for cluster in (CLUSTER, path, str(path), read)
    }
    assert len(spans) == 1
    (tmp_path / "broken.yaml").write_text("name: x\ndevices: {a: {profil: b}}\n")
    with pytest.raises(hetsim.InvalidInput, match=r"broken.yaml is no cluster: .*profil"):
        hetsim.load_cluster(tmp_path / "broken.yaml")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"model": "resnet5"}, "Nearest: resnet50"),
        ({"model": "none.json"}, "There is no file none.json"),
        ({"model": 3}, "not a int"),
        ({"model": Net()}, "Net is a module: give example inputs"),
        ({"model": "googlenet", "inputs": [1]}, "brings its own"),
        ({"cluster": "cpu_1"}, "No cluster 'cpu_1'"),
        ({"scheduler": "hefd"}, "Nearest: heft"),
        ({"scheduler": Net}, "Net is neither"),
        ({"scheduler": ("heft", {"nothing": 1})}, "nothing"),
        ({"settings": {"simulation.drows": 3}}, r"simulation.drows.*Nearest: simulation.draws"),
        ({"settings": {"scheduler": "donf"}}, "scheduler is an argument of its own"),
        (
            {"model": hetsim.trace(Net(), (torch.ones(4, 256),)), "settings": {"model.batch": 8}},
            "settings cannot change model.batch, since the model is an object",
        ),
        (
            {
                "cluster": hetsim.load_cluster(CONF / "cluster" / "cpu2.yaml"),
                "settings": {"cluster.devices.a.count": 2},
            },
            "settings cannot change cluster.devices.a.count, since the cluster is an object",
        ),
    ],
)
def test_bad_input_is_one_sentence(given, says):
    arguments = {"model": SHIPPED, "cluster": CLUSTER, "scheduler": "heft", **given}
    with pytest.raises(hetsim.InvalidInput, match=says) as caught:
        hetsim.simulate(**arguments)
    assert "\n" not in str(caught.value)


def test_what_there_is(tmp_path):
    assert "heft" in hetsim.schedulers().index
    assert "googlenet" in hetsim.models().index
    assert CLUSTER in hetsim.clusters().index
    assert set(hetsim.devices()["label"]) == {"measured", "public", "datasheet"}
    assert isinstance(hetsim.devices(), pd.DataFrame)


def test_importing_takes_nothing_and_tab_shows_all():
    code = (
        "import sys, hetsim; print(sorted(dir(hetsim)) == sorted(hetsim.__all__), "
        "[m for m in ('torch', 'pandas', 'numpy', 'hydra', 'simpy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n"
    for name in hetsim.__all__:
        assert getattr(hetsim, name).__doc__


def renamed(kind, device):
    """Another class of the same name, which puts everything on one device."""

    class Greedy(kind):
        name = "" if device is None else "mine"

        def decide(self, context):
            for task in context.placeable:
                context.place(task, device or 0)

    return Greedy


def test_two_classes_of_one_name_are_two_schedulers():
    kinds = [renamed(Greedy, 1), Greedy]
    result = hetsim.compare(SHIPPED, CLUSTER, kinds, settings={"simulation.draws": 0})
    slow, fast = (result[name].makespan_s for name in ("mine", "Greedy"))
    assert slow > 1.5 * fast
    with pytest.raises(hetsim.InvalidInput, match="Two schedulers are called 'Greedy'"):
        hetsim.compare(
            SHIPPED,
            CLUSTER,
            [renamed(Greedy, None), Greedy],
            settings={"simulation.draws": 0},
        )


# -- the test kit -------------------------------------------------------------------------------


def test_a_good_scheduler_passes():
    assert len(check_scheduler(Greedy)) == 7
    check_scheduler("heft")
    check_scheduler("donf", pricing="per_edge")


class Forgets(Greedy):
    """Leaves the last task where it is."""

    def decide(self, context):
        for task in context.ready:
            if task % 24 != 23:
                seconds = context.seconds(task)
                context.place(task, seconds.index(min(seconds)))


class Remembers(Greedy):
    """Its class keeps what earlier runs did."""

    seen: list = []  # noqa: RUF012 - the mistake

    def begin(self, context):
        self.seen.append("begun")

    def decide(self, context):
        for task in [*context.ready, *context.lost]:
            able = [d for d, s in enumerate(context.seconds(task)) if s < float("inf")]
            context.place(task, able[len(self.seen) % len(able)])
            self.seen.append(task)


class SaysStatic(Greedy):
    static = True


class Breaks(Greedy):
    def decide(self, context):
        raise ZeroDivisionError("mine")


class LosesWhatFails(Greedy):
    """Places each task once and never again."""

    def begin(self, context):
        self.placed = set()

    def decide(self, context):
        for task in context.ready:
            if task not in self.placed:
                self.placed.add(task)
                seconds = context.seconds(task)
                context.place(task, min(range(len(seconds)), key=lambda d: (seconds[d], d)))


@pytest.mark.parametrize(
    ("kind", "check", "why"),
    [
        (Forgets, "finishes under every rule", "never placed"),
        (Remembers, "repeats itself", "state of the class"),
        (SaysStatic, "finishes under every rule", "never placed"),
        (Breaks, "one device", "ZeroDivisionError: mine .*test_interface.py"),
        (LosesWhatFails, "a device fails", "context.lost: place them again"),
    ],
)
def test_a_faulty_scheduler_is_told_what_is_wrong(kind, check, why):
    with pytest.raises(
        AssertionError, match=rf"{kind.__name__} fails \d of 7 checks:(.|\n)*({check})(.|\n)*{why}"
    ):
        check_scheduler(kind)
