"""Chakra's traces: read as protobuf writes them, replayed, written, and refused in one sentence."""

import pytest

from scenarios import FamilyConfig, draw_instance, load_instance
from scenarios.graph_files import read_graph
from scenarios.graph_files.chakra import Node, chakra_bytes, read_chakra
from simulator import simulate
from simulator.errors import InvalidInput
from simulator.schedulers import create

NODES = [
    Node(0, "load", 4, seconds=2e-6, attributes={"is_cpu_op": True}),
    Node(1, "mm", 4, data_deps=(0,), begin_s=2e-6, seconds=5.5e-6, attributes={"is_cpu_op": False}),
    Node(2, "send", 5, data_deps=(1,), seconds=7e-6, attributes={"comm_size": 1 << 40}),
    Node(3, "all reduce", 7, data_deps=(1,), seconds=9e-6),
    Node(4, "add", 4, ctrl_deps=(1,), data_deps=(2, 3), seconds=1e-6),
]


def messages():
    """The messages of Chakra's et_def.proto that are read, compiled at run time: another writer than ours."""
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2", reason="needs protobuf")
    from google.protobuf import descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    kinds = {
        "u": field.TYPE_UINT64,
        "s": field.TYPE_STRING,
        "b": field.TYPE_BOOL,
        "d": field.TYPE_DOUBLE,
        "i": field.TYPE_INT64,
        "32": field.TYPE_INT32,
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="et_def.proto", package="ChakraProtoMsg", syntax="proto3"
    )
    for name, fields in {
        "AttributeProto": {
            "name": (1, "s"),
            "double_val": (3, "d"),
            "int32_val": (7, "32"),
            "int64_val": (9, "i"),
            "bool_val": (27, "b"),
        },
        "GlobalMetadata": {"version": (1, "s")},
        "IOInfo": {"values": (1, "s"), "shapes": (2, "s"), "types": (3, "s")},
        "Node": {
            "id": (1, "u"),
            "name": (2, "s"),
            "type": (3, "u"),
            "ctrl_deps": (4, "u*"),
            "data_deps": (5, "u*"),
            "start_time_micros": (6, "u"),
            "duration_micros": (7, "u"),
            "inputs": (8, "IOInfo"),
            "attr": (10, "AttributeProto*"),
        },
    }.items():
        message = file.message_type.add(name=name)
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
        for label, (number, kind) in fields.items():
            many, kind = kind.endswith("*"), kind.rstrip("*")
            made = message.field.add(name=label, number=number, label=3 if many else 1)
            if name == "AttributeProto" and number > 1:
                made.oneof_index = 0
            if kind in kinds:
                made.type = kinds[kind]
            else:
                made.type, made.type_name = field.TYPE_MESSAGE, f".ChakraProtoMsg.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("GlobalMetadata", "Node", "AttributeProto")
    return [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{n}"))
        for n in names
    ]


def sized(message):
    data, length, head = message.SerializeToString(), message.ByteSize(), b""
    while length > 0x7F:
        head, length = head + bytes([length & 0x7F | 0x80]), length >> 7
    return head + bytes([length]) + data


def test_what_protobuf_writes_is_read():
    metadata, node, attribute = messages()
    data = sized(metadata(version="0.0.4"))
    for number in range(300):  # ids of more than a byte
        made = node(
            id=number, name=f"n{number}", type=4, duration_micros=3 + number, start_time_micros=9
        )
        made.data_deps.extend(range(max(0, number - 2), number))
        made.inputs.shapes = "[[1, 2]]"
        made.attr.extend(
            [
                attribute(name="is_cpu_op", bool_val=number % 2 == 0),
                attribute(name="low", int64_val=-5),
            ]
        )
        data += sized(made)
    found = read_chakra(data)
    assert [n.number for n in found] == [*range(300)]
    assert found[299].data_deps == (297, 298)
    assert found[299].seconds == pytest.approx(302e-6)
    assert {n.device for n in found} == {"cpu", "npu"}
    assert found[1].attributes == {"is_cpu_op": False, "low": -5}


def test_what_is_written_protobuf_reads():
    metadata, node, _ = messages()
    data = chakra_bytes(NODES)
    parts, at = [], 0
    while at < len(data):
        length, shift = 0, 0
        while True:
            byte, at = data[at], at + 1
            length, shift = length | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        parts, at = [*parts, data[at : at + length]], at + length
    assert metadata.FromString(parts[0]).version == "0.0.4"
    found = [node.FromString(part) for part in parts[1:]]
    assert [(n.id, n.name, n.type, list(n.data_deps), list(n.ctrl_deps)) for n in found] == [
        (n.number, n.name, n.type, list(n.data_deps), list(n.ctrl_deps)) for n in NODES
    ]
    assert [n.duration_micros for n in found] == [2, 6, 7, 9, 1]


def test_there_and_back():
    found = read_chakra(chakra_bytes(NODES))
    assert [
        (n.number, n.name, n.type, n.ctrl_deps, n.data_deps, n.seconds, n.device) for n in found
    ] == [(n.number, n.name, n.type, n.ctrl_deps, n.data_deps, n.seconds, n.device) for n in NODES]


def test_replay_and_other_devices(tmp_path):
    """2 + 5.5 + max(7, 9) + 1 us: messages are not in each other's way."""
    path = tmp_path / "a.et"
    path.write_bytes(chakra_bytes(NODES))
    graph, cluster, costs = load_instance(path)
    assert [(d.name, d.slots) for d in cluster.devices] == [("cpu", 1), ("npu", 1), ("network", 2)]
    assert simulate(graph, cluster, costs, create("fcfs")).makespan == pytest.approx(17.5e-6)
    shape = read_graph(path)
    assert shape.work.tolist() == [n.seconds for n in NODES]
    config = FamilyConfig("file", "file", devices=2, heterogeneity="related", speeds=[1.0])
    parts = draw_instance(config, 0, path)
    assert simulate(*parts, create("heft")).makespan == pytest.approx(17.5e-6)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "does not begin with the metadata"),
        (b"\x05\x0a\x03abc", "no Chakra trace of version 0.0.4: it says 'abc'"),
        (chakra_bytes(NODES)[:-3], "was truncated"),
        (chakra_bytes([]), "has no nodes"),
        (b"{}", "no Chakra trace"),
        (b"\xff" * 30, "more than ten bytes"),
        (chakra_bytes([Node(1, "a"), Node(1, "b")]), "Two nodes have the id 1"),
        (chakra_bytes([Node(1, "a", data_deps=(9,))]), "Node 1 depends on 9"),
        (chakra_bytes([Node(1, "a", data_deps=(2,)), Node(2, "b", ctrl_deps=(1,))]), "[Cc]ycle"),
        (chakra_bytes([Node(1, "a", seconds=1e13)]), r"takes 1e\+13 s"),
    ],
)
def test_refusals(tmp_path, data, said):
    path = tmp_path / "a.et"
    path.write_bytes(data)
    with pytest.raises(InvalidInput, match=said):
        load_instance(path)
    with pytest.raises(InvalidInput):
        draw_instance(FamilyConfig("file", "file", devices=2, beta=1.0, ccr=1.0), 0, path)


def test_nodes_without_a_duration_are_told(tmp_path):
    path = tmp_path / "a.et"
    path.write_bytes(chakra_bytes([Node(1, "a", seconds=1.0), Node(2, "b", 7, data_deps=(1,))]))
    said = []
    load_instance(path, say=said.append)
    assert said == ["1 of 2 nodes have no duration and take no time"]
