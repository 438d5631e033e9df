"""Builds the package and its shared objects of TensorFlow ops."""

import glob
import os
import shutil
import subprocess
import sys

import setuptools
from setuptools.command.build_ext import build_ext

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError as e:
    raise RuntimeError(
        "tfxclass builds with setuptools >= 77; this environment has "
        f"{setuptools.__version__}. Fix: pip install 'setuptools>=77' wheel, "
        "then repeat the command."
    ) from e

ROOT = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, ROOT)


class BuildOps(build_ext):
    """Compiles custom_ops/ instead of a Python extension module.

    The "extension" is the folder of libraries, one for each TensorFlow.
    """

    def get_ext_filename(self, fullname):
        return os.path.join(*fullname.split("."))

    def build_extension(self, ext):
        folder = self.get_ext_fullpath(ext.name)
        # The folder may hold libraries of an earlier build.
        shutil.rmtree(folder, ignore_errors=True)
        self._build(folder)

    def copy_extensions_to_source(self):
        """For editable installs, whose default leaves build_info.json out."""
        # Only links again: the objects are kept.
        self._build()

    def _build(self, *folder):
        from custom_ops import build

        fallback = os.environ.get("TFXCLASS_FALLBACK")
        if fallback == "1":
            print(
                "Installed without compiled ops, as TFXCLASS_FALLBACK=1 asks."
            )
            return
        try:
            build.compiler()
        except RuntimeError as e:
            print(
                f"warning: {e}\nInstalled without compiled ops: tfxclass will "
                "compute with fallback ops: slower, and without some heads and "
                "options. TFXCLASS_FALLBACK=0 makes this an error.",
                file=sys.stderr,
            )
            if fallback == "0":
                raise
            return
        # A wheel has a library for each of these Pythons' TensorFlows.
        pythons = os.environ.get("TFXCLASS_PYTHONS", "").split()
        for python in pythons:
            subprocess.run([python, build.__file__, *folder], check=True)
        if not pythons:
            build.build(*folder)

    def get_outputs(self):
        folder = self.get_ext_fullpath(self.extensions[0].name)
        return sorted(glob.glob(os.path.join(glob.escape(folder), "*", "*")))


class OpsWheel(bdist_wheel):
    """The ops do not link Python: one wheel serves every Python 3."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setuptools.setup(
    package_data={"tfxclass": ["py.typed"], "tfxclass_text": ["py.typed"]},
    packages=setuptools.find_packages(
        include=["tfxclass", "tfxclass.*", "tfxclass_text"]
    ),
    py_modules=["tfxclass_cli"],
    ext_modules=[setuptools.Extension("tfxclass.ops.compiled", sources=[])],
    cmdclass={"build_ext": BuildOps, "bdist_wheel": OpsWheel},
)
