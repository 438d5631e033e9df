"""Errors of the build and the loader name the command that fixes them."""

import builtins
import fnmatch
import functools
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from concurrent import futures

import pytest
import setuptools
import tensorflow as tf
import yaml

import tfxclass
from custom_ops import build
from custom_ops import build_backend
from custom_ops import source_digest
from tfxclass.ops import fallback
from tfxclass.ops import library

ROOT = pathlib.Path(__file__).resolve().parents[2]
REBUILD = (
    "pip install --force-reinstall --no-cache-dir --no-deps "
    "--no-build-isolation --no-binary tfxclass tfxclass"
)
MINOR = build.minor_version(tf.__version__)


@pytest.fixture
def built(tmp_path):
    """A folder of libraries that pass, for 2.9 and the TensorFlow here."""
    info = {
        "sources": source_digest.source_digest(),
        "tensorflow": tf.__version__,
        "march": ["-march=x86-64-v3"],
        "features": {"_tfxclass_ops.so": ["avx2", "fma", "pni"]},
    }
    for minor in ("2.9", MINOR):
        folder = tmp_path / minor
        folder.mkdir()
        (folder / "_tfxclass_ops.so").write_bytes(b"")
        (folder / "build_info.json").write_text(json.dumps(info))
    return tmp_path


def tomllib_of(path):
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    return tomllib.loads(path.read_text())


def change_info(compiled, **changes):
    path = compiled / MINOR / "build_info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def processor(monkeypatch):
    """Sets the features of the processor that the loader sees."""

    def set_features(text):
        features = frozenset(text.split())
        monkeypatch.setattr(library, "processor_features", lambda: features)

    set_features("sse sse2 pni avx2 fma")
    return set_features


@pytest.mark.usefixtures("processor")
def test_check_accepts_what_fits(built):
    library.check(built)
    assert library.built_for(built) == ["2.9", MINOR]


@pytest.mark.parametrize("missing", ["_tfxclass_ops.so", "build_info.json"])
def test_check_missing_file(built, missing):
    for folder in built.iterdir():
        os.remove(folder / missing)
    with pytest.raises(ImportError, match="are missing") as e:
        library.check(built)
    assert REBUILD in str(e.value)
    assert "python custom_ops/build.py" in str(e.value)


@pytest.mark.parametrize("version", ["9.1.0", "2.2.0", "2.23.0-rc0"])
def test_check_other_tensorflow(built, version):
    """The error names the TensorFlow that is there, and what would do."""
    with pytest.raises(ImportError, match=f"{version} is installed") as e:
        library.check(built, version=version)
    assert f"built for TensorFlow 2.9, {MINOR}, but" in str(e.value)
    assert REBUILD in str(e.value)
    assert f"or install TensorFlow {MINOR}" in str(e.value)


@pytest.mark.parametrize("rest", [".99", ".0-rc0"])
@pytest.mark.usefixtures("processor")
def test_check_accepts_another_patch_release(built, rest):
    library.check(built, version=MINOR + rest)


def test_check_sources_that_changed(built):
    """Else an op computes what it once did, without a word."""
    change_info(built, sources="another")
    with pytest.raises(ImportError, match="python custom_ops/build.py"):
        library.check(built)


def test_digest_is_of_names_and_contents(tmp_path):
    found = set()
    for name, text in [("a.h", "x"), ("b.h", "x"), ("b.h", "y"), ("c.py", "")]:
        (tmp_path / "core").mkdir(exist_ok=True)
        (tmp_path / "core" / name).write_text(text)
        found.add(source_digest.source_digest(str(tmp_path)))
    assert len(found) == 3  # c.py is not compiled


@pytest.mark.parametrize("march", ["-march=x86-64-v3", "-march=native"])
def test_check_processor_without_a_feature(built, processor, march):
    """Whatever the flags were: else the first op dies of SIGILL."""
    change_info(built, march=[march])
    processor("sse sse2 pni")
    with pytest.raises(ImportError, match="with avx2, fma, which") as e:
        library.check(built)
    assert f"built with {march}, for" in str(e.value)
    assert "such as x86-64-v2, then rebuild: pip" in str(e.value)


def test_a_processor_that_is_not_known_is_not_refused(built, processor):
    processor("")
    library.check(built)


def test_a_processor_without_a_feature_gets_fallbacks(
    built, processor, monkeypatch
):
    """One warning says why, and how to build."""
    processor("sse sse2")
    check = functools.partial(library.check, built)
    monkeypatch.setattr(library, "check", check)
    with pytest.warns(UserWarning, match="avx2, fma, pni, which") as warned:
        assert library.load("") == (fallback.ops, None)
    assert len(warned) == 1 and "rebuild: pip" in str(warned[0].message)


@pytest.mark.parametrize(
    ("march", "some"),
    [
        ("x86-64", {"sse2"}),
        ("x86-64-v2", {"pni", "sse4_2"}),
        ("x86-64-v3", {"abm", "avx2", "bmi1", "fma"}),
        ("x86-64-v4", {"avx512vl"}),
        ("native", {"sse2"}),
    ],
)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="flags of x86")
def test_features_that_code_needs(march, some):
    """By Linux' names, and no feature that this processor has not."""
    found = set(build.target_features(march))
    assert found >= some
    if march == "native":
        assert found <= library.processor_features()
    if march != "x86-64-v4" and march != "native":
        assert not any(x.startswith("avx512") for x in found)


def test_code_for_other_processors_needs_no_x86_features(monkeypatch, tmp_path):
    compiler = tmp_path / "aarch64-g++"
    compiler.write_text("#!/bin/sh\necho '#define __ARM_NEON 1'\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert build.target_features("armv8-a") == []


@pytest.mark.parametrize(
    "march, text", [("", "-march=x86-64-v3, AVX2 and FMA"), ("k8", "-march=k8")]
)
def test_build_says_what_it_did(march, text, monkeypatch, tmp_path, capsys):
    output = tmp_path / MINOR / "_tfxclass_ops.so"
    monkeypatch.setenv("TFXCLASS_CUDA", "0")
    monkeypatch.setenv("TFXCLASS_MARCH", march)
    monkeypatch.setattr(build, "_compile", lambda jobs: [])
    monkeypatch.setattr(
        build, "run", lambda command: pathlib.Path(f"{output}.new").touch()
    )
    monkeypatch.setattr(
        build,
        "is_current",
        lambda target, source: "indexes_and_updates" in source,
    )
    build.build(str(tmp_path))
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(
        "Compiling 1 files of C++ on 1 cores: about 0.5 min"
    )
    assert re.fullmatch(
        rf"Built .*ops\.so for the CPU \({text}\), TensorFlow "
        rf"{re.escape(tf.__version__)}: 1 files compiled, 1 reused, \d+ s",
        last,
    )


def test_build_counts_the_files_of_cuda(monkeypatch, tmp_path, capsys):
    """They were compiled before they were counted: all of them "reused"."""
    output, current = tmp_path / MINOR / "_tfxclass_ops.so", set()
    monkeypatch.setattr(build, "nvcc", lambda: "nvcc")
    monkeypatch.setattr(build, "_cuda_version", lambda nvcc: "12.5")

    def compile_all(jobs):
        current.update(target for _, _, target in jobs)
        return []

    monkeypatch.setattr(build, "_compile", compile_all)
    monkeypatch.setattr(build, "is_current", lambda x, _: x in current)
    monkeypatch.setattr(
        build, "run", lambda command: pathlib.Path(f"{output}.new").touch()
    )
    build.build(str(tmp_path))
    plain, of_cuda = map(len, build.sources(with_cuda=True))
    first, last = capsys.readouterr().out.splitlines()
    begin = f"Compiling {plain} files of C++ and {of_cuda} of CUDA on "
    assert first.startswith(begin) and "minutes" in first
    assert f": {plain + of_cuda} files compiled, 0 reused" in last


def test_two_builds_do_not_meet(monkeypatch, tmp_path):
    """They wrote the same unfinished file."""
    linking, most = [], []

    def run(command):
        linking.append(command)
        most.append(len(linking))
        time.sleep(0.2)
        (tmp_path / MINOR / "_tfxclass_ops.so.new").touch()
        linking.remove(command)

    monkeypatch.setenv("TFXCLASS_CUDA", "0")
    monkeypatch.setattr(build, "_compile", lambda jobs: [])
    monkeypatch.setattr(build, "run", run)
    with futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(build.build, [str(tmp_path)] * 2))
    assert most == [1, 1]


@pytest.mark.parametrize("value, is_set", [("", False), ("1", True)])
def test_warnings_are_errors_where_that_is_asked(value, is_set, monkeypatch):
    monkeypatch.setenv("TFXCLASS_WERROR", value)
    assert ("-Werror" in build.op_flags([])) is is_set
    assert ("-Werror=all-warnings" in build._cuda_flags()) is is_set


def test_build_names_cuda():
    built = {"tensorflow": "2.21.0", "march": [], "cuda": "12.5"}
    text = "CUDA 12.5 and the CPU (the compiler's default processor)"
    assert build.target_text(built).startswith(text)


def test_each_source_is_of_one_unit():
    units, _ = build.sources(with_cuda=True)
    texts = [pathlib.Path(path).read_text() for path in units]
    included = re.findall(r'#include "(.+)"', "".join(texts))
    found = {
        f"{folder}/{path.name}"
        for folder in ("kernels", "ops")
        for path in pathlib.Path(build.HERE, folder).glob("*.cc")
        if not path.name.endswith(".cu.cc")
    }
    assert len(included) == len(set(included))
    assert set(included) == found


def test_build_without_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RuntimeError, match="'no-such-compiler' was not") as e:
        build.build()
    assert "apt-get install g++" in str(e.value)


def test_installed_without_a_compiler(tmp_path):
    """Without ops and with a warning; TFXCLASS_FALLBACK=0 makes it an error."""
    command = ["setup.py", "-q", "build_ext", "--build-lib", str(tmp_path)]

    def run(**environment):
        return subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env={
                **os.environ,
                "CXX": "no-such-compiler",
                "TFXCLASS_FALLBACK": "",
                **environment,
            },
            capture_output=True,
            text=True,
        )

    done = run()
    assert done.returncode == 0, done.stderr
    assert "'no-such-compiler' was not found" in done.stderr
    assert "Installed without compiled ops" in done.stderr
    assert not list(tmp_path.rglob("*.so"))
    assert run(TFXCLASS_FALLBACK="0").returncode
    done = run(TFXCLASS_FALLBACK="1")
    assert done.returncode == 0 and not done.stderr
    assert not list(tmp_path.rglob("*.so"))


def test_build_without_tensorflow(monkeypatch):
    real_import = builtins.__import__

    def no_tensorflow(name, *args, **kwargs):
        if name == "tensorflow":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_tensorflow)
    with pytest.raises(RuntimeError, match="not installed here") as e:
        build.tensorflow_flags()
    assert f"pip install '{build.REQUIREMENT}'" in str(e.value)


def test_build_for_a_tensorflow_that_was_not_tested(monkeypatch, capsys):
    monkeypatch.setattr(tf, "__version__", "2.99.0")
    assert build.tensorflow_flags()[0] == "2.99.0"
    told = capsys.readouterr().err
    assert "TensorFlow 2.99.0 is installed" in told
    assert build.REQUIREMENT in told


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow_cpu", "other"])
def test_pip_builds_against_the_tensorflow_that_is_installed(name, tmp_path):
    folder = tmp_path / f"{name}-2.22.0rc0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Name: {name}\nVersion: 2.22.0rc0\n")
    found = build_backend.tensorflow_requirement([str(tmp_path)])
    there = name != "other"
    assert found == (
        "tensorflow-cpu==2.22.0rc0" if there else build.REQUIREMENT
    )


def test_pip_asks_for_the_tensorflow_of_this_environment():
    needed = build_backend.installed_tensorflow()
    assert needed.replace("rc", "-rc") == tf.__version__


def test_build_script_exits_with_the_error():
    """`python custom_ops/build.py`, as a user runs it."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "custom_ops" / "build.py")],
        env={**os.environ, "CXX": "no-such-compiler"},
        capture_output=True,
        text=True,
    )
    assert done.returncode
    assert "Fix: install g++" in done.stderr


def test_build_shows_the_compilers_messages(tmp_path, capfd):
    source = tmp_path / "bad.cc"
    source.write_text("int f() { return undefined_name; }\n")
    command = [build.compiler(), "-c", str(source), "-o", os.devnull]
    with pytest.raises(RuntimeError, match="compiler failed on .*bad.cc"):
        build.run(command)
    assert "undefined_name" in capfd.readouterr().err


def test_sdist_can_be_built_from(tmp_path):
    """It has all that custom_ops/build.py reads, and no tests."""
    arguments = ["-q", "egg_info", "--egg-base", tmp_path, "sdist"]
    arguments += ["--dist-dir", tmp_path / "dist"]
    command = [sys.executable, "setup.py", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (sdist,) = (tmp_path / "dist").iterdir()
    with tarfile.open(sdist) as f:
        names = {name.partition("/")[2] for name in f.getnames()}
    sources = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "custom_ops").rglob("*")
        if path.suffix in (".py", ".h", ".cc")
    ]
    assert "custom_ops/units/softmaxes_and_texts.cc" in sources
    assert [name for name in sources if name.endswith(".cu.cc")]
    assert set(sources) <= names
    assert {"setup.py", "tfxclass_cli.py", "CITATION.cff"} <= names
    assert "SECURITY.md" in names
    assert not [name for name in names if name.startswith("tests")]


def test_wheel(tmp_path):
    """One wheel for every Python 3, with the ops and without their sources.

    The library is the one of this checkout. tests/project/test_installed.py
    compiles the ops of a wheel.
    """
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip(f"setuptools >= 77 needed, have {setuptools.__version__}")
    built = pathlib.Path(library.BUILD_INFO).parent
    # In place of the Python that compiles the ops for its TensorFlow.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nmkdir -p "$2" && cp -r "{built}" "$2"\n')
    python.chmod(0o755)
    command = "-m pip wheel -qq --no-build-isolation --no-deps --wheel-dir"
    done = subprocess.run(
        [sys.executable, *command.split(), str(tmp_path), str(ROOT)],
        env={**os.environ, "TFXCLASS_PYTHONS": str(python)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")
    files = zipfile.ZipFile(wheel)
    names = files.namelist()
    info = files.read(f"tfxclass/ops/compiled/{MINOR}/build_info.json")
    assert json.loads(info)["sources"] == source_digest.source_digest()
    assert f"tfxclass/ops/compiled/{MINOR}/_tfxclass_ops.so" in names
    assert f"tfxclass/ops/compiled/{MINOR}/build_info.json" in names
    assert "tfxclass/py.typed" in names
    folders = {name.split("/")[0] for name in names}
    folders = {name for name in folders if not name.endswith(".dist-info")}
    assert folders == {"tfxclass", "tfxclass_text", "tfxclass_cli.py"}
    assert not [name for name in names if name.endswith((".cc", ".h"))]


def test_wheel_of_the_server(tmp_path):
    """A distribution of its own, without tfxclass."""
    source = shutil.copytree(ROOT / "tfxclass_serve", tmp_path / "source")
    # What pip calls.
    code = (
        "import sys; from setuptools import build_meta; "
        "build_meta.build_wheel(sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=source,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"tfxclass_serve/__main__.py", "tfxclass_serve/page.html"} <= {
        *names
    }
    assert not [name for name in names if name.startswith("tfxclass/")]


@pytest.mark.parametrize(
    "folder", [".", "tfxclass_serve", "custom_ops/cuda_wheel"]
)
def test_distributions_are_of_one_version(folder):
    text = (ROOT / folder / "pyproject.toml").read_text()
    assert f'\nversion = "{tfxclass.__version__}"\n' in text


def test_project_files():
    """The citation is of this version; the workflow runs what there is."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == tfxclass.__version__
    flow = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text())
    job = flow["jobs"]["checks"]
    commands = [step.get("run") for step in job["steps"]]
    assert ".ci/run" in commands and (ROOT / ".ci/run").exists()
    tested = job["strategy"]["matrix"]
    readme = (ROOT / "README.md").read_text()
    for name, versions in (
        ("Python", tested["python"]),
        ("TensorFlow", tested["tensorflow"]),
    ):
        assert f"{name} {versions[0]} to {versions[-1]}" in readme
        minors = [int(version.split(".")[1]) for version in versions]
        assert minors == list(range(minors[0], minors[-1] + 1))
    project = tomllib_of(ROOT / "pyproject.toml")["project"]
    minors = {f"3.{minor}" for minor in range(10, 14)}
    classifiers = project["classifiers"]
    assert minors <= {x.rpartition(" :: ")[2] for x in classifiers}
    assert project["authors"] and project["keywords"]


def test_tensorflows_are_those_that_are_tested():
    """The same range everywhere, and this TensorFlow in it."""
    assert MINOR in build.TESTED
    oldest, newest = build.TESTED[0], int(build.TESTED[-1].split(".")[1])
    supported = f">={oldest},<2.{newest + 1}"
    assert build.REQUIREMENT == f"tensorflow-cpu{supported}"
    for folder, count in ((".", 2), ("tfxclass_serve", 1)):
        text = (ROOT / folder / "pyproject.toml").read_text()
        found = re.findall(
            r'"tensorflow(?:-cpu|-serving-api|\[.*?\])?([>=].*?)"', text
        )
        assert found == [supported] * count


@pytest.mark.parametrize(
    ("processor", "march"),
    [
        ("sse2", None),
        ("sse2 avx2", None),
        ("sse2 avx2 fma", "x86-64-v3"),
        ("sse2 avx2 fma avx512f", "x86-64-v4"),
        ("sse2 avx512f", None),
        ("", None),
    ],
)
def test_the_best_library_of_a_wheel(processor, march):
    info = {
        "others": {x: f"ops.{x}.so" for x in ("x86-64-v3", "x86-64-v4")},
        "features": {
            "ops.x86-64-v3.so": ["avx2", "fma"],
            "ops.x86-64-v4.so": ["avx2", "avx512f", "fma"],
        },
    }
    path, found = library.best(info, set(processor.split()))
    assert found == march
    name = "_tfxclass_ops.so" if march is None else f"ops.{march}.so"
    assert os.path.basename(path) == name


def test_a_library_for_each_tensorflow(monkeypatch, tmp_path):
    """The wheel takes each from a Python that has this TensorFlow."""
    for minor in ("2.20", "2.22"):
        python = tmp_path / minor
        python.write_text(
            f'#!/bin/sh\nmkdir -p "$2/{minor}"\n'
            f'touch "$2/{minor}/_tfxclass_ops.so" "$2/{minor}/build_info.json"'
        )
        python.chmod(0o755)
    pythons = f"{tmp_path}/2.20 {tmp_path}/2.22"
    folder = tmp_path / "lib"
    command = ["setup.py", "-q", "build_ext", "--build-lib", str(folder)]
    subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={
            **os.environ,
            "TFXCLASS_PYTHONS": pythons,
            "TFXCLASS_FALLBACK": "",
        },
        check=True,
    )
    compiled = folder / "tfxclass" / "ops" / "compiled"
    assert library.built_for(compiled) == ["2.20", "2.22"]


def test_a_library_for_each_processor(monkeypatch, tmp_path, capsys):
    """And none of an earlier build."""
    monkeypatch.setenv("TFXCLASS_CUDA", "0")
    monkeypatch.setenv("TFXCLASS_MARCH", "x86-64-v2 x86-64-v3")

    def run(command):
        pathlib.Path(command[command.index("-o") + 1]).touch()

    monkeypatch.setattr(build, "_compile", lambda jobs: [])
    monkeypatch.setattr(build, "run", run)
    folder = tmp_path / MINOR
    folder.mkdir()
    (folder / "_tfxclass_ops.x86-64-v4.so").touch()
    build.build(str(tmp_path))
    of_v3 = "_tfxclass_ops.x86-64-v3.so"
    names = {"_tfxclass_ops.so", of_v3, "build_info.json"}
    assert {path.name for path in folder.iterdir()} == names
    info = json.loads((folder / "build_info.json").read_text())
    assert info["march"] == ["-march=x86-64-v2"]
    assert info["others"] == {"x86-64-v3": of_v3}
    assert "fma" not in info["features"]["_tfxclass_ops.so"]
    assert "fma" in info["features"][of_v3]
    assert "-march=x86-64-v3" in build.op_flags([], "x86-64-v3")


@pytest.fixture
def cuda(tmp_path, monkeypatch):
    """The folder of a tfxclass-cuda beside this tfxclass, not to be loaded."""
    folder = tmp_path / "tfxclass_cuda"
    (folder / MINOR).mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / MINOR / "_tfxclass_ops.so").touch()
    info = json.loads(pathlib.Path(library.BUILD_INFO).read_text())
    info |= {"march": ["-march=x86-64-v3"], "cuda": "13.0", "others": {}}
    (folder / MINOR / "build_info.json").write_text(json.dumps(info))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tf, "load_op_library", lambda path: path)
    return folder


def test_ops_for_gpus_are_taken_where_they_are(cuda, monkeypatch, capsys):
    ops, info = library.load("0")
    assert ops == str(cuda / MINOR / "_tfxclass_ops.so")
    monkeypatch.setattr(library, "_build_info", info)
    library.build.cache_clear()
    library.show_build()
    library.build.cache_clear()
    assert "GPU: CUDA 13.0" in capsys.readouterr().out


@pytest.mark.parametrize(
    "changes, minor, told",
    [
        ({"sources": "another"}, MINOR, "sources"),
        ({}, "9.1", "built for TensorFlow 9.1"),
    ],
)
def test_other_ops_for_gpus_are_left_out(
    cuda, changes, minor, told, monkeypatch
):
    """With a warning; those of tfxclass are taken."""
    # As installed: what the sources are is told by the other library alone.
    monkeypatch.setattr(library, "SOURCES", "none")
    change_info(cuda, **changes)
    (cuda / MINOR).rename(cuda / minor)
    with pytest.warns(UserWarning, match=told) as caught:
        ops, info = library.load("0")
    assert "ops of tfxclass-cuda are left out" in str(caught[0].message)
    assert ops.startswith(os.path.dirname(library.LIBRARY))
    assert info == library.BUILD_INFO


def test_cuda_that_is_asked_for_needs_nvcc(monkeypatch):
    monkeypatch.setenv("TFXCLASS_CUDA", "1")
    monkeypatch.setenv("NVCC", "no-nvcc")
    monkeypatch.setenv("CUDA_HOME", "/none")
    with pytest.raises(RuntimeError, match="nvcc was not found"):
        build.nvcc()
    monkeypatch.setenv("TFXCLASS_CUDA", "")
    assert build.nvcc() is None


def _found(pattern, device):
    """What `glob` finds where `device` is the only one, or there is none."""
    return [device] if device and fnmatch.fnmatch(device, pattern) else []


def test_cuda_is_compiled_where_a_gpu_is(monkeypatch):
    monkeypatch.delenv("TFXCLASS_CUDA", raising=False)
    monkeypatch.setenv("NVCC", sys.executable)
    for device in (None, "/dev/nvidia0", "/dev/dxg"):
        monkeypatch.setattr(
            build.glob, "glob", lambda x, one=device: _found(x, one)
        )
        assert (build.nvcc() is not None) == (device is not None)
    monkeypatch.setattr(build, "has_gpu", lambda: False)
    monkeypatch.setenv("TFXCLASS_CUDA", "1")
    assert build.nvcc() is not None


def test_build_for_another_processor(monkeypatch):
    """The headers and the library of a wheel that was unpacked."""
    monkeypatch.setenv("TFXCLASS_TENSORFLOW", "/arm/tensorflow")
    _, compile_flags, link_flags = build.tensorflow_flags()
    assert "-isystem/arm/tensorflow/include" in compile_flags
    assert "-L/arm/tensorflow" in link_flags


def test_an_empty_name_of_a_tensorflow_is_none(monkeypatch):
    monkeypatch.delenv("TFXCLASS_TENSORFLOW", raising=False)
    expected = build.tensorflow_flags()
    monkeypatch.setenv("TFXCLASS_TENSORFLOW", "")
    assert build.tensorflow_flags() == expected


def test_packages_of_the_examples_are_named():
    """Another install of the extra would compile the ops again."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf8")
    listed = re.search(r"^examples = \[(.*)\]$", project, re.M)[1]
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf8")
    packages = " ".join(re.findall(r'"(.+?)"', listed))
    assert f"pip install {packages}\n" in page
