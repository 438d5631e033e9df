"""The commands of `tfxclass`; `tfxclass_cli` reads their arguments."""

import argparse
import json
import os
import sys
import tempfile

from tfxclass_cli import main
from tfxclass_cli import parser

__all__ = ["main", "parser", "run"]

# Options that a tagger keeps of the file it was fitted to, with the defaults of
# taggers that were not fitted to a file.
_OF_FILE = {"tags": "tags", "separator": "|"}
# Fewer tags that seem to be joined may be tags with a comma.
_MIN_JOINED = 3


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
    from tfxclass.paths import check_folder
    from tfxclass.text import Tagger
    from tfxclass.text import readers
    from tfxclass.text import tagger_files

    check_folder(options.out, "--out")
    tagger_files.check_folder(options.out, "--out")
    if not options.overwrite and tagger_files.is_tagger(options.out):
        raise ValueError(
            f"--out {options.out} has a saved tagger. Fix: give another "
            "folder, or --overwrite to replace it"
        )
    if options.export:
        check_folder(options.export, "--export")
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
    from tfxclass.text import columns
    from tfxclass.text import readers

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


def _read_test(options, fields):
    """Reads `(texts, tags)` of --test, before the training begins."""
    from tfxclass.text import readers

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
    from tfxclass.text import Tagger
    from tfxclass.text import readers

    tagger = Tagger.load(options.model)
    columns = list(tagger.model.input)
    if options.data:
        texts, _ = readers.read(options.data, columns, None, options.encoding)
        _answer(tagger, texts, options)
        return
    for line in sys.stdin:
        # Typed text stands for every column. PowerShell's pipes begin with a
        # byte order mark.
        text = line.rstrip("\n").removeprefix("\ufeff")
        _answer(tagger, {name: [text] for name in columns}, options)


def _evaluate(options):
    from tfxclass.text import Tagger

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
    from tfxclass.text import separators

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
    print(json.dumps(tagger.evaluate(*data), indent=2))


def _answer(tagger, texts, options):
    for answer in tagger.predict(texts, options.k, options.threshold):
        tags = [{"tag": tag, "probability": round(p, 4)} for tag, p in answer]
        print(json.dumps(tags, ensure_ascii=False), flush=True)


_COMMANDS = {"fit": _fit, "predict": _predict, "evaluate": _evaluate}

if __name__ == "__main__":
    sys.exit(main())
