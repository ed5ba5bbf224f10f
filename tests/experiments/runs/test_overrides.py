"""Words that cannot be read, and words that nothing would read, are one sentence each."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import simulate, sweep
from experiments.runs.overrides import parse
from experiments.studies.adversary import command as adversary
from experiments.studies.flip import command as flip
from simulator.errors import InvalidInput

UNREADABLE = [
    ("seed.noise=[1", "its brackets or quotes do not match"),
    ("output_dir=a=b=c", "'output_dir=\"a=b=c\"'"),
    ("output_dir=a(b)", "'output_dir=\"a(b)\"'"),
    ("output_dir=~/a", "'output_dir=\"~/a\"'"),
    ("scheduler=heft,", "joined by commas without spaces: scheduler=heft"),
    ("scheduler=heft,,fcfs", "without spaces: scheduler=heft,fcfs"),
    ("scheduler=,heft", "without spaces: scheduler=heft"),
    ("fcfs", "'fcfs' is no override: write key=value"),
    ("=1", "'' is no key"),
    ("+seed.noise=sort()", "Cannot read"),
    ("seed.noise={a:", "do not match"),
    ("seed.noise='1", "do not match"),
]


@pytest.mark.parametrize(("word", "sentence"), UNREADABLE, ids=[word for word, _ in UNREADABLE])
def test_a_word_that_cannot_be_read(word, sentence):
    with pytest.raises(InvalidInput, match=re.escape(sentence)):
        parse(word)


@pytest.mark.parametrize("value", ["a=b=c", "a(b)", "a,b", "a b, c", "x'y", 'x"y', "~/a", "[a"])
def test_the_quoting_that_is_shown_is_read_as_the_value(value):
    try:
        override = parse(f"output_dir={value}")
        read = override.value() if not override.is_sweep_override() else None
    except InvalidInput as error:
        (shown,) = shlex.split(str(error).rpartition("quotes: ")[2])
        read = parse(shown).value()
        assert read == value
    assert read in (value, None)


def test_without_assertions_it_is_one_sentence_too():
    """Hydra relies on assertions where it reads overrides; Python can be told to skip them."""
    code = (
        "from experiments.runs.overrides import parse\n"
        "from simulator.errors import InvalidInput\n"
        "for word in ('+k=sort()', 'k=[1', 'a=b=c', 'k=extend_list(', 'k', '='):\n"
        "    try: print('read', parse(word))\n"
        "    except InvalidInput: pass\n"
    )
    found = subprocess.run(
        [sys.executable, "-O", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert (found.stdout, found.stderr) == ("", "")


IGNORED = [
    (simulate, ["instance=peft", "model=resnet50"], "takes the place of model and cluster"),
    (simulate, ["family=layered", "cluster=cpu2"], "takes the place of model and cluster"),
    (sweep, ["family=layered", "model.batch=4", "scheduler=heft"], "takes the place of model"),
    (simulate, ["family.n=40"], "has no meaning without a family"),
    (simulate, ["workload.rate=20/s"], "no meaning with arrivals single; it is for poisson"),
    (simulate, ["instance=peft", "workload=periodic", "workload.cv=2"], "it is for gamma"),
    (simulate, ["family=layered", "family.heterogeneity=related", "family.beta=0.5"], "it is for"),
    (sweep, ["instance=peft", "scheduler=heft,fcfs", "seed.workload=0,1"], "changes nothing"),
    (sweep, ["instance=peft", "scheduler=heft,fcfs", "seed.noise=0,1"], "without noise"),
    (sweep, ["instance=peft", "scheduler=heft,fcfs", "seed.search=0,1"], "draws anything"),
    (sweep, ["instance=peft", "hydra/launcher=joblib"], "not by Hydra's launchers"),
    (sweep, ["instance=peft", "scheduler=heft,fcfs", "baseline=hft"], "names nobody; this sweep"),
    (
        sweep,
        ["instance=peft", "scheduler=heft,single_device", "baseline=single_device"],
        "names what every scheduler is compared with anyway",
    ),
    (flip, ["instance=peft", "scheduler=heft,fcfs", "dry_run=true"], "python -m experiments.sweep"),
    (flip, ["instance=peft", "scheduler=heft,fcfs", "simulation.noise=measured"], "be ignored"),
    (adversary, ["instance=peft", "scheduler=heft,fcfs", "traces=true"], "experiments.sweep"),
    (
        sweep,
        ["model=resnet50,gpt2", "model.name=mine"],
        "would hold for all of model=resnet50,gpt2",
    ),
]


@pytest.mark.parametrize(("command", "words", "sentence"), IGNORED, ids=[i[1][-1] for i in IGNORED])
def test_what_would_be_ignored_is_refused(command, words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.main(words) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["scheduler=heft,random", "seed.search=0,1"],
        ["workload=poisson", "workload.rate=1/s", "seed.workload=0,1"],
        ["simulation.noise=lognormal", "simulation.sigma=0.1", "seed.noise=0,1"],
        ["simulation.faults=[{what: device_failure, mtbf: 90s, mttr: 1s}]", "seed.noise=0,1"],
        ["workload=single,poisson", "workload.rate=1/s"],
    ],
    ids=lambda words: words[-1],
)
def test_what_changes_something_is_taken(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sweep.main(["instance=peft", "dry_run=true", *words]) == 0


WRONG = [
    (flip, "limit=1s", "limit: Value '1s'"),
    (flip, "limit=[1", "do not match"),
    (flip, "limit=", "'limit=' has no value"),
    (flip, "limit=2,3", "takes one value"),
    (flip, "limit=[2]", "limit: Value '[2]'"),
    (adversary, "iterations=many", "iterations: Value 'many'"),
    (sweep, "scheduler.options.insertion=[1]", "insertion that is true or false, not [1]"),
    (sweep, "seed.noise=[1]", "seed.noise: "),
    (sweep, "output_dir=file/x", "file is no folder"),
    (sweep, "output_dir=a,b", "quotes within quotes: 'output_dir=\"a,b\"'"),
]


@pytest.mark.parametrize(("command", "word", "sentence"), WRONG, ids=[w[1] for w in WRONG])
def test_a_value_of_the_wrong_kind(command, word, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    schedulers = "heft" if "options" in word else "heft,fcfs"
    assert command.main(["instance=peft", f"scheduler={schedulers}", word]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_run_whose_folder_cannot_be_made_does_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert simulate.main(["instance=peft", "output_dir=file"]) == 2
    captured = capsys.readouterr()
    assert "Cannot make the folder output_dir=file: file is no folder" in captured.err
    assert "makespan" not in captured.out
