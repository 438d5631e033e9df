"""Features of texts, without a Tagger."""

import keras
import numpy as np
import tensorflow as tf

from tfxclass_text import Field
from tfxclass_text import TextFeatures


def test_from_texts_weighs_terms_as_scikit_learn_does():
    texts = ["red fox red", "grey fox", "red egg"]
    field = Field("text", min_count=1, max_share=1.0)
    layer = TextFeatures.from_texts({"text": texts}, [field])
    assert layer.num_features == 4
    ids, values = layer({"text": tf.constant(["red red fox unknown"])})
    count = {"red": 2, "fox": 1}
    # Both words are in two of the three texts.
    idf = np.log(4 / 3) + 1
    expected = np.array([(1 + np.log(n)) * idf for n in count.values()])
    expected /= np.linalg.norm(expected)
    np.testing.assert_allclose(np.sort(values[0])[::-1], expected, rtol=1e-5)
    assert len(set(ids.numpy()[0])) == 2
    again = TextFeatures.from_config(layer.get_config())
    again.set_weights(layer.get_weights())
    text = keras.Input([], dtype="string")
    model = keras.Model(text, again({"text": text}))
    found = model(tf.constant(["red red fox unknown"]))
    np.testing.assert_array_equal(found[0], ids)


def test_empty_columns_leave_no_spaces():
    """Exports counted a space that the compiled op did not."""
    columns = {
        "a": ["red", "", "fox", ""],
        "b": ["", "egg", "", ""],
        "c": ["fox", "red", "", "hen"],
    }
    field = Field(list(columns), "chars", 1, 3, min_count=1, max_share=1.0)
    layer = TextFeatures.from_texts(columns, [field])
    stock = layer({name: tf.constant(x) for name, x in columns.items()})
    joined = tf.constant(["red fox", "egg red", "fox", "hen"])
    for found, expected in zip(stock, layer.of_counted([joined])):
        np.testing.assert_array_equal(found, expected)
