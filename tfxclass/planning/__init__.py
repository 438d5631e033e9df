"""Memory, network traffic and time of training on many machines."""

from tfxclass.planning.figures import Link
from tfxclass.planning.figures import Machine
from tfxclass.planning.figures import StepCosts
from tfxclass.planning.measured import measure_machine
from tfxclass.planning.plan import Plan
from tfxclass.planning.plan import PlanRow
from tfxclass.planning.plan import plan

__all__ = [
    "Link",
    "Machine",
    "Plan",
    "PlanRow",
    "StepCosts",
    "measure_machine",
    "plan",
]


def __dir__() -> list[str]:
    return __all__
