"""The papers' comparison: every head and sampler on four data sets.

The data are in `rows.py`, `readers.py` and `sets.py`; the table of methods in
`methods.py`; a job in `jobs.py`, `model.py` and `train.py`. Other modules are
scripts, each with its tables.
"""
