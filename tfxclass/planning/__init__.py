"""Memory, network traffic and time of training on many machines."""

from tfxclass.planning.machine import Link
from tfxclass.planning.machine import Machine
from tfxclass.planning.machine import StepCosts
from tfxclass.planning.plan import Plan
from tfxclass.planning.plan import PlanRow
from tfxclass.planning.plan import plan

__all__ = ["Link", "Machine", "Plan", "PlanRow", "StepCosts", "plan"]


def __dir__() -> list[str]:
    return __all__
