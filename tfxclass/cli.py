"""`tfxclass tag fit` and `tfxclass tag ask`."""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; 0, or 1 after a message for what the user can mend."""
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except (ValueError, ImportError, OSError) as e:
        print(f"tfxclass: {e}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """Of all commands."""
    found = argparse.ArgumentParser(prog="tfxclass")
    commands = found.add_subparsers(required=True)
    tag = commands.add_parser("tag", help="texts in, names out")
    verbs = tag.add_subparsers(required=True)
    _add_fit(verbs)
    _add_ask(verbs)
    return found


def _add_fit(verbs):
    fit = verbs.add_parser("fit", help="learn from a file")
    fit.add_argument(
        "data", help=".jsonl, .csv, .tsv, .parquet, .txt (XC), also .gz, .xz"
    )
    fit.add_argument(
        "--text", nargs="+", default=["text"], help="columns of the texts"
    )
    fit.add_argument("--tags", default="tags", help="column of the tags")
    fit.add_argument("--out", required=True, help="folder of the tagger")
    fit.add_argument("--test", help="file to evaluate on")
    fit.add_argument("--effort", choices=["best", "fast"], default="best")
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument("--export", help="folder of servable versions, too")
    fit.add_argument(
        "--separator",
        default="|",
        help='between the tags of a CSV or TSV field; "" for one tag',
    )
    _add_encoding(fit)
    fit.set_defaults(run=_fit)


def _add_ask(verbs):
    ask = verbs.add_parser("ask", help="tags of texts: of lines, or a file")
    ask.add_argument("model", help="folder of the tagger")
    ask.add_argument("--data", help="file of texts; else lines of the input")
    ask.add_argument("-k", type=int, help="most tags of a text")
    ask.add_argument(
        "--threshold",
        type=_threshold,
        help='least probability, or "calibrated"',
    )
    _add_encoding(ask)
    ask.set_defaults(run=_ask)


def _add_encoding(command):
    command.add_argument(
        "--encoding",
        default="utf-8",
        help="of CSV, TSV and JSON lines, such as cp1252",
    )


def _threshold(text):
    # "learned" is the former name.
    return text if text in ("calibrated", "learned") else float(text)


def _fit(options):
    from tfxclass.paths import check_folder
    from tfxclass.text import Tagger
    from tfxclass.text import readers

    check_folder(options.out, "--out")
    if options.export:
        check_folder(options.export, "--export")
    data = _read(options.data, options)
    fields = readers.fields_of(options.data, options.text)
    test = _read_test(options, fields) if options.test else None
    tagger = Tagger(fields=fields, effort=options.effort, seed=options.seed)
    tagger.fit(*data)
    # First: nothing that fails later may lose what was learned.
    _save(tagger, options.out)
    if test:
        print(json.dumps(tagger.evaluate(*test), indent=2))
    if options.export:
        print(f"exported {tagger.export(options.export)}")


def _read(path, options):
    """`(texts, tags)` of a file, in which a row has a tag."""
    from tfxclass.text import columns
    from tfxclass.text import readers

    texts, tags = readers.read(
        path, options.text, options.tags, options.encoding, options.separator
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
    """`(texts, tags)` of --test, checked before the training."""
    from tfxclass.text import readers

    test = _read(options.test, options)
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


def _ask(options):
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


def _answer(tagger, texts, options):
    for answer in tagger.predict(texts, options.k, options.threshold):
        tags = [{"tag": tag, "probability": round(p, 4)} for tag, p in answer]
        print(json.dumps(tags, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    sys.exit(main())
