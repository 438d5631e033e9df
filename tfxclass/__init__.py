"""Output layers ("heads") for Keras classifiers with very many classes.

Most models need three names: `tfxclass.layers.SampledSoftmax` as the last
layer, `tfxclass.optimizers.HeadAdam` as the optimizer, and `tfxclass.top_k` for
predictions. `tfxclass.text.Tagger` tags texts and needs no model.

```python
head = tfxclass.layers.SampledSoftmax(num_classes=1_000_000)
model = keras.Sequential([keras.layers.Dense(128), head])
model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
```
"""

import importlib
import os
import platform
import sys

# TensorFlow decides about oneDNN, a faster library of products, when it is
# loaded. Without this it leaves out processors that have AVX2 or AVX-512, but
# no VNNI.
if "tensorflow" not in sys.modules and platform.machine() == "x86_64":
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

from tfxclass import advice
from tfxclass import calibration
from tfxclass import callbacks
from tfxclass import data
from tfxclass import distribute
from tfxclass import export
from tfxclass import initializers
from tfxclass import layers
from tfxclass import losses
from tfxclass import metrics
from tfxclass import optimizers
from tfxclass import planning
from tfxclass import plot
from tfxclass import recovery
from tfxclass import retrieval
from tfxclass import samplers
from tfxclass import trees
from tfxclass.advice import Advice
from tfxclass.advice import advise
from tfxclass.advice import check
from tfxclass.calibration import calibrate
from tfxclass.growth.class_changes import add_classes
from tfxclass.growth.class_changes import next_class_ids
from tfxclass.growth.class_changes import remove_classes
from tfxclass.growth.class_vectors import set_class_vectors
from tfxclass.growth.initialize_classes import initialize_classes
from tfxclass.growth.replace_head import replace_head
from tfxclass.growth.replace_head import to_dense
from tfxclass.inference.top_k import retain_probabilities
from tfxclass.inference.top_k import top_k
from tfxclass.ops.library import show_build
from tfxclass.planning.memory import Estimate
from tfxclass.planning.memory import estimate
from tfxclass.planning.plan import plan
from tfxclass.plot import plot_reliability
from tfxclass.saving import save_model
from tfxclass.saving import save_weights
from tfxclass.shards import memory_per_replica

__version__ = "2.21.0"
__all__ = [
    "Advice",
    "Estimate",
    "add_classes",
    "advice",
    "advise",
    "calibrate",
    "calibration",
    "callbacks",
    "check",
    "data",
    "distribute",
    "estimate",
    "export",
    "initialize_classes",
    "initializers",
    "layers",
    "losses",
    "memory_per_replica",
    "metrics",
    "next_class_ids",
    "optimizers",
    "plan",
    "planning",
    "plot",
    "plot_reliability",
    "recovery",
    "remove_classes",
    "replace_head",
    "retain_probabilities",
    "retrieval",
    "samplers",
    "save_model",
    "save_weights",
    "set_class_vectors",
    "show_build",
    "text",
    "to_dense",
    "top_k",
    "trees",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> object:
    """Loads `text` where it is used; else says in which module a name is."""
    if name == "text":
        return importlib.import_module("tfxclass.text")
    modules = [layers, optimizers, metrics, losses, samplers]
    if not name.startswith("_"):
        modules.append(importlib.import_module("tfxclass.text"))
    for module in modules:
        if name in module.__all__:
            raise AttributeError(
                f"module 'tfxclass' has no attribute {name!r}. Did you mean "
                f"{module.__name__}.{name}?"
            )
    raise AttributeError(f"module 'tfxclass' has no attribute {name!r}")
