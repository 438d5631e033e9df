"""The papers' comparison: every head and sampler on four data sets.

    python -m benchmarks.comparison --data ../shared/data --epochs 4

from the root of the checkout. Each job is one model on one data set, trained
for `--epochs` in a process of its own. Its result is a file under
benchmarks/cache/comparison/jobs, and a job that has one is not run again: what
was interrupted goes on, with the same command. Then, for each data set, each
method at the end: benchmarks/results/comparison/SET_steps.json. What a table
says is written by hand into a file of its name, SET_steps.md; `python
benchmarks/report.py` puts all into the pages of results.

The data are in `rows.py`, `readers.py` and `sets.py`; the table of methods in
`methods.py`; a job is `model.py` and `train.py`, all of them, and what is
varied, `jobs.py`; then `results.py`.
"""
