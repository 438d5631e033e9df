"""A wheel of this platform, for every Python 3: the library links none."""

import setuptools
from setuptools.command.bdist_wheel import bdist_wheel


class Compiled(setuptools.Distribution):
    """It has a library, which `make` compiles beforehand."""

    def has_ext_modules(self):
        return True


class Wheel(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setuptools.setup(distclass=Compiled, cmdclass={"bdist_wheel": Wheel})
