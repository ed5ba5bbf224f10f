"""The same graph from every form; what the forms leave out; what is refused, in one sentence."""

import copy
import gzip
import json

import numpy as np
import pytest

from scenarios import FamilyConfig, draw_instance, load_instance
from scenarios.graph_files import read_dax, read_dot, read_graph, read_stg, read_wfformat, values
from simulator.errors import InvalidInput
from tests.scenarios.graph_files.samples import (
    DAGGEN,
    DAX,
    DAX_3,
    DOT,
    SIMGRID,
    STG,
    STG_WITH_COSTS,
    wfformat,
)


def edges(shape):
    return {
        (a, b): size
        for a, b, size in zip(
            shape.source.tolist(), shape.target.tolist(), shape.data.tolist(), strict=True
        )
    }


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        (lambda: read_stg(STG_WITH_COSTS), ("t1", "t2", "t3", "t4")),
        (lambda: read_dot(DAGGEN), ("1", "2", "3", "4")),
        (lambda: read_dot(DOT), ("a", "b", 'c"3', "d")),
        (lambda: read_dax(DAX.encode()), ("a", "b", "c", "d")),
        (lambda: read_dax(DAX_3.encode()), ("a", "b", "c", "d")),
        (lambda: read_wfformat(wfformat("1.0")), ("a", "b", "c", "d")),
        (lambda: read_wfformat(wfformat("1.1")), ("a", "b", "c", "d")),
        (lambda: read_wfformat(wfformat("1.2")), ("a", "b", "c", "d")),
        (lambda: read_wfformat(wfformat("1.3")), ("a", "b", "c", "d")),
        (lambda: read_wfformat(wfformat("1.4")), ("a", "b", "c", "d")),
        (lambda: read_wfformat(wfformat("1.5")), ("a", "b", "c", "d")),
        (lambda: read_wfformat(wfformat("1.6")), ("a", "b", "c", "d")),
    ],
    ids=[
        *("stg", "daggen", "dot", "dax 2.1", "dax 3.6"),
        *(f"wfformat 1.{minor}" for minor in range(7)),
    ],
)
def test_one_graph_in_every_form(shape, names):
    found = shape()
    assert found.names == names
    assert found.work.tolist() == [20, 3, 7, 5]
    assert edges(found) == {(0, 1): 11, (0, 2): 12, (1, 3): 13, (2, 3): 14}


def test_dot_of_simgrid():
    """An edge of -1 moves nothing; where others have work, what edges alone name has none."""
    shape = read_dot(SIMGRID)
    assert shape.names == ("root", "1", "2", "3", "4", "end")
    assert shape.work.tolist() == [0, 20, 3, 7, 5, 0]
    assert edges(shape) == {(0, 1): 0, (1, 2): 11, (1, 3): 12, (2, 4): 13, (3, 4): 14, (4, 5): 0}
    assert shape.notes == ("'end': named by edges alone, taken to have no work",)
    with pytest.raises(InvalidInput, match=r"Edge 'a' -> 'b' \(1\): size is '-2', not a number"):
        read_dot('digraph { a -> b [size="-2"] }')


def test_dax_jobs_depend_by_declaration_and_by_files():
    """A file that is changed in place orders nobody by itself; a declared edge need not move anything."""
    shape = read_dax(
        b"<adag><job id='a' runtime='1'><uses name='f' link='output' size='4'/></job>"
        b"<job id='b' runtime='1'><uses name='g' link='inout' size='8'/></job>"
        b"<job id='c' runtime='1'><uses name='g' link='inout' size='8'/><uses name='f' link='input'/></job>"
        b"<child ref='b'><parent ref='a'/></child><child ref='c'><parent ref='b'/></child></adag>"
    )
    assert edges(shape) == {(0, 1): 0, (1, 2): 8, (0, 2): 4}


def test_a_file_without_sizes_says_what_was_taken():
    """One line, and none where the file has its sizes."""
    bare = b"<adag><job id='a'/><job id='b'/><child ref='b'><parent ref='a'/></child></adag>"
    structure = wfformat("1.3")
    for task in structure["workflow"]["tasks"]:
        del task["runtime"], task["files"]
    for shape, what in (
        (read_dot('digraph { a [label="a\\n5.00"]; a -> b }'), "node has a size or weight"),
        (read_dax(bare), "job has a runtime"),
        (read_wfformat(structure), "task has a runtime"),
    ):
        assert set(shape.work.tolist()) == {1.0}
        assert set(shape.data.tolist()) == {0.0}
        assert shape.notes[0] == f"no {what}: each is taken to have work 1"
        assert "equal times where family.ccr is given, and none without it" in shape.notes[1]
    assert len(read_stg(STG).notes) == 1
    for shape in (read_stg(STG_WITH_COSTS), read_dot(DOT), read_dax(DAX.encode())):
        assert shape.notes == ()
    assert read_wfformat(wfformat()).notes == ()


def test_draw_instance_says_what_was_taken(tmp_path):
    lines = []
    draw_instance(config(), 0, write(tmp_path, "a.dot", "digraph { a; b }"), lines.append)
    assert lines == [
        f"{tmp_path}/a.dot: no node has a size or weight: each is taken to have work 1"
    ]


@pytest.mark.parametrize("name", ["a.stg.gz", "a.dot.gz", "a.dax.gz", "a.json.gz", "a.JSON"])
def test_packed_files_line_ends_and_marks_of_order(tmp_path, name):
    text = {"stg": STG_WITH_COSTS, "dot": DOT, "dax": DAX}.get(name[2:5], json.dumps(wfformat()))
    data = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert read_graph(tmp_path / name).work.tolist() == [20, 3, 7, 5]


def test_packed_files_that_are_damaged_or_too_large(tmp_path, monkeypatch):
    path = tmp_path / "a.dot.gz"
    path.write_bytes(gzip.compress(DOT.encode())[:-9])
    with pytest.raises(InvalidInput, match=r"a\.dot\.gz cannot be unpacked .* was it truncated"):
        read_graph(path)
    monkeypatch.setattr(values, "MOST_BYTES", 1000)
    path.write_bytes(gzip.compress(b" " * 1001 + DOT.encode()))
    with pytest.raises(InvalidInput, match="holds more than 1,000 bytes"):
        read_graph(path)


def test_xml_reads_no_other_file_and_does_not_grow(tmp_path):
    (tmp_path / "secret").write_text("7")
    grows = "".join(f"<!ENTITY e{i + 1} '{f'&e{i};' * 10}'>" for i in range(30))
    for declared, use in (
        (f"<!ENTITY e SYSTEM '{tmp_path}/secret'>", "&e;"),
        (f"<!ENTITY e0 'x'>{grows}", "&e30;"),
        ("<!ENTITY % p SYSTEM 'http://localhost/x'> %p;", ""),
    ):
        path = write(
            tmp_path,
            "a.xml",
            f"<!DOCTYPE adag [{declared}]><adag><job id='a' runtime='1'/>{use}</adag>",
        )
        with pytest.raises(InvalidInput, match=r"has a document type .* not read; delete it"):
            read_graph(path)


def test_stg_without_costs_has_the_same_edges_of_no_size():
    shape = read_stg(STG)
    assert shape.work.tolist() == [20, 3, 7, 5]
    assert edges(shape) == dict.fromkeys([(0, 1), (0, 2), (1, 3), (2, 3)], 0)


def test_stg_dummies_that_take_time_are_tasks():
    shape = read_stg("1\n0 2 0\n1 3 1 0\n2 0 1 1\n")
    assert shape.work.tolist() == [2, 3, 0]
    assert read_stg("2\n0 4 0\n1 3 1 0\n").work.tolist() == [4, 3]


def test_dot_chains_defaults_and_parallel_edges():
    shape = read_dot("digraph { node [size=2] a -> b -> c [size=4]; a -> b [size=1] c [size=5] }")
    assert shape.names == ("a", "b", "c")
    assert shape.work.tolist() == [2, 2, 5]
    assert shape.source.tolist() == [0, 1, 0]
    assert shape.data.tolist() == [4, 4, 1]
    # Without strict both edges stay; with it the later attributes replace the earlier.
    shape = read_dot("strict digraph { a -> b -> c [size=4]; a -> b [size=1] }")
    assert shape.data.tolist() == [1, 4]


def test_wfformat_files_of_no_parent_do_not_make_edges():
    document = wfformat()
    for task in document["workflow"]["specification"]["tasks"]:
        task["parents"], task["children"] = [], []
    assert edges(read_wfformat(document)) == {}
    # One end is enough.
    document = wfformat()
    for task in document["workflow"]["specification"]["tasks"]:
        task["children"] = []
    assert len(edges(read_wfformat(document))) == 4


def test_structure_alone():
    document = wfformat()
    del document["workflow"]["execution"]
    assert read_wfformat(document).work.tolist() == [1, 1, 1, 1]
    shape = read_dot("digraph { a -> b; c }")
    assert (shape.work.tolist(), shape.data.tolist()) == ([1, 1, 1], [0])


def config(**changes):
    usual = {
        "name": "file",
        "generator": "file",
        "devices": 2,
        "heterogeneity": "related",
        "speeds": [1.0, 2.0],
    }
    return FamilyConfig(**(usual | changes))


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("name", ["a.dot", "a.gv", "a.stg", "a.json", "a.STG"])
def test_times_come_from_the_devices(tmp_path, name):
    content = {".json": wfformat(), ".dot": DAGGEN, ".gv": DOT}.get(
        name[name.index(".") :], STG_WITH_COSTS
    )
    path = write(tmp_path, name, content)
    graph, cluster, costs = draw_instance(config(bandwidth="2 B/s"), 0, path)
    assert graph.name == "a"
    assert costs[graph].seconds.tolist() == [[20, 10], [3, 1.5], [7, 3.5], [5, 2.5]]
    assert graph.tensor_bytes.tolist() == [5.5, 6, 6.5, 7]
    assert len(cluster.devices) == 2
    graph, _, costs = draw_instance(config(ccr=3.0, task_time="2s"), 0, path)
    assert costs[graph].seconds.mean() == pytest.approx(2)
    assert graph.tensor_bytes.mean() == pytest.approx(6)
    assert graph.tensor_bytes[3] / graph.tensor_bytes[0] == pytest.approx(14 / 11)


def test_edges_without_sizes_are_equal_under_a_ratio_and_free_without(tmp_path):
    path = write(tmp_path, "a.stg", STG)
    graph, _, costs = draw_instance(config(), 0, path)
    assert graph.tensor_bytes.tolist() == [0] * 4
    graph, _, costs = draw_instance(config(ccr=2.0), 0, path)
    assert graph.tensor_bytes == pytest.approx([2 * costs[graph].seconds.mean()] * 4)
    graph, _, _ = draw_instance(config(ccr=2.0, data_spread=1.0), 0, path)
    assert np.ptp(graph.tensor_bytes) > 1


def test_tasks_may_stand_in_any_order(tmp_path):
    path = write(
        tmp_path, "a.dot", "digraph { z -> y -> x [size=2]; x [size=1] y [size=4] z [size=8] }"
    )
    graph, _, costs = draw_instance(config(bandwidth="1 B/s"), 0, path)
    assert graph.operator_names == ["z", "y", "x"]
    assert costs[graph].seconds[:, 0].tolist() == [8, 4, 1]


def changed(path, value):
    document = copy.deepcopy(wfformat())
    *parents, key = path
    place = document
    for parent in parents:
        place = place[parent]
    if value is None:
        del place[key]
    else:
        place[key] = value
    return document


TASKS = ("workflow", "specification", "tasks")
RAN = ("workflow", "execution", "tasks")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.stg", "", "holds no task graph"),
        ("a.stg", "10 3\n1 14 0\n", "Line 1 must be the number of tasks alone, not '10 3'"),
        ("a.stg", "x\n", "Line 1 has 'x' where a number of tasks is expected"),
        ("a.stg", "1_0\n", "has '1_0' where a number"),
        ("a.stg", "99999999\n", "at most 1,000,000 are drawn"),
        (
            "a.stg",
            STG[: len(STG) // 3],
            "Line 4: task 2 is to have 1 predecessors; was it truncated",
        ),
        ("a.stg", "2\n0 1 0\n1 1 3 0\n", "Line 3: task 1 is to have 3 predecessors; was it"),
        ("a.stg", "2\n0 1 0\n1 1 1\n", "task 1 is to have 1 predecessors"),
        ("a.stg", "2\n0 1 0\n2 1 0\n", "Line 3 is of task '2', task 1 is next"),
        ("a.stg", "2\n0 1 0\n1 -1 0\n", "Line 3: the time is '-1', not a number from 0"),
        ("a.stg", "2\n0 1 0\n1 1 1 7\n", "Task 1 has predecessor 7, which is not in the file"),
        ("a.stg", "2\n0 1 1 1\n1 1 1 0\n", "cycle"),
        ("a.stg", "3\n0 1 0\n", "is to have 3 tasks and two dummies but has 1 lines"),
        ("a.dot", "graph { a -- b }", "is undirected; a task graph begins with 'digraph'"),
        ("a.dot", "digraph { a -- b }", "Line 1: '--' where '->' is expected"),
        ("a.dot", "digraph {\n a -> {b c} }", "Line 2: an edge ends at a subgraph"),
        ("a.dot", "digraph { {b c} -> a }", "an edge begins at a subgraph"),
        ("a.dot", "digraph { a -> b -> a }", "cycle"),
        ("a.dot", "digraph { a -> a }", "cycle"),
        ("a.dot", "digraph { a [size=<b>x</b>] }", "Line 1: cannot read '<b>"),
        ("a.dot", 'digraph { a [size="x"] }', "Node 'a': size is 'x', not a number"),
        ("a.dot", "digraph { a [size=1]; b }", "Node 'b' has neither size nor weight, though"),
        ("a.dot", "digraph { a -> b [size=1]; b -> c }", r"Edge 'b' -> 'c' \(2\) has neither"),
        ("a.dot", DOT[: len(DOT) // 2], "was it truncated"),
        ("a.dot", "digraph { }", "The DOT graph has no nodes"),
        ("a.dot", "digraph { a } b", "'b' behind the graph's end"),
        ("a.dot", "digraph { ] }", r"']' begins no statement"),
        ("a.json", "[", "It is not JSON"),
        ("a.json", "[1]", "JSON of no form that is known: neither WfFormat"),
        ("a.json", '"workflow"', "JSON of no form that is known: neither WfFormat"),
        ("a.json", '{"nodes": [], "links": []}', "JSON of no form that is known: neither WfFormat"),
        ("a.json", '{"cost": [[1]], "edges": []}', "brings devices and times along; leave out the"),
        (
            "a.json",
            wfformat() | {"schemaVersion": "2.0"},
            "schemaVersion '2.0' is not read, 1.0, 1",
        ),
        ("a.json", {"workflow": {}}, "schemaVersion None is not read, 1.0, 1.1"),
        ("a.xml", "", "It is not XML"),
        ("a.dax", DAX[: len(DAX) // 2], "It is not XML .* was it truncated"),
        ("a.xml", "<graphml/>", "XML of no form that is known: .* <adag>, not <graphml>"),
        ("a.dax", "<adag/>", "The workflow has no jobs"),
        ("a.dax", DAX.replace('id="b"', 'id="a"'), "Two jobs have the id 'a'"),
        ("a.dax", DAX.replace('job id="b"', "job"), "A job lacks the attribute 'id'"),
        (
            "a.dax",
            DAX.replace('parent ref="c"', 'parent ref="z"'),
            "refers to 'z', which is no job",
        ),
        ("a.dax", DAX.replace('runtime="7"', 'runtime="-7"'), "runtime of job 'c' is '-7', not a"),
        ("a.dax", DAX.replace(' runtime="7"', ""), "Job 'c' has no runtime, though others have"),
        ("a.dax", DAX.replace('"output" size="13"', '"sideways"'), "file 'bd' has link 'sideways'"),
        (
            "a.dax",
            DAX.replace(' size="13"', ""),
            "File 'bd', which task 'b' writes, has no size, though others have",
        ),
        ("a.dax", DAX.replace('child ref="b"', 'child ref="a"'), "cycle"),
        ("a.json", wfformat() | {"workflow": 3}, "'workflow' of a WfFormat file must be an object"),
        ("a.json", changed(TASKS, []), "The workflow has no tasks"),
        ("a.json", changed((*TASKS, 0, "id"), None), "A task needs a text 'id', got None"),
        ("a.json", changed((*TASKS, 1, "id"), "a"), "Two tasks have the id 'a'"),
        ("a.json", changed((*TASKS, 1, "parents"), ["z"]), "Task 'b' names 'z' in 'parents'"),
        ("a.json", changed((*TASKS, 0, "parents"), ["d"]), "cycle"),
        ("a.json", changed((*TASKS, 1, "inputFiles"), ["z"]), "file 'z', which 'files' lacks"),
        (
            "a.json",
            changed(("workflow", "specification", "files", 1, "sizeInBytes"), -1),
            "File 'ab': sizeInBytes is -1",
        ),
        ("a.json", changed((*RAN, 0, "runtimeInSeconds"), "x"), "runtimeInSeconds is 'x'"),
        ("a.json", changed((*RAN, 0, "id"), "z"), "'execution' names 'z', which is no task"),
        ("a.json", changed((*RAN, 0), None), "Task 'd' has no runtimeInSeconds, though others"),
        ("a.txt", "digraph { a }", "is no graph file that is known: an .stg of the Standard"),
    ],
)
def test_refusals(tmp_path, name, content, message):
    path = write(tmp_path, name, content)
    with pytest.raises(InvalidInput, match=message) as error:
        draw_instance(config(ccr=1.0), 0, path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_files_and_configs_that_do_not_belong_together(tmp_path):
    path = write(tmp_path, "a.stg", STG_WITH_COSTS)
    with pytest.raises(
        InvalidInput, match=r"a\.stg is a task graph without devices; add them: fam"
    ):
        load_instance(path)
    with pytest.raises(InvalidInput, match=r"a\.json is a task graph without devices"):
        load_instance(write(tmp_path, "a.json", wfformat()))
    with pytest.raises(InvalidInput, match=r"a\.dax is a task graph without devices"):
        load_instance(write(tmp_path, "a.dax", DAX))
    with pytest.raises(
        InvalidInput, match=r"a\.dag is of no form that is known: a bare instance is"
    ):
        load_instance(write(tmp_path, "a.dag", "JOB A a.sub"))
    with pytest.raises(InvalidInput, match="JSON of no form that is known: neither WfFormat"):
        load_instance(write(tmp_path, "c.json", "[]"))
    with pytest.raises(InvalidInput, match=r"'a' have sizes; say what they take by family.ccr"):
        draw_instance(config(), 0, path)
    with pytest.raises(InvalidInput, match="family=file needs the graph's file, instance=FILE"):
        draw_instance(config(), 0)
    with pytest.raises(InvalidInput, match=r"family\.n has no meaning for 'file', which reads"):
        draw_instance(config(n=3), 0, path)
    with pytest.raises(InvalidInput, match="Cannot read"):
        read_graph(tmp_path / "none.stg")
    damaged = tmp_path / "b.dot"
    damaged.write_bytes(b"\xff\xfe\x00digraph")
    with pytest.raises(InvalidInput, match="not text in UTF-8"):
        read_graph(damaged)
