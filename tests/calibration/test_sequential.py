import pytest

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph

torch = pytest.importorskip("torch")

from calibration.sequential import named_inputs, run_graph, weights_of  # noqa: E402


def leaf(r, *views):
    return {"read": r, "views": list(views)}


def chain():
    """h = relu(x); y = h * w; z = y + h; the results are z transposed, 7 and x."""
    shape = {"shape": [2, 3], "dtype": "float32"}
    operators = [
        ("h", "relu", "aten.relu.default", [leaf(0)], ["x"]),
        ("y", "mul", "aten.mul.Tensor", [leaf(0), leaf(1)], ["h", "w"]),
        ("z", "add", "aten.add.Tensor", [leaf(0), leaf(1)], ["y", "h"]),
    ]
    return DataflowGraph.from_json(
        {
            "format": "hetsim.graph/1",
            "name": "chain",
            "tensors": [
                {"name": "x", "role": "input", **shape},
                {"name": "w", "role": "weight", **shape},
                *({"name": name, "role": "activation", **shape} for name in "hyz"),
            ],
            "operators": [
                {
                    "name": kind,
                    "kind": kind,
                    "target": target,
                    "template": {"args": args, "kwargs": {}},
                    "reads": reads,
                    "writes": [name],
                }
                for name, kind, target, args, reads in operators
            ],
            "results": [
                {"tensor": "z", "views": [["aten.t.default", [{"self": True}], {}]]},
                {"value": 7},
                {"tensor": "x", "views": []},
            ],
        }
    )


class Module(torch.nn.Module):
    def __init__(self, shape=(2, 3)):
        super().__init__()
        self.w = torch.nn.Parameter(torch.full(shape, 2.0))


def test_results_are_rebuilt_from_tensors_views_and_values():
    graph = chain()
    x = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
    turned, seven, same = run_graph(graph, weights_of(Module(), graph), named_inputs(graph, [x]))
    assert turned.tolist() == [[3, 12], [0, 15], [9, 0]]
    assert not turned.requires_grad
    assert seven == 7
    assert same is x


def test_tensors_are_freed_after_their_last_consumer(monkeypatch):
    import weakref

    from calibration import sequential

    alive, written = [], []

    def watched(operator, device):
        kernel = original(operator, device)

        def call(*reads):
            alive.append([reference() is not None for reference in written])
            outputs = kernel(*reads)
            written.extend(map(weakref.ref, outputs))
            return outputs

        return call

    original = sequential.build
    monkeypatch.setattr(sequential, "build", watched)
    graph = chain()
    del_last = {"x": torch.ones(2, 3)}
    document = graph.to_json()
    document["operators"].append(
        {
            **document["operators"][0],
            "name": "last",
            "reads": ["z"],
            "writes": ["last"],
        }
    )
    document["tensors"].append({**document["tensors"][-1], "name": "last"})
    document["results"] = [{"tensor": "last"}]
    run_graph(DataflowGraph.from_json(document), weights_of(Module(), graph), del_last)
    # Before each call: h; h and y; z alone, since y and h had their last consumer.
    assert alive == [[], [True], [True, True], [False, False, True]]


def test_missing_or_unfitting_tensors_are_named():
    graph = chain()
    with pytest.raises(InvalidInput, match="needs the input 'x'"):
        run_graph(graph, weights_of(Module(), graph), {})
    with pytest.raises(InvalidInput, match="needs the weight 'w'"):
        run_graph(graph, {}, {"x": torch.ones(2, 3)})
    with pytest.raises(InvalidInput, match="no weight 'w'"):
        weights_of(torch.nn.Module(), graph)
    with pytest.raises(InvalidInput, match=r"'w' is float32\[3, 3\] in the module"):
        weights_of(Module((3, 3)), graph)
    with pytest.raises(InvalidInput, match="has 1 inputs"):
        named_inputs(graph, [1, 2])
