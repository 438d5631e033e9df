"""Every CUDA kernel is reached by an op that is registered for GPUs."""

import glob
import os
import re

from custom_ops import build

KERNELS = os.path.join(os.path.dirname(build.__file__), "kernels")
# A function that puts work on a stream; not the small inline ones.
LAUNCHER = re.compile(r"^GpuStatus (\w+)\(", re.MULTILINE)


def text_of(name):
    with open(os.path.join(KERNELS, name)) as f:
        # Comments name functions that they do not call.
        return re.sub(r"//.*", "", f.read())


def named(pattern):
    paths = glob.glob(os.path.join(KERNELS, pattern))
    return {os.path.basename(path): text_of(path) for path in paths}


def reached(sources, headers):
    """Names of launchers that are called, from the ops' files on."""
    todo = [name for name in sources if name.endswith("_gpu_kernels.cc")]
    bodies = {}  # of each launcher, which file defines it
    for name, text in sources.items():
        for found in LAUNCHER.findall(text):
            bodies.setdefault(found, name)
    seen, calls = set(), set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        text = sources.get(name) or headers[name]
        own = {x for x, file in bodies.items() if file == name}
        for header in re.findall(r'#include "kernels/([\w.]+)"', text):
            # What a header declares is called elsewhere.
            if not LAUNCHER.search(headers[header]):
                todo.append(header)
        for word in set(re.findall(r"\b(\w+)\(", text)) & set(bodies):
            if word not in own:
                calls.add(word)
                todo.append(bodies[word])
    return calls


def test_each_launcher_is_called_by_an_op():
    headers = named("*.h")
    sources = named("*.cu.cc") | named("*_gpu_kernels.cc")
    declared = set()
    for name, text in headers.items():
        if name.endswith(".cu.h"):
            declared |= set(LAUNCHER.findall(text))
    declared -= {"Launch", "LaunchEach", "MostSharedBytes"}
    assert len(declared) > 20
    missed = declared - reached(sources, headers)
    assert not missed, f"no op of a GPU calls {sorted(missed)}"


def test_each_op_file_registers_for_gpus():
    for name, text in named("*_gpu_kernels.cc").items():
        assert "TFXCLASS_GPU_NAME(" in text, name


def test_a_launcher_without_an_op_is_found():
    headers = {"a.cu.h": "GpuStatus A(int x);\nGpuStatus B(int x);\n"}
    sources = {
        "a.cu.cc": '#include "kernels/a.cu.h"\nGpuStatus A(int x) {}\n'
        "GpuStatus B(int x) { return A(x); }\n",
        "a_gpu_kernels.cc": '#include "kernels/a.cu.h"\nvoid F() { A(1); }\n',
    }
    assert reached(sources, headers) == {"A"}
