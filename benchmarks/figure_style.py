"""What the figures of the project share: colors, sizes, ticks.

A title states the conclusion. A panel has six lines at most. Text has 10 pt.
Panels stand one above the other, so that a phone shows them 380 pixels wide.
"""

import textwrap

_SIZE = 10


def new_figure(rows=1, height=4.4):
    """`(figure, axes)`, axes a list, panel by panel."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.close("all")
    with pyplot.rc_context({"font.size": _SIZE, "axes.titlesize": _SIZE}):
        figure, axes = pyplot.subplots(
            rows, figsize=(5.4, height * rows), squeeze=False
        )
    for one in axes.flat:
        one.grid(alpha=0.3)
    return figure, list(axes.flat)


def curves(lines, path, title, **labels):
    """Writes a figure of curves on scales of powers of ten.

    `lines` are `(x, y, style)`, `labels` xlabel, ylabel and other properties.
    """
    figure, (axes,) = new_figure(height=4.8)
    for x, y, style in lines:
        axes.plot(x, y, **style)
    axes.set(xscale="log", yscale="log", **labels)
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis)
    axes.legend()
    save(figure, path, title)


def save(figure, path, title):
    """Writes a figure, the conclusion above it."""
    # At the top in inches: a share of a tall figure is in its first panel.
    y = 1 - 0.1 / figure.get_figheight()
    title = title.replace(" %", "\N{NO-BREAK SPACE}%")
    title = textwrap.fill(title, int(11 * figure.get_figwidth()))
    figure.suptitle(title, fontsize=_SIZE + 2, y=y)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def plain_ticks(axis):
    """1, 10, 100: numbers in place of powers, and none that overlap."""
    from matplotlib import ticker

    low, high = axis.get_view_interval()
    subs = (1, 2, 5) if high < 300 * low else (1,)
    axis.set_major_locator(ticker.LogLocator(subs=subs))
    axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: _number(x)))
    axis.set_minor_formatter(ticker.NullFormatter())


def _number(value):
    for size, name in ((1e9, " billion"), (1e6, " million")):
        if value >= size:
            return f"{value / size:g}{name}"
    return f"{value:,g}"
