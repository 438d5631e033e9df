"""Answers Annif's `http` backend from an exported Tagger of URIs.

python serving/annif_backend.py models/subjects 8000

The tags of the Tagger are the URIs of subjects. In Annif's projects.cfg:

    [subjects]
    name=Subjects
    language=en
    backend=http
    vocab=subjects
    endpoint=http://localhost:8000/suggest
"""

import json
import os
import sys
from http import server
from urllib import parse

import tensorflow as tf


class Handler(server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply({"is_trained": True})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = dict(parse.parse_qsl(body, keep_blank_values=True))
        found = self.server.model(text=tf.constant([form["text"]]))
        uris, scores = (found[k].numpy()[0] for k in ("labels", "scores"))
        results = [
            {"uri": uri.decode(), "score": float(score)}
            for uri, score in zip(uris, scores)
            if score > 0
        ]
        self.reply({"results": results[: int(form.get("limit", 10))]})

    def reply(self, document):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())


def main(folder, port):
    # While a version is exported, its folder has another name.
    version = max(filter(str.isdecimal, os.listdir(folder)), key=int)
    saved = tf.saved_model.load(os.path.join(folder, version))
    http = server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
    http.model = saved.signatures["serving_default"]
    http.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
