"""Random calls of every compiled op: none may end the process or hang.

`python -m tests.fuzz_ops --calls N --seed S`. A call is a valid one, or one
whose arguments were then changed: shapes, dtypes, NaN and infinity, ids out of
range, numbers past 32 and 64 bits, bytes of saved indexes. It either raises
what a user may be shown, or what it returns is checked.

`values` makes and changes arguments, `calls` runs them and prints them as
code, the modules `..._ops` describe the ops, `forks` runs batches in processes
with limits, `known` holds calls that once went wrong.
"""
