"""Compiles the ops against the installed TensorFlow, with g++ alone.

`python custom_ops/build.py` rebuilds them in place, `... build.py FOLDER` in
another folder. The library of TensorFlow 2.21 is FOLDER/2.21/_tfxclass_ops.so:
libraries for several TensorFlows lie side by side, and the loader takes the one
for the TensorFlow that is installed. Where a GPU and nvcc are found (in PATH,
CUDA_HOME, or NVCC names it) they are built for GPUs too, for compute capability
8.0 and 9.0 and, as PTX, for what comes after. TFXCLASS_CUDA=0 turns that off,
TFXCLASS_CUDA=1 does it without a GPU and needs nvcc, and
TFXCLASS_CUDA_ARCHS="90" builds for less. With TFXCLASS_WERROR=1 warnings are
errors. The result loads under tensorflow-cpu and without a driver all the same.

TFXCLASS_MARCH="x86-64-v2 x86-64-v3" builds a library for each processor, from
the least on, as a wheel needs: which is loaded is decided where it runs.
build_info.json has the features that each library needs of a processor.

For another kind of processor, unpack TensorFlow's wheel for it, of the version
that is installed here, and name its folder and a compiler (not with nvcc):

    CXX=aarch64-linux-gnu-g++ TFXCLASS_MARCH=armv8-a TFXCLASS_CUDA=0 \
        TFXCLASS_TENSORFLOW=unpacked/tensorflow python custom_ops/build.py out
"""

import concurrent.futures
import contextlib
import fcntl
import glob
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time

if __package__:
    from custom_ops.source_digest import source_digest
else:
    from source_digest import source_digest

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(os.path.dirname(HERE), "build")
# Rough CPU seconds of a file: those of whole builds over their files.
CPP_SECONDS, CUDA_SECONDS = 30, 40
#: A folder in it for each TensorFlow, named after its minor version.
COMPILED = os.path.join(os.path.dirname(HERE), "tfxclass", "ops", "compiled")
LIBRARY = "_tfxclass_ops.so"
#: The TensorFlows that `make test-versions` tests, and the same for pip.
TESTED = ("2.20", "2.21", "2.22")
REQUIREMENT = "tensorflow-cpu>=2.20,<2.23"
# Linux' names of the x86 features that a compiler uses unasked, by its macros.
_NAMED_ALIKE = (
    "sse sse2 ssse3 sse4_1 sse4_2 sse4a popcnt movbe avx avx2 fma f16c bmi2 "
    "fma4 xop tbm gfni adx avx512f avx512bw avx512cd avx512dq avx512vl "
    "avx512vbmi avx512ifma"
)
LINUX_NAMES = {
    **{f"__{name.upper()}__": name for name in _NAMED_ALIKE.split()},
    "__AVX512BF16__": "avx512_bf16",
    "__AVX512BITALG__": "avx512_bitalg",
    "__AVX512FP16__": "avx512_fp16",
    "__AVX512VBMI2__": "avx512_vbmi2",
    "__AVX512VNNI__": "avx512_vnni",
    "__AVX512VPOPCNTDQ__": "avx512_vpopcntdq",
    "__AVXVNNI__": "avx_vnni",
    "__BMI__": "bmi1",
    "__LZCNT__": "abm",
    "__SSE3__": "pni",
}


def tensorflow_flags():
    """`(version, compile flags, link flags)` of the installed TensorFlow."""
    # Its start-up lines are not what a build has to say. Where it is loaded,
    # the variables would only reach the processes that this one starts.
    if "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    try:
        import tensorflow as tf
    except ImportError as e:
        raise RuntimeError(
            "tfxclass compiles its ops against TensorFlow, which is not "
            f"installed here. Fix: pip install '{REQUIREMENT}' (or "
            "tensorflow[and-cuda]), then repeat the command."
        ) from e
    if minor_version(tf.__version__) not in TESTED:
        print(
            f"warning: TensorFlow {tf.__version__} is installed; tfxclass was "
            f"tested with {REQUIREMENT}. The ops are compiled all the same.",
            file=sys.stderr,
        )
    own = os.path.dirname(tf.sysconfig.get_include())
    folder = os.environ.get("TFXCLASS_TENSORFLOW") or own
    compile_flags = [
        # TensorFlow's headers are not ours: no warnings from them.
        "-isystem" + flag[2:] if flag.startswith("-I") else flag
        for flag in tf.sysconfig.get_compile_flags()
    ]
    flags = compile_flags, tf.sysconfig.get_link_flags()
    return tf.__version__, *(
        [flag.replace(own, folder) for flag in part] for part in flags
    )


def minor_version(version):
    """The first two numbers of a version: "2.21" of "2.21.0"."""
    return ".".join(version.split(".")[:2])


def compiler():
    """The C++ compiler's name; RuntimeError, with the fix, without one."""
    name = os.environ.get("CXX", "g++")
    if shutil.which(name) is None:
        raise RuntimeError(
            f"tfxclass needs a C++17 compiler; {name!r} was not found. "
            "Fix: install g++ (Debian, Ubuntu: apt-get install g++), or set "
            "CXX to your compiler, then repeat the command."
        )
    return name


def marches():
    """Portable AVX2 by default; TFXCLASS_MARCH=native for this machine."""
    given = os.environ.get("TFXCLASS_MARCH", "").split()
    if not given and platform.machine() == "x86_64":
        given = ["x86-64-v3"]
    return given or [""]


def machine_flags(march=None):
    """The compiler's flags for a processor, the first of `marches()`."""
    march = marches()[0] if march is None else march
    return [f"-march={march}"] if march else []


def target_features(march):
    """What code for a processor needs, by Linux' names; [] if it is no x86.

    Code that asks the processor before it uses a feature is not among it.
    """
    command = [compiler(), *machine_flags(march), "-x", "c++", "-dM", "-E"]
    done = subprocess.run(
        [*command, os.devnull], capture_output=True, text=True, check=True
    )
    macros = {line.split()[1] for line in done.stdout.splitlines()}
    return sorted(LINUX_NAMES[x] for x in macros & LINUX_NAMES.keys())


def has_gpu():
    """Whether Linux, or Windows around it, shows a GPU to this machine."""
    return any(map(glob.glob, ("/dev/nvidia[0-9]*", "/dev/dxg")))


def nvcc():
    """Path of nvcc; None where CUDA is not asked for, or there is none."""
    wanted = os.environ.get("TFXCLASS_CUDA")
    # The kernels take longer than all else: only for who may use them.
    if wanted == "0" or (wanted != "1" and not has_gpu()):
        return None
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    for name in (os.environ.get("NVCC", "nvcc"), f"{home}/bin/nvcc"):
        if shutil.which(name):
            return os.path.realpath(shutil.which(name))
    if wanted == "1":
        raise RuntimeError(
            "TFXCLASS_CUDA=1 needs CUDA's compiler; nvcc was not found in PATH "
            f"or {home}/bin. Fix: install CUDA's toolkit, or set NVCC or "
            "CUDA_HOME."
        )
    return None


def _errors(flag):
    """Warnings are errors for us; a user's compiler may know others."""
    return [flag] if os.environ.get("TFXCLASS_WERROR") == "1" else []


def _cuda_flags():
    archs = os.environ.get("TFXCLASS_CUDA_ARCHS", "80 90").split()
    flags = [
        "-std=c++17",
        "-O3",
        "-Xcompiler=-fPIC",
        # What gpu_tests/registers.py reads.
        "-Xptxas=-v",
        *_errors("-Werror=all-warnings"),
        "-I" + HERE,
    ]
    for arch in archs:
        flags += ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    last = archs[-1]
    return [*flags, "-gencode", f"arch=compute_{last},code=compute_{last}"]


def _cuda_version(compiler):
    done = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True
    )
    words = done.stdout.split("release ")
    return words[1].split(",")[0] if len(words) > 1 else "unknown"


def sources(with_cuda):
    """`(of the C++ compiler, of nvcc)`.

    A unit includes several sources: TensorFlow's headers cost five CPU seconds
    each time, and what two of them instantiate is compiled once.
    """
    plain = glob.glob(os.path.join(HERE, "units", "*.cc"))
    cuda = glob.glob(os.path.join(HERE, "kernels", "*.cu.cc"))
    if with_cuda:
        return sorted(plain), sorted(cuda)
    return sorted(x for x in plain if os.path.basename(x) != "gpu.cc"), []


def build(folder=COMPILED):
    """Compiles custom_ops/ for the installed TensorFlow.

    Writes the library and build_info.json into `folder`/2.21, named after
    TensorFlow's minor version. Prints how long it may take, where that is more
    than some seconds, and then for what, from how many files, how long it took.
    Two builds at the same time wait for each other.
    """
    with _lock():
        _build(folder)


def _build(folder):
    start, digest = time.monotonic(), source_digest()
    compiler()  # or the error, before TensorFlow is imported
    version, *flags = tensorflow_flags()
    folder = os.path.join(folder, minor_version(version))
    output = os.path.join(folder, LIBRARY)
    os.makedirs(folder, exist_ok=True)
    least, *others = marches()
    compiled, count = _build_library(output, least, version, *flags)
    paths = {march: library_for(output, march) for march in others}
    for old in set(glob.glob(library_for(output, "*"))) - set(paths.values()):
        os.remove(old)
    for march, path in paths.items():
        more = _build_library(path, march, version, *flags)
        compiled, count = compiled + more[0], count + more[1]
    built = {
        "sources": digest,
        "tensorflow": version,
        "march": machine_flags(),
        "others": {x: os.path.basename(path) for x, path in paths.items()},
        "features": {
            os.path.basename(path): target_features(march)
            for march, path in {least: output, **paths}.items()
        },
        "cuda": _cuda_version(nvcc()) if nvcc() else None,
    }
    with open(os.path.join(folder, "build_info.json"), "w") as f:
        json.dump(built, f)
    seconds = time.monotonic() - start
    print(
        f"Built {os.path.relpath(output)} for {target_text(built)}: "
        f"{compiled} files compiled, {count - compiled} reused, "
        f"{seconds:.0f} s"
    )


def library_for(output, march):
    """Path of the library for another processor, beside `output`."""
    return f"{output.removesuffix('.so')}.{march}.so"


def _build_library(output, march, version, compile_flags, link_flags):
    """How many files were compiled, and of how many it is made."""
    cxx, cuda = compiler(), nvcc()
    plain, of_cuda = sources(with_cuda=cuda is not None)
    command = [cxx, *op_flags(compile_flags, march)]
    jobs = compile_jobs(command, plain, version)
    if cuda:
        jobs += cuda_jobs(cuda, of_cuda)
    _announce(jobs, cuda)
    compiled = _count_old(jobs)
    # The CUDA runtime goes in, and looks for a driver when it is used.
    linker = [cuda, "-cudart", "static"] if cuda else [cxx]
    objects = _compile(jobs)
    # Renamed into place: a process that holds the old file keeps it.
    run([*linker, "-shared", "-o", output + ".new", *objects, *link_flags])
    os.replace(output + ".new", output)
    return compiled, len(jobs)


def _announce(jobs, cuda):
    """Says what is compiled and about how long it takes, before it begins."""
    of_cuda = _count_old([job for job in jobs if job[0][0] == cuda])
    plain = _count_old(jobs) - of_cuda
    cores = max(1, min(os.cpu_count() or 1, plain + of_cuda))
    seconds = (CPP_SECONDS * plain + CUDA_SECONDS * of_cuda) / cores
    if seconds < 20:
        return
    also = f" and {of_cuda} of CUDA" if of_cuda else ""
    print(
        f"Compiling {plain} files of C++{also} on {cores} cores: about "
        f"{max(seconds / 60, 0.5):.1f} minutes ...",
        flush=True,
    )


def _count_old(jobs):
    return sum(not is_current(target, source) for _, source, target in jobs)


def target_text(built):
    """What the ops of a build_info.json run on."""
    features = " ".join(built["march"]) or "the compiler's default processor"
    if built["march"] == ["-march=x86-64-v3"]:
        features += ", AVX2 and FMA"
    features = ", ".join([features, *built.get("others", ())])
    cuda = f"CUDA {built['cuda']} and " if built["cuda"] else ""
    return f"{cuda}the CPU ({features}), TensorFlow {built['tensorflow']}"


def op_flags(compile_flags, march=None):
    """Of the C++ compiler, for sources that include TensorFlow."""
    return [
        "-std=c++17",
        "-O3",
        "-fPIC",
        "-Wall",
        # Vectors are passed between inlined functions alone.
        "-Wno-psabi",
        *_errors("-Werror"),
        # Let sums be vectorised; NaN and infinity keep their meaning.
        "-fassociative-math",
        "-fno-signed-zeros",
        "-fno-trapping-math",
        "-fno-math-errno",
        "-I" + HERE,
        *machine_flags(march),
        *[f for f in compile_flags if not f.startswith("-std=")],
    ]


def compile_jobs(command, paths, key=""):
    """`(command, source, object)` each; other commands, other objects."""
    folder = _object_folder([key, *command])
    return [
        (command, path, os.path.join(folder, os.path.basename(path) + ".o"))
        for path in paths
    ]


def cuda_jobs(compiler, paths):
    """The same for nvcc."""
    return compile_jobs([compiler, *_cuda_flags(), "-x", "cu"], paths)


@contextlib.contextmanager
def _lock():
    """Tests in several processes build the same: one of them does."""
    os.makedirs(BUILD, exist_ok=True)
    with open(os.path.join(BUILD, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def compile_all(jobs):
    """Compiles what is not current, side by side; the objects."""
    with _lock():
        return _compile(jobs)


def _compile(jobs):
    def compile_one(job):
        command, source, target = job
        if not is_current(target, source):
            listed = ["-MMD", "-MF", target + ".d"]
            began = time.time()
            said = run([*command, *listed, "-c", source, "-o", target + ".new"])
            with open(target + ".log", "w") as f:
                f.write(said)
            # A source that is changed meanwhile is newer than its object.
            os.utime(target + ".new", (began, began))
            os.replace(target + ".new", target)
        return target

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile_one, jobs))


def _object_folder(key):
    """Objects are kept between builds, apart for other flags."""
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:16]
    folder = os.path.join(BUILD, "ops-" + digest)
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


def run(command):
    """Runs a compiler and returns its messages.

    If it fails: RuntimeError, the messages on stderr.
    """
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise RuntimeError(
            f"The compiler failed on {command[-3]!r} (its messages are "
            f"above). Command: {' '.join(command)}"
        )
    return done.stderr


if __name__ == "__main__":
    build(*sys.argv[1:])
