"""The next item of a user: a causal transformer, from a file to a server.

    python -m examples.next_item_users --data users.txt

`--data` is a text file with one user a line: a name, then item ids from 1 in
order. Without it, a small set is generated. The model is SASRec (Kang and
McAuley, 2018) with gated layers as in eSASRec (arXiv 2508.06450).
`docs/next_item.md` explains each step.
"""

import argparse

import keras
import numpy as np

import tfxclass

LENGTH, DIM, BLOCKS, HEADS, BATCH, NUM_SAMPLED, K = 20, 64, 2, 2, 128, 2048, 10
DROPOUT = 0.3


def read(path):
    """Item ids of each user."""
    if path is None:  # Users who go from item to item in short steps.
        steps = np.random.default_rng(0).integers(1, 3, (1_000, 8))
        starts = np.arange(1_000)[:, None]
        return ((starts + steps.cumsum(1)) % 100 + 1).tolist()
    with open(path, encoding="utf8") as f:
        return [list(map(int, line.split()[1:])) for line in f]


def rows_of(sequences):
    """`(inputs, labels)`, int64 `[users, LENGTH]`, padded with 0 and -1."""
    inputs = tfxclass.retrieval.pad([s[:-1] for s in sequences], LENGTH)
    labels = [s[1:] for s in sequences]
    return inputs, tfxclass.retrieval.pad(labels, LENGTH, value=-1)


# ## Model


def gated(x, found):
    """`x` plus what a layer found, as far as a gate lets it through."""
    gate = keras.layers.Dense(DIM, activation="sigmoid")(x)
    return x + keras.layers.Dropout(DROPOUT)(found * gate)


def block(x):
    """Causal attention, then two dense layers (SwiGLU)."""
    norm = keras.layers.RMSNormalization()(x)
    attention = keras.layers.MultiHeadAttention(HEADS, DIM // HEADS)
    x = gated(x, attention(norm, norm, use_causal_mask=True))
    norm = keras.layers.RMSNormalization()(x)
    hidden = keras.layers.Dense(2 * DIM, activation="silu")(norm)
    found = hidden * keras.layers.Dense(2 * DIM)(norm)
    return gated(x, keras.layers.Dense(DIM)(found))


def make_models(num_items):
    """`(model, answers)`: what is trained, and its last position."""
    seen = keras.Input([LENGTH], dtype="int64", name="seen")
    small = keras.initializers.RandomNormal(stddev=DIM**-0.5)
    items = keras.layers.Embedding(num_items, DIM, small, mask_zero=True)
    places = keras.layers.Embedding(LENGTH, DIM, name="places")
    x = keras.layers.UnitNormalization()(items(seen))
    x += 0.5 * places(keras.ops.zeros_like(seen) + np.arange(LENGTH))
    x = keras.layers.Dropout(DROPOUT)(x)
    for _ in range(BLOCKS):
        x = block(x)
    x = keras.layers.RMSNormalization()(x)
    cosine = tfxclass.layers.Cosine(scale=12.0)
    options = {"tied_to": items, "removed": [0], "similarity": cosine}
    size = min(NUM_SAMPLED, num_items)
    head = tfxclass.layers.SampledSoftmax(num_items, size, "top_k", **options)
    model = keras.Model(seen, head(x))
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    last = tfxclass.layers.FullSoftmax(num_items, **options)
    return model, keras.Model(seen, last(x[:, -1]))


# ## Evaluation and export


def evaluate(answers, questions, train=None):
    """Figures of answers without the items that a user has seen."""
    histories, longest = questions.histories, max(map(len, questions.histories))
    seen = tfxclass.retrieval.pad(histories, LENGTH)
    exclude = tfxclass.retrieval.pad(histories, longest, value=-1)
    best = tfxclass.top_k(answers, K, exclude=longest)
    ids, _ = best.predict([seen, exclude], verbose=0)
    return tfxclass.retrieval.evaluate(ids, questions.labels, train=train)


def main(data=None, epochs=20, path=None):
    """Returns the figures of the test, a dict."""
    keras.utils.set_random_seed(0)
    sequences = read(data)
    split = tfxclass.retrieval.leave_one_out(sequences)
    model, answers = make_models(1 + max(map(max, sequences)))
    x, y = rows_of([s for s in split.train if len(s) > 1])
    found = (-1.0,)
    for epoch in range(epochs):
        model.fit(x, y, BATCH, verbose=0)
        ndcg = evaluate(answers, split.validation)["ndcg"]
        print(f"Epoch {epoch + 1}: NDCG@{K} in validation {ndcg:.4f}")
        found = max(found, (ndcg, epoch, model.get_weights()))
    model.set_weights(found[-1])
    figures = evaluate(answers, split.test, split.train)
    print({name: round(value, 4) for name, value in figures.items()})
    if path:
        tfxclass.export.saved_model(answers, path, top_k=K, exclude=LENGTH)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data",
        help="text file with a user a line: a name, then item ids from 1 in "
        "order (default: a small set is generated)",
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--path", help="folder of the model's versions")
    main(**vars(parser.parse_args()))
