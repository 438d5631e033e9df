"""OpenVINO reads SavedModels and ONNX models, and answers on a CPU."""

import pathlib
import sys

import agreement
import numpy as np
import openvino

FOLDER = pathlib.Path(sys.argv[1])
PRECISIONS = {
    "by default": {},
    "float32": {"INFERENCE_PRECISION_HINT": "f32"},
}


def ask(what, path, inputs, expected):
    for name, options in PRECISIONS.items():
        try:
            model = openvino.Core().read_model(FOLDER / path)
            compiled = openvino.compile_model(model, "CPU", options)
            agreement.report(
                f"{what}, {name}", compiled(inputs)["ids"], expected
            )
        except RuntimeError as e:
            agreement.refused(what, e)
            return


agreement.versions("openvino")
head, tagger = (np.load(FOLDER / f"{x}.npz") for x in ("head", "tagger"))
features = {"features": head["x"]}
for name in ("head", "head_int8"):
    ask(f"SavedModel {name}", f"{name}/1", features, head["ids"])
lists = np.load(FOLDER / "lists.npz")
ask("SavedModel lists", "lists/1", features, lists["ids"])
ask("SavedModel with names", "named/1", features, head["ids"])
# Without the output that is looked up.
model = openvino.convert_model(FOLDER / "named" / "1", output=["ids", "scores"])
openvino.save_model(model, FOLDER / "named.xml", compress_to_fp16=False)
ask("the same without names", "named.xml", features, head["ids"])
ask("ONNX head", "head_onnx/model.onnx", features, head["ids"])
terms = {"feature_ids": tagger["ids"], "feature_values": tagger["values"]}
ask("ONNX tagger", "tagger_onnx/model.onnx", terms, tagger["best"])
ask("SavedModel tagger", "tagger/1", {"text": tagger["texts"]}, tagger["best"])
