"""Data never runs code: what a folder that came from elsewhere names is not imported, unless asked for.

Every test that gives a folder gives one whose code leaves a file behind when it is imported.
"""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import pytest

from experiments import validate
from experiments.calibrate import main as calibrate
from experiments.runs.grid import compose_grid
from experiments.runs.provenance import digest
from experiments.runs.trust import admit
from experiments.settling.settle import question_of
from simulator.errors import InvalidInput

SAVED = Path(__file__).parent / "validation" / "saved_validation"
EVIL = """
from pathlib import Path
Path({marker!r}).touch()
from simulator.schedulers.heft import Heft

class Evil(Heft):
    name = "evil"

def build():
    import torch
    return torch.nn.Linear(4, 4)
"""


@pytest.fixture
def evil(folder, monkeypatch):
    """A folder that came from elsewhere, whose modules are importable too."""
    came = folder.parent / "came"
    came.mkdir()
    (came / "evilmodule.py").write_text(EVIL.format(marker=str(folder.parent / "ran")))
    monkeypatch.syspath_prepend(came)
    yield came
    sys.modules.pop("evilmodule", None)


def ran(folder):
    return (folder.parent / "ran").exists()


def scenario(folder):
    words = ["model=branches", "cluster=box", "scheduler=mine", "simulation.draws=20"]
    return compose_grid(words, (folder,)).cells[0].scenario


def named(one, place, path):
    """The scenario with a class path in one of the places that name code."""
    scheduler, model = one.scheduler, one.model
    if place == "class_path":
        scheduler = dataclasses.replace(scheduler, class_path=path)
    elif place == "name":
        scheduler = dataclasses.replace(scheduler, name=path, class_path=None, options={})
    elif place == "nested":
        options = {"scheduler": path}
        scheduler = dataclasses.replace(scheduler, name="packed", class_path=None, options=options)
    elif place == "predictor":
        select = {"name": "two_stage", "predictor": path, "predictor_options": {}}
        options = {"max_batch": 1, "select": select, "packing": None}
        scheduler = dataclasses.replace(
            scheduler, name="fcfs_batching", class_path=None, options=options
        )
    elif place == "target":
        model = dataclasses.replace(model, target=path)
    else:
        model = dataclasses.replace(model, arguments={"width": 8, "what": [path]})
    return dataclasses.replace(one, scheduler=scheduler, model=model)


def write_run(came, one, command="python -m experiments.simulate"):
    """A run's folder as ``simulate`` leaves it."""
    (came / "result.json").write_text(json.dumps({"config": one.document()}))
    (came / "command.txt").write_text(command + "\n")
    return came


FORMS = ("{came}/evilmodule.py:Evil", "evilmodule.Evil", "evilmodule:Evil")


PLACES = ("class_path", "name", "nested", "predictor", "target", "arguments")


@pytest.mark.parametrize("form", FORMS)
def test_a_folder_that_names_code_is_refused_with_the_path(folder, evil, capsys, form):
    path, plain = form.format(came=evil), scenario(folder)
    for place in PLACES:
        one = named(plain, place, path)
        with pytest.raises(InvalidInput, match=r"names code of its own, .*evilmodule.*trust=true"):
            admit([plain, one], evil, (folder,))
        # Shown, and still not imported: whoever makes the scheduler does that.
        admit([one], evil, (folder,), trust=True)
        assert str(evil / "evilmodule.py") in capsys.readouterr().err, place
        # What the command line says is honoured.
        admit([one], evil, (folder,), typed=[f"scheduler.class_path={path}"])
    assert not ran(folder)


def test_what_the_project_and_the_users_folder_name_is_honoured(folder):
    one = scenario(folder)
    admit([one], "somewhere", (folder,))
    shipped = compose_grid(["model=gpt2", "cluster=cpu2", "scheduler=edge/two_stage_lstm"]).cells[0]
    admit([shipped.scenario], "somewhere")
    with pytest.raises(InvalidInput, match=r"names code of its own, mine.py:Mine"):
        admit([one], "somewhere")
    # An option that looks like a path and names nothing that could be imported is an option.
    options = {"device": "rack.gpu0"}
    like = dataclasses.replace(
        one.scheduler, name="single_device", class_path=None, options=options
    )
    admit([dataclasses.replace(one, scheduler=like)], "somewhere", (folder,))


def test_settle_imports_nothing_that_a_run_names(folder, evil, capsys):
    write_run(evil, named(scenario(folder), "target", f"{evil}/evilmodule.py:build"))
    words = [f"settle={evil}", "pair=heft,fcfs", "step=plan"]
    assert calibrate(words) == 2
    assert f"{evil}/evilmodule.py:build. A saved folder is data" in capsys.readouterr().err
    assert not ran(folder)
    question_of(evil, ["heft", "fcfs"], trust=True)
    told = capsys.readouterr().err
    assert f"trust=true: {evil} names code that will run: {evil}/evilmodule.py:build" in told


def test_a_saved_command_names_no_config_folder(folder, evil, capsys):
    """The folder came with configs of its own, in which ``mine`` is something else."""
    (evil / "scheduler").mkdir()
    (evil / "scheduler" / "mine.yaml").write_text("name: mine\nclass_path: evilmodule.Evil\n")
    one = dataclasses.replace(
        scenario(folder), scheduler=named(scenario(folder), "name", "heft").scheduler
    )
    write_run(evil, one, f"python -m experiments.simulate --config-dir {evil}")
    with pytest.raises(InvalidInput, match="No scheduler 'mine'"):
        question_of(evil, ["mine", "heft"])
    question_of(evil, ["mine", "heft"], config_dirs=(folder,))
    assert not ran(folder)
    question_of(evil, ["mine", "heft"], trust=True)
    assert f"was made with configs in {evil}" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["class_path", "target"])
def test_recheck_imports_nothing_that_a_validation_names(folder, evil, capsys, place):
    saved = shutil.copytree(SAVED, evil / "saved")
    document = json.loads((saved / "validation.json").read_text())
    for entry in document["models"]:
        for row in entry["contestants"]:
            both = {**entry["scenario"], **row["scenario"]}
            if place == "class_path":
                both["scheduler"] = both["scheduler"] | {"class_path": "evilmodule.Evil"}
            else:
                both["model"] = both["model"] | {"target": "evilmodule.build"}
            row["scenario"] = both
    (saved / "validation.json").write_text(json.dumps(document))
    assert validate.main([f"recheck={saved}"]) == 2
    assert "names code of its own, evilmodule." in capsys.readouterr().err
    assert not ran(folder)


def test_check_imports_nothing_that_a_sealed_prediction_names(folder, evil, capsys):
    document = {
        "format": "hetsim.sealed/1",
        "settings": {},
        "cases": [
            {"scenario": named(scenario(folder), "class_path", "evilmodule.Evil").document()}
        ],
    }
    from experiments.validation.sealing import FORMAT, RUN_SETTINGS

    document |= {"format": FORMAT, "settings": dict.fromkeys(RUN_SETTINGS, 1)}
    (evil / "march.json").write_text(json.dumps({**document, "sha256": digest(document)}))
    assert validate.main(["check=march", f"sealed_dir={evil}"]) == 2
    assert "names code of its own, evilmodule.Evil" in capsys.readouterr().err
    assert not ran(folder)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("scheduler.class_path=evilmodule.Evil", "names code of its own, evilmodule.Evil"),
        ("+hydra.searchpath=[file://{came}]", "sets +hydra.searchpath="),
    ],
)
def test_validate_follows_no_command_of_a_sweep_to_its_code(folder, evil, capsys, word, sentence):
    words = ["model=branches", "cluster=box", "scheduler=heft", word.format(came=evil)]
    cell = {
        "hash": "0" * 12,
        "status": "done",
        "labels": {"scheduler": "heft"},
        "config": scenario(folder).document(),
        "metrics": {"makespan_s": 1.0},
        "seeds": {"noise": 0},
        "command": " ".join(["python", "-m", "experiments.simulate", *words]),
    }
    (evil / "cells" / "0").mkdir(parents=True)
    (evil / "cells" / "0" / "result.json").write_text(json.dumps(cell))
    code = validate.main(
        ["--config-dir", str(folder), f"sweep={evil}", "model=branches", "cluster=box"]
    )
    assert code == 2
    assert sentence in capsys.readouterr().err
    assert not ran(folder)


def test_trust_goes_with_a_folder(folder, capsys):
    assert calibrate(["trust=true", "step=fit", "out=x"]) == 2
    assert "trust=true goes with settle=" in capsys.readouterr().err
    assert validate.main(["model=gpt2", "trust=true"]) == 2
    assert "trust=true has a meaning with recheck=, check= or sweep=" in capsys.readouterr().err
