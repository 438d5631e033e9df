"""Targets, the forward pass, losses of given logits, changes of classes."""
