"""Parts to build a scheduler from: base classes, prices of placements, and lines that explain decisions.

Subclass :class:`Scheduler` and write ``decide``, or take a base class that does most of it:

- :class:`OrderedPlanner` plans a job when it arrives: give the order of its operators, and perhaps their devices.
- :class:`ListPlanner` does so too, where the order depends on where operators went.
- :class:`ReadyList` places ready tasks at run time by priority, each where it would finish first.
- :class:`ArrivalOrder` places them in the order in which they became ready: give the device.
- :class:`BatchMode` maps all tasks that are ready at an instant.
"""

from simulator.context import InputTensor, SchedulingContext
from simulator.context.scheduler import Scheduler, compared
from simulator.planners.communication import Communication, mean_edge_seconds
from simulator.planners.list_planner import Choice, Draft, ListPlanner, OrderedPlanner
from simulator.planners.priorities import rounded_all
from simulator.planners.ranking import Ranking, decreasing, ready_first
from simulator.planners.ranks import mean_seconds, upward_ranks
from simulator.schedulers._arrival_order import ArrivalOrder
from simulator.schedulers._batch_mapping import BatchMode
from simulator.schedulers._dynamic_list import ReadyList
from simulator.schedulers._pricing import best_device, estimated_finishes

__all__ = [
    "ArrivalOrder",
    "BatchMode",
    "Choice",
    "Communication",
    "Draft",
    "InputTensor",
    "ListPlanner",
    "OrderedPlanner",
    "Ranking",
    "ReadyList",
    "Scheduler",
    "SchedulingContext",
    "best_device",
    "compared",
    "decreasing",
    "estimated_finishes",
    "mean_edge_seconds",
    "mean_seconds",
    "ready_first",
    "rounded_all",
    "upward_ranks",
]
