"""Workers on other machines: Ray, Dask, and Slurm by submitit.

``workers=`` names them: ``ray``, ``ray://host:port``, ``dask``, ``dask://host:port``, ``slurm:partition``,
``submitit:local``, the last two with ``:jobs`` behind. A worker sees the files that this process sees, or the
batch is refused; what it finds out comes back as an answer. Tasks and answers travel as the cluster's own
library sends them, and nothing else is unpickled.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.runs.garbage import seldom_collecting
from experiments.runs.pool import Function, Pool, Worker, answers_to, available_cores
from simulator.errors import HetsimError, InvalidInput

FORMS = "a number of processes, ray, ray://host:port, dask, dask://host:port, slurm:partition[:jobs] or submitit:local[:jobs]"
JOBS = 16
"""Slurm's jobs that a sweep is cut into, unless it says how many."""
MINUTES = 24 * 60
"""The time limit of a Slurm job, unless SBATCH_TIMELIMIT says another."""
REACHED_S = 10.0
"""Seconds in which a cluster has to answer."""
_LIBRARY = {"ray": "ray", "dask": "distributed", "slurm": "submitit", "submitit": "submitit"}


@dataclass(frozen=True)
class Cluster:
    """A cluster that ``workers=`` names.

    Attributes:
        kind: ``ray``, ``dask``, ``slurm`` or ``submitit``.
        address: ``host:port``; the partition of Slurm; None: on this machine.
        jobs: at once, of Slurm and submitit.
    """

    text: str
    kind: str
    address: str | None = None
    jobs: int = JOBS

    @classmethod
    def of(cls, text: str) -> Cluster:
        """Read ``workers=``; nothing is connected.

        Raises:
            InvalidInput: it is none of the forms, or its library is not installed.
        """
        kind, separator, rest = text.partition(":")
        found = None
        if kind in ("ray", "dask"):
            host, _, port = rest.removeprefix("//").rpartition(":")
            if not separator:
                found = cls(text, kind)
            elif rest.startswith("//") and host and port.isdecimal():
                found = cls(text, kind, f"{host}:{port}")
        elif kind in ("slurm", "submitit"):
            where, _, jobs = rest.partition(":")
            local = kind == "submitit"
            if where and (where == "local" or not local) and (jobs.isdecimal() or not jobs):
                number = int(jobs) if jobs else available_cores() if local else JOBS
                found = cls(text, kind, None if local else where, number) if number else None
        if found is None:
            raise InvalidInput(f"workers={text}: it is {FORMS}")
        if importlib.util.find_spec(_LIBRARY[kind]) is None:
            extra = "slurm" if kind == "submitit" else kind
            raise InvalidInput(
                f"workers={text} needs {_LIBRARY[kind]}, which is not installed: pip install 'hetsim[{extra}]'"
            )
        return found

    def connect(self, scratch: Path) -> Pool:
        """Its workers.

        Args:
            scratch: folder in which submitit keeps what it sends, made where it is needed.

        Raises:
            HetsimError: it cannot be reached.
        """
        if self.address is not None and self.kind != "slurm":
            host, _, port = self.address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), REACHED_S).close()
            except (OSError, OverflowError) as error:
                raise self._unreachable(error) from None
        if self.kind == "slurm" and shutil.which("sbatch") is None:
            raise self._unreachable(
                "there is no command sbatch; run this on a machine that submits jobs to Slurm"
            )
        makes: dict[str, Callable[[], Pool]] = {
            "ray": lambda: _Ray(self.address),
            "dask": lambda: _Dask(self.address),
        }
        try:
            return makes.get(self.kind, lambda: _Submitit(self.address, self.jobs, scratch))()
        except HetsimError:
            raise
        except Exception as error:
            raise self._unreachable(error) from None

    def _unreachable(self, why: object) -> HetsimError:
        text = (" ".join(str(why).split()) or type(why).__name__).rstrip(".")
        return HetsimError(
            f"The cluster workers={self.text} cannot be used: {text}. Nothing was simulated; with workers=4, say, the "
            "processes of this machine do the work"
        )


@dataclass(frozen=True)
class _Batch:
    """A function for the workers of a cluster, and where this process finds files and the user's own modules."""

    function: Function
    folder: str
    path: tuple[str, ...]

    @classmethod
    def of(cls, function: Function) -> _Batch:
        installed = (sys.prefix, sys.base_prefix)
        own = (path for path in map(os.path.abspath, sys.path) if not path.startswith(installed))
        return cls(function, os.getcwd(), tuple(dict.fromkeys(own)))

    def __call__(self, tasks: Sequence[Any]) -> list[Any]:
        """The answers, found in the folder of the process that sent the tasks."""
        if not os.path.isdir(self.folder):
            return [
                InvalidInput(
                    f"The worker on {socket.gethostname()} does not see {self.folder}: run the command in a folder that "
                    "all machines share"
                )
            ]
        sys.path += [path for path in self.path if path not in sys.path and os.path.isdir(path)]
        with contextlib.chdir(self.folder), seldom_collecting():
            return answers_to(self.function, tasks)


# -- Ray ----------------------------------------------------------------------------------------


class _Ray(Pool):
    """An actor of one CPU for each CPU of a Ray cluster."""

    def __init__(self, address: str | None) -> None:
        import ray
        from ray.exceptions import RayActorError, RaySystemError

        self._mine = not ray.is_initialized()
        if self._mine:
            options: dict[str, Any] = {"address": f"ray://{address}"}
            if address is None:
                options = {
                    "address": "local",
                    "num_cpus": available_cores(),
                    "include_dashboard": False,
                }
            ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
        self.lost = (RayActorError, RaySystemError)
        self.gone = (ConnectionError,)
        self._actor = ray.remote(_RayActor)
        super().__init__(max(1, int(ray.cluster_resources().get("CPU", 1))))

    def start(self) -> Worker:
        """See :class:`Pool`."""
        return _RayWorker(self._actor.options(num_cpus=1, max_restarts=0).remote())

    def close(self) -> None:
        """See :class:`Pool`."""
        import ray

        if self._mine:
            ray.shutdown()


class _RayActor:
    def work(self, batch: _Batch, tasks: Sequence[Any]) -> list[Any]:
        return batch(tasks)


class _RayWorker:
    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def submit(self, function: Function, tasks: Sequence[Any]) -> Future[list[Any]]:
        """See :class:`Worker`."""
        future: Future[list[Any]] = self._actor.work.remote(_Batch.of(function), tasks).future()
        return future

    def stop(self) -> None:
        """See :class:`Worker`."""
        import ray

        with contextlib.suppress(Exception):  # of an actor that is gone
            ray.kill(self._actor)


# -- Dask ---------------------------------------------------------------------------------------


class _LostError(Exception):
    """A worker of Dask left."""


class _Dask(Pool):
    """The worker processes of a Dask cluster, those that join later included; one batch each, however many threads."""

    interval = 1.0

    def __init__(self, address: str | None) -> None:
        from distributed import Client, KilledWorker, LocalCluster
        from distributed.comm import CommClosedError

        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        self._cluster = None
        if address is None:
            self._cluster = LocalCluster(
                n_workers=available_cores(), threads_per_worker=1, dashboard_address=None
            )
        self.client = Client(
            self._cluster or f"tcp://{address}", timeout=REACHED_S, set_as_default=False
        )
        self.lost = (KilledWorker, _LostError)
        self.gone = (CommClosedError, ConnectionError)
        self.working: dict[str, Future[list[Any]] | None] = {}
        self.client.wait_for_workers(1, timeout=REACHED_S)
        self._known: set[str] = set()
        self._asked = 0.0

    def _addresses(self) -> set[str]:
        """The addresses of the workers that there are, asked once in an interval."""
        if time.monotonic() - self._asked >= self.interval:
            self._known = set(self.client.scheduler_info(n_workers=-1)["workers"])
            self._asked = time.monotonic()
        return self._known

    def hire(self, most: int) -> list[Worker]:
        """See :class:`Pool`."""
        if most <= 0:
            return []
        new = sorted(self._addresses() - self.working.keys())[:most]
        self.working |= dict.fromkeys(new)
        return [_DaskWorker(self, address) for address in new]

    def lose(self, worker: Worker) -> None:
        """See :class:`Pool`."""
        worker.stop()

    def watch(self) -> None:
        """See :class:`Pool`."""
        for address in self.working.keys() - self._addresses():
            future = self.working[address]
            if future is not None and not future.done():
                future.set_exception(_LostError(address))

    def close(self) -> None:
        """See :class:`Pool`."""
        self.client.close()
        if self._cluster is not None:
            self._cluster.close()


class _DaskWorker:
    def __init__(self, pool: _Dask, address: str) -> None:
        self._pool, self._address = pool, address
        self._asked: Any = None

    def submit(self, function: Function, tasks: Sequence[Any]) -> Future[list[Any]]:
        """See :class:`Worker`."""
        found: Future[list[Any]] = Future()

        def hand_on(asked: Any) -> None:
            if not found.done():
                error = asked.exception() if asked.status == "error" else None
                if error is not None:
                    found.set_exception(error)
                elif asked.status == "finished":
                    found.set_result(asked.result())
                else:
                    found.set_exception(_LostError(self._address))

        self._asked = self._pool.client.submit(
            _Batch.of(function), tasks, workers=[self._address], pure=False, retries=0
        )
        self._pool.working[self._address] = found
        self._asked.add_done_callback(hand_on)
        return found

    def stop(self) -> None:
        """See :class:`Worker`."""
        self._pool.working.pop(self._address, None)
        if self._asked is not None and not self._asked.done():
            self._asked.cancel()


# -- Slurm --------------------------------------------------------------------------------------


class _Submitit(Pool):
    """Jobs of Slurm, or processes that submitit starts here; each works through its share of the tasks."""

    interval = 0.5

    def __init__(self, partition: str | None, jobs: int, scratch: Path) -> None:
        import submitit
        from submitit.core.utils import FailedJobError, UncompletedJobError

        super().__init__(jobs)
        self._jobs = jobs
        scratch.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix=".submitit-", dir=scratch))
        self.executor = submitit.AutoExecutor(
            self._folder, "local" if partition is None else "slurm"
        )
        self.executor.update_parameters(name="hetsim", timeout_min=MINUTES, cpus_per_task=1)
        if partition is not None:
            self.executor.update_parameters(slurm_partition=partition)
        self.lost = (UncompletedJobError,)
        self._failed = FailedJobError
        self.jobs: dict[Future[list[Any]], Any] = {}

    def batch(self, tasks: int) -> int:
        """See :class:`Pool`."""
        return -(-tasks // self._jobs)

    def start(self) -> Worker:
        """See :class:`Pool`."""
        return _SubmititWorker(self)

    def watch(self) -> None:
        """See :class:`Pool`."""
        for future, job in list(self.jobs.items()):
            if job.done():
                del self.jobs[future]
                error = job.exception()
                if error is None:
                    future.set_result(job.result())
                elif isinstance(error, self._failed):  # its traceback is between lines of dashes
                    trace = str(error).split("\n-----")[1].strip()
                    future.set_exception(HetsimError(f"A job failed: {trace.splitlines()[-1]}"))
                else:
                    future.set_exception(error)

    def close(self) -> None:
        """See :class:`Pool`."""
        shutil.rmtree(self._folder, ignore_errors=True)


class _SubmititWorker:
    def __init__(self, pool: _Submitit) -> None:
        self._pool = pool
        self._job: Any = None

    def submit(self, function: Function, tasks: Sequence[Any]) -> Future[list[Any]]:
        """See :class:`Worker`."""
        future: Future[list[Any]] = Future()
        self._job = self._pool.jobs[future] = self._pool.executor.submit(_Batch.of(function), tasks)
        return future

    def stop(self) -> None:
        """See :class:`Worker`."""
        if self._job is not None and not self._job.done():
            self._job.cancel(check=False)
