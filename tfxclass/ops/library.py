"""The ops: compiled ones, or where these do not load, their fallbacks.

A shared object works with one minor version of TensorFlow; `compiled/2.21` has
the one for TensorFlow 2.21. If the distribution tfxclass-cuda is installed, its
library is taken, which runs on GPUs too. The environment variable
TFXCLASS_FALLBACK chooses, once a process: "1" the fallbacks, "0" the compiled
ops or an ImportError. By default fallbacks are taken with a warning.
"""

import functools
import importlib.util
import json
import os
import pathlib
import warnings
from collections.abc import Set
from typing import Any

import tensorflow as tf

from tfxclass.keras_internals import is_onednn_on
from tfxclass.keras_internals import is_recorded
from tfxclass.ops import fallback
from tfxclass.ops.fallback.refused import REFUSED
from tfxclass.ops.fallback.refused import refusal

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_MINOR = ".".join(tf.__version__.split(".")[:2])
#: A folder of compiled ops for each TensorFlow, named after its minor version.
COMPILED = os.path.join(_FOLDER, "compiled")
LIBRARY = os.path.join(COMPILED, _MINOR, "_tfxclass_ops.so")
_INFO_NAME = "build_info.json"
BUILD_INFO = os.path.join(COMPILED, _MINOR, _INFO_NAME)
#: In a checkout only; missing where tfxclass is installed.
SOURCES = os.path.join(_FOLDER, "..", "..", "custom_ops", "source_digest.py")
REBUILD = (
    "Rebuild: pip install --force-reinstall --no-cache-dir --no-deps "
    "--no-build-isolation --no-binary tfxclass tfxclass (in a checkout: python "
    "custom_ops/build.py)"
)
# What the loading of a library raises.
_ERRORS = (ImportError, tf.errors.OpError, OSError)
# What `show_build` prints of TensorFlow's matrix products.
_ONEDNN = {
    True: "on",
    False: "off; TF_ENABLE_ONEDNN_OPTS=1 turns it on if it is set before "
    "TensorFlow is imported",
    None: "unknown",
}


def built_for(compiled: str = COMPILED) -> list[str]:
    """Minor versions of TensorFlow with compiled ops, ["2.20", "2.21"]."""
    name = os.path.basename(LIBRARY)
    found = pathlib.Path(compiled).glob(f"*/{_INFO_NAME}")
    minors = [x.parent.name for x in found if x.with_name(name).exists()]
    return sorted(minors, key=lambda x: list(map(int, x.split("."))))


def check(compiled: str = COMPILED, version: str = tf.__version__) -> None:
    """Raises ImportError, with the fix, if TensorFlow cannot load the ops."""
    built, minor = built_for(compiled), ".".join(version.split(".")[:2])
    if not built:
        raise ImportError(
            f"tfxclass's compiled ops are missing: {compiled} has none. "
            f"{REBUILD}."
        )
    if minor not in built:
        raise ImportError(
            "tfxclass's compiled ops were built for TensorFlow "
            f"{', '.join(built)}, but TensorFlow {version} is installed. "
            f"{REBUILD}, or install TensorFlow {built[-1]}."
        )
    info = _info(os.path.join(compiled, minor, _INFO_NAME))
    if os.path.exists(SOURCES) and info.get("sources") != _source_digest():
        raise ImportError(
            "tfxclass's compiled ops are not those of custom_ops/: the sources "
            "changed after they were built. Rebuild: python "
            "custom_ops/build.py (or make setup)."
        )
    needed = info.get("features", {}).get(os.path.basename(LIBRARY), ())
    there = processor_features()  # none where they are unknown
    missing = [x for x in needed if there and x not in there]
    if missing:
        raise ImportError(
            f"tfxclass's compiled ops were built with {' '.join(info['march'])}"
            f", for processors with {', '.join(missing)}, which this one "
            "lacks. Set TFXCLASS_MARCH=native for this processor, or to the "
            "least of your processors, such as x86-64-v2, then "
            f"{REBUILD[0].lower()}{REBUILD[1:]}."
        )


def _source_digest():
    # Loaded by its path: a package of this name may be installed.
    spec = importlib.util.spec_from_file_location("source_digest", SOURCES)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.source_digest()


def cuda_version() -> str | None:
    """The CUDA version of the build, such as "12.5", or None."""
    return build().get("cuda")


def best(info: dict[str, Any], features: Set[str]) -> tuple[str, str | None]:
    """`(path, march)` of the best library for a processor with `features`.

    `info` is of build_info.json. The march of the least library is None.
    """
    needs = info.get("features", {})
    runs = [
        march
        for march, name in info.get("others", {}).items()
        if name in needs and features >= set(needs[name])
    ]
    if not runs:
        return LIBRARY, None
    folder = os.path.dirname(LIBRARY)
    return os.path.join(folder, info["others"][runs[-1]]), runs[-1]


@functools.cache
def build() -> dict[str, Any]:
    """How the ops in use were built; of fallbacks, `ops` and `tensorflow`.

    `ops` is "compiled" or "fallback"; `tensorflow` the version that they were
    built for; `march` the compiler's flags; `cuda` a version or None.
    """
    if ops is fallback.ops:
        return {"ops": "fallback", "tensorflow": tf.__version__}
    info = {"ops": "compiled", **_info(_build_info)}
    _, march = best(info, processor_features())
    return {**info, "march": [f"-march={march}"]} if march else info


def show_build() -> None:
    """Prints which ops this process uses, and what they were built for."""
    built = build()
    print(f"TensorFlow {tf.__version__}")
    print(f"oneDNN: {_ONEDNN[is_onednn_on()]}")
    if built["ops"] == "fallback":
        print(f"ops: fallback, slower and not for all heads. {REBUILD}.")
        return
    print(f"ops: compiled, for TensorFlow {built['tensorflow']}")
    print(f"processor: {' '.join(built['march']) or 'the compiler default'}")
    compiled = os.path.dirname(os.path.dirname(str(_build_info)))
    print(f"libraries for TensorFlow: {', '.join(built_for(compiled))}")
    if built.get("others"):
        print(f"libraries for processors: any, {', '.join(built['others'])}")
    print(f"GPU: {'CUDA ' + built['cuda'] if built['cuda'] else 'none'}")


def _info(path):
    with open(path) as f:
        return json.load(f)


@functools.cache
def processor_features() -> Set[str]:
    """The features of this processor by Linux' names; none if unknown."""
    try:
        with open("/proc/cpuinfo") as f:
            flags = next((line for line in f if line.startswith("flags")), "")
    except OSError:
        return frozenset()
    return frozenset(flags.split())


def load(wanted: str) -> tuple[Any, str | None]:
    """`(ops, path)`, as `wanted`, a value of TFXCLASS_FALLBACK, asks for.

    The path is of their build_info.json, None of fallbacks.
    """
    if wanted not in ("", "0", "1"):
        raise ValueError(
            f"TFXCLASS_FALLBACK must be 0, 1 or empty. Received: {wanted!r}"
        )
    if wanted == "1":
        return fallback.ops, None
    try:
        found = _load_cuda(importlib.util.find_spec("tfxclass_cuda"))
        if found is not None:
            return found
        check()
        path, _ = best(_info(BUILD_INFO), processor_features())
        return tf.load_op_library(path), BUILD_INFO
    except _ERRORS as e:
        if wanted == "0":
            raise
        reason = str(e).strip().splitlines()[0]
        if not isinstance(e, ImportError):
            reason = (
                f"tfxclass's compiled ops do not load: {reason}. {REBUILD}."
            )
        warnings.warn(
            f"{reason} Until then tfxclass computes with fallback ops: "
            "slower, and without some heads and options.",
            stacklevel=2,
        )
        return fallback.ops, None


def _load_cuda(spec):
    """As `load`, for tfxclass-cuda; None, or a warning, without it."""
    if spec is None or spec.origin is None:
        return None
    compiled = os.path.dirname(spec.origin)
    library, info = (
        os.path.join(compiled, _MINOR, os.path.basename(path))
        for path in (LIBRARY, BUILD_INFO)
    )
    try:
        check(compiled)
        own = _info(BUILD_INFO) if os.path.exists(BUILD_INFO) else {}
        if own and own.get("sources") != _info(info).get("sources"):
            raise ImportError(
                "They were compiled from other sources than those of tfxclass."
            )
        return tf.load_op_library(library), info
    except _ERRORS as e:
        warnings.warn(
            f"The ops of tfxclass-cuda are left out: {str(e).splitlines()[0]} "
            "Until then class matrices stay in host memory. Fix: install the "
            "tfxclass-cuda of this tfxclass and TensorFlow, or uninstall it.",
            stacklevel=3,
        )
        return None


ops, _build_info = load(os.environ.get("TFXCLASS_FALLBACK", ""))


def require_compiled(feature: str) -> None:
    """Raises `NeedsCompiledOps` for a feature, unless ops are compiled."""
    if ops is fallback.ops:
        raise refusal(feature)


def has_op(op: str) -> bool:
    """Whether the ops in use have an op, named without "tfxclass_"."""
    return ops is not fallback.ops or op not in REFUSED


def require_op(op: str) -> None:
    """Raises `NeedsCompiledOps` where the ops in use lack an op."""
    if not has_op(op):
        raise refusal(REFUSED[op], op)


def inference_ops() -> Any:
    """TensorFlow's own ops in a graph that is traced without a gradient tape.

    It may be the graph of `model.export`, which servers without tfxclass load.
    """
    if tf.executing_eagerly() or is_recorded():
        return ops
    return fallback.ops
