"""The compiled ops of tfxclass, for GPUs too; tfxclass loads them from here."""
