"""What a scheduler may see and do, in both worlds."""

from simulator.context.scheduling import EVERYWHERE, InputTensor, SchedulingContext

__all__ = ["EVERYWHERE", "InputTensor", "SchedulingContext"]
