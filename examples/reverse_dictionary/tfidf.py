"""The classical answer, to compare with: TF-IDF of each word's texts."""

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from examples.reverse_dictionary.evaluate import ranks


def tfidf_ranks(texts, labels, num_classes, queries, targets):
    """Ranks of the targets by the cosine of TF-IDF vectors.

    Args:
        texts: list of str, a text for each row of `labels`.
        labels: int `[n, p]`, classes of each text, -1 is padding.
        num_classes: int.
        queries: list of lists of str.
        targets: list of int arrays, the class meant by each query.

    Returns:
        A list of arrays.
    """
    documents = [[] for _ in range(num_classes)]
    for text, row in zip(texts, labels):
        for label in row[row >= 0]:
            documents[label].append(text)
    vectorizer = TfidfVectorizer(
        token_pattern="[a-z0-9]+", sublinear_tf=True, dtype=np.float32
    )
    classes = vectorizer.fit_transform([" ".join(d) for d in documents])
    return [
        ranks(vectorizer.transform(asked), meant, classes)
        for asked, meant in zip(queries, targets)
    ]
