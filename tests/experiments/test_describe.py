"""Structure and limits of a graph, against figures worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from experiments import describe
from experiments.describe import Structure, parallelism
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor, TensorSpec


def test_structure_of_a_diamond_with_a_tail():
    #     0
    #   1   2
    #     3
    #     4
    graph = from_edges("g", 5, [(0, 1, 1), (0, 2, 1), (1, 3, 1), (2, 3, 1), (3, 4, 1), (0, 1, 2)])
    structure = Structure.of(graph)
    assert (structure.operators, structure.depth, structure.width) == (5, 4, 2)
    # Two tensors from 0 to 1 are one edge.
    assert structure.edges == 5
    # Work 2+6+4+2+2 = 16 over the path 2+6+2+2 = 12.
    assert parallelism(graph, np.array([2.0, 6, 4, 2, 2])) == pytest.approx(16 / 12)


def test_unknown_work_is_counted_apart(capsys):
    spec = TensorSpec((8, 8))
    operators = [
        Operator(f"o{i}", kind, inputs=(spec, spec), outputs=(spec,))
        for i, kind in enumerate(["matmul", "relu", "frobnicate", "frobnicate"])
    ]
    tensors = [Tensor("x", "input", 256.0, spec)]
    tensors += [Tensor(f"t{i}", "activation", 256.0, spec) for i in range(4)]
    graph = DataflowGraph(
        "g", operators, tensors, [[i] for i in range(4)], [[i + 1] for i in range(4)]
    )
    structure = Structure.of(graph)
    assert structure.flops == 2 * 8**3
    assert structure.unknown == {"frobnicate": 2}
    describe.print_structure(graph, "", None, describe.make_console())
    assert "unknown work: 2 frobnicate" in " ".join(capsys.readouterr().out.split())


def test_a_model_on_two_kinds_of_devices(folder, capsys):
    words = ["--config-dir", str(folder), "model=branches", "cluster=box"]
    assert describe.main(words) == 0
    out = capsys.readouterr().out
    assert "branches, batch 2: three branches" in out
    # Three branches of linear, relu, linear and two additions; linear: 2 x 2 x 4 x 8 FLOPs each.
    assert "11 operators, 10 edges; longest path 5 operators, widest level 3" in out
    assert f"{6 * 2 * 2 * 4 * 8 / 1e9:.4g} GFLOP" in out
    assert "2x toy-core" in out
    assert "1x toy-card" in out
    assert "a chain" not in out
    assert "the host knows" not in out
    (validity,) = [line for line in out.splitlines() if line.startswith("validity: ")]
    assert validity.startswith("validity: CPU cores with memories apart: one run, 4.8% off")
    assert max(len(line) for line in out.splitlines() if line != validity) <= 100


def test_how_far_ahead_operators_are_submitted(folder, capsys):
    words = ["--config-dir", str(folder), "model=branches", "cluster=box"]
    late = ["cluster.devices.gpu.completion_latency=10us", "cluster.devices.gpu.issue_depth=4"]
    assert describe.main([*words, *late]) == 0
    out = capsys.readouterr().out
    assert (
        "gpu: the host knows of an end 10.0 us later and submits up to 4 operators at once\n" in out
    )
    assert describe.main([*words, *late, "cluster.devices.gpu.issue_overhead=5us"]) == 0
    out = capsys.readouterr().out
    assert "submits up to 4 operators at once, which takes it 5.00 us each" in " ".join(out.split())


def test_a_chain_is_called_one(folder, capsys):
    (folder / "instances" / "line.json").write_text(
        '{"cost": [[2, 2], [3, 3], [4, 4]], "edges": [[0, 1, 1], [1, 2, 1]]}'
    )
    assert describe.main(["--config-dir", str(folder), "instance=line"]) == 0
    out = capsys.readouterr().out
    assert "a chain: operators run one after the other, so scheduling cannot help\n" in out
    assert "any schedule gains at most 1.00x" in out
    assert "validity:" not in out
    assert describe.main(["instance=topcuoglu"]) == 0
    out = capsys.readouterr().out
    # The best device alone takes 127, the fastest path 41, path and load together 42.1156.
    assert "both together 42.1156)" in " ".join(out.split())
    assert "best device alone: P1, 127; any schedule gains at most 3.02x" in out


def test_features_and_advice(folder, tmp_path, capsys):
    words = ["--config-dir", str(folder), "model=branches", "cluster=box"]
    file = tmp_path / "features.parquet"
    assert describe.main([*words, f"features={file}", "advise=true"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    # Three branches that read the input; their last linears meet in two additions.
    assert "8 key operators: 6 that compute, 0 forks, 2 joins" in out
    assert len(pd.read_parquet(file)) == 11
    assert "advised phase from" in out
    assert "as advised" in out
    assert describe.main([*words, "workload=serving", "advise=true"]) == 2
    assert "features, advise and profile are of one model" in capsys.readouterr().err


def test_profile(folder, tmp_path, capsys):
    words = ["--config-dir", str(folder), "model=branches", "cluster=box"]
    file = tmp_path / "layers.csv"
    assert describe.main([*words, f"profile={file}"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "the traced graph has as many" in out
    layers = pd.read_csv(file)
    assert f"{layers.parameters.sum():,} parameters" in out
    assert list(layers.kind) == ["linear"] * len(layers)
    assert describe.main([*words, "profile=layers.txt"]) == 2
    assert "as .parquet or .csv, not 'layers.txt'" in capsys.readouterr().err
    assert describe.main(["instance=topcuoglu", "profile=layers.csv"]) == 2
    assert "take a model, not an instance" in capsys.readouterr().err
