"""ONNX Runtime, with a tokenizer of onnxruntime-extensions."""

import pathlib
import sys

import agreement
import numpy as np
import onnx
import onnxruntime
import onnxruntime_extensions as extensions
from onnx import helper

FOLDER = pathlib.Path(sys.argv[1])
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "wine", "[MASK]"]


def session(model):
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(extensions.get_library_path())
    return onnxruntime.InferenceSession(model, options)


def reads_text(path):
    """Our model, from token ids, behind a tokenizer; in one file of ONNX."""
    model = onnx.load(path)
    tokenizer = helper.make_node(
        "BertTokenizer",
        ["text"],
        ["ids_of_text", "types", "mask", "offsets"],
        domain="ai.onnx.contrib",
        vocab_file="\n".join(VOCABULARY),
    )
    batch = helper.make_node("Unsqueeze", ["ids_of_text", "axis"], ["tokens"])
    graph = model.graph
    axis = helper.make_tensor("axis", onnx.TensorProto.INT64, [1], [0])
    graph.initializer.append(axis)
    graph.node.insert(0, batch)
    graph.node.insert(0, tokenizer)
    text = helper.make_tensor_value_info("text", onnx.TensorProto.STRING, [1])
    del graph.input[:]
    graph.input.append(text)
    domain = helper.make_opsetid("ai.onnx.contrib", 1)
    model.opset_import.append(domain)
    return model.SerializeToString()


agreement.versions("onnxruntime", "onnxruntime-extensions")
head = np.load(FOLDER / "head.npz")
keras = session(FOLDER / "keras.onnx")
(scores,) = keras.run(None, {keras.get_inputs()[0].name: head["x"]})
best = np.argsort(-scores, axis=1)[:, : head["ids"].shape[1]]
agreement.report("Keras' own export", best, head["ids"])
words = session(reads_text(FOLDER / "words" / "model.onnx"))
(ids,) = words.run(["ids"], {"text": ["Red wine"]})
agreement.report("text behind a tokenizer", ids, np.load(FOLDER / "words.npy"))
