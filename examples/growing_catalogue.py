"""A catalogue that grows while it is served: new products without training.

    python -m examples.growing_catalogue

A model finds the product that a row of features shows. It is trained on 20,000
products, exported and served. Then 5,000 new ones come, with five rows each.
`tfxclass.add_classes` gives them class rows, made of the mean features of these
rows and as strong as the old ones. What the encoder has learned to look at, it
looks at in new products, too; so they are found before any further training,
while old products keep their rows, and with them their answers. The grown model
is exported as version 2 under load: the server goes over to it, and no request
fails.

At the end: the share of rows, kept back, whose product is found, of old and of
new products, before and after; it is to fall by 0.2 points at most for the old
ones, and to be 0.6 or more for the new ones.
"""

import argparse
import json
import tempfile
import threading
import time
import urllib.error
import urllib.request

import keras
import numpy as np

import tfxclass
from tfxclass_serve.server import Server

RANK, DIM, WIDTH, BATCH = 32, 128, 64, 256

# ## Data
#
# A product is a point in 32 dimensions; a row shows it with some noise, among
# 96 dimensions that say nothing of it. What counts is mixed into all features:
# the encoder has to find it.


class Products:
    """Rows of any product: old ones are those below `num_old`."""

    def __init__(self, num_products, seed=0):
        self.random = np.random.default_rng(seed)
        self.points = self.random.normal(size=(num_products, RANK))
        self.mixing = self.random.normal(size=(DIM, DIM)) / DIM**0.5

    def rows(self, products, count):
        """`count` rows of each product; `(x, y)` in random order."""
        y = self.random.permutation(np.repeat(products, count))
        seen = self.points[y] + 0.4 * self.random.normal(size=(len(y), RANK))
        rest = self.random.normal(size=(len(y), DIM - RANK))
        x = np.concatenate([seen, rest], axis=1) @ self.mixing
        return x.astype(np.float32), y


# ## Model
#
# Cosine logits, as for all identities: rows are directions, and what a few rows
# have in common is one.


def make_model(num_old):
    head = tfxclass.layers.SampledSoftmax(
        num_old,
        num_sampled=min(2048, num_old),
        similarity="cosine",
        class_names=[f"product {i}" for i in range(num_old)],
        seed=1,
    )
    encoder = keras.layers.Dense(WIDTH, use_bias=False)
    model = keras.Sequential([keras.Input([DIM], name="x"), encoder, head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    return model


def accuracy(model, x, y):
    """Share of rows whose best class is the right one."""
    ids, _ = tfxclass.top_k(model, k=1).predict(x, BATCH, verbose=0)
    return float((ids[:, 0] == y).mean())


# ## Load
#
# A thread that asks for the products of a few rows again and again.


class Load(threading.Thread):
    """Asks the server until `stop`; counts answers and failures."""

    def __init__(self, url, x):
        super().__init__(daemon=True)
        self.url, self.answered, self.failed = url, 0, 0
        self.body = json.dumps({"inputs": x.tolist()}).encode()
        self.is_stopped = threading.Event()

    def run(self):
        while not self.is_stopped.is_set():
            try:
                ask(f"{self.url}:predict", self.body)
                self.answered += 1
            except (OSError, ValueError):
                self.failed += 1

    def stop(self):
        self.is_stopped.set()
        self.join()


def ask(url, body=None):
    """The JSON that a server answers."""
    with urllib.request.urlopen(url, body, timeout=60) as answer:
        return json.load(answer)


def wait_for_version(url, version, seconds=300):
    """Until the server answers from a version of the model."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = ask(url)["model_version_status"]
        except urllib.error.HTTPError:
            found = []
        states = {status["version"]: status["state"] for status in found}
        if states.get(str(version)) == "AVAILABLE":
            return
        time.sleep(0.1)
    raise TimeoutError(f"version {version} is not there after {seconds} s")


# ## All of it


def main(
    num_old=20_000, num_new=5_000, rows=16, epochs=8, folder=None, verbose=2
):
    """Returns shares and counts, a dict of numbers."""
    keras.utils.set_random_seed(0)
    products = Products(num_old + num_new)
    old, new = np.split(np.arange(num_old + num_new), [num_old])
    x, y = products.rows(old, rows)
    new_x, new_y = products.rows(new, 5)
    old_test, new_test = (products.rows(each, 1) for each in (old, new))
    model = make_model(num_old)
    model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=verbose)
    found = {"old": accuracy(model, *old_test)}

    folder = folder or tempfile.mkdtemp()
    models = f"{folder}/catalogue"
    tfxclass.export.saved_model(model, models, top_k=5)
    server = Server(folder, poll_seconds=0.2, settle_seconds=0.2)
    server.start()
    url = f"http://127.0.0.1:{server.rest.port}/v1/models/catalogue"
    wait_for_version(url, 1)
    load = Load(url, old_test[0][:4])
    load.start()
    try:
        grown = tfxclass.add_classes(
            model,
            num_new,
            data=(new_x, new_y),
            labels=[f"product {i}" for i in new],
            batch_size=BATCH,
        )
        tfxclass.export.saved_model(grown, models, top_k=5)
        wait_for_version(url, 2)
        body = json.dumps({"inputs": new_test[0][:100].tolist()}).encode()
        named = ask(f"{url}:predict", body)["outputs"]["labels"]
        served = [f"product {i}" for i in new_test[1][:100]]
    finally:
        load.stop()
        server.close()
    found["old, grown"] = accuracy(grown, *old_test)
    found["new, grown"] = accuracy(grown, *new_test)
    right = [best[0] == name for best, name in zip(named, served)]
    found["new, served"] = float(np.mean(right))
    found["answered"], found["failed"] = load.answered, load.failed

    both = np.concatenate([x, new_x]), np.concatenate([y, new_y])
    grown.fit(*both, batch_size=BATCH, epochs=1, verbose=verbose)
    found["old, trained on"] = accuracy(grown, *old_test)
    found["new, trained on"] = accuracy(grown, *new_test)
    tell(found)
    return found


def tell(found):
    """Prints the result."""
    for name, value in found.items():
        shown = f"{value:.1%}" if isinstance(value, float) else value
        print(f"{name:16}: {shown}")
    lost = 100 * (found["old"] - found["old, grown"])
    print(f"Old products lose {lost:.2f} points, and no request may fail.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="where the exports go")
    main(folder=parser.parse_args().folder)
