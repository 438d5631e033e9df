"""The cells of the matrix: a task, an encoder, a head and a budget."""

from typing import NamedTuple


class Cell(NamedTuple):
    """What is the same for all optimizers and samplers of a cell."""

    task: str  # in `tasks.TASKS`
    encoder: str  # in `model.ENCODERS`
    scale: float | None  # of a cosine; None for dot products
    batch: int
    percent: float  # negatives of a step, of the classes
    steps: int
    falls: bool = True  # the rate to 0, as half a cosine
    is_kept_back: bool = False  # looked at when the default was final

    @property
    def name(self):
        logits = "dot" if self.scale is None else f"cosine{self.scale:g}"
        rate = "falling" if self.falls else "constant"
        return (
            f"{self.task}, {self.encoder}, {logits}, {self.batch}, "
            f"{self.percent:g} %, {self.steps}, {rate}"
        )


CELLS = [
    Cell("groups", "none", None, 128, 5, 1200),
    Cell("groups", "none", 24, 128, 1, 1200),
    Cell("groups", "layer", None, 128, 1, 1500),
    Cell("groups", "layer", 24, 128, 1, 1500, falls=False),
    Cell("groups", "layers", None, 128, 1, 1500, falls=False),
    Cell("zipf_groups", "layer", None, 128, 1, 1500),
    Cell("zipf_groups", "layers", 16, 512, 1, 600),
    Cell("small_groups", "layers", None, 128, 5, 800),
    Cell("numbers_3", "layers", None, 128, 5, 1500),
    Cell("numbers_3", "layer", 16, 128, 5, 1200, falls=False),
    Cell("numbers_4", "layers", None, 128, 1, 1500),
    Cell("verses", "bag", 24, 256, 1, 1200),
    Cell("verses", "bag", None, 256, 1, 1200),
    Cell("verses", "bag_layer", 16, 128, 0.3, 1200, falls=False),
    Cell("eu_law", "bag_relu", None, 128, 5, 800),
    Cell("eu_law", "bag", 16, 256, 5, 500, falls=False),
    Cell("reverse_dictionary", "bag", 20, 256, 5, 800),
    Cell("reverse_dictionary", "bag_layer", None, 128, 1, 1500),
    Cell("job_titles", "bag", None, 128, 5, 1000),
    Cell("job_titles", "bag_layer", 16, 128, 5, 1000, falls=False),
    Cell("job_titles", "bag_layer", None, 512, 5, 400),
    Cell("subjects", "bag", None, 256, 1, 1000),
    Cell("subjects", "bag_layer", 16, 256, 1, 1000),
    Cell("language_model", "concatenated", None, 256, 5, 800),
    Cell("language_model", "gru", None, 128, 1, 800, falls=False),
    Cell("language_model", "bag", 16, 512, 1, 600),
    Cell("diginetica", "tied", 16, 512, 5, 400),
    Cell("diginetica", "bag", None, 256, 1, 1000),
    Cell("tmall", "tied", 16, 512, 1, 600),
    Cell("tmall", "bag_layer", 16, 256, 1, 1000, falls=False),
    # Kept back until the default was final.
    Cell("small_groups", "layer", 32, 128, 1, 800, is_kept_back=True),
    Cell("numbers_4", "layers", 24, 512, 0.3, 600, is_kept_back=True),
    Cell("job_titles", "bag_relu", None, 256, 1, 800, False, True),
    Cell("subjects", "bag", 20, 512, 0.3, 500, False, True),
    Cell("tmall", "tied", None, 256, 1, 800, is_kept_back=True),
    Cell("language_model", "transformer", None, 256, 1, 600, False, True),
    # Added last, since files of results are numbered.
    Cell("glyphs", "layers", None, 128, 1, 1500),
    Cell("glyphs", "layers", 24, 256, 1, 1000, falls=False),
]
