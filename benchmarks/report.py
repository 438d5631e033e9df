"""Writes RESULTS.md, pages/*.md and docs/papers: python benchmarks/report.py.

pages/contents.json says which tables each page has, and how tables and methods
are called. The answer of a page is in pages/answers/<page>.md, its tables are
results/*.json. The text about a table is in a file with it, results/<name>.md,
as notes.py reads it. papers/*.md are the texts of docs/papers.
"""

import os
import re

import measure
import notes

INDEX = os.path.join(measure.FOLDER, "RESULTS.md")
FOLDER = os.path.join(measure.FOLDER, "pages")
PAPERS = os.path.join(measure.FOLDER, "papers")
DOCS = os.path.join(os.path.dirname(measure.FOLDER), "docs", "papers")
CONTENTS = measure.read(os.path.join(FOLDER, "contents.json"))
#: Pages by name: their "title", and the titles of their "tables" by name.
PAGES = CONTENTS["pages"]
_CIRCUMSTANCES = (
    "Medians, each method of a table in the same run, TensorFlow 2.21 with "
    "oneDNN on, unless a table says otherwise. The machines are shared: "
    "compare the rows of one table, not two tables."
)


def section(name, title):
    record = measure.recorded(name)
    rows, names = record["rows"], CONTENTS["methods"]
    shown = [dict(row) for row in rows]
    for row in shown:
        if method := row.get("method"):
            row["method"] = names.get(method, method)
    lines = [f"## {title}", "", *note(name, rows), *circumstances(record), ""]
    lines += [measure.table(shown), ""]
    if os.path.exists(measure.result_path(name + ".png")):
        lines += [f"![{title}](../results/{name}.png)", ""]
    return lines


def circumstances(record):
    """Lines that say how the rows were measured; each its own, if it does."""
    told = [row.get("measured", record) for row in record["rows"]] or [record]
    lines = [f"`{x['command']}`, {x['date']}, {x['machine']}." for x in told]
    return list(dict.fromkeys(lines))


def note(name, rows):
    """Lines with the text of results/<name>.md, none without that file."""
    path = measure.result_path(name + ".md")
    if not os.path.exists(path):
        return []
    with open(path) as f:
        text = notes.wrapped(notes.filled(f.read().strip(), rows))
    # Notes link to tables by their titles, and to docs as the index does.
    for page, contents in PAGES.items():
        for title in contents["tables"].values():
            link = f"](#{anchor(title)})"
            text = text.replace(link, f"]({page}.md#{anchor(title)})")
    return [text.replace("](../docs/", "](../../docs/"), ""]


def written(path):
    with open(path) as f:
        return notes.filled_from_files(f.read())


def page_text(page):
    lines = [f"# {PAGES[page]['title']}", ""]
    lines += [written(os.path.join(FOLDER, "answers", page + ".md")), ""]
    lines += [_CIRCUMSTANCES, ""]
    for name, title in PAGES[page]["tables"].items():
        lines += section(name, title)
    return "\n".join(lines)


def index():
    """What RESULTS.md holds: key figures, and the answer of each page."""
    answers = os.path.join(FOLDER, "answers")
    lines = [
        "# Measured",
        "",
        written(os.path.join(answers, "index.md")),
        "",
        "Each page below has the tables behind its answer. Each table names "
        "its command, its machine and its date.",
        "",
    ]
    for page, contents in PAGES.items():
        text = written(os.path.join(answers, page + ".md"))
        text = text.replace("](../../", "](../")
        text = re.sub(r"\]\((?=\w+\.md)", "](pages/", text)
        lines += [f"## [{contents['title']}](pages/{page}.md)", "", text, ""]
    return "\n".join(lines)


def anchor(title):
    kept = re.sub(r"[^\w\- ]", "", title.lower())
    return kept.strip().replace(" ", "-")


def pages():
    """`{path: text}` of the index, of all pages, and of docs/papers."""
    found = {INDEX: index()}
    for page in PAGES:
        found[os.path.join(FOLDER, page + ".md")] = page_text(page)
    for name in sorted(os.listdir(PAPERS)):
        text = written(os.path.join(PAPERS, name))
        found[os.path.join(DOCS, name)] = text + "\n"
    return found


def main():
    for path, text in pages().items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)


if __name__ == "__main__":
    main()
