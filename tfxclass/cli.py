"""`tfxclass tag fit` and `tfxclass tag ask`."""

import argparse
import json
import sys
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
    fit.set_defaults(run=_fit)


def _add_ask(verbs):
    ask = verbs.add_parser("ask", help="tags of texts: of lines, or a file")
    ask.add_argument("model", help="folder of the tagger")
    ask.add_argument("--data", help="file of texts; else lines of the input")
    ask.add_argument("-k", type=int, help="most tags of a text")
    ask.add_argument(
        "--threshold", type=_threshold, help='least probability, or "learned"'
    )
    ask.set_defaults(run=_ask)


def _threshold(text):
    return text if text == "learned" else float(text)


def _fit(options):
    from tfxclass.text import Tagger
    from tfxclass.text import readers

    texts, tags = readers.read(options.data, options.text, options.tags)
    tagger = Tagger(
        fields=readers.fields_of(options.data, options.text),
        effort=options.effort,
        seed=options.seed,
    )
    tagger.fit(texts, tags)
    if options.test:
        scores = tagger.evaluate(
            *readers.read(options.test, options.text, options.tags)
        )
        print(json.dumps(scores, indent=2))
    tagger.save(options.out)
    print(f"saved {options.out}")
    if options.export:
        print(f"exported {tagger.export(options.export)}")


def _ask(options):
    from tfxclass.text import Tagger
    from tfxclass.text import readers

    tagger = Tagger.load(options.model)
    columns = list(tagger.model.input)
    if options.data:
        texts, _ = readers.read(options.data, columns)
        _answer(tagger, texts, options)
        return
    for line in sys.stdin:
        # Typed text is that of each column.
        _answer(
            tagger, {name: [line.rstrip("\n")] for name in columns}, options
        )


def _answer(tagger, texts, options):
    for answer in tagger.predict(texts, options.k, options.threshold):
        tags = [{"tag": tag, "probability": round(p, 4)} for tag, p in answer]
        print(json.dumps(tags, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    sys.exit(main())
