"""The papers' comparison: every head and sampler on four data sets.

    python -m benchmarks.comparison --data ../shared/data --seconds 60

`rows.py` and `sets.py` are the data, `methods.py` the table of methods and of
the settings that are varied, `train.py` one job, `jobs.py` all of them, and
`figures.py` what is made of their results.
"""
