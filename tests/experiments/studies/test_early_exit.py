"""The command: its tables and folder, simulated as computed, what is refused."""

from __future__ import annotations

import json

import pytest

from experiments.studies.early_exit import command as early_exit

pytest.importorskip("torch")

SMALL = [
    *("model=multi_exit", "cluster=tiers", "model.arguments.image_size=32"),
    "model.arguments.widths=[4,4,8,8,8,8,8,8]",
    *("simulation.draws=20", "requests=20"),
]


@pytest.fixture
def run(tmp_path, capsys):
    def call(*words):
        code = early_exit.main([*SMALL, f"output_dir={tmp_path}", *words])
        return code, capsys.readouterr()

    return call


def test_what_it_finds_is_simulated_as_computed_and_written(run, tmp_path) -> None:
    code, printed = run(
        "bandwidths=[1.1 Mbit/s,1 Gbit/s]",
        *("workload=poisson", "workload.jobs=200", "workload.rate=150/s"),
        "cluster.devices.terminal.profile=amd-epyc-25-17-1core",
    )
    assert code == 0, printed.err
    (folder,) = (tmp_path / "early_exit").iterdir()
    figures = {f"fig_early_exit.{suffix}" for suffix in ("pdf", "png", "csv", "txt")}
    assert {p.name for p in folder.iterdir()} == figures | {
        "result.json",
        "command.txt",
        "table.md",
    }
    result = json.loads((folder / "result.json").read_text())
    assert [row["bandwidth"] for row in result["bandwidths"]] == ["1.1 Mbit/s", "1 Gbit/s"]
    for row in result["bandwidths"]:
        found = row["found"]
        for name, alone in row["simulated_alone"].items():
            assert alone["mean"] == pytest.approx(alone["expected"], rel=1e-9)
            # Waiting only adds to what the drawn requests take on an idle system.
            loaded = row["simulated_at_load"][name]
            assert loaded["mean"] >= loaded["expected"] * (1 - 1e-9)
            low, high = row["latency_95"][name]
            assert low <= high
        costs = [found[name]["cost"] for name in ("joint", "exhaustive", "greedy", "one_start")]
        assert costs == sorted(costs)
        assert all(found["greedy"]["cost"] <= found[n]["cost"] for n in early_exit.SINGLE)
        assert (
            found["terminal"]["latency_s"]
            == result["bandwidths"][0]["found"]["terminal"]["latency_s"]
        )
    slow, fast = (row["found"]["cloud"]["latency_s"] for row in result["bandwidths"])
    assert slow > fast
    overloaded = result["bandwidths"][0]
    assert (
        overloaded["simulated_at_load"]["cloud"]["p99"]
        > 2 * overloaded["simulated_alone"]["cloud"]["p99"]
    )
    table = (folder / "table.md").read_text()
    for label in ("amd-epyc-25-17-1core (measured)", "tesla-t4 (public)", "extrapolated", "digits"):
        assert label in table
    assert "| 1.1 Mbit/s |" in printed.out


def test_a_fixed_threshold_and_another_way(run, tmp_path) -> None:
    code, printed = run(
        "bandwidths=[1 Gbit/s]", "threshold=0.95", "way=joint", "weights.errors=0.2"
    )
    assert code == 0, printed.err
    (folder,) = (tmp_path / "early_exit").iterdir()
    (row,) = json.loads((folder / "result.json").read_text())["bandwidths"]
    assert {one["threshold"] for one in row["found"].values()} <= {0.95, None}
    assert row["simulated_at_load"] == {}


def test_cuts_and_exits_apart_are_simulated_too(run, tmp_path) -> None:
    code, printed = run("bandwidths=[1.1 Mbit/s]", "search=joint")
    assert code == 0, printed.err
    (folder,) = (tmp_path / "early_exit").iterdir()
    (row,) = json.loads((folder / "result.json").read_text())["bandwidths"]
    assert row["found"]["chosen"] == row["found"]["joint"]
    alone = row["simulated_alone"]["chosen"]
    assert alone["mean"] == pytest.approx(alone["expected"], rel=1e-9)
    # Over so slow a link everything stays on the terminal, and samples leave there.
    assert row["found"]["joint"]["cuts"] == [8, 8]
    assert row["found"]["joint"]["exits"]
    assert row["found"]["joint"]["latency_s"] < row["found"]["exhaustive"]["latency_s"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["link=cable"], "has no link 'cable'; it has wifi, internet"),
        (["cluster=edge_t4"], "has no link 'wifi'"),
        (["way=best"], "of way 'best'; it has ways separate, joint, joint_depth"),
        (["threshold=0.77"], "at threshold 0.77"),
        (
            ["model.arguments.widths=[4,8]", "model.arguments.pools=[1]"],
            "8 layers, the model has 2",
        ),
        (["tiers=[terminal,edge,moon]"], "no memory space 'moon'"),
        (["table=none.csv"], "There is no table of exits none.csv"),
        (["bandwidths=[fast]"], "bandwidths of link 'wifi'"),
        (["search=random"], "no search=random; known: greedy, one_start"),
        (["requests=0"], "requests from 1 to 100000"),
        (["weights.latency=-1"], "each at least 0"),
        (["workload=serving"], "asks for models of its own"),
        (["family=daggen"], "'family=daggen' takes the place of model"),
    ],
)
def test_what_cannot_be_is_one_sentence(run, words, message) -> None:
    code, printed = run(*words)
    assert code == 2
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_a_model_without_exits_is_refused(capsys, tmp_path) -> None:
    words = ["model=resnet18", "cluster=tiers", f"output_dir={tmp_path}"]
    assert early_exit.main(words) == 2
    assert "Model 'resnet18' has no early exits" in capsys.readouterr().err
