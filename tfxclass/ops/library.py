"""Loads the one shared object of compiled ops, or says how to build it."""

import functools
import importlib.util
import json
import os
import platform

import tensorflow as tf

_FOLDER = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.join(_FOLDER, "_tfxclass_ops.so")
BUILD_INFO = os.path.join(_FOLDER, "build_info.json")
#: Of a checkout; not there where tfxclass is installed.
SOURCES = os.path.join(_FOLDER, "..", "..", "custom_ops", "source_digest.py")
REBUILD = (
    "Rebuild: pip install --force-reinstall --no-deps --no-build-isolation "
    "tfxclass (in a checkout: python custom_ops/build.py)"
)


def check(
    library: str = LIBRARY,
    build_info: str = BUILD_INFO,
    version: str = tf.__version__,
) -> None:
    """Raises ImportError, with the fix, if the ops cannot be loaded."""
    for path in (library, build_info):
        if not os.path.exists(path):
            raise ImportError(
                f"tfxclass's compiled ops are missing: {path} does not exist. "
                f"{REBUILD}."
            )
    with open(build_info) as f:
        info = json.load(f)
    built_for = info["tensorflow"]
    if built_for.split(".")[:2] != version.split(".")[:2]:
        raise ImportError(
            "tfxclass's compiled ops were built for TensorFlow "
            f"{built_for}, but TensorFlow {version} is installed. {REBUILD}, "
            f"or install TensorFlow {built_for}."
        )
    if os.path.exists(SOURCES) and info.get("sources") != _source_digest():
        raise ImportError(
            "tfxclass's compiled ops are not those of custom_ops/: the sources "
            "changed after they were built. Rebuild: python "
            "custom_ops/build.py (or make setup)."
        )
    if "-march=x86-64-v3" in info["march"] and not _has_avx2():
        raise ImportError(
            "tfxclass's compiled ops were built for processors with AVX2 and "
            "FMA, which this one lacks. Set TFXCLASS_MARCH=native, then "
            f"{REBUILD[0].lower()}{REBUILD[1:]}."
        )


def _source_digest():
    # Loaded by its path: a package of this name may be installed.
    spec = importlib.util.spec_from_file_location("source_digest", SOURCES)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.source_digest()


@functools.cache
def cuda_version() -> str | None:
    """Of the CUDA that the ops were built with, "12.5"; None without."""
    with open(BUILD_INFO) as f:
        return json.load(f).get("cuda")


def _has_avx2():
    if platform.machine() != "x86_64":
        return True
    with open("/proc/cpuinfo") as f:
        flags = next((line for line in f if line.startswith("flags")), "")
    return {"avx2", "fma"} <= set(flags.split())


check()
ops = tf.load_op_library(LIBRARY)
