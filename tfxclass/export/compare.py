"""Whether an export answers as the model does."""

from collections.abc import Sequence

import numpy as np

# Two orders of summation in float32. An absolute 1e-6 alone would say nothing
# about probabilities over a million classes, and is below the resolution of
# large logits.
_RELATIVE = 2e-5
_ABSOLUTE = {
    None: 1e-6,
    "softmax": 1e-12,
    "sigmoid": 1e-12,
    # A difference of logits: theirs is the error, however small it is.
    "sparsemax": 2e-5,
}


def check_same(
    answers: dict[str, np.ndarray],
    expected: dict[str, np.ndarray],
    names: Sequence[str] | None,
    activation: str | None,
    error: np.ndarray | float = 0.0,
    compared: np.ndarray | bool = True,
) -> None:
    """Raises unless the answers are those expected.

    Ids are equal but where rounding alone may order two classes either way.

    Args:
        answers: dict of arrays, `ids`, `scores` and, with names, `labels`
            (bytes objects), each `[..., k]`.
        expected: dict of arrays, `ids` and `scores`.
        names: list of str, or None.
        activation: the head's; None where scores are logits.
        error: float or `[rows, k]`, added to the tolerance of the scores.
        compared: bool `[rows, k]` or `[rows, 1]`, which answers are compared.

    Raises:
        RuntimeError: they differ.
    """
    for key, value in expected.items():
        if answers[key].shape != value.shape:
            _differs(f"shape of `{key}`", answers[key].shape, value.shape)
    ids, scores = (_flat(expected[key]) for key in ("ids", "scores"))
    answers = {key: _flat(value) for key, value in answers.items()}
    named = answers["ids"]
    answers["ids"] = np.where(compared, answers["ids"], ids)
    answers["scores"] = np.where(compared, answers["scores"], scores)
    tolerance = _ABSOLUTE[activation] + _RELATIVE * np.abs(scores) + error
    if not np.all(_is_close(answers["scores"], scores, tolerance)):
        _differs("`scores`", answers["scores"], scores)
    if not _is_same_order(answers["ids"], ids, scores, tolerance):
        _differs("`ids`", answers["ids"], ids)
    if names is not None:
        # Id -1, where no class was found, has no name.
        known = [*(name.encode() for name in names), b""]
        wanted = [[known[i] for i in row] for row in named]
        if answers["labels"].tolist() != wanted:
            _differs("`labels`", answers["labels"], wanted)


def _flat(answers):
    """`[..., k]` as `[rows, k]`."""
    return answers.reshape(-1, answers.shape[-1])


def check_close(
    key: str,
    answers: dict[str, np.ndarray],
    expected: np.ndarray,
    activation: str | None,
    error: np.ndarray | float = 0.0,
    compared: np.ndarray | bool = True,
) -> None:
    """Raises unless `answers[key]` is `expected` up to rounding.

    Args:
        answers: dict of arrays.
        key: str.
        expected: `[..., n]`.
        activation: as of `check_same`.
        error: `[rows, 1]` or `[rows, n]`, added to the tolerance.
        compared: bool `[rows, 1]`, which rows are compared.
    """
    received = answers[key]
    if received.shape != expected.shape:
        _differs(f"shape of `{key}`", received.shape, expected.shape)
    received, expected = _flat(received), _flat(expected)
    tolerance = _ABSOLUTE[activation] + _RELATIVE * np.abs(expected) + error
    close = _is_close(received, expected, tolerance)
    if not np.all(close | ~np.asarray(compared)):
        _differs(f"`{key}`", received, expected)


def _is_close(received, expected, tolerance):
    with np.errstate(invalid="ignore"):  # inf - inf
        close = np.abs(received - expected) <= tolerance
    same = np.isnan(received) & np.isnan(expected)
    return close | same | (received == expected)


def _is_same_order(received, expected, scores, tolerance):
    """Whether ids differ only where classes of one score change places."""
    for row, place in np.argwhere(received != expected):
        gap = np.abs(scores[row] - scores[row, place])
        tied = gap <= tolerance[row, place]
        moved = np.any(expected[row, tied] == received[row, place])
        # One tied with the last may give way to a class left out.
        if not moved and not tied[-1]:
            return False
    return True


def _differs(what, received, expected):
    raise RuntimeError(
        f"The {what} of the export differ from the model's. Received: "
        f"{received}, expected: {expected}. A layer may behave otherwise "
        "outside of Keras; compare with `example_inputs` that are real data."
    )
