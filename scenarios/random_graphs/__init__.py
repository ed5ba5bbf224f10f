"""Families of task graphs for comparing schedulers, drawn from a seed.

Each family is a dataclass of its parameters with a method ``draw``; :data:`FAMILIES` names them.
"""

from collections.abc import Mapping

from scenarios.random_graphs.cholesky import Cholesky
from scenarios.random_graphs.daggen import Daggen
from scenarios.random_graphs.draws import Draws
from scenarios.random_graphs.erdos_renyi import ErdosRenyi
from scenarios.random_graphs.fft import FFT
from scenarios.random_graphs.fork_join import ForkJoin
from scenarios.random_graphs.gaussian_elimination import GaussianElimination
from scenarios.random_graphs.layered import Layered
from scenarios.random_graphs.series_parallel import SeriesParallel
from scenarios.random_graphs.shape import Family, Shape
from scenarios.random_graphs.staged_jobs import StagedJobs
from scenarios.random_graphs.stencils import Stencil1D, Stencil2D
from scenarios.random_graphs.times import Times
from scenarios.random_graphs.trees import InTree, OutTree

FAMILIES: Mapping[str, type[Family]] = {
    "cholesky": Cholesky,
    "daggen": Daggen,
    "erdos_renyi": ErdosRenyi,
    "fft": FFT,
    "fork_join": ForkJoin,
    "gaussian_elimination": GaussianElimination,
    "in_tree": InTree,
    "layered": Layered,
    "out_tree": OutTree,
    "series_parallel": SeriesParallel,
    "staged_jobs": StagedJobs,
    "stencil_1d": Stencil1D,
    "stencil_2d": Stencil2D,
}

__all__ = ["FAMILIES", "Draws", "Family", "Shape", "Times"]
