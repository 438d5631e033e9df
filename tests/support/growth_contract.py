"""What every head promises when classes come and go."""

import keras
import numpy as np
import pytest

import tfxclass
from tfxclass.export.searches import ModelSearch

CLASSES, DIM, BATCH, NEW = 60, 8, 16, 3
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def small_model(head, optimizer=None):
    model = keras.Sequential(
        [keras.Input([DIM], name="x"), keras.layers.Dense(DIM), head]
    )
    optimizer = optimizer or tfxclass.optimizers.LazyAdam(0.05)
    model.compile(optimizer, loss=head.loss, run_eagerly=True)
    return model


def small_data(classes=(0, CLASSES), rows=BATCH, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, DIM)).astype(np.float32)
    return x, random.integers(*classes, rows)


def trained(head, optimizer=None):
    model = small_model(head, optimizer)
    x, y = small_data()
    model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    return model


def slots_of(model, name):
    """Arrays of the optimizer by name, those of a weight of the head."""
    prefix = model.layers[-1].weights_by_name[name].path.replace("/", "_") + "_"
    return {
        v.name.removeprefix(prefix): v.numpy()
        for v in model.optimizer.variables
        if v.name.startswith(prefix)
    }


class GrowthContract:
    # Whether a class's logit depends on its own weights alone.
    has_own_logits = True

    def check_old_rows(self, old, new):
        """Rows and slots of old classes are what they were."""
        heads = old.layers[-1], new.layers[-1]
        sizes = {w.name: w.shape[0] for w in heads[0].class_weights()}
        for name, size in sizes.items():
            rows, grown = (h.weights_by_name[name].numpy() for h in heads)
            np.testing.assert_array_equal(grown[:size], rows)
            before, after = (slots_of(m, name) for m in (old, new))
            assert before.keys() == after.keys()
            for slot, values in before.items():
                np.testing.assert_array_equal(after[slot][:size], values)
                assert not np.any(after[slot][size:])

    def test_classes_are_added(self, tmp_path):
        model = trained(self.make_head())
        ids = tfxclass.next_class_ids(model, NEW)
        new_x, new_y = small_data((CLASSES, CLASSES + NEW), seed=1)
        grown = tfxclass.add_classes(model, NEW, (new_x, new_y))
        head = grown.layers[-1]
        assert ids.tolist() == [CLASSES, CLASSES + 1, CLASSES + 2]
        assert head.num_classes == CLASSES + NEW
        assert int(grown.optimizer.iterations) == 2
        self.check_old_rows(model, grown)
        x, y = small_data()
        features = model.layers[0](x)
        if self.has_own_logits:
            np.testing.assert_allclose(
                head.logits(features)[:, :CLASSES],
                model.layers[-1].logits(features),
                **TOLERANCE,
            )
        both = np.concatenate([x, new_x]), np.concatenate([y, new_y])
        before = grown.evaluate(new_x, new_y, verbose=0)
        grown.fit(*both, batch_size=BATCH, epochs=12, verbose=0)
        assert grown.evaluate(new_x, new_y, verbose=0) < 0.8 * before
        path = str(tmp_path / "grown.keras")
        grown.save(path)
        loaded = keras.saving.load_model(path)
        np.testing.assert_array_equal(
            loaded.predict(x, verbose=0), grown.predict(x, verbose=0)
        )

    def test_removed_classes_are_no_answers(self, tmp_path):
        model = trained(self.make_head())
        gone = [0, 7, CLASSES - 1]
        left = tfxclass.remove_classes(model, gone)
        head = left.layers[-1]
        assert head.num_classes == CLASSES and head.num_answers == CLASSES - 3
        x, y = small_data()
        output = left.predict(x, verbose=0)
        assert np.all(output[:, gone] == 0)
        kept = np.delete(np.arange(CLASSES), gone)
        features = left.layers[0](x)
        for weights in (None, head.export_weights()):
            ids, scores = head.top_k(features, len(kept), weights=weights)
            for row in ids.numpy():
                np.testing.assert_array_equal(np.sort(row), kept)
            by_class = np.take_along_axis(output, ids.numpy(), axis=1)
            np.testing.assert_allclose(scores, by_class, **TOLERANCE)
        search = ModelSearch(head, head.export_weights())
        np.testing.assert_allclose(search.scores(features), output, **TOLERANCE)
        with pytest.raises(ValueError, match="`k` must be at most"):
            head.top_k(features, len(kept) + 1)
        # Their labels are padding.
        y[:2] = 7
        for training in (True, False):
            losses = head.compute_loss(features, y, training=training).numpy()
            assert np.all(losses[:2] == 0) and np.all(np.isfinite(losses))
        left.fit(x, y, batch_size=BATCH, epochs=3, verbose=0)
        assert np.all(left.predict(x, verbose=0)[:, gone] == 0)
        path = str(tmp_path / "left.keras")
        left.save(path)
        loaded = keras.saving.load_model(path)
        np.testing.assert_array_equal(
            loaded.predict(x, verbose=0), left.predict(x, verbose=0)
        )
        # The free ids come first.
        ids = tfxclass.next_class_ids(left, 4)
        assert ids.tolist() == [*gone, CLASSES]
        again = tfxclass.add_classes(left, 4)
        assert again.layers[-1].removed == []
        ids, _ = tfxclass.top_k(again, CLASSES + 1).predict(x, verbose=0)
        assert set(ids.ravel()) == set(range(CLASSES + 1))
