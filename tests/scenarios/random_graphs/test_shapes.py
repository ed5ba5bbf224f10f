"""Known structure of every family, and what its parameters promise of every graph drawn."""

import math
from collections import Counter

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.random_graphs import FAMILIES, Draws
from simulator.errors import InvalidInput

SMALL = {
    "cholesky": {"tiles": st.integers(1, 7)},
    "daggen": {
        "n": st.integers(1, 120),
        "fat": st.floats(0.01, 1),
        "density": st.floats(0, 1),
        "regular": st.floats(0, 1),
        "jump": st.integers(1, 6),
        "mindata": st.integers(2, 40),
        "maxdata": st.integers(40, 4000),
        "complexity": st.sampled_from(["mixed", "n2", "nlogn", "n3"]),
    },
    "erdos_renyi": {"n": st.integers(1, 60), "p": st.floats(0, 1)},
    "fft": {"m": st.sampled_from([2, 4, 8, 16, 32])},
    "fork_join": {
        "stages": st.integers(1, 4),
        "width": st.integers(1, 5),
        "length": st.integers(1, 4),
    },
    "gaussian_elimination": {"m": st.integers(2, 14)},
    "in_tree": {"levels": st.integers(1, 5), "arity": st.integers(2, 4)},
    "layered": {
        "n": st.integers(1, 120),
        "alpha": st.floats(0.1, 4),
        "degree": st.integers(1, 6),
    },
    "out_tree": {"levels": st.integers(1, 5), "arity": st.integers(2, 4)},
    "series_parallel": {"n": st.integers(2, 80), "parallel": st.floats(0, 1)},
    "staged_jobs": {
        "jobs": st.integers(1, 3),
        "stages": st.integers(1, 20),
        "alpha": st.floats(0.1, 4),
        "degree": st.integers(1, 6),
        "fetch_share": st.floats(0.2, 0.8),
        "share_spread": st.floats(0, 0.19),
        "writing": st.floats(0, 1),
    },
    "stencil_1d": {"width": st.integers(1, 9), "steps": st.integers(1, 6)},
    "stencil_2d": {"width": st.integers(1, 5), "steps": st.integers(1, 5)},
}


def drawn(family, seed=0, **parameters):
    return FAMILIES[family](**parameters).draw(Draws(seed))


def digraph(shape):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(shape.tasks))
    graph.add_edges_from(zip(shape.source.tolist(), shape.target.tolist(), strict=True))
    return graph


def depth(shape):
    return nx.dag_longest_path_length(digraph(shape), weight=None, default_weight=1) + 1


@st.composite
def cases(draw, only=tuple(FAMILIES)):
    family = draw(st.sampled_from(only))
    return family, draw(st.fixed_dictionaries(SMALL[family])), draw(st.integers(0, 10**6))


def test_every_family_is_tested():
    assert SMALL.keys() == FAMILIES.keys()


@settings(deadline=None, max_examples=300)
@given(cases())
def test_every_graph_is_sound(case):
    family, parameters, seed = case
    shape = drawn(family, seed, **parameters)
    edges = list(zip(shape.source.tolist(), shape.target.tolist(), strict=True))
    assert len(set(edges)) == len(edges)
    assert all(0 <= a < b < shape.tasks for a, b in edges)
    assert len(shape.work) == shape.tasks == parameters.get("n", shape.tasks)
    assert len(shape.data) == len(edges)
    assert np.isfinite(shape.work).all()
    assert (shape.work > 0).all()
    assert (shape.data > 0).all()
    assert shape.names is None or len(set(shape.names)) == shape.tasks
    again = drawn(family, seed, **parameters)
    assert [again.source.tolist(), again.work.tolist()] == [
        shape.source.tolist(),
        shape.work.tolist(),
    ]
    unconnected = ("erdos_renyi", "layered", "daggen", "staged_jobs", "stencil_1d", "stencil_2d")
    if family not in unconnected:
        assert nx.is_weakly_connected(digraph(shape))


# -- structured graphs --------------------------------------------------------------------------


@pytest.mark.parametrize("m", [2, 3, 5, 12])
def test_gaussian_elimination(m):
    shape = drawn("gaussian_elimination", m=m)
    assert shape.tasks == (m * m + m - 2) // 2
    assert len(shape.source) == m * (m - 1) - 1
    assert depth(shape) == 2 * (m - 1)
    graph = digraph(shape)
    assert [graph.out_degree(t) for t in graph if not graph.in_degree(t)].count(m - 1) == 1
    # The only exit is the last update.
    assert [shape.names[t] for t in graph if not graph.out_degree(t)] == [f"T{m - 1},{m}"]


def test_gaussian_elimination_of_five_columns_is_the_papers_figure():
    shape = drawn("gaussian_elimination", m=5)
    names = shape.names
    edges = {(names[a], names[b]) for a, b in zip(shape.source, shape.target, strict=True)}
    assert shape.tasks == 14
    assert {b for a, b in edges if a == "T1,1"} == {"T1,2", "T1,3", "T1,4", "T1,5"}
    assert {b for a, b in edges if a == "T1,2"} == {"T2,2"}
    assert {a for a, b in edges if b == "T2,4"} == {"T2,2", "T1,4"}
    assert {a for a, b in edges if b == "T4,5"} == {"T4,4", "T3,5"}


@pytest.mark.parametrize("m", [2, 4, 16, 64])
def test_fft(m):
    shape = drawn("fft", m=m)
    rows = int(math.log2(m))
    assert shape.tasks == 2 * m - 1 + m * rows
    graph = digraph(shape)
    # In a transform any path from the start to any end is critical.
    assert depth(shape) == 2 * rows + 1
    assert {graph.in_degree(t) for t in graph} == {0, 1, 2}
    exits = [t for t in graph if not graph.out_degree(t)]
    assert len(exits) == m
    # Every point depends on every input.
    leaves = set(range(m - 1, 2 * m - 1))
    assert all(leaves <= nx.ancestors(graph, t) for t in exits)


def cholesky_by_definition(tiles):
    """Read-after-write and write-after-write of the textbook's loops, tile by tile."""
    written, tasks, edges = {}, [], set()

    def run(name, target, *sources):
        tasks.append(name)
        for tile in (target, *sources):
            if tile in written:
                edges.add((written[tile], name))
        written[target] = name

    for k in range(tiles):
        run(("potrf", k), (k, k))
        for i in range(k + 1, tiles):
            run(("trsm", i, k), (i, k), (k, k))
        for j in range(k + 1, tiles):
            run(("syrk", j, k), (j, j), (j, k))
            for i in range(j + 1, tiles):
                run(("gemm", i, j, k), (i, j), (i, k), (j, k))
    return tasks, edges


@pytest.mark.parametrize("tiles", [1, 2, 3, 6])
def test_cholesky(tiles):
    shape = drawn("cholesky", tiles=tiles)
    tasks, edges = cholesky_by_definition(tiles)
    assert shape.tasks == len(tasks) == tiles * (tiles + 1) * (tiles + 2) // 6
    assert depth(shape) == 3 * tiles - 2
    label = [f"{name[0]}{','.join(map(str, name[1:]))}" for name in tasks]
    assert set(shape.names) == set(label)
    named = dict(zip(tasks, label, strict=True))
    ours = {
        (shape.names[a], shape.names[b]) for a, b in zip(shape.source, shape.target, strict=True)
    }
    assert ours == {(named[a], named[b]) for a, b in edges}
    # All operations together are those of the whole matrix: n^3 / 3 + O(n^2) in tiles.
    assert sum(shape.work) == pytest.approx(tiles**3 / 3)


@pytest.mark.parametrize(("stages", "width", "length"), [(1, 1, 1), (2, 3, 1), (3, 2, 4)])
def test_fork_join(stages, width, length):
    shape = drawn("fork_join", stages=stages, width=width, length=length)
    assert shape.tasks == stages * width * length + stages + 1
    assert len(shape.source) == stages * width * (length + 1)
    assert depth(shape) == stages * (length + 1) + 1
    degrees = Counter(digraph(shape).out_degree(t) for t in range(shape.tasks))
    if width > 1:
        assert degrees == {width: stages, 1: stages * width * length, 0: 1}


@pytest.mark.parametrize(("width", "steps"), [(1, 4), (2, 2), (5, 3)])
def test_stencil_1d(width, steps):
    shape = drawn("stencil_1d", width=width, steps=steps)
    expected = {
        (step * width + a, (step + 1) * width + b)
        for step in range(steps - 1)
        for a in range(width)
        for b in range(width)
        if abs(a - b) <= 1
    }
    assert shape.tasks == width * steps
    assert set(zip(shape.source.tolist(), shape.target.tolist(), strict=True)) == expected
    assert len(expected) == (steps - 1) * (3 * width - 2)


@pytest.mark.parametrize(("width", "steps"), [(1, 3), (2, 2), (4, 3)])
def test_stencil_2d(width, steps):
    shape = drawn("stencil_2d", width=width, steps=steps)
    cells = [(x, y) for x in range(width) for y in range(width)]
    expected = {
        (step * width**2 + a, (step + 1) * width**2 + b)
        for step in range(steps - 1)
        for a, (x, y) in enumerate(cells)
        for b, (v, w) in enumerate(cells)
        if abs(x - v) + abs(y - w) <= 1
    }
    assert shape.tasks == width**2 * steps
    assert set(zip(shape.source.tolist(), shape.target.tolist(), strict=True)) == expected
    assert len(expected) == (steps - 1) * (5 * width**2 - 4 * width)


@pytest.mark.parametrize(("levels", "arity"), [(1, 2), (4, 2), (3, 5)])
def test_trees(levels, arity):
    down = digraph(drawn("out_tree", levels=levels, arity=arity))
    up = digraph(drawn("in_tree", levels=levels, arity=arity))
    assert len(down) == len(up) == (arity**levels - 1) // (arity - 1)
    assert nx.is_arborescence(down)
    assert nx.is_arborescence(up.reverse())
    inner = (arity ** (levels - 1) - 1) // (arity - 1)
    for degrees in (down.out_degree(), up.in_degree()):
        assert Counter(d for _, d in degrees) == {
            k: v for k, v in ((arity, inner), (0, arity ** (levels - 1))) if v
        }
    assert nx.dag_longest_path_length(up) == nx.dag_longest_path_length(down) == levels - 1


# -- random graphs ------------------------------------------------------------------------------


def reduces_to_an_edge(shape):
    """Valdes, Tarjan and Lawler: two-terminal series-parallel graphs reduce to one edge."""
    graph = nx.MultiDiGraph(digraph(shape))
    todo = list(graph)
    while todo:
        task = todo.pop()
        if task not in graph:
            continue
        for _, other in list(graph.out_edges(task)):
            while graph.number_of_edges(task, other) > 1:  # parallel
                graph.remove_edge(task, other)
                todo += [task, other]
        if graph.in_degree(task) == graph.out_degree(task) == 1:  # series
            (before,), (behind,) = graph.predecessors(task), graph.successors(task)
            graph.remove_node(task)
            graph.add_edge(before, behind)
            todo += [before, behind]
    return len(graph) == 2 and graph.number_of_edges() == 1


@settings(deadline=None)
@given(cases(("series_parallel", "fork_join")))
def test_series_parallel_graphs_reduce_to_an_edge(case):
    family, parameters, seed = case
    assert reduces_to_an_edge(drawn(family, seed, **parameters))


def test_the_reduction_refuses_others():
    assert not reduces_to_an_edge(drawn("fft", m=4))
    assert not reduces_to_an_edge(drawn("stencil_1d", width=2, steps=3))


def test_series_parallel_ends_of_its_range():
    chain = drawn("series_parallel", n=30, parallel=0.0)
    assert depth(chain) == 30
    fans = drawn("series_parallel", n=30, parallel=1.0)
    assert len(fans.source) == 1 + 2 * 28


@settings(deadline=None, max_examples=200)
@given(cases(("daggen",)))
def test_daggen_keeps_to_its_parameters(case):
    _, parameters, seed = case
    family = FAMILIES["daggen"](**parameters)
    widths = family.widths(Draws(seed))
    shape = family.draw(Draws(seed))
    n, regular = parameters["n"], parameters["regular"]
    assert sum(widths) == n
    mean = n ** parameters["fat"]
    for width in widths[:-1]:
        assert max(1, math.floor(mean * regular - 1)) <= width
        assert width <= max(1, mean * (2 - regular) + 1e-9)
    level = np.repeat(np.arange(len(widths)), widths)
    down = level[shape.target] - level[shape.source]
    assert ((down >= 1) & (down <= parameters["jump"])).all()
    parents = np.bincount(shape.target, minlength=n)
    for task in range(n):
        if level[task]:
            above = widths[level[task] - 1]
            assert 1 <= parents[task] <= min(above, 1 + parameters["density"] * above)
        else:
            assert parents[task] == 0
    # Each edge carries its producer's matrix of 8-byte numbers.
    size = np.sqrt(shape.data / 8)
    assert ((size >= parameters["mindata"]) & (size <= parameters["maxdata"])).all()
    assert (size == np.round(size)).all()


def test_daggen_ends_of_its_range():
    common = {"mindata": 10, "maxdata": 10, "complexity": "n3", "jump": 1, "regular": 1.0}
    full = drawn("daggen", n=10_000, fat=0.5, density=0.0, **common)
    assert np.bincount(full.target, minlength=10_000)[100:].tolist() == [1] * 9900
    assert FAMILIES["daggen"](n=10_000, fat=0.5, density=0.0, **common).mean_width == 100
    assert set(full.work.tolist()) == {1000.0}
    assert set(full.data.tolist()) == {800.0}
    wide = drawn("daggen", n=50, fat=1.0, density=0.5, **common)
    assert len(wide.source) == 0
    dense = [
        np.bincount(drawn("daggen", seed, n=400, fat=0.5, density=d, **common).target).sum()
        for seed in range(3)
        for d in (0.1, 0.4, 0.8)
    ]
    # Of 1 + int(U * density * 20) parents, 19 levels of 20 tasks: 1.5, 4.5, 8.5 on average.
    for count, mean in zip(dense, (1.5, 4.5, 8.5) * 3, strict=True):
        assert count / 380 == pytest.approx(mean, rel=0.15)


def test_operations_of_daggens_complexities():
    common = {"n": 300, "fat": 0.5, "density": 0.2, "regular": 1.0, "jump": 1}
    size = {"mindata": 64, "maxdata": 64}
    for complexity, low, high in (
        ("n2", 64, 512),
        ("nlogn", 2 * 64 * 6, 2 * 512 * 6),
        ("n3", 64, 64),
    ):
        work = drawn("daggen", complexity=complexity, **common, **size).work / 64**2
        assert low <= work.min() <= work.max() <= high
        if low < high:
            assert work.mean() == pytest.approx((low + high) / 2, rel=0.1)
    mixed = drawn("daggen", complexity="mixed", **common, **size).work / 64**2
    assert np.mean(mixed == 64) == pytest.approx(1 / 3, abs=0.1)
    assert np.mean(mixed > 512) == pytest.approx(1 / 3 * 0.93, abs=0.1)


@settings(deadline=None)
@given(cases(("layered",)))
def test_layered_graphs_go_from_layer_to_layer(case):
    _, parameters, seed = case
    shape = drawn("layered", seed, **parameters)
    graph = digraph(shape)
    layer = [0] * shape.tasks
    for task in range(shape.tasks):
        layer[task] = 1 + max((layer[p] for p in graph.predecessors(task)), default=-1)
    # Every edge joins neighbouring layers, and tasks stand layer by layer.
    assert all(layer[b] == layer[a] + 1 for a, b in graph.edges)
    assert layer == sorted(layer)
    widths = Counter(layer)
    mean = max(1, round(parameters["alpha"] * math.sqrt(parameters["n"])))
    assert max(widths.values()) <= 2 * mean - 1
    for task in range(shape.tasks):
        if layer[task]:
            most = min(widths[layer[task] - 1], 2 * parameters["degree"] - 1)
            assert 1 <= graph.in_degree(task) <= most


def test_layered_means():
    widths, degrees = [], []
    for seed in range(20):
        shape = drawn("layered", seed, n=2500, alpha=1.0, degree=3)
        widths.append(2500 / depth(shape))
        degrees.append(len(shape.source) / 2500)
    assert np.mean(widths) == pytest.approx(50, rel=0.15)
    assert np.mean(degrees) == pytest.approx(3, rel=0.1)


def test_erdos_renyi_has_the_edges_expected():
    n, p = 300, 0.1
    pairs = n * (n - 1) / 2
    counts = [len(drawn("erdos_renyi", seed, n=n, p=p).source) for seed in range(10)]
    assert np.mean(counts) == pytest.approx(p * pairs, abs=4 * math.sqrt(pairs * p * (1 - p) / 10))
    assert len(drawn("erdos_renyi", n=20, p=0.0).source) == 0
    assert len(drawn("erdos_renyi", n=20, p=1.0).source) == 190


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("daggen", {"fat": 0}, r"family.fat=0 must be above 0 and at most 1"),
        ("daggen", {"fat": 1.5}, r"family.fat=1.5 must be above 0 and at most 1"),
        ("daggen", {"density": -0.1}, r"family.density=-0.1 must be at least 0"),
        ("daggen", {"regular": float("nan")}, r"family.regular=nan must be"),
        ("daggen", {"jump": 0}, r"family.jump=0 must be at least 1"),
        ("daggen", {"n": 0}, r"family.n=0 must be at least 1"),
        ("daggen", {"maxdata": 1}, r"family.maxdata=1 must be at least 32"),
        ("daggen", {"complexity": "n4"}, r"family.complexity=n4; known: mixed"),
        ("daggen", {"n": 10**6, "fat": 0.9}, r"edges; at most 20,000,000 are drawn"),
        ("layered", {"alpha": 0}, r"family.alpha=0 must be above 0"),
        ("layered", {"degree": 0}, r"family.degree=0 must be at least 1"),
        ("erdos_renyi", {"p": 2}, r"family.p=2 must be at least 0 and at most 1"),
        ("erdos_renyi", {"n": 10**5}, r"family.n=100000 must be"),
        ("fft", {"m": 12}, r"family.m=12 must be a power of two"),
        ("fft", {"m": 1}, r"family.m=1 must be at least 2"),
        ("gaussian_elimination", {"m": 1}, r"family.m=1 must be at least 2"),
        ("gaussian_elimination", {"m": 10**5}, r"tasks; at most 1,000,000 are drawn"),
        ("cholesky", {"tiles": 0}, r"family.tiles=0 must be at least 1"),
        ("cholesky", {"tiles": 1000}, r"tasks; at most 1,000,000"),
        ("fork_join", {"width": 0}, r"family.width=0 must be at least 1"),
        ("fork_join", {"width": 10**6, "length": 10}, r"at most 1,000,000"),
        ("in_tree", {"levels": 64, "arity": 1000}, r"at most 1,000,000"),
        ("out_tree", {"arity": 1}, r"family.arity=1 must be at least 2"),
        ("series_parallel", {"n": 1}, r"family.n=1 must be at least 2"),
        ("series_parallel", {"parallel": 1.1}, r"family.parallel=1.1 must be"),
        ("stencil_1d", {"steps": 0}, r"family.steps=0 must be at least 1"),
        ("stencil_2d", {"width": 2000}, r"at most 1,000,000"),
    ],
)
def test_refusals_name_the_parameter_and_its_range(family, change, message):
    usual = {
        "cholesky": {"tiles": 3},
        "daggen": {
            "n": 100,
            "fat": 0.5,
            "density": 0.5,
            "regular": 0.5,
            "jump": 1,
            "mindata": 32,
            "maxdata": 3200,
            "complexity": "mixed",
        },
        "erdos_renyi": {"n": 10, "p": 0.5},
        "fft": {"m": 4},
        "fork_join": {"stages": 2, "width": 2, "length": 2},
        "gaussian_elimination": {"m": 4},
        "in_tree": {"levels": 3, "arity": 2},
        "layered": {"n": 10, "alpha": 1.0, "degree": 2},
        "out_tree": {"levels": 3, "arity": 2},
        "series_parallel": {"n": 10, "parallel": 0.5},
        "staged_jobs": {
            "jobs": 1,
            "stages": 5,
            "alpha": 1.0,
            "degree": 2,
            "fetch_share": 0.5,
            "share_spread": 0.4,
            "writing": 0.5,
        },
        "stencil_1d": {"width": 3, "steps": 3},
        "stencil_2d": {"width": 3, "steps": 3},
    }[family]
    FAMILIES[family](**usual)
    with pytest.raises(InvalidInput, match=message):
        FAMILIES[family](**(usual | change))
