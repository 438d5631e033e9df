"""The command `tfxclass`: reads its arguments before it loads TensorFlow.

This module is outside of the packages, since importing a part of `tfxclass`
loads TensorFlow, which takes seconds and prints log lines.
"""

import argparse
import contextlib
import importlib.util
import json
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
# Options that a tagger keeps of the file it was fitted to, with the defaults of
# taggers that were not fitted to a file.
_OF_FILE = {"tags": "tags", "separator": "|"}
# Fewer tags that seem to be joined may be tags with a comma.
_MIN_JOINED = 3
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
        The exit status, see `run`.
    """
    options = parser().parse_args(arguments)
    # Errors are still shown.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with _without_start_notes():
        import tfxclass_text  # noqa: F401

    return run(options)


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
    if text == "calibrated":
        return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'must be a number in [0, 1], or "calibrated": {text!r}'
        ) from None


def run(options: argparse.Namespace) -> int:
    """Runs the command of parsed options.

    Args:
        options: from `parser().parse_args()`.

    Returns:
        0; 1 after a message about something that the user can correct; 141 if
        the reader of the output, such as `head`, wants no more of it.
    """
    try:
        _COMMANDS[options.command](options)
    except BrokenPipeError:
        # What Python still holds of the output goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # As of a Unix tool: 128 and the signal SIGPIPE.
    except (ValueError, ImportError, OSError) as e:
        print(f"tfxclass: {e}", file=sys.stderr)
        return 1
    return 0


def _fit(options):
    from tfxclass.export import version_folder
    from tfxclass.paths import check_folder
    from tfxclass_text import Tagger
    from tfxclass_text import readers
    from tfxclass_text import tagger_files

    check_folder(options.out, "--out")
    tagger_files.check_folder(options.out, "--out")
    if not options.overwrite and tagger_files.is_tagger(options.out):
        raise ValueError(
            f"--out {options.out} has a saved tagger. Fix: give another "
            "folder, or --overwrite to replace it"
        )
    if options.export:
        check_folder(options.export, "--export")
        version_folder.check_versions("--export", options.export)
        if os.path.realpath(options.export) == os.path.realpath(options.out):
            raise ValueError(
                "--out and --export must be different folders. Received: "
                f"{options.out} for both"
            )
    data = _read(options.data, options.text, options)
    fields = readers.fields_of(options.data, options.text)
    test = None
    if options.test:
        test = _read_test(options, fields)
        _check_known(
            options.test, test[1], {x for tags in data[1] for x in tags}
        )
    tagger = Tagger(
        fields=fields, effort=options.effort, seed=options.seed,
        verbose=2 if options.verbose else 1,
    )  # fmt: skip
    tagger.fit(*data)
    tagger.summary["file"] = {name: getattr(options, name) for name in _OF_FILE}
    # First: nothing that fails later may lose what was learned.
    _save(tagger, options.out)
    if test:
        _print_measures(tagger, test)
    if options.export:
        print(f"exported {tagger.export(options.export)}")


def _read(path, texts, options):
    """Reads `(texts, tags)`; ValueError for a file without any tag."""
    from tfxclass_text import columns
    from tfxclass_text import readers

    _check_file(path)
    texts, tags = readers.read(
        path, texts, options.tags, options.encoding, options.separator
    )
    if not any(tags):
        raise ValueError(
            f"{path}: must have a row with a tag in the column "
            f"{options.tags!r}. Received: {len(tags)} rows"
        )
    try:
        columns.read_tags(tags, len(tags))
    except ValueError as e:
        raise ValueError(f"{path}: {e}") from e
    return texts, tags


def _check_file(path):
    """Raises OSError or ValueError for a file that cannot have a text."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: there is no such file")
    if not os.path.getsize(path):
        raise ValueError(f"{path}: the file is empty")


def _read_test(options, fields):
    """Reads `(texts, tags)` of --test, before the training begins."""
    from tfxclass_text import readers

    test = _read(options.test, options.text, options)
    of_test = readers.fields_of(options.test, options.text)
    if fields and fields[0].kind == "words" and of_test != fields:
        raise ValueError(
            f"--test {options.test} must be an XC file of counts, as "
            f"{options.data} is. Received: a file of other values, or texts"
        )
    return test


def _save(tagger, folder):
    """Saves the tagger, in a temporary folder if `folder` cannot be written.

    Raises:
        OSError: the tagger is in the temporary folder; the message says where.
    """
    try:
        tagger.save(folder)
    except (OSError, ValueError) as e:
        spare = tempfile.mkdtemp(prefix="tfxclass-tagger-")
        tagger.save(spare)
        raise OSError(
            f"{folder} could not be written ({e}). The tagger is saved in "
            f"{spare}: move it from there"
        ) from e
    print(f"saved {folder}")


def _predict(options):
    from tfxclass_text import Tagger
    from tfxclass_text import readers

    tagger = Tagger.load(options.model)
    columns = list(tagger.model.input)
    if options.data:
        _check_file(options.data)
        texts, _ = readers.read(options.data, columns, None, options.encoding)
        _answer(tagger, texts, options)
        return
    for line in sys.stdin:
        # Typed text stands for every column. PowerShell's pipes begin with a
        # byte order mark.
        text = line.rstrip("\n").removeprefix("\ufeff")
        _answer(tagger, {name: [text] for name in columns}, options)


def _evaluate(options):
    from tfxclass_text import Tagger

    tagger = Tagger.load(options.model)
    # As the file of the training, unless something else is said.
    for name, default in _OF_FILE.items():
        if getattr(options, name) is None:
            saved = tagger.summary.get("file", {})
            setattr(options, name, saved.get(name, default))
    texts, tags = _read(options.data, list(tagger.model.input), options)
    if isinstance(tagger.tags[0], int):
        tags = [[_int_if_any(tag) for tag in of_text] for of_text in tags]
    _check_known(options.data, tags, set(tagger.tags))
    _print_measures(tagger, (texts, tags))


def _int_if_any(tag):
    """A file has the tags of a tagger with ints as text."""
    try:
        return int(tag)
    except ValueError:
        return tag


def _check_known(path, tags, known):
    """Raises ValueError if most tags are unknown, or joined by a separator."""
    from tfxclass_text import separators

    every = [tag for of_text in tags for tag in of_text]
    unknown = [tag for tag in every if tag not in known]
    other = separators.of_known_tags([str(tag) for tag in unknown], known)
    is_joined = other is not None and len(unknown) >= _MIN_JOINED
    if 2 * len(unknown) <= len(every) and not is_joined:
        return
    fix = "give --tags and --separator of this file"
    if other is not None:
        fix = f"--separator {other!r}"
    raise ValueError(
        f"{path}: {len(unknown)} of {len(every)} tags are unknown to "
        f"the tagger, such as {unknown[0]!r}. Fix: {fix}"
    )


def _print_measures(tagger, data):
    measures = tagger.evaluate(*data)
    print(json.dumps({k: round(v, 4) for k, v in measures.items()}, indent=2))


def _answer(tagger, texts, options):
    for answer in tagger.predict(texts, options.k, options.threshold):
        tags = [{"tag": tag, "probability": round(p, 4)} for tag, p in answer]
        print(json.dumps(tags, ensure_ascii=False), flush=True)


_COMMANDS = {"fit": _fit, "predict": _predict, "evaluate": _evaluate}

if __name__ == "__main__":
    sys.exit(main())
