"""Subjects of documents as paths through a tree.

    python -m examples.hierarchical_text [TRAIN TEST]

What it shows: a head whose step costs the same for a thousand classes and for a
million, trees from three sources, what the choice of the tree is worth, and
answers of as many subjects as are likely enough.

Data and model are those of `lsh_extreme_text.py`: any two files in the text
format of the Extreme Classification Repository; without arguments EURLEX57K
beside the checkout, 45,000 laws with about 5 of 4,271 subjects each.

Result: the first subject named is right for 0.854 of the test documents with
Huffman's tree, 0.860 with a probabilistic label tree on a clustered one, and
0.874 with the tree that the thesaurus itself is (P@5 0.610, 0.620, 0.637); the
one with LSH tables, which sees all subjects, reaches 0.88. Those subjects that
are likelier than not are right in 0.842 of all cases. One tree takes half a
minute to train on two cores, the thesaurus, with 600 children at its root,
three times as long (measured beside other jobs: 90 and 290 s).
"""

import argparse
import lzma
import pathlib
import time

import keras
import numpy as np

import tfxclass
from examples import lsh_extreme_text
from tfxclass import metrics
from tfxclass import trees

DATA = lsh_extreme_text.DATA


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m examples.hierarchical_text",
        description="Learns the subjects of documents, along a tree.",
    )
    add = parser.add_argument
    add("train", nargs="?", default=DATA / "train.xc.txt.xz")
    add("test", nargs="?", default=DATA / "test_a.xc.txt.xz")
    add("--epochs", type=int, default=6)
    return parser.parse_args(argv)


# ## Trees
#
# Huffman's tree has the shortest paths, and does not ask what the classes
# mean: its nodes tell apart sets of subjects that have nothing in common but
# their number, which a linear model cannot learn well.
#
# A clustered tree halves the subjects by the words of their documents. Each
# node tells apart sets that differ, as the model can.


def huffman_tree(counts):
    return trees.huffman(counts)


def clustered_tree(train, document_counts):
    idf = np.log(train.num_rows / np.maximum(document_counts, 1))
    vectors = trees.class_vectors(
        train.batches(512).as_numpy_iterator(),
        train.num_features,
        train.num_classes,
        feature_weights=idf,
    )
    return trees.clustered(vectors)


# The third one was there before the data: EuroVoc, the thesaurus that the
# subjects are from. It has 589 roots, concepts that are subjects and have
# others below them, concepts that are none, and a few with several parents, of
# which we keep the first. `hierarchy` makes a tree of that. Nodes have as many
# children as the concepts have; those are a softmax among them.


def eurovoc_tree(folder):
    """The subjects' own hierarchy, or None where its files are not there."""
    folder = pathlib.Path(folder)
    concepts = _tsv(folder / "eurovoc_tree.tsv.xz")
    subjects = _tsv(folder / "labels.tsv.xz")
    if not concepts or not subjects:
        return None
    numbers = {concept[0]: i for i, concept in enumerate(concepts)}
    parents = [
        [numbers[x] for x in concept[2].split("|") if x in numbers]
        for concept in concepts
    ]
    classes = [numbers[subject[1]] for subject in subjects]
    return trees.hierarchy(parents, classes, several_parents="first")


def _tsv(path):
    if not path.exists():
        return []
    with lzma.open(path, "rt", encoding="utf8") as f:
        return [line.rstrip("\n").split("\t") for line in f][1:]


# ## The head
#
# `multi_label="all"` spreads the mass of a document over its labels. A
# probabilistic label tree, `"plt"`, asks of each label by itself how likely it
# is; its answers are the ones that precision at k rewards.


def make_heads(train, document_counts, label_counts, folder):
    """`{name: head}`."""
    clustered = clustered_tree(train, document_counts)
    chosen = {
        "huffman": (huffman_tree(label_counts), "all"),
        "clustered": (clustered, "all"),
        "EuroVoc": (eurovoc_tree(folder), "all"),
        "clustered, PLT": (clustered, "plt"),
    }
    return {
        name: tfxclass.layers.HierarchicalSoftmax(
            train.num_classes,
            tree,
            multi_label=multi_label,
            use_bias=True,
            name=f"tree_{i}",
        )
        for i, (name, (tree, multi_label)) in enumerate(chosen.items())
        if tree is not None
    }


# ## Training and the result
#
# Everything else is as with any other head. P@k is the share of the k best
# subjects that are labels.


def evaluate(model, head, test):
    reported = [metrics.PrecisionAtK(head, k) for k in (1, 3, 5)]
    model.compile(loss=head.loss, metrics=reported)
    result = model.evaluate(test.batches(512), return_dict=True, verbose=0)
    return [result[f"precision_at_{k}"] for k in (1, 3, 5)]


# A document has as many subjects as it has, not k. With probabilities of each
# subject by itself, those of at least one half are the answer that is right
# most often: as fastText's `predict(k=-1, threshold=0.5)`.


def answers(model, head, test, most=20):
    """Precision and recall of all subjects with a probability of a half."""
    best = tfxclass.top_k(model, min(most, head.num_classes), threshold=0.5)
    hits = found = wanted = 0
    for features, labels in test.batches(512):
        ids, _ = best(features)
        ids, labels = ids.numpy(), labels.numpy()
        same = ids[:, :, np.newaxis] == labels[:, np.newaxis, :]
        hits += (same & (ids >= 0)[:, :, np.newaxis]).sum()
        found += (ids >= 0).sum()
        wanted += (labels >= 0).sum()
    return hits / max(found, 1), hits / wanted


def main(argv=None):
    arguments = parse_arguments(argv)
    keras.utils.set_random_seed(0)
    train = tfxclass.data.XCFile(arguments.train)
    test = tfxclass.data.XCFile(arguments.test)
    document_counts, label_counts = train.counts()
    heads = make_heads(
        train,
        document_counts,
        label_counts,
        pathlib.Path(arguments.train).parent,
    )
    print(
        f"{'tree':16}{'depth':>8}{'P@1':>8}{'P@3':>8}{'P@5':>8}{'seconds':>9}"
    )
    for name, head in heads.items():
        begin = time.perf_counter()
        model = lsh_extreme_text.make_model(train, document_counts, head)
        lsh_extreme_text.fit(model, head, train, arguments.epochs, verbose=0)
        seconds = time.perf_counter() - begin
        precision = evaluate(model, head, test)
        row = "".join(f"{value:8.3f}" for value in precision)
        depth = head.tree.depths() @ label_counts / label_counts.sum()
        print(f"{name:16}{depth:8.1f}{row}{seconds:9.0f}", flush=True)
    found = answers(model, head, test)
    print(f"\nSubjects likelier than not: {found[0]:.3f} of them are right, ")
    print(f"{found[1]:.3f} of all labels are among them.")
    print(f"The first subject is right: {precision[0]:.3f}")


if __name__ == "__main__":
    main()
