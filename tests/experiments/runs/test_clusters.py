"""Sweeps on Ray, on Dask and by submitit: the same folders as on this machine, whatever becomes of a worker."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import socket
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import sweep
from experiments.runs import cell_folder, clusters, pool
from experiments.runs.command import Invocation
from experiments.runs.pool import Pool, WorkerDiedError, answers_to, work_through
from simulator.errors import HetsimError, InvalidInput
from tests.examples import examples

SWEEPS = Path("outputs/sweeps")
OWN = """
import os
from simulator.context.scheduler import Scheduler

class Own(Scheduler):
    name = "own"

    def decide(self, context):
        with open("tried", "a") as file:
            file.write("{0}\\n")
        {1}
"""
FAILS, DIES = "raise ValueError('no')", "os._exit(9)"


@pytest.fixture
def own(folder, monkeypatch):
    """A folder with two more schedulers of the user's own: one fails, one takes its process with it."""
    monkeypatch.setattr(sweep, "_report", lambda *_: None)
    for name, end in (("failing", FAILS), ("deadly", DIES)):
        (folder / f"{name}.py").write_text(OWN.format(name, end))
        (folder / "scheduler" / f"{name}.yaml").write_text(
            f"name: {name}\nclass_path: {name}.py:Own\ndescription: ends\n"
        )
    return folder


@contextlib.contextmanager
def reached(kind, monkeypatch):
    """What ``workers=`` says of a small cluster of this kind."""
    library = {"ray": "ray", "dask": "distributed", "submitit": "submitit"}[kind]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    if (
        kind == "submitit"
    ):  # waits 15 s for what a job that was killed may have left on a slow file system
        monkeypatch.setattr("submitit.Job._results_timeout_s", 0)
    if kind != "dask":
        yield {"ray": "ray", "submitit": "submitit:local:2"}[kind]
        return
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster.scheduler_address.replace("tcp", "dask")


def cells(name):
    """By cell the files of its folder, without what differs from run to run."""
    found = {}
    for path in sorted((SWEEPS / name / "cells").glob("*/*")):
        content = path.read_bytes()
        if path.name == "result.json":
            document = json.loads(content)
            document.pop("wallclock", None)
            content = json.dumps(document)
        if path.name == "error.txt":  # through which lines it came differs
            content = content.splitlines()[-1]
        found[path.parent.name, path.name] = content
    return found


@pytest.mark.parametrize("kind", ["ray", "dask", "submitit"])
def test_a_cluster_leaves_what_this_machine_leaves(own, capsys, monkeypatch, kind):
    """Interrupted and gone on with; one cell fails, and one takes its worker with it, twice."""
    words = ["--config-dir", str(own), "instance=topcuoglu,fork", "traces=true"]
    assert sweep.main([*words, "scheduler=heft,mine,failing", "name=here", "workers=1"]) == 1
    Path("tried").unlink()
    with reached(kind, monkeypatch) as workers:
        there = [*words, "scheduler=heft,mine,failing,deadly", f"workers={workers}", "name=there"]
        there += ["exclude=[{scheduler:deadly,instance:topcuoglu}]"]
        kept = []

        def interrupted(task, files):
            if len(kept) == 2:
                raise KeyboardInterrupt
            kept.append(task.hash)
            return cell_folder.keep_files(task, files)

        with monkeypatch.context() as patch:
            patch.setattr(sweep, "keep_files", interrupted)
            assert sweep.main(there) == 130
        assert {cell for cell, _ in cells("there")} == set(kept)
        Path("tried").unlink(missing_ok=True)
        capsys.readouterr()
        assert sweep.main(there) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "1 of 7 cells are still to do: their process was killed" in out
    tried = Path("tried").read_text().split().count("deadly")
    assert (
        2 <= tried <= (4 if kind == "submitit" else 2)
    )  # with others in a job, of which it is one
    assert cells("there") == cells("here")
    assert len(list((SWEEPS / "there").glob("cells/*/trace.json"))) == 4
    assert not list((SWEEPS / "there").rglob(".*"))
    assert json.loads((SWEEPS / "there" / "manifest.json").read_text())["workers"] == workers


def closed_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cloud", "workers=cloud: it is a number of processes, ray, ray://host:port, dask"),
        ("ray://head", "workers=ray://head: it is"),
        ("slurm", "workers=slurm: it is"),
        ("submitit:other", "workers=submitit:other: it is"),
        ("submitit:local:0", "workers=submitit:local:0: it is"),
        ("dask://127.0.0.1:PORT", "cannot be used: [Errno 111] Connection refused. Nothing was"),
        ("ray://127.0.0.1:PORT", "cannot be used: [Errno 111] Connection refused. Nothing was"),
        ("slurm:main", "cannot be used: there is no command sbatch"),
    ],
)
def test_what_cannot_be_reached_is_refused_before_any_work(
    own, capsys, monkeypatch, text, sentence
):
    monkeypatch.setattr(clusters.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("PATH", "")
    text = text.replace("PORT", str(closed_port()))
    assert sweep.main(["instance=fork", "--config-dir", str(own), f"workers={text}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line
    assert not Path("outputs").exists()


@pytest.mark.parametrize(
    ("text", "library", "extra"),
    [
        ("ray", "ray", "ray"),
        ("dask://head:8786", "distributed", "dask"),
        ("slurm:main", "submitit", "slurm"),
    ],
)
def test_a_missing_library_is_named_with_what_brings_it(monkeypatch, text, library, extra):
    monkeypatch.setattr(clusters.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(
        InvalidInput, match=rf"needs {library}, which .*pip install 'hetsim\[{extra}\]'"
    ):
        clusters.Cluster.of(text)


def test_a_worker_that_sees_other_files_refuses(own, monkeypatch):
    words = ("instance=fork", "scheduler=mine")
    (task,) = sweep.plan_sweep(Invocation("experiments.sweep", words, (own,))).tasks
    assert json.loads(cell_folder.cell_files(task)["result.json"])["status"] == "done"
    assert not task.folder.exists()
    elsewhere = dataclasses.replace(task, config_dirs=(*task.config_dirs, Path("/not/there")))
    with pytest.raises(InvalidInput, match=f"on {socket.gethostname()} has no folder /not/there"):
        cell_folder.cell_files(elsewhere)
    (own / "mine.py").write_text((own / "mine.py").read_text() + "# edited\n")
    monkeypatch.setattr(cell_folder, "code_digest", lambda: "other")
    with pytest.raises(InvalidInput, match="has another code, scheduler than this machine"):
        cell_folder.cell_files(task)


def test_a_batch_in_a_folder_that_a_worker_does_not_see_is_refused():
    batch = dataclasses.replace(clusters._Batch.of(abs), folder="/not/there")
    (answer,) = batch([1, 2])
    assert "does not see /not/there: run the command in a folder that all machines share" in str(
        answer
    )
    folder = os.getcwd()
    assert clusters._Batch.of(abs)([-1, 2]) == [1, 2]
    assert os.getcwd() == folder


class GoneError(Exception):
    """A worker of :class:`Here` ended."""


class Here(Pool):
    """Workers that are no processes; negative tasks end them."""

    lost = (GoneError,)
    size = 1

    def batch(self, tasks):
        return self.size

    def start(self):
        return self

    def submit(self, function, tasks):
        future = Future()
        try:
            future.set_result(answers_to(function, tasks))
        except GoneError as error:
            future.set_exception(error)
        return future

    def stop(self):
        pass


@settings(max_examples=examples(240), deadline=None)
@given(st.lists(st.booleans(), max_size=12), st.integers(1, 5), st.integers(1, 4))
def test_whatever_ends_workers_all_other_tasks_have_their_answer(deadly, size, count):
    workers, tried = Here(count), []
    workers.size = size

    def function(number):
        tried.append(number)
        if deadly[number]:
            raise GoneError
        return number * number

    tasks = [(str(number % 3), number) for number in range(len(deadly))]
    answers = dict(work_through(tasks, function, workers))
    assert sorted(answers) == list(range(len(deadly)))
    for number, answer in answers.items():
        if deadly[number]:
            assert isinstance(answer, WorkerDiedError)
            assert tried.count(number) >= 2
            assert tried.count(number) == 2 or size > 1
        else:
            assert answer == number * number


def test_answers_before_an_error_that_is_explained_are_kept():
    workers, answers = Here(1), []
    workers.size = 3

    def function(number):
        if number == 2:
            raise InvalidInput("no such file")
        return number

    with pytest.raises(InvalidInput, match="no such file"):
        answers.extend(work_through([("a", n) for n in (0, 1, 2, 3)], function, workers))
    assert [answer for _, answer in answers] == [0, 1]


def test_a_cluster_that_loses_all_workers_is_said(monkeypatch):
    monkeypatch.setattr(pool, "NO_WORKER_S", 0.0)
    with pytest.raises(HetsimError, match="no worker any more; what was finished is kept"):
        list(work_through([("a", 1)], abs, Here(0)))
