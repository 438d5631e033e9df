"""Variables whose rows are divided among replicas or servers."""

from tfxclass.shards.exchange import batch_of
from tfxclass.shards.shards import Shards
from tfxclass.shards.shards import SplitRows
from tfxclass.shards.shards import make_shards
from tfxclass.shards.shards import memory_per_replica
from tfxclass.shards.shards import parts_of

__all__ = [
    "Shards",
    "SplitRows",
    "batch_of",
    "make_shards",
    "memory_per_replica",
    "parts_of",
]
