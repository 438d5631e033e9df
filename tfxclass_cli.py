"""The command `tfxclass`: reads its arguments before it loads TensorFlow.

This module is outside of the package, since importing a part of `tfxclass`
loads TensorFlow, which takes seconds and prints log lines. The commands
themselves are in `tfxclass.cli`.
"""

import argparse
import contextlib
import importlib.util
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Sequence

_START_NOTES = re.compile(
    rb"(?m)^(WARNING: All log messages before absl::InitializeLog|"
    rb"I\d{4} .*|\d{4}-\d\d-\d\d .*: I .*|To enable the following "
    rb"instructions: .*)[^\n]*\n?"
)
_EXAMPLE = """\
example:
  tfxclass tag fit train.jsonl --text title body --tags tags --out model
  tfxclass tag predict model --data new.jsonl -k 5
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: list of str. Defaults to the arguments of the process.

    Returns:
        The exit status, see `tfxclass.cli.run`.
    """
    options = parser().parse_args(arguments)
    # Errors are still shown.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with _without_start_notes():
        from tfxclass import cli

    return cli.run(options)


@contextlib.contextmanager
def _without_start_notes():
    """Prints what goes to stderr at the end, without TensorFlow's notes.

    The log level does not hide them. tfxclass_serve/quiet.py does the same: it
    is in another distribution, and each is installed without the other.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        stderr = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            os.write(2, _START_NOTES.sub(b"", held.read()))


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; `options.command` is such as "fit"."""
    found = argparse.ArgumentParser(
        prog="tfxclass",
        description="Classifiers with very many classes.",
    )
    found.add_argument(
        "--version", action="version", version=f"tfxclass {version()}"
    )
    commands = found.add_subparsers(required=True, metavar="COMMAND")
    tag = commands.add_parser(
        "tag",
        help="learn to tag texts, and predict the tags of new texts",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = tag.add_subparsers(required=True, metavar="COMMAND")
    _add_fit(verbs)
    _add_predict(verbs)
    _add_evaluate(verbs)
    return found


def version() -> str:
    """The version of tfxclass, read from its file without importing it."""
    spec = importlib.util.find_spec("tfxclass")
    text = pathlib.Path(spec.origin).read_text(encoding="utf8")
    return re.search(r'^__version__ = "(.*)"$', text, re.M)[1]


def _add_fit(verbs):
    fit = verbs.add_parser(
        "fit",
        help="learn from a file of texts and their tags",
        description="Learns from a file of texts and their tags.",
    )
    fit.add_argument(
        "data",
        help="file with a text and its tags in each row: .jsonl, .csv, .tsv, "
        ".parquet or .txt (XC), also with .gz, .xz or .bz2",
    )
    fit.add_argument(
        "--text",
        nargs="+",
        default=["text"],
        metavar="COLUMN",
        help="columns with texts (default: text)",
    )
    _add_tags(fit, "tags", "|", "%(default)s")
    fit.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="where to save the tagger",
    )
    fit.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the tagger that is in the folder of --out",
    )
    fit.add_argument(
        "--test",
        metavar="FILE",
        help="file to evaluate the tagger on (default: no evaluation)",
    )
    fit.add_argument(
        "--effort",
        choices=["best", "fast"],
        default="best",
        help="best accuracy, or a short training (default: %(default)s)",
    )
    fit.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of all that is random (default: %(default)s)",
    )
    fit.add_argument(
        "--export",
        metavar="FOLDER",
        help="where to export a version for TensorFlow Serving, too "
        "(default: no export)",
    )
    fit.add_argument(
        "--verbose",
        action="store_true",
        help="print all that is tried and chosen",
    )
    _add_encoding(fit)
    fit.set_defaults(command="fit")


def _add_predict(verbs):
    predict = verbs.add_parser(
        "predict",
        # "ask" is the former name.
        aliases=["ask"],
        help="predict the tags of texts",
        description="Predicts the tags of texts. Prints a line of JSON for "
        "each text: its tags with their probabilities, best first.",
    )
    predict.add_argument("model", help="folder of the tagger")
    predict.add_argument(
        "--data",
        metavar="FILE",
        help="file of texts (default: each line of the standard input)",
    )
    predict.add_argument(
        "-k",
        type=int,
        help="largest number of tags for a text (default: 5, or all tags that "
        "reach --threshold)",
    )
    predict.add_argument(
        "--threshold",
        type=_threshold,
        help='lowest probability of a tag, or "calibrated" for the threshold '
        "of each tag from the training (default: none)",
    )
    _add_encoding(predict)
    predict.set_defaults(command="predict")


def _add_evaluate(verbs):
    evaluate = verbs.add_parser(
        "evaluate",
        help="measure how good the predicted tags are",
        description="Predicts the tags of texts, and compares them with the "
        "tags of the file. Prints the measures of `Tagger.evaluate` as JSON.",
    )
    evaluate.add_argument("model", help="folder of the tagger")
    evaluate.add_argument(
        "--data",
        required=True,
        metavar="FILE",
        help="file of texts and their tags, with the columns of the training",
    )
    _add_tags(evaluate, None, None, "as in the training")
    _add_encoding(evaluate)
    evaluate.set_defaults(command="evaluate")


def _add_tags(command, tags, separator, default):
    command.add_argument(
        "--tags",
        default=tags,
        metavar="COLUMN",
        help=f"column with the tags (default: {default})",
    )
    command.add_argument(
        "--separator",
        default=separator,
        help="between the tags in a field of a CSV or TSV file; '' for one tag "
        f"in each row, whatever it looks like (default: {default})",
    )


def _add_encoding(command):
    command.add_argument(
        "--encoding",
        default="utf-8",
        help="of CSV, TSV and JSON lines files, such as cp1252 (default: "
        "%(default)s)",
    )


def _threshold(text):
    # "learned" is the former name.
    return text if text in ("calibrated", "learned") else float(text)


if __name__ == "__main__":
    sys.exit(main())
