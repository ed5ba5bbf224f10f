"""Errors that a user can cause and mend.

Every refusal is one of these, with one sentence that names the thing and the way out. Anything else
that escapes the program is a defect of the program.
"""


class HetsimError(Exception):
    """Base of every error that a user can cause; commands print it without a traceback."""


class InvalidInput(HetsimError, ValueError):
    """A file, a graph, a cluster, a workload or a configuration value that cannot be used."""


class SchedulingError(HetsimError, RuntimeError):
    """A scheduler did something its protocol forbids, or left work that can never run."""


class ExecutionError(HetsimError, RuntimeError):
    """A run on hardware that could not be completed: a kernel failed, or the run took too long."""
