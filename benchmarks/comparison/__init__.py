"""The papers' comparison: `sets.py`, `methods.py` and jobs in `train.py`.

Other modules are scripts, each with its tables.
"""
