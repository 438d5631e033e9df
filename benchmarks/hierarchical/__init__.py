"""Hierarchical softmax, its trees, full softmax and fastText, side by side."""
