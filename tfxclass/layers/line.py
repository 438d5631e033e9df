"""A head in one line."""

import keras


def line_of(head: keras.layers.Layer) -> str:
    """What a head is: its classes, parameters, and sampler or index."""
    parts = [f"name={head.name}", f"built={head.built}"]
    parts.append(f"{head.num_classes:,} classes")
    if head.built:
        sizes = [w.shape.num_elements() for w in head.trainable_variables]
        parts.append(f"{sum(sizes):,} parameters")
    sampler = getattr(head, "sampler", None)
    if sampler is not None:
        more = " or more" if sampler.follows_batch else ""
        of = f"{sampler.num_sampled:,}{more} a step"
        parts.append(f"{type(sampler).__name__} of {of}")
    return f"<{type(head).__name__} {', '.join(parts)}>"
