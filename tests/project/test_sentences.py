"""The script that counts how plain sentences are: docs/sentences.py.

`make docs` runs it on guides and docstrings, with its bounds.
"""

import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sentences():
    """The module docs/sentences.py."""
    path = ROOT / "docs" / "sentences.py"
    spec = importlib.util.spec_from_file_location("sentences", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGE = """
# A heading is no sentence that counts here

One sentence has six words here. Another [one](http://a.b/c), e.g. this, is
of eight.

| a table | is not a sentence that counts |

- An item of a list counts
```python
code = "is not a sentence that counts"
```
"""


def test_a_page(sentences):
    found = sentences.paragraphs_of_page(PAGE)
    words = [x.words for x in sentences.sentences_of("page", found)]
    assert words == [6, 7, 6]


DOCSTRING = """What it does is told on one line.

Args:
  x: float32 `[batch]`, the features that it reads.
    They may be on two lines.
  y: the labels that it compares them with.

Example:

>>> what(1, 2, 3, 4, 5, 6, 7, 8)

    indented = code(1, 2, 3, 4, 5, 6)

References:
  A. Author, a paper that is not counted, 2020.
"""


def test_a_docstring(sentences):
    found = sentences.paragraphs_of_docstring(DOCSTRING)
    words = [x.words for x in sentences.sentences_of("name", found)]
    assert words == [8, 7, 6, 7]


def test_public_names_are_read_without_an_import(sentences):
    found = sentences.every_docstring()
    assert "tfxclass.inference.top_k.top_k" in found
    assert "tfxclass.layers.class_head.FullSoftmax" in found
    assert not any("._" in name for name in found)


def test_private_docstrings_are_read(sentences, tmp_path):
    code = '"""The module."""\n\n\ndef _f():\n    """Those of f."""\n'
    (tmp_path / "a.py").write_text(code)
    found = sentences.all_docstrings(tmp_path)
    assert list(found.values()) == ["The module.", "Those of f."]


def test_bounds(sentences, capsys):
    short = [sentences.Sentence("page", "It is short and plain enough.")]
    assert sentences.report("guides", short)
    bad = [sentences.Sentence("page", "Of all, that of " + "a word " * 20)]
    assert not sentences.report("guides", bad)
    out = capsys.readouterr().out
    assert out.count("too many") == 4
    assert "[44] page: Of all" in out
