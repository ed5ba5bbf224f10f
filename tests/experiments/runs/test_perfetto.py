"""Perfetto JSON: every task there, no overlap on a track, in the viewers' own arithmetic too."""

import itertools
import json
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.runs.perfetto import assign_lanes, perfetto_events, write_perfetto
from simulator.analysis.metrics import metrics
from tests.experiments.synthetic_sweep import two_job_trace
from tests.scenarios.training.chains import pipelined


def slices_by_track(events):
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    return tracks


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    contention=st.sampled_from(["none", "fifo", "fair"]),
    layers=st.integers(3, 8),
    width=st.integers(1, 8),
)
def test_no_two_slices_of_a_track_overlap_and_nothing_is_missing(seed, contention, layers, width):
    trace = two_job_trace(seed, contention, layers, width)
    events = json.loads(json.dumps(perfetto_events(trace)))
    for track in slices_by_track(events).values():
        for before, after in itertools.pairwise(sorted(track, key=lambda e: (e["ts"], e["dur"]))):
            assert before["ts"] + before["dur"] <= after["ts"]
            # Perfetto's importer: nanoseconds by truncation.
            assert int(before["ts"] * 1000) + int(before["dur"] * 1000) <= int(after["ts"] * 1000)
    runs = [e for e in events if e["ph"] == "X" and "task" in e["args"]]
    assert sorted(e["args"]["task"] for e in runs) == trace.tasks["task"].tolist()
    moves = [e for e in events if e["ph"] == "X" and e["cat"] == "transfer"]
    assert len(moves) == len(trace.transfers["link"])
    for event in runs:
        assert event["ts"] == pytest.approx(event["args"]["start_s"] * 1e6, abs=1 / 512)
        end = event["args"]["finish_s"] * 1e6
        assert event["ts"] + event["dur"] == pytest.approx(end, abs=1 / 256)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    contention=st.sampled_from(["none", "fifo", "fair"]),
    layers=st.integers(3, 8),
    width=st.integers(1, 8),
)
def test_arrows_lead_from_producers_to_transfers_to_consumers(seed, contention, layers, width):
    trace = two_job_trace(seed, contention, layers, width)
    events = json.loads(json.dumps(perfetto_events(trace)))
    tracks = slices_by_track(events)

    def bound(event):
        """The slice that a viewer binds an arrow's end to: the latest around it on its track."""
        around = [
            e
            for e in tracks[event["pid"], event["tid"]]
            if e["ts"] <= event["ts"] <= e["ts"] + e["dur"]
        ]
        return max(around, key=lambda e: e["ts"])

    ends = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            assert event["ph"] not in ends[event["id"]], "an arrow has two ends of a kind"
            ends[event["id"]][event["ph"]] = event
            assert event.get("bp") == ("e" if event["ph"] == "f" else None)
    drawn = set()
    for end in ends.values():
        assert end["s"]["ts"] <= end["f"]["ts"]
        a, b = bound(end["s"]), bound(end["f"])
        for run, move in ((a, b), (b, a)):
            if "task" in run["args"]:
                drawn.add(
                    (run["args"]["task"], move["args"]["job"], move["args"]["tensor"], run is a)
                )
    expected = set()
    runs, moves = trace.executions, trace.transfers
    graph = trace.meta["graphs"][0]
    first = {"reads": [], "writes": []}
    for side, rows in first.items():
        begin = 0
        for count in graph[side]["count"]:
            rows.append(graph[side]["tensor"][begin : begin + count])
            begin += count
    space_of = trace.meta["space_of"]
    moved = list(zip(*(moves[k].tolist() for k in ("job", "tensor", "destination")), strict=True))
    for task, job, operator, device in zip(
        *(runs[k].tolist() for k in ("task", "job", "operator", "device")), strict=True
    ):
        for j, tensor, destination in moved:
            if j == job and tensor in first["writes"][operator]:
                expected.add((task, job, tensor, True))
            if (j, destination) == (job, space_of[device]) and tensor in first["reads"][operator]:
                expected.add((task, job, tensor, False))
    assert drawn == expected


def test_counters_step_through_queue_lengths_and_memory():
    trace = two_job_trace()
    events = json.loads(json.dumps(perfetto_events(trace)))
    counters = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            counters[event["pid"], event["name"]].append(event)
    assert set(counters) == {(0, "queue length"), (1, "queue length"), (2, "queue length")} | {
        (5, "ram"),
        (5, "vram"),
    }
    for (pid, name), steps in counters.items():
        times = [e["ts"] for e in steps]
        assert all(a < b for a, b in itertools.pairwise(times))
        (unit,) = {key for e in steps for key in e["args"]}
        values = [e["args"][unit] for e in steps]
        assert min(values) >= 0
        if name == "queue length":
            assert values[-1] == 0
            runs = trace.executions
            for e, value in zip(steps, values, strict=True):
                now = e["ts"] / 1e6 + 2e-9  # times are rounded to 1/256 us
                waiting = (runs["device"] == pid) & (runs["placed"] <= now) & (runs["start"] > now)
                assert value == waiting.sum()
        else:
            peak = metrics(trace)["spaces"][name]["peak_bytes"]
            assert (unit, max(values)) == ("bytes", peak)


def test_tracks_are_named_by_device_channel_and_job():
    events = perfetto_events(two_job_trace())
    names = {
        kind: {
            (e["pid"], e["tid"]): e["args"]["name"]
            for e in events
            if e["ph"] == "M" and e["name"] == kind
        }
        for kind in ("process_name", "thread_name")
    }
    assert list(names["process_name"].values()) == [
        "cpu0: amd-epyc-25-17-1core (measured)",
        "cpu1: amd-epyc-25-17-1core (measured)",
        "gpu0: tesla-t4 (datasheet)",
        "links",
        "jobs",
        "memory",
    ]
    threads = names["thread_name"]
    assert {"cpu0", "cpu1", "gpu0", "jobs", "jobs (2)"} <= set(threads.values())
    assert set(slices_by_track(events)) <= set(threads)
    for event in events:
        if event["ph"] == "X" and "task" in event["args"]:
            process = names["process_name"][event["pid"], 0]
            assert process.startswith(threads[event["pid"], event["tid"]])


def test_passes_stand_above_their_operators():
    trace = pipelined("1f1b", 2, 3)
    events = perfetto_events(trace)
    names = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in events
        if e["ph"] == "M" and e["name"] == "thread_name"
    }
    tracks = slices_by_track(events)
    for device, expected in (
        (0, ["forward 0", "forward 1", "backward 0", "forward 2", "backward 1", "backward 2"]),
        (1, ["forward 0", "backward 0", "forward 1", "backward 1", "forward 2", "backward 2"]),
    ):
        above, below = sorted(key for key in names if key[0] == device)
        assert names[above] == "passes"
        assert names[below] == trace.devices[device]
        assert [e["name"] for e in tracks[above]] == expected
        for box in tracks[above]:
            (inside,) = (
                e
                for e in tracks[below]
                if e["dur"] and box["ts"] <= e["ts"] < box["ts"] + box["dur"]
            )
            assert (inside["ts"], inside["dur"]) == (box["ts"], box["dur"])
            assert box["args"]["micro_batch"] == int(box["name"][-1])
            assert inside["name"].endswith(box["name"][0].upper() + box["name"][-1])


def test_same_trace_same_bytes_and_no_file_after_an_error(tmp_path):
    trace = two_job_trace()
    first = write_perfetto(trace, tmp_path / "a.json").read_bytes()
    assert first == write_perfetto(two_job_trace(), tmp_path / "b.json").read_bytes()
    trace.meta["channels"][0] = object()  # cannot be written
    with pytest.raises(TypeError):
        write_perfetto(trace, tmp_path / "a.json")
    assert (tmp_path / "a.json").read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "b.json"]


def test_lanes_by_hand():
    #  0---------4
    #     1--2          2 touches 2: same lane
    #        2------5
    #            3-3
    assert assign_lanes([(0, 4), (1, 2), (2, 5), (3, 3), (4, 4), (4, 6)]) == [0, 1, 1, 2, 0, 0]
    assert assign_lanes([]) == []
