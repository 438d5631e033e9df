"""The methods that are compared, and the settings that are varied."""

from typing import NamedTuple


class Method(NamedTuple):
    """A head and, for `SampledSoftmax`, its sampler.

    Attributes:
        label: str, in the figures.
        head: str, class in `tfxclass.layers`.
        sampler: str, class in `tfxclass.samplers`, or None.
        options: dict, of the sampler if there is one, else of the head. A
            value that is a function is called with `(data, set_up)`.
        rate: float, factor on the set's learning rate, for a method that
            needs its own.
    """

    label: str
    head: str
    sampler: str | None = None
    options: dict = {}
    rate: float = 1.0


def _num_sampled(data, set_up):
    return min(set_up.num_sampled, data.num_classes)


def _counts(data, set_up):
    return [int(count) for count in data.counts]


_M = {"num_sampled": _num_sampled}
METHODS = {
    "full": Method("full softmax", "FullSoftmax"),
    "forest": Method("forest", "SelectiveSoftmax", None, _M),
    "forest_paper": Method(
        "forest, as in the paper",
        "SelectiveSoftmax",
        None,
        {
            **_M,
            "neighbor_fraction": 1.0,
            "correct_fill": False,
            "num_candidates": None,
        },
    ),
    "forest_adaptive": Method(
        "forest, adaptive (HF-A)",
        "SelectiveSoftmax",
        None,
        {**_M, "tau_cp": 0.9},
    ),
    "uniform": Method("uniform", "SampledSoftmax", "UniformSampler", _M),
    "log_uniform": Method(
        "log-uniform", "SampledSoftmax", "LogUniformSampler", _M
    ),
}


class Sweep(NamedTuple):
    """One option of some methods at several values, a panel of a figure.

    Attributes:
        title: str, the x axis.
        methods: names.
        option: str; `num_sampled` takes the values of the data set.
        values: tuple.
        log: bool, whether the axis is logarithmic.
    """

    title: str
    methods: tuple
    option: str
    values: tuple = ()
    log: bool = True

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
        Sweep("active classes M", ("uniform", "forest"), "num_sampled"),
    ),
    "index": (
        Sweep("trees L", ("forest",), "num_trees", (2, 5, 10, 20, 50)),
        Sweep("leaf size", ("forest",), "leaf_size", (25, 50, 100, 200, 400)),
        Sweep(
            "rebuild interval T, steps",
            ("forest",),
            "rebuild_interval",
            (25, 100, 500, 2500),
        ),
        Sweep(
            "threshold tau_cp",
            ("forest_adaptive",),
            "tau_cp",
            (0.5, 0.7, 0.9, 0.99),
            log=False,
        ),
    ),
}


def text_of(options):
    """What is varied, in a word: `num_trees=5`."""
    return ",".join(f"{name}={value}" for name, value in options.items())


def make_head(method, options, data, set_up, seed):
    """The head of a job.

    Args:
        method: str, name in `METHODS`.
        options: dict, instead of the method's own where they share a name.
        data: `DataSet`.
        set_up: `SetUp`.
        seed: int.
    """
    import tfxclass

    chosen = METHODS[method]
    options = {
        name: value(data, set_up) if callable(value) else value
        for name, value in {**chosen.options, **options}.items()
    }
    if "tau_cp" in options:
        options["allocation"] = _allocation(options.pop("tau_cp"))
    common = {"seed": seed, **set_up.head}
    head = getattr(tfxclass.layers, chosen.head)
    if chosen.sampler is None:
        return head(data.num_classes, **options, **common)
    sampler = getattr(tfxclass.samplers, chosen.sampler)(seed=seed, **options)
    return head(data.num_classes, sampler=sampler, **common)


def _allocation(tau_cp):
    """HF-A with a threshold that stays, in phases that fit a short run."""
    import tfxclass

    return tfxclass.samplers.AdaptiveAllocation(
        phase_steps=200,
        cumulative_probability=(tau_cp, tau_cp),
        ramp_steps=1,
        num_trees=(10, 50),
        rebuild_interval=(50, 200),
    )
