"""Splits and metrics for recommenders and next-item models."""

from tfxclass.retrieval.measures import evaluate
from tfxclass.retrieval.sequences import next_items
from tfxclass.retrieval.sequences import number_items
from tfxclass.retrieval.sequences import pad
from tfxclass.retrieval.splits import Questions
from tfxclass.retrieval.splits import Split
from tfxclass.retrieval.splits import leave_one_out
from tfxclass.retrieval.splits import split_at
from tfxclass.retrieval.splits import split_sessions

__all__ = [
    "Questions",
    "Split",
    "evaluate",
    "leave_one_out",
    "next_items",
    "number_items",
    "pad",
    "split_at",
    "split_sessions",
]
__dir__ = __all__.copy  # For completion.
