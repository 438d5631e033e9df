"""Hierarchical softmax, its trees, full softmax and fastText, side by side.

    python -m benchmarks.hierarchical --data ../shared/data \
        --fasttext FOLDER/bin/python

from the root of the checkout; `fasttext_peer.py` says how to make its FOLDER,
and without `--fasttext` it is left out. The experiment of Mohammed &
Umaashankar, 2018 (`data.py`), for the n most frequent labels of EURLEX57K.
Each method's learning rate is chosen on validation rows, then it is trained
once more and tested. A result is a file under benchmarks/cache/hierarchical,
and what has one is not run again.
Then, into benchmarks/results/hierarchical:

    eurlex57k.json, .png            scores and seconds for each n
    step_time.json                  a training step from 10k to 2M classes

`--smoke` runs all of it on a few generated rows, for the tests.
"""
