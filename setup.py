"""Builds the package and its one shared object of TensorFlow ops."""

import glob
import os
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
    """Compiles custom_ops/ instead of a Python extension module."""

    def get_ext_filename(self, fullname):
        return os.path.join(*fullname.split(".")) + ".so"

    def build_extension(self, ext):
        self._build(self.get_ext_fullpath(ext.name))

    def copy_extensions_to_source(self):
        """For editable installs, whose default leaves build_info.json out."""
        # Only links again: the objects are kept.
        self._build()

    def _build(self, *output):
        from custom_ops import build

        if os.environ.get("TFXCLASS_STOCK") == "1":
            print("Installed without compiled ops, as TFXCLASS_STOCK=1 asks.")
            return
        try:
            build.compiler()
        except RuntimeError as e:
            print(
                f"warning: {e}\nInstalled without compiled ops: tfxclass will "
                "compute with TensorFlow's own, slower. TFXCLASS_STOCK=0 "
                "makes this an error.",
                file=sys.stderr,
            )
            if os.environ.get("TFXCLASS_STOCK") == "0":
                raise
            return
        build.build(*output)

    def get_outputs(self):
        library = self.get_ext_fullpath(self.extensions[0].name)
        folder = os.path.dirname(library)
        others = glob.glob(f"{library.removesuffix('.so')}.*.so")
        outputs = [library, *others, os.path.join(folder, "build_info.json")]
        return [path for path in outputs if os.path.exists(path)]


class OpsWheel(bdist_wheel):
    """The ops do not link Python: one wheel serves every Python 3."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setuptools.setup(
    package_data={"tfxclass": ["py.typed"]},
    packages=setuptools.find_packages(include=["tfxclass", "tfxclass.*"]),
    ext_modules=[
        setuptools.Extension("tfxclass.ops._tfxclass_ops", sources=[])
    ],
    cmdclass={"build_ext": BuildOps, "bdist_wheel": OpsWheel},
)
