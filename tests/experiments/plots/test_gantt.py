"""Gantt charts: every bar in its row, files whole, the same look for the same scheduler."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from experiments.plots import gantt
from experiments.plots.gantt import bars, describe, draw_gantt, draw_stacked
from experiments.plots.pass_bars import LOOKS
from experiments.plots.time_spent import CAUSES, time_spent
from simulator import schedulers
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.pass_tags import PHASES
from tests.experiments.synthetic_sweep import two_job_trace
from tests.scenarios.training.chains import pipelined

pytestmark = pytest.mark.usefixtures("whole_figures")


@pytest.fixture(scope="module")
def trace():
    return two_job_trace()


def two_slot_trace():
    cluster = Cluster("one", [MemorySpace("m")], [Device("pool", "m", slots=2)])
    graph = from_edges("fork", 3, [(0, 1, 1.0), (0, 2, 1.0)])
    table = CostTable.of(graph, np.array([[1.0], [2.0], [3.0]]))
    return simulate(graph, cluster, table, schedulers.create("fcfs"))


def test_bars_by_hand():
    table = bars(two_slot_trace())
    assert table.attrs["rows"] == ["pool.0", "pool.1"]
    rows = table.sort_values("operator")[["operator", "start_s", "finish_s", "row"]]
    assert rows[["operator", "start_s", "finish_s"]].to_numpy().tolist() == [
        ["t0", 0.0, 1.0],
        ["t1", 1.0, 3.0],
        ["t2", 1.0, 4.0],
    ]
    # t1 and t2 overlap, so each has a slot of its own.
    assert set(rows["row"].iloc[1:]) == {"pool.0", "pool.1"}


def test_bars_hold_every_execution_and_transfer(trace):
    table = bars(trace)
    assert (table["what"] == "execution").sum() == len(trace.executions["task"])
    moves = table[table["what"] == "transfer"]
    assert len(moves) == len(trace.transfers["link"]) > 0
    assert table.attrs["rows"][:3] == ["cpu0", "cpu1", "gpu0"]
    assert set(moves["row"]) == set(table.attrs["rows"][3:])
    names = [trace.meta["channels"][i] for i in trace.transfers["link"].tolist()]
    assert moves["row"].tolist() == names


@pytest.mark.parametrize("contention", ["none", "fifo"])
def test_the_critical_path_runs_through_the_bars_from_start_to_makespan(contention):
    trace = two_job_trace(contention=contention)
    path = bars(trace).query("critical > 0").sort_values("critical")
    assert path["critical"].tolist() == list(range(1, len(path) + 1))
    assert {"execution", "transfer"} == set(path["what"])
    assert path["start_s"].iloc[0] in trace.jobs["arrival"]
    assert path["finish_s"].iloc[-1] == trace.makespan
    # Work and transfers alone: DONF never lets anything wait that could go on.
    assert path["start_s"].to_numpy()[1:] == pytest.approx(path["finish_s"].to_numpy()[:-1])


def test_many_devices_share_one_bar_of_their_time():
    cluster = Cluster("many", [MemorySpace("m")], [Device(f"d{i}", "m") for i in range(13)])
    graph = from_edges("one", 1, [])
    table = CostTable.of(graph, np.full((1, 13), 2.0))
    spent = time_spent(simulate(graph, cluster, table, schedulers.create("fcfs")))
    assert spent.index.tolist() == ["all 13 devices"]
    assert spent[["executing", "no_work"]].to_numpy().tolist() == [[2.0, 24.0]]


def test_files_of_a_gantt_and_their_fonts(trace, tmp_path):
    paths = draw_gantt(trace, tmp_path / "gantt", {"critical path": 0.01}, caption="One run.")
    assert [path.name for path in paths] == ["gantt.pdf", "gantt.png", "gantt.csv", "gantt.txt"]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(path.name for path in paths)
    pdf = (tmp_path / "gantt.pdf").read_bytes()
    # Type 42 fonts are embedded TrueType; /Type3 is what journals refuse.
    assert b"/Type3" not in pdf
    assert b"/FontFile2" in pdf
    drawn = pd.read_csv(tmp_path / "gantt.csv")
    assert (drawn["what"] != "time").sum() == len(bars(trace))
    # Three devices, and what their slots' time went to, which is the whole run.
    spent = drawn[drawn["what"] == "time"]
    assert set(spent["row"]) == {"cpu0", "cpu1", "gpu0"}
    assert set(spent["kind"]) == set(CAUSES)
    whole = spent.groupby("row")["seconds"].sum()
    assert whole.to_numpy() == pytest.approx(trace.makespan)
    again = draw_gantt(trace, tmp_path / "again", {"critical path": 0.01})
    assert [p.read_bytes() for p in again[:3]] == [p.read_bytes() for p in paths[:3]]


def test_stacked_panels_share_time_axis_and_colours(trace, tmp_path, monkeypatch):
    seen = []
    draw = gantt._draw_panel

    def spy(axes, panel_trace, table, colours, *rest):
        draw(axes, panel_trace, table, colours, *rest)
        seen.append((axes, colours))

    monkeypatch.setattr(gantt, "_draw_panel", spy)
    other = two_job_trace(1)
    draw_stacked([trace, other], ["simulated", "measured"], tmp_path / "both")
    (above, colours), (below, same) = seen
    assert colours == same
    assert above.get_xlim() == below.get_xlim()
    latest = max(trace.makespan, other.makespan)
    assert above.get_xlim()[1] == pytest.approx(latest * 1e3, rel=0.02)
    assert [axes.get_title(loc="left") for axes, _ in seen] == ["simulated", "measured"]


def test_labels_in_bars_are_no_wider_than_their_bars(trace, tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(gantt, "save_figure", lambda figure, *rest: figures.append(figure) or [])
    draw_gantt(trace, tmp_path / "gantt")
    figure = figures[0]
    figure.draw_without_rendering()
    axes = figure.axes[0]
    table = bars(trace)
    assert axes.texts, "no bar was wide enough for this test to check anything"
    for text in axes.texts:
        box = text.get_window_extent()
        widths = [
            np.ptp(
                axes.transData.transform([[row.start_s * 1e3, 0], [row.finish_s * 1e3, 0]])[:, 0]
            )
            for row in table.itertuples()
            if row.operator == text.get_text()
        ]
        assert box.width <= max(widths)


def test_title_names_what_is_not_measured(trace):
    title = describe(trace)
    for part in (
        "2 jobs of layered",
        "cpu2_gpu1",
        "tesla-t4 datasheet",
        f"{trace.makespan * 1e3:.3g} ms",
    ):
        assert part in title


def test_refusals(trace, tmp_path):
    with pytest.raises(InvalidInput, match="one label each"):
        draw_stacked([trace], [], tmp_path / "x")
    empty = two_slot_trace()
    for column in empty.executions:
        empty.executions[column] = empty.executions[column][:0]
    with pytest.raises(InvalidInput, match="no executions"):
        draw_gantt(empty, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_matplotlib_is_imported_only_when_something_is_drawn():
    program = (
        "import experiments.plots.gantt, experiments.plots.style, sys; "
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.fixture(scope="module")
def pipeline():
    return pipelined("zb_h1", 4, 8, (1.0, 1.0, 1.0))


def drawn(monkeypatch, *args, **options):
    """The figure that would be saved, its data, and its chart's text by position."""
    seen = []
    monkeypatch.setattr(gantt, "save_figure", lambda *given: seen.append(given) or [])
    draw_gantt(*args, **options)
    figure, _, data, _ = seen[0]
    figure.draw_without_rendering()
    return figure, data, figure.axes[0].texts


def test_a_pipeline_is_drawn_pass_by_pass_with_the_numbers_of_micro_batches(
    pipeline, tmp_path, monkeypatch
):
    figure, data, texts = drawn(monkeypatch, pipeline, tmp_path / "x")
    boxes = data[(data["what"] == "execution") & (data["finish_s"] > data["start_s"])]
    assert boxes.groupby(["row", "kind"]).size().to_dict() == {
        (row, kind): 8
        for row in pipeline.devices
        for kind in ("forward", "backward", "weight gradient")
    }
    # The paper's first stage of four: F0..F3, then B, W and the next F in turn.
    first = boxes[boxes["row"] == pipeline.devices[0]].sort_values("start_s")
    assert first["operator"].tolist()[:8] == [
        *(f"forward {m}" for m in range(4)),
        *("backward 0", "weight gradient 0", "forward 4", "backward 1"),
    ]
    # Every box is a second wide, which holds its number.
    shown = sorted((t.get_position()[1], t.get_position()[0], t.get_text()) for t in texts)
    middles = (boxes["start_s"] + boxes["finish_s"]) / 2
    rows = boxes["row"].map({name: i for i, name in enumerate(pipeline.devices)})
    labels = boxes["operator"].str.rsplit(" ").str[-1]
    assert shown == sorted(zip(rows.astype(float), middles, labels, strict=True))
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names[:3] == ["forward", "backward", "weight gradient"]


def test_numbers_of_many_boxes_are_smaller_but_there(tmp_path, monkeypatch):
    trace = pipelined("1f1b", 4, 32)
    _, data, texts = drawn(monkeypatch, trace, tmp_path / "x")
    assert len(data) > 400
    # As far as they fit: all but those of two digits in the narrower boxes.
    shown = [text.get_text() for text in texts]
    assert shown.count("9") == 2 * shown.count("31") == 8
    assert {text.get_fontsize() for text in texts} == {4.0}


def test_operators_are_drawn_where_asked_for(tmp_path, monkeypatch):
    trace = pipelined("1f1b", 2, 2)
    _, data, texts = drawn(monkeypatch, trace, tmp_path / "x", by="operator")
    table = bars(trace)
    assert data["operator"].tolist()[: len(table)] == table["operator"].tolist()
    assert {"f0#F0", "b1#B1"} <= {text.get_text() for text in texts}


def test_phases_look_different_in_grey_too():
    def grey(colour):
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    plain = sorted(grey(colour) for colour, hatch in LOOKS.values() if not hatch)
    assert min(np.diff(plain)) > 0.15
    hatches = [hatch for _, hatch in LOOKS.values() if hatch]
    assert len(set(hatches)) == len(hatches)
    assert set(LOOKS) == set(PHASES.values())
