"""Hierarchical softmax, its trees, full softmax and fastText, side by side.

The data of the paper's experiment are in `data.py`, our models in `methods.py`,
and all jobs, also of fastText, in `jobs.py`.
"""
