"""Small files in the form of the two repositories; the first rows are as NeuSight has them."""

import json
import os
from pathlib import Path

import pandas as pd
import pytest

from calibration.public import aiconfigurator, main, neusight
from cost_models.table import load
from simulator.errors import InvalidInput

COLLECT = "scripts/asplos/data/dataset/train/collect"
COMMON = "OPName,Latency,Device,Torch Version,Kernel Name"
T4 = "Tesla T4,p2.1.0"
NEUSIGHT = {
    "bmm/p2.1.0/Tesla T4.csv": f"{COMMON},B,M,N,K\n"
    f"bmm,0.035466667264699936,{T4},volta_sgemm_64x64_nn,13,27,15,29\n"
    f"bmm,0.03447466716170311,{T4},volta_sgemm_64x64_nn,22,18,10,14\n",
    "linear/p2.1.0/Tesla T4.csv": f"{COMMON},B,M,N,K\n"
    f"linear,0.052213333547115326,{T4},volta_sgemm_32x128_tn,1,58,13,141\n",
    "ln/p2.1.0/Tesla T4.csv": f"{COMMON},B,H\n"
    f'ln,0.05036799982190132,{T4},"void layer_norm<float, float>(int)",60,272\n',
    "addu/p2.1.0/Tesla T4.csv": f"{COMMON},B,H\naddu,0.02486400045454502,{T4},add,127,168\n",
    "add/p2.1.0/Tesla T4.csv": f"{COMMON},B,H\nadd,0.0259,{T4},add,127,168\n",
    "softmax/p2.1.0/Tesla T4.csv": f"{COMMON},B,H\n"
    f"softmax,0.03328000009059906,{T4},softmax,127,168\n",
    "conv/p2.1.0/NVIDIA A100 80GB PCIe.csv": f"{COMMON},B,Input_Channel,Output_Channel,"
    "Kernel_Szie,Input_Size,Stride,Padding\n"
    "conv,0.9669973452885946,NVIDIA A100 80GB PCIe,p2.1.0,sgemm,38,893,326,3,5,1,1\n",
}
HEAD = "framework,version,device,op_name,kernel_source"
ROW = "VLLM,0.19.0,NVIDIA H100 80GB HBM3,op,default"
ATTENTION = "batch_size,isl,num_heads,num_key_value_heads,head_dim,beam_width,attn_dtype,kv_cache_dtype,step"
AICONFIGURATOR = {
    "gemm_perf.txt": f"{HEAD},gemm_dtype,m,n,k,latency\n"
    f"{ROW},bfloat16,128,4096,1024,0.0123\n{ROW},fp8,128,4096,1024,0.008\n",
    "context_attention_perf.txt": f"{HEAD},{ATTENTION},window_size,latency\n"
    f"{ROW},2,1024,32,8,128,1,bfloat16,bfloat16,0,0,0.05\n"
    f"{ROW},2,1024,32,8,128,1,bfloat16,bfloat16,0,128,0.02\n"
    f"{ROW},2,1024,32,8,128,1,bfloat16,fp8,0,0,0.04\n",
    "generation_attention_perf.txt": f"{HEAD},{ATTENTION},latency\n"
    f"{ROW},4,1,32,32,128,1,bfloat16,bfloat16,511,0.009\n",
    "moe_perf.txt": "is not read\n",
}


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def neusight_checkout(tmp_path) -> Path:
    write(tmp_path / COLLECT, NEUSIGHT)
    # Beside them the repository keeps all devices of a kind in one file: the same rows again.
    write(tmp_path / COLLECT, {"addu.csv": NEUSIGHT["addu/p2.1.0/Tesla T4.csv"]})
    return tmp_path


@pytest.fixture
def aiconfigurator_checkout(tmp_path) -> Path:
    inside = "src/aiconfigurator/systems/data"
    write(tmp_path / inside / "h100_sxm/vllm/0.19.0", AICONFIGURATOR)
    older = {"gemm_perf.txt": AICONFIGURATOR["gemm_perf.txt"]}
    write(tmp_path / inside / "h100_sxm/vllm/0.14.0", older)
    return tmp_path


def rows(table: pd.DataFrame) -> dict[str, tuple]:
    """Shapes, attributes, device and milliseconds by kind, of the last row of each."""
    columns = ("kind", "inputs", "outputs", "attributes", "device", "seconds")
    return {
        kind + ("u" if "scalar" in attributes else ""): (
            inputs, outputs[0], json.loads(attributes), device, seconds * 1e3,
        )
        for kind, inputs, outputs, attributes, device, seconds in zip(
            *(table[c] for c in columns), strict=True
        )
    }  # fmt: skip


def test_neusight(neusight_checkout):
    found = neusight(neusight_checkout)
    table = load(pd.DataFrame(found.rows))
    assert len(table) == 8
    assert set(table["dtype"]) == {"float32"}
    assert set(table["source"]) == {"neusight"}
    known = rows(table)
    t4 = "tesla-t4"
    first = table[table["kind"] == "bmm"].iloc[0]
    assert first["inputs"] == ((13, 27, 15), (13, 15, 29))
    assert first["seconds"] == pytest.approx(35.466667264699936e-6, rel=1e-12)
    assert known["linear"] == (
        ((1, 58, 13), (141, 13)), (1, 58, 141), {}, t4, pytest.approx(0.0522133335)
    )  # fmt: skip
    assert known["layer_norm"][:2] == (((60, 272), (272,), (272,)), (60, 272))
    assert known["add"][:3] == (((127, 168), (127, 168)), (127, 168), {})
    assert known["addu"][:3] == (((127, 168),), (127, 168), {"scalar": True})
    inputs, output, attributes, device, _ = known["conv2d"]
    assert inputs == ((38, 893, 5, 5), (326, 893, 3, 3))
    assert output == (38, 326, 5, 5)
    assert attributes == {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}
    assert device == "nvidia-a100-80gb-pcie"


def test_aiconfigurator(aiconfigurator_checkout):
    found = aiconfigurator(aiconfigurator_checkout, only=["h100_sxm/vllm/0.19.0"])
    table = load(pd.DataFrame(found.rows))
    assert found.left_out == {"of other element types": 2, "with a sliding window": 1}
    assert set(table["device"]) == {"nvidia-h100-sxm"}
    shapes = [(r.inputs, json.loads(r.attributes).get("phase")) for r in table.itertuples()]
    query, key = (2, 32, 1024, 128), (2, 8, 1024, 128)
    assert shapes == [
        ((query, key, key), "context"),
        (((128, 1024), (4096, 1024)), None),
        (((4, 32, 1, 128), (4, 32, 512, 128), (4, 32, 512, 128)), "generation"),
    ]
    assert list(table["seconds"]) == pytest.approx([5e-5, 1.23e-5, 9e-6])
    assert list(table["source"])[1] == "aiconfigurator/h100_sxm/gemm/vllm/0.19.0"
    assert len(aiconfigurator(aiconfigurator_checkout, only=["h100_sxm"]).rows) == 4


def test_parquet_of_the_same_rows_is_read_once(aiconfigurator_checkout):
    (folder,) = aiconfigurator_checkout.rglob("0.14.0")
    frame = pd.read_csv(folder / "gemm_perf.txt")
    frame.to_parquet(folder / "gemm_perf.parquet")
    found = aiconfigurator(aiconfigurator_checkout, only=["h100_sxm/vllm/0.14.0"])
    assert [row["kind"] for row in found.rows] == ["linear"]


def test_the_command_writes_a_measurement_table(neusight_checkout, tmp_path, capsys):
    table = tmp_path / "out" / "neusight.parquet"
    assert main(["neusight", str(neusight_checkout), str(table)]) == 0
    assert f"8 rows: {table}" in capsys.readouterr().out
    assert len(load(table)) == 8


LAST = "22,18,10,14\n"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("bmm/p2.1.0/Tesla T4.csv", lambda t: t[: -len(LAST) + 2], "row 2 has no whole numbers"),
        ("bmm/p2.1.0/Tesla T4.csv", lambda t: t.replace(LAST, "22,18.5,10,14\n"), "whole numbers"),
        ("bmm/p2.1.0/Tesla T4.csv", lambda t: t.replace(LAST, f"1,2,3,4,5,{LAST}"), "is no CSV"),
        ("bmm/p2.1.0/Tesla T4.csv", lambda t: t.replace("B,M,N,K", "B,M,N,Q"), "lacks the column 'K'"),
        ("bmm/p2.1.0/Tesla T4.csv", lambda t: t.replace("0.03447466716170311", "nan"), "Latency = nan"),
        ("bmm/p2.1.0/Tesla T4.csv", lambda t: t.replace("0.03447466716170311", "-1"), "Latency = -1"),
        ("bmm/p2.1.0/Tesla T4.csv", lambda t: "", "is no CSV"),
        ("cumsum/p2.1.0/Tesla T4.csv", lambda t: "OPName\n", "'cumsum' is no kind"),
    ],
)  # fmt: skip
def test_bad_neusight_files(neusight_checkout, tmp_path, capsys, name, change, message):
    path = neusight_checkout / COLLECT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(change(path.read_text() if path.exists() else ""))
    with pytest.raises(InvalidInput, match=message):
        neusight(neusight_checkout)
    table = tmp_path / "out.parquet"
    assert main(["neusight", str(neusight_checkout), str(table)]) == 2
    assert message in capsys.readouterr().err
    assert not table.exists()


def test_rows_without_a_time_are_left_out_when_asked(neusight_checkout):
    path = neusight_checkout / COLLECT / "bmm/p2.1.0/Tesla T4.csv"
    path.write_text(path.read_text().replace("0.03447466716170311", ""))
    found = neusight(neusight_checkout, skip_bad=True)
    assert len(found.rows) == 7
    assert found.left_out == {"without a valid time": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull"),
        (f"{HEAD},m,n,k,latency\n{ROW},1,2,3,4\n", "lacks the column 'gemm_dtype'"),
        (f"{HEAD},gemm_dtype,m,n,k,latency\n{ROW},bfloat16,1,2,3,inf\n", "latency = inf"),
    ],
)
def test_bad_aiconfigurator_files(aiconfigurator_checkout, text, message):
    (path,) = aiconfigurator_checkout.rglob("0.14.0/gemm_perf.txt")
    path.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        aiconfigurator(aiconfigurator_checkout)


def test_truncated_parquet(aiconfigurator_checkout):
    (folder,) = aiconfigurator_checkout.rglob("0.14.0")
    (folder / "context_attention_perf.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InvalidInput, match="cannot be read"):
        aiconfigurator(aiconfigurator_checkout)


def test_nothing_there(tmp_path, aiconfigurator_checkout):
    with pytest.raises(InvalidInput, match="No NeuSight measurements below"):
        neusight(tmp_path / "empty")
    with pytest.raises(
        InvalidInput, match=r"of h300_sxm below .*; there are h100_sxm/vllm/0\.14\.0"
    ):
        aiconfigurator(aiconfigurator_checkout, only=["h300_sxm"])
    assert main(["neusight", str(tmp_path), str(tmp_path / "t"), "--only", "h100_sxm"]) == 2


DATASETS = os.environ.get("HETSIM_DATASETS")


@pytest.mark.skipif(not DATASETS, reason="HETSIM_DATASETS does not name the public data sets")
def test_converted_rows_are_those_of_the_data_sets(neusight_checkout):
    """The rows above that were copied from the source, as the data sets have them."""
    table = load(Path(str(DATASETS)) / "neusight_gpus.parquet")
    table = table[table["device"].isin(["tesla-t4", "nvidia-a100-80gb-pcie"])]
    columns = ["device", "kind", "dtype", "inputs", "outputs", "attributes", "source"]
    there = {
        key: seconds
        for *key, seconds in zip(*(table[c] for c in (*columns, "seconds")), strict=True)
        for key in [tuple(key)]
    }
    converted = load(pd.DataFrame(neusight(neusight_checkout).rows))
    converted = converted[~((converted["kind"] == "add") & (converted["attributes"] == "{}"))]
    for *key, seconds in zip(*(converted[c] for c in (*columns, "seconds")), strict=True):
        assert there[tuple(key)] == pytest.approx(seconds, rel=1e-9)
