"""Identities: is it the same character, face or product, and which one?

    python -m examples.identities --data images.npz --path models/identities

`--data`: a file of `numpy.savez` with `images` (`[n, height, width]`, numbers
from 0 to 255) and `identities` (`[n]`, any labels). Without it, simple figures
are made. A fifth of the identities is left out of training. On them the
example verifies pairs of images, and identifies images by a gallery with one
image of each identity. `docs/identities.md` explains each step.
"""

import argparse

import keras
import numpy as np

import tfxclass

DIM, BATCH, SIDE, PAIRS = 64, 128, 16, 20
UNEQUAL_SHARE = 1e-3  # of unequal pairs that may match


def read(path):
    """`(images, identities)`: float32 `[n, h, w, 1]` in [0, 1], and ints."""
    if path is None:
        return make_figures()
    with np.load(path) as file:
        images, names = file["images"], file["identities"]
    identities = np.unique(names, return_inverse=True)[1]
    return images[..., np.newaxis].astype("float32") / 255, identities


def make_figures(num_identities=250, photos=12, seed=0):
    """Patterns of dots, in another light and with noise in each image."""
    random = np.random.default_rng(seed)
    identities = np.repeat(np.arange(num_identities), photos)
    dots = random.random((num_identities, SIDE, SIDE, 1)) < 0.3
    light = random.uniform(0.5, 1.0, (len(identities), 1, 1, 1))
    images = light * dots[identities]
    images += random.normal(0, 0.3, images.shape)
    return np.clip(images, 0, 1).astype("float32"), identities


def make_encoder(shape):
    """Images to normalized features."""
    layers = [keras.Input(shape)]
    for filters in (32, 64):
        options = {"padding": "same", "use_bias": False}
        layers.append(keras.layers.Conv2D(filters, 3, 2, **options))
        layers += [keras.layers.BatchNormalization(), keras.layers.ReLU()]
    # A last layer without ReLU: features may be negative.
    layers += [keras.layers.Flatten(), keras.layers.Dense(DIM)]
    layers += [keras.layers.BatchNormalization()]
    return keras.Sequential([*layers, keras.layers.UnitNormalization()])


def train(images, identities, epochs):
    """`(model, encoder)`; the encoder gives the features."""
    encoder, count = make_encoder(images.shape[1:]), 1 + max(identities)
    head = tfxclass.layers.SampledSoftmax(
        count,
        num_sampled=min(512, count),
        similarity=tfxclass.layers.Cosine(scale=24.0),
    )
    model = keras.Sequential([encoder, head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    model.fit(images, identities, BATCH, epochs=epochs, verbose=2)
    return model, encoder


def verify(features, identities, seed=0):
    """`(accuracy, rate)` of the question: do two images show the same one?

    `rate` is the share of equal pairs that are found if `UNEQUAL_SHARE` of the
    unequal pairs may match.
    """
    random = np.random.default_rng(seed)
    left = np.tile(np.arange(len(identities)), PAIRS)
    right = random.integers(len(identities), size=len(left))
    order = np.argsort(identities, kind="stable")
    equal = identities[order[1:]] == identities[order[:-1]]
    left = np.concatenate([left, order[:-1][equal]])
    right = np.concatenate([right, order[1:][equal]])
    kept = left != right
    similarity = np.sum(features[left] * features[right], axis=1)[kept]
    same = (identities[left] == identities[right])[kept]
    rate = tfxclass.metrics.true_positive_rate(similarity, same, UNEQUAL_SHARE)
    return tfxclass.metrics.verification_accuracy(similarity, same), rate


def identify(features, identities):
    """Share of images that are nearest to their own in the gallery."""
    known, first = np.unique(identities, return_index=True)
    probes = np.setdiff1d(np.arange(len(identities)), first)
    nearest = np.argmax(features[probes] @ features[first].T, axis=1)
    return np.mean(known[nearest] == identities[probes])


def main(data=None, epochs=8, path=None):
    keras.utils.set_random_seed(0)
    images, identities = read(data)
    num_learned = int(0.8 * (1 + max(identities)))
    learned = identities < num_learned
    model, encoder = train(images[learned], identities[learned], epochs)
    features = encoder.predict(images[~learned], verbose=0)
    accuracy, rate = verify(features, identities[~learned])
    rank1 = identify(features, identities[~learned])
    print(f"verification {accuracy:.3f} {rate:.3f} identification {rank1:.3f}")
    if path is not None:  # The signature "embed" gives features.
        tfxclass.export.saved_model(model, path)
    return accuracy, rate, rank1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data",
        help="file of numpy.savez with `images` [n, height, width], 0 to 255, "
        "and `identities` [n] (default: simple figures)",
    )
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--path", help="folder of the model's versions")
    main(**vars(parser.parse_args()))
