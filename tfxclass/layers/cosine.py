"""Cosine similarity of features and class vectors: its scale and margin."""

import dataclasses
import functools
import math
import numbers
import warnings
from typing import Any

from tfxclass.checks import check_choice
from tfxclass.core import targets
from tfxclass.types import Config
from tfxclass.types import Margin

_MARGINS = {"cosface": targets.cosface, "arcface": targets.arcface}
_SCALE = 24.0


@dataclasses.dataclass(frozen=True)
class Cosine:
    """Logits that are the cosine of features and class vector, times a scale.

    Pass it as `similarity` of a head to learn embeddings, for example of faces,
    products or words. `similarity="cosine"` is short for `similarity=Cosine()`.

    Args:
        scale: float > 0, factor of the cosines. Defaults to 24.
        margin: float >= 0, subtracted from the similarity of the label in
            training only, which moves classes further apart. Defaults to 0,
            which is no margin.
        margin_type: `"cosface"` subtracts the margin from the cosine (Wang et
            al., CVPR 2018, equation 4). `"arcface"` adds it to the angle, in
            radians (Deng et al., CVPR 2019, equation 3). Defaults to
            `"cosface"`.

    Raises:
        ValueError: if an argument is out of range. A margin of 2 subtracted
            from a cosine, or of pi added to an angle, leaves nothing to learn.

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(
        100_000, similarity=tfxclass.layers.Cosine(scale=16.0, margin=0.2)
    )
    ```
    """

    scale: float = _SCALE
    margin: float = 0.0
    margin_type: str = "cosface"

    def __post_init__(self) -> None:
        if not (_is_finite(self.scale) and self.scale > 0):
            raise ValueError(
                f"`scale` must be > 0 and finite. Received: {self.scale!r}"
            )
        if not (_is_finite(self.margin) and self.margin >= 0):
            raise ValueError(
                f"`margin` must be >= 0 and finite. Received: {self.margin!r}"
            )
        check_choice("margin_type", self.margin_type, tuple(_MARGINS))
        self._check_margin()

    def _check_margin(self):
        """A margin past the range of what it moves is a mistake."""
        is_angle = self.margin_type == "arcface"
        limit = math.pi if is_angle else 2
        if self.margin < limit:
            return
        what = "an angle below pi" if is_angle else "below 2, part of a cosine"
        swapped = ""
        if self.scale < limit:
            swapped = (
                " They look swapped: Cosine("
                f"scale={self.margin}, margin={self.scale})?"
            )
        raise ValueError(
            f"`margin` must be {what}, such as 0.2. Received: "
            f"scale={self.scale}, margin={self.margin}.{swapped}"
        )

    def target_margin(self) -> Margin | None:
        """The margin as a function of the labels' logits, or None."""
        if not self.margin:
            return None
        return functools.partial(
            _MARGINS[self.margin_type], margin=self.margin, scale=self.scale
        )


# What `Cosine` has was an argument of the head in earlier versions.
_MOVED = tuple(field.name for field in dataclasses.fields(Cosine))


def _is_finite(value):
    return isinstance(value, numbers.Real) and math.isfinite(value)


def as_cosine(
    head: str,
    similarity: str | Cosine,
    arguments: dict[str, Any],
    num_constructors: int,
) -> Cosine | None:
    """Reads a head's `similarity`; None is the dot product.

    Args:
        head: str, name of the head's class.
        similarity: argument of the head.
        arguments: other arguments of the head. `scale`, `margin` and
            `margin_type` of earlier versions are taken out, with a warning.
        num_constructors: int, how many constructors lie between this call and
            the user's line, which the warning names.

    Raises:
        ValueError: a similarity that there is not, or a moved argument that
            contradicts it.
    """
    moved = {name: arguments.pop(name) for name in _MOVED if name in arguments}
    if moved:
        _check_moved(head, similarity, moved)
        warnings.warn(
            f"Use {head}(num_classes, similarity=tfxclass.layers.Cosine("
            f"{', '.join(f'{k}={v!r}' for k, v in moved.items())})) instead. "
            f"Received: {', '.join(moved)} as arguments of the head",
            DeprecationWarning,
            stacklevel=2 + num_constructors,
        )
    return _cosine(similarity, moved)


def of_config(config: Config) -> Config:
    """A head's configuration with `similarity` as the constructor takes it."""
    rest = {k: v for k, v in config.items() if k not in _MOVED}
    if config.get("similarity") == "cosine":
        rest["similarity"] = _of_file(config)
    return rest


def _of_file(config):
    """A `Cosine`; earlier versions saved margins that are refused now."""
    margin = config.get("margin", 0.0)
    cosine = _cosine("cosine", {**config, "margin": min(margin, 1.0)})
    object.__setattr__(cosine, "margin", margin)
    return cosine


def to_config(cosine: Cosine | None) -> Config:
    """The part of a head's configuration that `of_config` reads.

    Earlier versions can read it too.
    """
    if cosine is None:
        return {
            "similarity": "dot",
            **dataclasses.asdict(Cosine()),
            "scale": None,
        }
    return {"similarity": "cosine", **dataclasses.asdict(cosine)}


def _cosine(similarity, options):
    if isinstance(similarity, Cosine):
        return similarity
    if similarity not in ("dot", "cosine"):
        raise ValueError(
            '`similarity` must be "dot", "cosine" or '
            "tfxclass.layers.Cosine(scale=..., margin=...). Received: "
            f"{similarity!r}"
        )
    if similarity == "dot":
        return None
    given = {name: options[name] for name in _MOVED if name in options}
    if given.get("scale", 0.0) is None:
        del given["scale"]
    return Cosine(**given)


def _check_moved(head, similarity, moved):
    if isinstance(similarity, Cosine):
        raise ValueError(
            f"Give {head} the options of a cosine once, in `similarity`. "
            f"Received: similarity={similarity}, {', '.join(moved)}"
        )
    margin_type = moved.get("margin_type", "cosface")
    check_choice("margin_type", margin_type, tuple(_MARGINS))
    is_used = moved.get("scale") is not None or moved.get("margin")
    if similarity == "dot" and is_used:
        raise ValueError(
            '`scale` and `margin` need similarity="cosine". Received: '
            f"{', '.join(f'{k}={v}' for k, v in moved.items())} with "
            'similarity="dot".'
        )
