"""Compiles the ops against the installed TensorFlow, with g++ alone.

`python custom_ops/build.py` rebuilds them in place.
"""

import concurrent.futures
import glob
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(
    os.path.dirname(HERE), "tfxclass", "ops", "_tfxclass_ops.so"
)


def _tensorflow_flags():
    try:
        import tensorflow as tf
    except ImportError as e:
        raise RuntimeError(
            "tfxclass compiles its ops against TensorFlow, which is not "
            "installed here. Fix: pip install tensorflow-cpu==2.21.* (or "
            "tensorflow[and-cuda]), then repeat the command."
        ) from e
    compile_flags = [
        # TensorFlow's headers are not ours: no warnings from them.
        "-isystem" + flag[2:] if flag.startswith("-I") else flag
        for flag in tf.sysconfig.get_compile_flags()
    ]
    return tf.__version__, compile_flags, tf.sysconfig.get_link_flags()


def _compiler():
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise RuntimeError(
            f"tfxclass needs a C++17 compiler; {compiler!r} was not found. "
            "Fix: install g++ (Debian, Ubuntu: apt-get install g++), or set "
            "CXX to your compiler, then repeat the command."
        )
    return compiler


def machine_flags():
    """Portable AVX2 by default; TFXCLASS_MARCH=native for this machine."""
    march = os.environ.get("TFXCLASS_MARCH", "")
    if not march and platform.machine() == "x86_64":
        march = "x86-64-v3"
    return [f"-march={march}"] if march else []


def build(output=TARGET):
    """Compiles custom_ops/ into `output` and writes build_info.json beside."""
    compiler = _compiler()
    version, compile_flags, link_flags = _tensorflow_flags()
    flags = [
        "-std=c++17",
        "-O3",
        "-fPIC",
        "-Wall",
        "-Werror",
        # Let sums be vectorised; NaN and infinity keep their meaning.
        "-fassociative-math",
        "-fno-signed-zeros",
        "-fno-trapping-math",
        "-fno-math-errno",
        "-I" + HERE,
        *machine_flags(),
        *[f for f in compile_flags if not f.startswith("-std=")],
    ]
    sources = sorted(
        glob.glob(os.path.join(HERE, "ops", "*.cc"))
        + glob.glob(os.path.join(HERE, "kernels", "*.cc"))
    )
    folder = os.path.dirname(output)
    os.makedirs(folder, exist_ok=True)
    scratch = _object_folder([compiler, version, *flags])

    def compile_one(source):
        name = os.path.relpath(source, HERE).replace(os.sep, "_")
        target = os.path.join(scratch, name + ".o")
        if not is_current(target, source):
            listed = ["-MMD", "-MF", target + ".d"]
            _run(
                [compiler, *flags, *listed, "-c", source, "-o", target + ".new"]
            )
            os.replace(target + ".new", target)
        return target

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources))
    # Renamed into place: a process that holds the old file keeps it.
    _run([compiler, "-shared", "-o", output + ".new", *objects, *link_flags])
    os.replace(output + ".new", output)
    with open(os.path.join(folder, "build_info.json"), "w") as f:
        json.dump({"tensorflow": version, "march": machine_flags()}, f)


def _object_folder(key):
    """Objects are kept between builds, apart for other flags."""
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
    folder = os.path.join(os.path.dirname(HERE), "build", "ops-" + digest)
    os.makedirs(folder, exist_ok=True)
    return folder


def is_current(target, source):
    """Whether `target` is newer than `source` and all that it includes."""
    if not os.path.exists(target) or not os.path.exists(target + ".d"):
        return False
    with open(target + ".d") as f:
        included = f.read().split(":", 1)[1].replace("\\\n", " ").split()
    built = os.path.getmtime(target)
    return all(
        os.path.exists(path) and os.path.getmtime(path) < built
        for path in [source, *included]
    )


def _run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise RuntimeError(
            f"The compiler failed on {command[-3]!r} (its messages are "
            f"above). Command: {' '.join(command)}"
        )


if __name__ == "__main__":
    build()
    print(f"built {TARGET}")
