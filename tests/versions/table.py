"""The tables of docs/install.md, from docs/versions.json."""

from tests.versions.environments import ROOT

RESULT = ROOT / "docs" / "versions.json"
PAGE = ROOT / "docs" / "install.md"
START, END = "<!-- make test-versions -->\n", "<!-- end -->\n"


def is_sound(found):
    """Whether all tests passed and all exports answered as the live models."""
    answers = [x for row in found["exports"] for x in row["models"].values()]
    failed = [name for row in found["tests"] for name in row["failed"]]
    return not failed and set(answers) == {"equal"}


def _tests(rows):
    lines = [
        "| TensorFlow | Keras | NumPy | ops | tests passed | failed |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = [row[x] for x in ("tensorflow", "keras", "numpy", "ops")]
        cells += [row["passed"], len(row["failed"])]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _exports(rows):
    servers = list(dict.fromkeys(row["tensorflow"] for row in rows))
    lines = [
        f"| export made with | {' | '.join(f'in {x}' for x in servers)} |",
        f"| --- {'| --- ' * len(servers)}|",
    ]
    for made in dict.fromkeys(row["made_with"] for row in rows):
        own = [row["models"] for row in rows if row["made_with"] == made]
        cells = [
            f"{sum(x == 'equal' for x in models.values())} of {len(models)}"
            for models in own
        ]
        lines.append(f"| {made} | {' | '.join(cells)} |")
    return lines


def text(found):
    """Both tables, Markdown."""
    names = ", ".join(found["exports"][0]["models"])
    lines = [
        f"`make test-versions` of {found['date']}, on {found['machine']}:",
        "",
        *_tests(found["tests"]),
        "",
        f"Exports ({names}) that answer as the live model, by the TensorFlow "
        "that loads them:",
        "",
        *_exports(found["exports"]),
    ]
    return "\n".join(lines) + "\n"


def page(found, old):
    """The page with its tables written anew."""
    before, _, rest = old.partition(START)
    after = rest.partition(END)[2]
    return f"{before}{START}{text(found)}{END}{after}"


def write(found):
    PAGE.write_text(page(found, PAGE.read_text()))
