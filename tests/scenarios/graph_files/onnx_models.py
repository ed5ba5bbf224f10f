"""ONNX models made by hand, and the same modules in PyTorch."""

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper


def model(nodes, inputs, outputs, weights=(), opset=17):
    """The bytes of a model; inputs and outputs by name with their shapes, weights by name with shape or array."""
    made = [
        numpy_helper.from_array(
            value if isinstance(value, np.ndarray) else np.zeros(value, np.float32), name
        )
        for name, value in dict(weights).items()
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(
                n, TensorProto.INT64 if n.startswith("i") else TensorProto.FLOAT, s
            )
            for n, s in inputs.items()
        ],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        made,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return made.SerializeToString()


def cnn(batch=8):
    """A small CNN in ONNX; ``batch`` may be a name."""
    node = helper.make_node
    return model(
        [
            node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
            node("BatchNormalization", ["c1", "s", "o", "m", "v"], ["n1"]),
            node("Relu", ["n1"], ["r1"]),
            node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", ["p1", "w2", "b2"], ["c2"], strides=[2, 2]),
            node("Relu", ["c2"], ["r2"]),
            node("GlobalAveragePool", ["r2"], ["g2"]),
            node("Flatten", ["g2"], ["f2"]),
            node("Gemm", ["f2", "w3", "b3"], ["l3"], transB=1),
            node("Softmax", ["l3"], ["y"]),
        ],
        {"x": [batch, 3, 32, 32]},
        {"y": [batch, 10]},
        {
            "w1": (16, 3, 3, 3),
            "b1": (16,),
            "s": (16,),
            "o": (16,),
            "m": (16,),
            "v": (16,),
            "w2": (32, 16, 3, 3),
            "b2": (32,),
            "w3": (10, 32),
            "b3": (10,),
        },
    )


def torch_cnn():
    """The same in PyTorch."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
        nn.Softmax(-1),
    ).eval()


def attention():
    """One attention head with an MLP as exporters write them: MatMul, Add, Transpose, Reshape, and a GELU around Erf."""
    node, array = helper.make_node, np.array
    return model(
        [
            node("MatMul", ["x", "wq"], ["q0"]),
            node("Add", ["bq", "q0"], ["q1"]),
            node("Reshape", ["q1", "heads"], ["q2"]),
            node("Transpose", ["q2"], ["q3"], perm=[0, 2, 1, 3]),
            node("Transpose", ["q2"], ["k3"], perm=[0, 2, 3, 1]),
            node("MatMul", ["q3", "k3"], ["a0"]),
            node("Div", ["a0", "four"], ["a1"]),
            node("Softmax", ["a1"], ["a2"], axis=-1),
            node("MatMul", ["a2", "q3"], ["a3"]),
            node("Transpose", ["a3"], ["a4"], perm=[0, 2, 1, 3]),
            node("Reshape", ["a4", "flat"], ["a5"]),
            node("Div", ["a5", "root2"], ["e0"]),
            node("Erf", ["e0"], ["e1"]),
            node("Add", ["e1", "one"], ["e2"]),
            node("Mul", ["a5", "e2"], ["e3"]),
            node("Mul", ["e3", "half"], ["e4"]),
            node("Add", ["e4", "x"], ["z"]),
            node("LayerNormalization", ["z", "g", "b"], ["y"]),
        ],
        {"x": [2, 16, 64]},
        {"y": [2, 16, 64]},
        {
            "wq": (64, 64),
            "bq": (64,),
            "g": (64,),
            "b": (64,),
            "heads": array([2, 16, 4, 16]),
            "flat": array([2, 16, 64]),
            **{
                k: array(v, np.float32)
                for k, v in {"four": 4, "root2": 2**0.5, "one": 1, "half": 0.5}.items()
            },
        },
    )


class Attention(torch.nn.Module):
    """The same in PyTorch."""

    def __init__(self):
        super().__init__()
        self.q, self.norm = torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)

    def forward(self, x):
        q = self.q(x).view(2, 16, 4, 16).transpose(1, 2)
        a = (q @ q.transpose(2, 3) / 4.0).softmax(-1) @ q
        a = a.transpose(1, 2).reshape(2, 16, 64)
        return self.norm(torch.nn.functional.gelu(a) + x)
