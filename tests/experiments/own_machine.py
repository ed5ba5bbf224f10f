"""A user's folder with a tiny model and a cluster of this machine's own cores, for runs on hardware."""

import json
import shutil
from pathlib import Path

MODEL = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
    def forward(self, x):
        return torch.cat([self.a(x).relu(), self.b(x).tanh()], 1)
"""


def make_machine(root: Path) -> Path:
    """What tests only read: a model, and shipped profiles under this machine's name."""
    from calibration.environment import cpu_model, device_name
    from cost_models.profile_files import SHIPPED

    base = device_name("cpu")
    for name in (base, f"{base}-3x"):
        folder = root / "profiles" / name
        shutil.copytree(SHIPPED / "amd-epyc-25-17-1core", folder)
        document = json.loads((folder / "profile.json").read_text())
        here = document["provenance"] | {"processor": cpu_model()}
        document |= {"name": name, "provenance": here}
        (folder / "profile.json").write_text(json.dumps(document))
    (root / "net.py").write_text(MODEL)
    return root


def make_home(root: Path, machine: Path) -> Path:
    """Configs of that model and of a cluster of this machine."""
    from calibration.environment import device_name

    base = device_name("cpu")
    for group in ("model", "cluster"):
        (root / "conf" / group).mkdir(parents=True)
    (root / "conf" / "model" / "tiny.yaml").write_text(
        f"name: tiny\ntarget: {machine / 'net.py'}:Net\n"
        "inputs: [{shape: [batch, 64], dtype: float32}]\nbatch: 2\n"
    )
    (root / "conf" / "cluster" / "here.yaml").write_text(
        f"name: here\nhost: ram\nspaces: {{ram: {{}}}}\n"
        f"devices: {{one: {{profile: {base}, space: ram}}, three: {{profile: {base}-3x, space: ram}}}}\n"
    )
    return root


def command(home: Path, *words: str) -> int:
    """``python -m experiments.validate`` with the folder's configs, both workers on one core."""
    from experiments import validate

    return validate.main(
        ["--config-dir", str(home / "conf"), f"output_dir={home}", "cores=[0,0]", *words]
    )


def newest(home: Path) -> Path:
    """The folder that the last validation left."""
    return (home / "validation" / "latest").resolve()
