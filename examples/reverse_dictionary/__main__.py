"""Trains, reports, exports, answers; see README.md."""

# First: TensorFlow's notes at its start are hidden.
from tfxclass_serve import quiet  # noqa: F401

# isort: split
import argparse
import functools
import pathlib
import subprocess
import sys
import time
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

import tfxclass.export
import tfxclass.optimizers
from examples.reverse_dictionary import data
from examples.reverse_dictionary import evaluate
from examples.reverse_dictionary import meaning
from examples.reverse_dictionary import model as model_lib
from examples.reverse_dictionary import text
from examples.reverse_dictionary import tfidf
from examples.reverse_dictionary import train

LEARNING_RATE = 5e-3
# Trained models that answer together.
PARTS = 2
EXAMPLE = "the fear of closed spaces"
QUESTIONS = (
    "the fear of closed spaces",
    "someone who repairs pipes",
    "the father of your father",
    "a building where books are kept",
    "feeling very tired and sleepy",
    "water that falls from the clouds",
    "a person who studies the stars",
    "a hot drink made from roasted beans",
    "a large bird that cannot fly",
    "a small insect that makes honey",
)


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m examples.reverse_dictionary",
        description="Learns to find words by their definitions.",
    )
    add = parser.add_argument
    add("definitions", nargs="*", help="asked at the end; else type yours")
    add("--compare", action="store_true", help="train FullSoftmax too: 90 min")
    add("--epochs", type=int, default=6)
    add("--seconds", type=float, default=240, help="training stops then")
    add("--out", type=pathlib.Path, help="the exported model, a folder")
    add("--serve", action="store_true", help="ask tfxclass-serve, too")
    add("--limit", type=int, help="learn this many synsets only")
    arguments = parser.parse_args(argv)
    arguments.out = arguments.out or pathlib.Path("models/reverse_dictionary")
    return arguments


class Task:
    """The classes, what to learn them from, and the tests."""

    def __init__(self, limit=None):
        synsets = data.read_wordnet(limit=limit)
        self.words = data.words_of(synsets.values())
        self.texts = train.texts_of(synsets)
        self.labels = train.labels_of(synsets, self.words)
        self._synsets = list(synsets.values())

    @functools.cached_property
    def tests(self):
        """Queries by the name of their source; read where one asks."""
        tests = {
            "GCIDE": data.test_queries(data.read_gcide(), self._synsets),
            "Hill": data.read_hill(self.words),
            "phrases": data.read_phrases(self.words),
        }
        return {name: test for name, test in tests.items() if test}

    @property
    def queries(self):
        return [[query.text for query in test] for test in self.tests.values()]

    @property
    def targets(self):
        ids = {word: i for i, word in enumerate(self.words)}
        return [
            np.array([ids[query.word] for query in test])
            for test in self.tests.values()
        ]

    @functools.cached_property
    def usual(self):
        """What each class gains because people use the word."""
        texts = [s.gloss for s in self._synsets]
        texts += [e for s in self._synsets for e in s.examples]
        return meaning.usualness(self.words, texts)

    @property
    def joined_texts(self):
        return [" ".join(kinds) for kinds in zip(*self.texts.values())]


def run_tfidf(task, texts):
    begin = time.perf_counter()
    found = tfidf.tfidf_ranks(
        texts, task.labels, len(task.words), task.queries, task.targets
    )
    return time.perf_counter() - begin, found


class Known(NamedTuple):
    """The task, its texts as terms, and the vocabulary."""

    task: Task
    columns: dict
    idf: np.ndarray
    terms: np.ndarray
    path: pathlib.Path

    def batches(self):
        table = text.WordIds(self.path).table
        return train.Batches(table, self.columns, self.task.labels)

    def beginning(self, seed):
        return model_lib.beginning(
            self.idf, self.terms, self.task.words, self.batches(), seed
        )


def train_part(known, seed, epochs, seconds, full=False):
    """Trains a model from the beginning of a seed; its `state`."""
    head = model_lib.make_head(len(known.task.words), full)
    serving, training = model_lib.make_models(known.path, known.idf, head)
    model_lib.set_state(serving, known.beginning(seed))
    # Class vectors begin as data. HeadAdam(1e-2) is as good.
    training.compile(
        tfxclass.optimizers.LazyAdam(LEARNING_RATE), loss=head.loss
    )
    anneal = train.Anneal(epochs, seconds, LEARNING_RATE)
    training.fit(known.batches(), epochs=epochs, callbacks=[anneal])
    return model_lib.state(serving)


def run_model(task, out, epochs, seconds, full=False):
    """Trains a model; `(rows of the table, model, excluded)`."""
    begin = time.perf_counter()
    columns = {
        kind: text.split_all(texts) for kind, texts in task.texts.items()
    }
    terms, idf = text.make_vocabulary([*columns.values()], len(task.labels))
    out.mkdir(parents=True, exist_ok=True)
    vocabulary = out / "vocabulary.txt"
    vocabulary.write_bytes(b"\n".join([*terms, b""]))
    known = Known(task, columns, idf, terms, vocabulary)
    count = 1 if full else PARTS
    learned = [
        train_part(known, seed, epochs, seconds / count, full)
        for seed in range(count)
    ]
    answering, excluded = model_lib.make_answering(
        vocabulary,
        idf,
        learned,
        known.beginning(seed=count),
        task.usual,
        text.classes_of_terms(terms, task.words),
    )
    taken = time.perf_counter() - begin
    name = "FullSoftmax" if full else "SampledSoftmax"
    rows = [
        (name, taken, model_ranks(answering, task)),
        ("... no asked words", taken, model_ranks(answering, task, excluded)),
    ]
    return rows, answering, excluded


def model_ranks(answering, task, excluded=None):
    """Ranks of each test, with or without the words of the questions."""
    encoder = model_lib.encoder_of(answering)
    if excluded is not None:
        excluded = keras.Model(answering.inputs, excluded)
    head = answering.layers[-1]
    # The bias is the weight of a feature that is 1.
    classes = np.column_stack([head.kernel.numpy(), head.bias.numpy()])
    found = []
    for query, target in zip(task.queries, task.targets):
        features = encoder.predict(tf.constant(query), verbose=0)
        ones = np.ones((len(features), 1), features.dtype)
        queries = np.concatenate([features, ones], axis=1)
        asked = None
        if excluded is not None:
            asked = excluded(tf.constant(query)).numpy()
        found.append(evaluate.ranks(queries, target, classes, asked))
    return found


def print_table(task, rows):
    """Rows are `(name, seconds, ranks of each test)`."""
    print(f"\n{'':26}{'test':8}{'seconds':>8}", end="")
    print(f"{'acc@1':>8}{'@10':>8}{'@100':>8}{'median rank':>13}")
    for name, seconds, found in rows:
        for test, test_ranks in zip(task.tests, found):
            one, ten, hundred, median = evaluate.summary(test_ranks)
            print(f"{name:26}{test:8}{seconds:8.0f}", end="")
            print(f"{one:8.3f}{ten:8.3f}{hundred:8.3f}{median:13.0f}")


def answer_questions(folder, shown=6):
    """Ten questions and their best answers."""
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    labels = serve(text=tf.constant(QUESTIONS))["labels"].numpy()
    print()
    for question, found in zip(QUESTIONS, labels):
        words = [word.decode() for word in found]
        print(f"{question:36} {', '.join(words[:shown])}")


def answer(folder, definitions):
    """Asks the exported model, which stock TensorFlow runs by itself."""
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    for definition in definitions or typed_definitions():
        answers = serve(text=tf.constant([definition]))
        print(f"\n{definition}")
        for word, score in zip(answers["labels"][0], answers["scores"][0]):
            print(f"  {score:.3f}  {word.numpy().decode()}")


def typed_definitions(count=3):
    """What is typed; without a terminal, the example."""
    if not sys.stdin.isatty():
        yield EXAMPLE
        return
    for _ in range(count):
        try:
            yield input("\nA definition: ")
        except EOFError:
            print()
            return


def ask_server(out, definitions):
    """Asks the development server over REST and gRPC."""
    demo = pathlib.Path(__file__).parents[2] / "serving" / "demo.py"
    asked = definitions or [EXAMPLE]
    subprocess.run([sys.executable, demo, out, *asked], check=True)


def main(argv=None):
    arguments = parse_arguments(argv)
    print("Reading WordNet and GCIDE ...", flush=True)
    task = Task(arguments.limit)
    print(f"{len(task.labels):,} synsets, {len(task.words):,} words.")
    rows = [
        ("TF-IDF, glosses", *run_tfidf(task, task.texts["gloss"])),
        ("TF-IDF, the model's texts", *run_tfidf(task, task.joined_texts)),
    ]
    options = arguments.out, arguments.epochs
    found, answering, excluded = run_model(task, *options, arguments.seconds)
    rows += found
    folder = tfxclass.export.saved_model(
        answering,
        arguments.out,
        top_k=10,
        labels=task.words,
        exclude=excluded,
    )
    if arguments.compare:
        # The same epochs, however long they take.
        rows += run_model(task, *options, float("inf"), full=True)[0]
    print_table(task, rows)
    print(f"\nThe model is in {folder}.")
    answer_questions(folder)
    answer(folder, arguments.definitions)
    if arguments.serve:
        ask_server(arguments.out, arguments.definitions)


if __name__ == "__main__":
    main()
