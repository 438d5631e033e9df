"""Code that losses, heads and tools share.

It has the targets, the forward pass, losses of given logits, and changes of the
classes.
"""
