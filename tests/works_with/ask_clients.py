"""ovmsclient and tritonclient ask a server."""

import pathlib
import sys

import agreement
import numpy as np
import ovmsclient
from tritonclient import grpc
from tritonclient import http

FOLDER, REST, GRPC = pathlib.Path(sys.argv[1]), *sys.argv[2:]
TEXTS = ["word1 word2 word3", "word100 word101"]

agreement.versions("ovmsclient", "tritonclient")
head = np.load(FOLDER / "head.npz")
for make, port in (
    (ovmsclient.make_grpc_client, GRPC),
    (ovmsclient.make_http_client, REST),
):
    client = make(f"127.0.0.1:{port}")
    assert client.get_model_status("head")[1]["state"] == "AVAILABLE"
    found = client.predict({"features": head["x"]}, "head")
    agreement.report(make.__name__, found["ids"], head["ids"])
    print("   ", client.predict({"text": TEXTS}, "tagger")["labels"][:, 0])

client = http.InferenceServerClient(f"127.0.0.1:{REST}")
assert client.is_server_live() and client.is_model_ready("head")
features = http.InferInput("features", list(head["x"].shape), "FP32")
features.set_data_from_numpy(head["x"], binary_data=False)
found = client.infer("head", [features])
agreement.report("tritonclient.http", found.as_numpy("ids"), head["ids"])
text = http.InferInput("text", [len(TEXTS)], "BYTES")
text.set_data_from_numpy(np.array(TEXTS, object), binary_data=False)
print("   ", client.infer("tagger", [text]).as_numpy("labels")[:, 0])
try:
    grpc.InferenceServerClient(f"127.0.0.1:{GRPC}").is_server_live()
except grpc.InferenceServerException as e:
    agreement.refused("tritonclient.grpc", e)
