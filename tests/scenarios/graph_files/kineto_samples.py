"""Traces of PyTorch's profiler: one recorded here, and one of a GPU written by hand."""

import json
import logging
import warnings

import torch
from torch.profiler import (
    ExecutionTraceObserver,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
)


class Branches(torch.nn.Module):
    """Two branches, and views between them."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 64)
        self.left, self.right = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, tokens):
        x = self.embed(tokens)
        y = torch.cat([self.left(x), self.right(x)], -1)
        return self.norm(y[..., :64] + x).transpose(1, 2).contiguous().softmax(-1)


def record(folder, module, inputs, shapes=True, observer=True):
    """Record two iterations; returns the trace's path, an ExecutionTraceObserver's file beside it."""
    logging.disable(logging.INFO)
    observed = ExecutionTraceObserver()
    if observer:
        observed.register_callback(str(folder / "net.et.json"))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module(*inputs)
        with profile(
            activities=[ProfilerActivity.CPU],
            record_shapes=shapes,
            execution_trace_observer=observed if observer else None,
            schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
        ) as profiler:
            for _ in range(3):
                with record_function("forward"):
                    module(*inputs)
                profiler.step()
    path = folder / "net.json"
    profiler.export_chrome_trace(str(path))
    logging.disable(logging.NOTSET)
    return path


def event(name, category, begin, end, thread=1, **arguments):
    """A complete event; microseconds."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 9,
        "tid": thread,
        "ts": 5e12 + begin,
        "dur": end - begin,
        "args": arguments,
    }


def of(*events):
    """A trace of events."""
    return {"schemaVersion": 1, "traceEvents": list(events)}


def on_gpu():
    """A step of 100 us with two streams.

    ``mm`` [10, 30] launches k1 at 12, which runs [20, 50] on stream 7. ``add`` [30, 40] launches k2 at 34, which stream 20
    starts at 52, for it waits for k1. From 60 to 95 the host waits for k2, which ends at 90.
    """
    gpu = {"device": 0}
    return of(
        event("ProfilerStep#4", "user_annotation", 0, 100),
        event("aten::mm", "cpu_op", 10, 30),
        event("cudaLaunchKernel", "cuda_runtime", 12, 18, correlation=1),
        event("k1", "kernel", 20, 50, correlation=1, stream=7, **gpu),
        event("cudaEventRecord", "cuda_runtime", 31, 32, correlation=5),
        event("cudaStreamWaitEvent", "cuda_runtime", 32, 33, correlation=6),
        event("aten::add", "cpu_op", 30, 40),
        event("cudaLaunchKernel", "cuda_runtime", 34, 36, correlation=2),
        event("k2", "kernel", 52, 90, correlation=2, stream=20, **gpu),
        event("cudaStreamSynchronize", "cuda_runtime", 60, 95, correlation=3),
        event(
            *("Stream Wait Event", "cuda_sync", 32, 33),
            **{"correlation": 6, "stream": 20, "wait_on_stream": 7, **gpu},
            wait_on_cuda_event_record_corr_id=5,
        ),
    )


def text(document):
    """Its JSON."""
    return json.dumps(document)


WITH_SHAPES = of(
    event(
        *("aten::linear", "cpu_op", 0, 40),
        **{
            "Record function id": 3,
            "Input Dims": [[8, 4], [6, 4], [6]],
            "Input type": ["float", "float", "float"],
        },
        **{"Input Strides": [[4, 1], [4, 1], [1]], "Concrete Inputs": ["", "", ""]},
    ),
    event(
        *("aten::softmax", "cpu_op", 45, 60),
        **{
            "Record function id": 7,
            "Input Dims": [[8, 6], [], []],
            "Input type": ["float", "Scalar", ""],
        },
        **{"Input Strides": [[6, 1], [], []], "Concrete Inputs": ["", "-1", ""]},
    ),
)
"""Two operators with shapes."""


def _node(name, number, inputs, output):
    sides = [
        {
            "values": [[storage, storage, 0, 1, 4, "cpu"] for storage, _ in rows],
            "shapes": [shape for _, shape in rows],
            "types": ["Tensor(float)"] * len(rows),
            "strides": [[1] * len(shape) for _, shape in rows],
        }
        for rows in (inputs, [output])
    ]
    attributes = [{"name": "rf_id", "type": "uint64", "value": number}]
    return {
        "id": number,
        "name": name,
        "inputs": sides[0],
        "outputs": sides[1],
        "attrs": attributes,
    }


OBSERVED = {
    "schema": "1.1.1-chakra.0.0.4",
    "nodes": [
        _node("aten::linear", 3, [(1, [8, 4]), (2, [6, 4]), (3, [6])], (4, [8, 6])),
        _node("aten::softmax", 7, [(4, [8, 6])], (5, [8, 6])),
    ],
}
"""What the ExecutionTraceObserver says of them."""
