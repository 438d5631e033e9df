"""LSH samplers from options by name."""

import dataclasses

from tfxclass import samplers

_OF_TABLES = {each.name for each in dataclasses.fields(samplers.LSHTables)}


def lsh_sampler(num_sampled=None, **options):
    """An `LSHSampler`; the options of its tables stand among its own."""
    tables = {k: v for k, v in options.items() if k in _OF_TABLES}
    others = {k: v for k, v in options.items() if k not in _OF_TABLES}
    return samplers.LSHSampler(
        num_sampled, samplers.LSHTables(**tables), **others
    )
