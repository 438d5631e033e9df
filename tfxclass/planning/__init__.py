"""Memory and network traffic of training on many machines."""

from tfxclass.planning.plan import Link
from tfxclass.planning.plan import Plan
from tfxclass.planning.plan import PlanRow
from tfxclass.planning.plan import plan

__all__ = ["Link", "Plan", "PlanRow", "plan"]
__dir__ = __all__.copy  # For completion.
