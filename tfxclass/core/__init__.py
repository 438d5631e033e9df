"""What losses, rows, heads and tools share.

Targets, the forward pass, losses of given logits, and changes of the classes.
"""
