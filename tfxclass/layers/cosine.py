"""Cosine similarity of features and class vectors: its scale and margin."""

import dataclasses
import functools
import math

from tfxclass.checks import check_choice
from tfxclass.checks import check_nonnegative
from tfxclass.checks import check_positive
from tfxclass.checks import check_value
from tfxclass.core import targets
from tfxclass.types import Config
from tfxclass.types import Margin

_NAMES = ("dot", "cosine")
_MARGINS = {"cosface": targets.cosface, "arcface": targets.arcface}


@dataclasses.dataclass(frozen=True)
class Cosine:
    """Logits that are the cosine of features and class vector, times a scale.

    Pass it as `similarity` of a head to learn embeddings, for example of faces.
    `similarity="cosine"` is short for `similarity=Cosine()`.

    Args:
        scale: float > 0, factor of the cosines.
        margin: float >= 0, subtracted from the similarity of the label in
            training only, which moves classes further apart.
        margin_type: `"cosface"` subtracts the margin from the cosine (Wang et
            al., CVPR 2018, equation 4). `"arcface"` adds it to the angle, in
            radians (Deng et al., CVPR 2019, equation 3).

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

    scale: float = 24.0
    margin: float = 0.0
    margin_type: str = "cosface"

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_nonnegative("margin", self.margin)
        check_choice("margin_type", self.margin_type, tuple(_MARGINS))
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


OPTIONS = {field.name for field in dataclasses.fields(Cosine)}


def as_cosine(similarity: str | Cosine | Config) -> Cosine | None:
    """Reads a head's `similarity`, or what `to_config` made of it."""
    if isinstance(similarity, Cosine):
        return similarity
    if isinstance(similarity, dict):
        return Cosine(**similarity)
    wanted = '"dot", "cosine" or tfxclass.layers.Cosine(scale=..., margin=...)'
    check_value("similarity", similarity, similarity in _NAMES, wanted)
    return Cosine() if similarity == "cosine" else None


def to_config(cosine: Cosine | None) -> str | Config:
    """A head's `similarity` for its configuration."""
    return "dot" if cosine is None else dataclasses.asdict(cosine)
