"""What recovery gives on digits, at the slim optimum and after usual training.

    python benchmarks/recovery_digits.py [--figures]

scikit-learn's digits, 64 pixels, a fifth kept back; accuracies there, means of
three seeds (splits and projections). "slim optimum": the projected softmax
solved to optimality (L-BFGS) for each l2, as the full one is; "centred": of
pixels less their means, the features of the rows before. "Adam": 30 epochs at a
constant rate of 0.01. "encoder": a layer of 64 units trained along; `full` is
then the full softmax with an encoder of its own after as many epochs. `longest`
is 2 / L: the dual is a gradient step of 1 / l2. The figure is of the slim
optimum; "--figures" draws it from the committed rows.
"""

import os
import sys
import warnings

import figure_style
import measure
import notes
import numpy as np
import recovery

SEEDS, BATCH = 3, 64
WIDTH, PENALTIES = 16, (1e-1, 1e-2, 1e-3, 1e-4)
CENTRED, OPTIMUM = "slim optimum, centred", "slim optimum"
EPOCHS = (1, 10, 30)
AVERAGED = ("slim", "dual", "step", "full", "longest")


def split(seed, centred=False):
    """`(x, y, test_x, test_y)` of a random split."""
    from sklearn import datasets

    x, y = datasets.load_digits(return_X_y=True)
    x = x.astype(np.float32) / 16
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = order[: len(y) // 5], order[len(y) // 5 :]
    if centred:
        x -= x[train].mean(axis=0)
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


def slim_optimum(seed, l2, centred):
    """A projected softmax solved to optimality, and its split."""
    import tfxclass

    x, y, *test = split(seed, centred)
    head = tfxclass.layers.ProjectedSoftmax(10, WIDTH, l2=l2, seed=seed)
    head.build((None, 64))
    head.kernel.assign(recovery.optimum(x @ head.projection.numpy(), y, l2, 10))
    return head, x, y, test


def at_optimum(seed, l2, centred):
    head, x, y, test = slim_optimum(seed, l2, centred)
    model = make_model(head)
    full = share(test[0], recovery.optimum(x, y, l2, 10), test[1])
    return {**recovered(model, x, y, *test, l2), "full": full}


def share(x, kernel, y):
    return float(np.mean(np.argmax(x @ kernel.T, axis=1) == y))


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


def optimum_rows(name, centred):
    return [
        row(
            name,
            WIDTH,
            l2,
            [at_optimum(seed, l2, centred) for seed in range(SEEDS)],
        )
        for l2 in PENALTIES
    ]


#: The columns of the figure: how they are called, and their lines.
SHOWN = {
    "full": ("trained in full width", "o-", "black"),
    "step": ("recovered by the step that is looked for", "o-", "tab:orange"),
    "slim": ("the narrow model", "o-", "tab:blue"),
    "dual": ("recovered by the dual", "o--", "tab:red"),
}
PANELS = {
    CENTRED: "pixels less their means",
    OPTIMUM: "pixels as they are",
}


def draw(rows):
    """recovery_digits.png: accuracy by the penalty of the narrow model."""
    figure, axes = figure_style.new_figure(rows=2, height=3.8)
    for one, (training, title) in zip(axes, PANELS.items()):
        own = [row for row in rows if row["training"] == training]
        for column, (label, style, color) in SHOWN.items():
            one.plot(
                [row["l2"] for row in own],
                [100 * row[column] for row in own],
                style,
                color=color,
                label=label,
            )
        one.set(title=title, xscale="log", ylim=(0, 100))
        one.set(xlabel="weight of the l2 penalty", ylabel="accuracy in percent")
        figure_style.plain_ticks(one.xaxis)
    axes[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
    path = os.path.join(measure.RESULTS, "recovery_digits.png")
    figure_style.save(figure, path, _conclusion(rows))


def _conclusion(rows):
    steps, duals = (
        [100 * row[name] for row in rows if row["training"] in PANELS]
        for name in ("step", "dual")
    )
    return (
        f"The step reaches {min(steps):.0f} % or more with every penalty, "
        f"the dual {min(duals):.0f} to {max(duals):.0f} %"
    )


def main():
    rows = optimum_rows(CENTRED, True) + optimum_rows(OPTIMUM, False)
    rows += trained_rows("Adam", 8, (30,), hidden=False)
    rows += trained_rows("encoder", 4, EPOCHS, hidden=True)
    measure.save("recovery_digits", rows)
    draw(rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["--figures"]:
        draw(notes.results("recovery_digits"))
    else:
        main()
