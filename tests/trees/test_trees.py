"""Trees of classes: shape, codes, cost, the user's own hierarchies."""

import heapq
import json

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfxclass import trees

COUNTS = st.lists(st.integers(0, 50), min_size=1, max_size=60)


def codes(tree):
    """The places of the children on the way to each class, tuples."""
    first = tree.first_children
    return [
        tuple(int(n - first[tree.parents[n]]) for n in tree.path(c)[1:])
        for c in range(tree.num_classes)
    ]


def check_invariants(tree, num_classes):
    assert tree.num_classes == num_classes
    # Each class has exactly one leaf, and each leaf a class.
    leaves = np.flatnonzero(tree.num_children == 0)
    np.testing.assert_array_equal(np.sort(tree.leaves), leaves)
    # Children come after their parent, which lists exactly these.
    for node, parent in enumerate(tree.parents):
        assert parent < node
        if node:
            place = node - tree.first_children[parent]
            assert 0 <= place < tree.num_children[parent]
    all_codes = codes(tree)
    np.testing.assert_array_equal(
        tree.depths(), [len(code) for code in all_codes]
    )
    # Prefix-free: in order, a prefix is next to what it begins.
    ordered = sorted(all_codes)
    for a, b in zip(ordered, ordered[1:]):
        assert b[: len(a)] != a
    # The probabilities of a walk that takes each child alike sum to 1.
    share = np.ones(tree.num_nodes)
    for node in range(1, tree.num_nodes):
        parent = tree.parents[node]
        share[node] = share[parent] / tree.num_children[parent]
    np.testing.assert_allclose(share[tree.leaves].sum(), 1.0)


def huffman_cost(counts):
    """Sum of count x depth, by a heap."""
    heap, cost = list(counts), 0
    heapq.heapify(heap)
    while len(heap) > 1:
        total = heapq.heappop(heap) + heapq.heappop(heap)
        cost += total
        heapq.heappush(heap, total)
    return cost


@given(counts=COUNTS)
def test_huffman_is_minimal(counts):
    tree = trees.huffman(counts)
    check_invariants(tree, len(counts))
    assert set(tree.num_children) <= {0, 2}
    assert np.dot(counts, tree.depths()) == huffman_cost(counts)
    # A class that is more frequent is not deeper.
    order = np.argsort(counts, kind="stable")
    rising = tree.depths()[order]
    strict = np.diff(np.array(counts)[order]) > 0
    assert np.all(np.diff(rising)[strict] <= 0)


def test_huffman_does_not_care_for_the_order_of_the_counts():
    counts = np.random.default_rng(0).permutation(40)
    depths = trees.huffman(counts).depths()
    np.testing.assert_array_equal(
        depths[np.argsort(counts)], trees.huffman(np.arange(40)).depths()
    )


def test_huffman_of_equal_counts_and_of_none_is_balanced():
    for counts in ([3] * 13, [0] * 13):
        assert set(trees.huffman(counts).depths()) == {3, 4}


def test_huffman_of_powers_is_a_chain():
    tree = trees.huffman(2.0 ** np.arange(30))
    np.testing.assert_array_equal(tree.depths(), [29, *range(29, 0, -1)])


@given(num_classes=st.integers(1, 90), arity=st.integers(2, 7))
def test_balanced(num_classes, arity):
    tree = trees.balanced(num_classes, arity)
    check_invariants(tree, num_classes)
    least = int(np.ceil(np.log(num_classes) / np.log(arity) - 1e-9))
    assert tree.depths().max() == least
    assert tree.num_children.max() <= arity
    # Left to right the classes rise.
    assert sorted(range(num_classes), key=lambda c: codes(tree)[c]) == list(
        range(num_classes)
    )


@given(
    num_classes=st.integers(1, 70),
    arity=st.sampled_from([2, 4, 8]),
    leaf_size=st.integers(1, 12),
    seed=st.integers(0, 9),
)
def test_clustered_shapes(num_classes, arity, leaf_size, seed):
    vectors = np.random.default_rng(seed).normal(size=(num_classes, 3))
    # Zeros and copies, which no direction tells apart.
    vectors[: num_classes // 3] = 0
    vectors[num_classes // 2 :] = vectors[-1]
    tree = trees.clustered(vectors, arity, leaf_size, seed=seed)
    check_invariants(tree, num_classes)
    assert tree.num_children.max() <= max(arity, leaf_size)
    assert np.ptp(tree.depths()) <= 1
    assert tree == trees.clustered(vectors, arity, leaf_size, seed=seed)


@pytest.mark.parametrize(("arity", "num_groups"), [(2, 8), (4, 16), (8, 8)])
def test_clustered_finds_the_clusters(arity, num_groups):
    random = np.random.default_rng(0)
    centers = random.normal(size=(8, 16))
    of_class = random.permutation(np.repeat(np.arange(8), 16))
    vectors = centers[of_class] + 0.1 * random.normal(size=(128, 16))
    tree = trees.clustered(vectors, arity, leaf_size=16, seed=1)
    groups = [
        {of_class[c] for c in tree.classes if tree.parents[tree.leaves[c]] == n}
        for n in set(tree.parents[tree.leaves])
    ]
    assert len(groups) == num_groups
    # Nearly all are of one cluster; by chance nearly none would be.
    assert np.mean([len(group) == 1 for group in groups]) >= 0.75


def test_class_vectors_keep_the_angles():
    random = np.random.default_rng(0)
    ids = random.integers(0, 30, (60, 7))
    values = random.random((60, 7)) * (random.random((60, 7)) < 0.8)
    labels = np.where(random.random((60, 2)) < 0.7, ids[:, :2] % 5, -1)
    weights = random.random(30)
    dense = np.zeros((60, 30))
    np.add.at(dense, (np.arange(60)[:, None], ids), values * weights[ids])
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    expected = np.zeros((6, 30))
    for row, of_row in zip(dense, labels):
        for c in of_row[of_row >= 0]:
            expected[c] += row
    batches = [
        (
            {"feature_ids": ids[at], "feature_values": values[at]},
            labels[at],
        )
        for at in (slice(40), slice(40, 60))
    ]
    vectors = trees.class_vectors(
        batches, 30, 6, dim=20_000, feature_weights=weights, seed=3
    )
    # Class 5 has no rows. The error of a projection is about 1 / sqrt(dim).
    assert np.all(vectors[5] == 0)
    gram, wanted = vectors @ vectors.T, expected @ expected.T
    np.testing.assert_allclose(gram, wanted, rtol=0.1)


def test_hierarchy_with_inner_classes_several_roots_and_what_has_none():
    #     0        4      roots
    #    / \       |
    #   1   2      5
    #   |  / \
    #   3 6   7
    # 7 has no class, 4 leads to one alone, 0 is a class with others below.
    parents = [-1, 0, 0, 1, -1, 4, 2, 2]
    tree = trees.hierarchy(parents, classes=[0, 1, 3, 5, 6])
    check_invariants(tree, 5)
    # b has d below it: a leaf of its own, and 6 took the place of 2.
    depths = dict(zip("abdfg", tree.depths()))
    assert depths == {"a": 2, "b": 3, "d": 3, "f": 1, "g": 2}


def test_hierarchy_without_classes_has_those_of_its_leaves():
    tree = trees.hierarchy([-1, 0, 0, 1, 1, 1])
    check_invariants(tree, 4)  # 2, 3, 4 and 5
    np.testing.assert_array_equal(tree.depths(), [1, 2, 2, 2])
    assert tree.num_children.max() == 3


def test_hierarchy_of_a_long_chain():
    count = 3000
    tree = trees.hierarchy(np.arange(-1, count - 1), classes=np.arange(count))
    assert tree.num_classes == count
    np.testing.assert_array_equal(
        np.sort(tree.depths()), [*range(1, count), count - 1]
    )


def test_hierarchy_with_several_parents():
    parents = [[], [0], [0], [1, 2], [2, 2]]
    with pytest.raises(ValueError, match=r"node 3 with parents \[1, 2\]"):
        trees.hierarchy(parents)
    tree = trees.hierarchy(parents, several_parents="first")
    assert tree == trees.hierarchy([-1, 0, 0, 1, 2])


@given(data=st.data(), count=st.integers(1, 40))
def test_hierarchies_of_any_shape(data, count):
    parents = [
        data.draw(st.integers(-1, node - 1), label=f"parent of {node}")
        for node in range(count)
    ]
    order = data.draw(st.permutations(range(count)))
    shuffled = [0] * count
    for node, parent in enumerate(parents):
        shuffled[order[node]] = -1 if parent < 0 else order[parent]
    classes = data.draw(
        st.lists(st.integers(0, count - 1), min_size=1, unique=True)
    )
    tree = trees.hierarchy(shuffled, classes)
    check_invariants(tree, len(classes))

    def ancestors(node):
        while node >= 0:
            yield node
            node = shuffled[node]

    # Two classes part below their lowest common ancestor: those that share a
    # longer way in the given hierarchy do not share a shorter one here.
    for a in range(len(classes)):
        shared = [
            len(set(ancestors(classes[a])) & set(ancestors(node)))
            for node in classes
        ]
        here = [
            len(set(tree.path(a)) & set(tree.path(b)))
            for b in range(len(classes))
        ]
        for b in range(len(classes)):
            for c in range(len(classes)):
                if a not in (b, c) and shared[b] > shared[c]:
                    assert here[b] >= here[c]


def test_one_class_is_a_leaf():
    for tree in (
        trees.huffman([7]),
        trees.balanced(1),
        trees.clustered(np.ones((1, 2))),
        trees.hierarchy([-1, 0, 1], classes=[2]),
    ):
        assert tree.num_nodes == 1 and tree.num_rows() == 0
        assert tree.path(0) == [0]


def test_nodes_are_what_the_ops_read():
    tree = trees.Tree([3, 0, 2, 0, 0, 0], classes=[2, 0, 3, 1])
    # Parent, first child, children, first row, class.
    expected = [
        [-1, 1, 3, 0, -1],
        [0, 0, 0, 0, 2],
        [0, 4, 2, 3, -1],
        [0, 0, 0, 0, 0],
        [2, 0, 0, 0, 3],
        [2, 0, 0, 0, 1],
    ]
    np.testing.assert_array_equal(tree.nodes(), expected)
    assert tree.num_rows() == 4 and tree.num_rows(independent=True) == 5
    assert tree.nodes(independent=True)[2, 3] == 3


def test_json_round_trip():
    tree = trees.huffman(np.arange(200) ** 2)
    text = json.dumps(keras.saving.serialize_keras_object(tree))
    again = keras.saving.deserialize_keras_object(json.loads(text))
    assert again == tree and again != trees.balanced(200)
    # Little more than the classes themselves.
    assert len(text) < 8 * 200 + 500


INVALID = {
    "counts_negative": (lambda: trees.huffman([1, -1]), "`counts` must be"),
    "counts_nan": (lambda: trees.huffman([1, np.nan]), "`counts` must be"),
    "counts_empty": (lambda: trees.huffman([]), "one class at least"),
    "counts_rank_2": (lambda: trees.huffman([[1, 2]]), "Received: (1, 2)"),
    "balanced_none": (lambda: trees.balanced(0), "`num_classes`"),
    "balanced_arity": (lambda: trees.balanced(4, 1), "`arity` must be"),
    "clustered_rank": (lambda: trees.clustered([1.0]), "[num_classes, dim]"),
    "clustered_nan": (
        lambda: trees.clustered([[1.0], [np.nan]]),
        "`vectors` must be finite",
    ),
    "clustered_arity": (
        lambda: trees.clustered(np.ones((4, 2)), arity=3),
        "power of 2",
    ),
    "clustered_leaf_size": (
        lambda: trees.clustered(np.ones((4, 2)), leaf_size=0),
        "`leaf_size`",
    ),
    "feature_weights": (
        lambda: trees.class_vectors([], 3, 2, feature_weights=[1.0]),
        "shape (3,)",
    ),
    "vectors_dim": (lambda: trees.class_vectors([], 3, 2, dim=0), "`dim`"),
    "cycle": (lambda: trees.hierarchy([-1, 2, 1], [0]), "a cycle that node 1"),
    "nothing_but_a_cycle": (lambda: trees.hierarchy([1, 0]), "a cycle"),
    "all_a_cycle": (lambda: trees.hierarchy([1, 0], [0]), "a cycle"),
    "parent_out_of_range": (lambda: trees.hierarchy([-1, 2]), "[-1, 2)"),
    "parent_float": (lambda: trees.hierarchy([-1.0, 0.0]), "dtype=float64"),
    "no_nodes": (lambda: trees.hierarchy([]), "one node at least"),
    "class_outside": (
        lambda: trees.hierarchy([-1, 0], classes=[2]),
        "`classes` must be nodes in [0, 2)",
    ),
    "class_twice": (
        lambda: trees.hierarchy([-1, 0, 0], classes=[1, 2, 1]),
        "node 1 2 times",
    ),
    "choice": (
        lambda: trees.hierarchy([-1], several_parents="last"),
        "`several_parents` must be one of",
    ),
    "unary": (lambda: trees.Tree([1, 0], [0]), "2 or more"),
    "too_few_nodes": (lambda: trees.Tree([2, 0], [0]), "of one tree"),
    "two_trees": (lambda: trees.Tree([0, 2, 0, 0], [0, 1, 2]), "of one tree"),
    "no_tree": (lambda: trees.Tree([], []), "one node at least"),
    "classes_missing": (lambda: trees.Tree([2, 0, 0], [0]), "the 2 leaves"),
    "classes_repeated": (
        lambda: trees.Tree([2, 0, 0], [1, 1]),
        "0 to num_classes - 1",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_arguments(name):
    make, part = INVALID[name]
    with pytest.raises(ValueError) as error:
        make()
    assert part in str(error.value)
