"""What is varied beside the methods: the parts of the comparison."""

from typing import NamedTuple

from benchmarks.comparison.methods import METHODS


class Sweep(NamedTuple):
    """One option of some methods at several values.

    Attributes:
        methods: names.
        option: str; `num_sampled` takes the values of the data set.
        values: tuple.
    """

    methods: tuple
    option: str
    values: tuple = ()

    def settings(self, set_up, method):
        """`{value: options}`; no options where the method does that anyway."""
        values, usual = self.values, METHODS[method].options.get(self.option)
        if self.option == "num_sampled":
            values, usual = set_up.sampled_sweep, set_up.num_sampled
        return {
            value: {} if value == usual else {self.option: value}
            for value in values
        }


# The parts of the comparison: what is varied, beside each method's curve.
PARTS = {
    "curves": (),
    "num_sampled": (
        Sweep(
            (
                "uniform",
                "random_paper",
                "top_k",
                "top_k_paper",
                "forest",
                "forest_paper",
                "lsh_embedding",
                "lsh_label",
            ),
            "num_sampled",
        ),
    ),
    # HF-A's threshold starts at 0.6.
    "tau_cp": (
        Sweep(
            ("forest_adaptive_paper", "forest_adaptive_labels_in_m"),
            "tau_cp_end",
            (0.7, 0.9, 0.95, 0.99),
        ),
    ),
}


def text_of(options):
    """What is varied, in a word: `num_trees=5`."""
    return ",".join(f"{name}={value}" for name, value in options.items())
