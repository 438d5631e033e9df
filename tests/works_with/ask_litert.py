"""LiteRT answers with its own ops."""

import pathlib
import sys

import agreement
import numpy as np
from ai_edge_litert.interpreter import Interpreter

FOLDER = pathlib.Path(sys.argv[1])

agreement.versions("ai-edge-litert")
head = np.load(FOLDER / "head.npz")
for path in sorted(FOLDER.glob("* *.tflite")):
    serve = Interpreter(str(path)).get_signature_runner("serving_default")
    found = serve(features=head["x"])
    name = path.stem.split()[0]
    expected = np.load(FOLDER / "lists.npz") if name == "lists" else head
    agreement.report(path.stem, found["ids"], expected["ids"])
    error = np.abs(found["scores"] - expected["scores"]).max()
    print(f"    scores differ by {error:.1e} at most")
interpreter = Interpreter(str(FOLDER / "keras.tflite"))
serve = interpreter.get_signature_runner()
(name,) = serve.get_input_details()
(scores,) = serve(**{name: head["x"]}).values()
best = np.argsort(-scores, axis=1)[:, : head["ids"].shape[1]]
agreement.report("Keras' own export", best, head["ids"])
