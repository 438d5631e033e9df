"""What recovery gives on digits, at the slim optimum and after usual training.

    python benchmarks/recovery_digits.py

scikit-learn's digits, 64 pixels, a fifth kept back; accuracies there, means of
three seeds (splits and projections). "slim optimum": the projected softmax
solved to optimality (L-BFGS) for each l2, as the full one is. "Adam": 30 epochs
at a constant rate of 0.01. "encoder": a layer of 64 units trained along; `full`
is then the full softmax with an encoder of its own after as many epochs.
`longest` is 2 / L: the dual is a gradient step of 1 / l2.
"""

import warnings

import measure
import numpy as np
import recovery

SEEDS, BATCH = 3, 64
PENALTIES = (1e-1, 1e-2, 1e-3, 1e-4)
EPOCHS = (1, 10, 30)
AVERAGED = ("slim", "dual", "step", "full", "longest")


def split(seed):
    """`(x, y, test_x, test_y)` of a random split."""
    from sklearn import datasets

    x, y = datasets.load_digits(return_X_y=True)
    x = x.astype(np.float32) / 16
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = order[: len(y) // 5], order[len(y) // 5 :]
    return x[train], y[train], x[test], y[test]


def accuracy(model, x, y):
    # Not `predict`, which would be traced for each of the models.
    return float(np.mean(np.argmax(model(x), axis=1) == y))


def make_model(head, hidden=False):
    import keras

    layers = [keras.layers.Dense(64, "relu")] if hidden else []
    model = keras.Sequential([keras.Input([64]), *layers, head])
    model.compile(keras.optimizers.Adam(0.01), loss=head.loss)
    return model


def recovered(model, x, y, test_x, test_y, l2):
    """Accuracies of a trained slim model and of what is made of it."""
    from tfxclass import recovery as ours

    def found(**options):
        full = ours.recover(model, (x, y), l2, verbose=0, **given, **options)
        return accuracy(full, test_x, test_y)

    given = {"batch_size": 512}
    sums = ours.DualRecovery(model.layers[-1])
    features = x
    for layer in model.layers[:-1]:
        features = layer(features)
    sums.add(features, y)
    with warnings.catch_warnings():
        # Its step is too long here: that is what is shown.
        warnings.simplefilter("ignore")
        dual = found(method="dual")
    return {
        "slim": accuracy(model, test_x, test_y),
        "dual": dual,
        "step": found(),
        "longest": 2 / sums.smoothness(),
    }


def at_optimum(seed, width, l2):
    import tfxclass

    x, y, *test = split(seed)
    head = tfxclass.layers.ProjectedSoftmax(10, width, l2=l2, seed=seed)
    model = make_model(head)
    head.kernel.assign(recovery.optimum(x @ head.projection.numpy(), y, l2, 10))
    best = recovery.optimum(x, y, l2, 10)
    full = float(np.mean(np.argmax(test[0] @ best.T, axis=1) == test[1]))
    return {**recovered(model, x, y, *test, l2), "full": full}


def while_training(seed, width, l2, epochs, hidden):
    """A dict after each of `epochs`, of one training."""
    import keras

    import tfxclass

    x, y, *test = split(seed)
    layers = tfxclass.layers
    heads = (
        layers.ProjectedSoftmax(10, width, l2=l2, seed=seed),
        layers.FullSoftmax(10, seed=seed),
    )
    keras.utils.set_random_seed(seed)
    slim, full = (make_model(head, hidden) for head in heads)
    found = []
    for done, wanted in zip((0, *epochs), epochs):
        for model in (slim, full):
            more = wanted - done
            model.fit(x, y, BATCH, epochs=more, verbose=0)
        accuracies = recovered(slim, x, y, *test, l2)
        found.append({**accuracies, "full": accuracy(full, *test)})
    return found


def row(training, width, l2, found):
    """Means over the seeds, and the greatest standard deviation of them."""
    means = {
        name: float(np.mean([one[name] for one in found])) for name in AVERAGED
    }
    spread = max(np.std([one[n] for one in found]) for n in AVERAGED[:-1])
    return {
        "training": training,
        "projection_dim": width,
        "l2": l2,
        **means,
        "deviation": float(spread),
    }


def trained_rows(name, width, epochs, hidden):
    of_seeds = [
        while_training(seed, width, 1e-4, epochs, hidden)
        for seed in range(SEEDS)
    ]
    return [
        row(f"{name}, {count} epochs", width, 1e-4, found)
        for count, found in zip(epochs, zip(*of_seeds))
    ]


def main():
    rows = []
    for l2 in PENALTIES:
        found = [at_optimum(seed, 16, l2) for seed in range(SEEDS)]
        rows.append(row("slim optimum", 16, l2, found))
    rows += trained_rows("Adam", 8, (30,), hidden=False)
    rows += trained_rows("encoder", 4, EPOCHS, hidden=True)
    measure.save("recovery_digits", rows)


if __name__ == "__main__":
    main()
