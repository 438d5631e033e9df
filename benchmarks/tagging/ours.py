"""Trains the tagger on a set: python -m benchmarks.tagging.ours TOOL SET ...

Arguments: the tool, the set, the folder of the data, the prepared rows and the
file for the answers; prints what peer.py prints. It reads the texts itself.
"""

import json
import os
import sys
import tempfile
import time

import numpy as np

from benchmarks import measure
from benchmarks.tagging import sets
from benchmarks.tagging.peer import K
from benchmarks.tagging.peer import megabytes
from tfxclass_text import Tagger


def main(tool, name, folder, answers):
    (texts, tags), (test_texts, _) = sets.read(name, folder)
    begin = time.process_time()
    tagger = Tagger(
        fields=sets.fields_of(name, folder),
        effort="fast" if tool == "ours_fast" else "best",
        verbose=0,
    ).fit(texts, tags)
    spent = time.process_time() - begin
    begin = time.process_time()
    found = tagger.predict(test_texts, k=K)
    answered = time.process_time() - begin
    numbers = {name: i for i, name in enumerate(tagger.tags)}
    ids = [[numbers[tag] for tag, _ in row] for row in found]
    np.savez(answers, ids=np.array(ids))
    with tempfile.TemporaryDirectory() as model:
        tagger.save(os.path.join(model, "tagger"))
        size = megabytes(model)
    result = {
        "cpu_s": round(spent, 1),
        "peak_gb": round(measure.peak_gb(), 2),
        "predict_ms": round(1e3 * answered / len(found), 3),
        "mb": round(size, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
