"""The papers' comparison: every head and sampler on four data sets.

    python -m benchmarks.comparison --data ../shared/data --epochs 4

from the root of the checkout. Each job is one model on one data set, trained
for `--epochs` in a process of its own. Its result is a file under
benchmarks/cache/comparison/jobs, and a job that has one is not run again: what
was interrupted goes on, with the same command. Then, for each data set, into
benchmarks/results/comparison:

    SET_steps.csv     every point of every learning curve
    SET_steps.json    each method at the end, as report.py shows it
    SET_steps_curves.png
                      P@1 against CPU time and iterations, all methods

`--figures` draws them again, from the CSV where there are no jobs' files.
What a figure says is written by hand into a file of its name, SET_steps.md or
SET_steps_curves.md; `python benchmarks/report.py` puts all into the pages of
results.

The data are in `rows.py`, `readers.py` and `sets.py`; the table of methods in
`methods.py`, what is varied in `sweeps.py`; a job is `model.py` and `train.py`,
all of them `jobs.py`; then `results.py` and `figures.py`.
"""
