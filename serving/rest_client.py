"""Asks a served model over REST; the standard library is enough.

python serving/rest_client.py reverse_dictionary "the fear of closed spaces"
"""

import argparse
import json
import urllib.error
import urllib.parse
import urllib.request


def predict(url, model, rows, signature="serving_default", label=None):
    """Answers of a model, a dict for each row.

    Args:
        url: str, as `http://localhost:8501`.
        model: str, its name.
        rows: list of inputs; of dicts by name where there are several. Bytes
            that are no text go as `{"b64": ...}`.
        signature: str.
        label: str, of a version, as "canary"; the latest without.

    Raises:
        RuntimeError: the server refuses; with its message.
    """
    at = f"/labels/{urllib.parse.quote(label)}" if label else ""
    request = urllib.request.Request(
        f"{url}/v1/models/{urllib.parse.quote(model)}{at}:predict",
        json.dumps({"signature_name": signature, "instances": rows}).encode(),
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)["predictions"]
    except urllib.error.HTTPError as e:
        raise RuntimeError(json.load(e)["error"]) from e


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--url", default="http://localhost:8501")
    parser.add_argument("--label", help="of a version, as canary")
    arguments = parser.parse_args()
    answers = predict(
        arguments.url, arguments.model, arguments.texts, label=arguments.label
    )
    for text, answer in zip(arguments.texts, answers):
        print(text)
        for name, score in zip(
            answer.get("labels", answer["ids"]), answer["scores"]
        ):
            print(f"  {score:.3f}  {name}")


if __name__ == "__main__":
    main()
