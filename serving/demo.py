"""The last step of `make demo`: asks the development server.

python serving/demo.py models/reverse_dictionary "the fear of closed spaces"
"""

import os
import subprocess
import sys

# First: without TensorFlow's notes.
from tfxclass_serve import quiet  # noqa: F401

# isort: split
from tfxclass_serve.server import Server

HERE = os.path.dirname(os.path.abspath(__file__))


def main(folder, *texts):
    server = Server(folder, rest_port=0, grpc_port=0)
    server.start()
    model = os.path.basename(os.path.abspath(folder))
    try:
        for client, flag in (
            ("rest_client.py", f"--url=http://127.0.0.1:{server.rest.port}"),
            ("grpc_client.py", f"--target=127.0.0.1:{server.grpc.port}"),
        ):
            print(f"\nserving/{client}", flush=True)
            client = os.path.join(HERE, client)
            command = [sys.executable, client, flag, model, *texts]
            # TensorFlow's notes are on stderr: told if it fails.
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                sys.exit(done.stderr)
    finally:
        server.close()
    print(f"\nTo go on asking: tfxclass-serve {folder}, then open")
    print("http://localhost:8501/")


if __name__ == "__main__":
    main(*sys.argv[1:])
