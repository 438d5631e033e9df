"""setuptools' build backend, with a requirement that depends on the machine.

The ops must be compiled against the TensorFlow that they will run with. pip
builds in an environment of its own, where that one is not seen: the same
release is asked for there. Where no TensorFlow is installed, or where another
tool hides it, the newest one that tfxclass was tested with is asked for.
"""

import sysconfig
from importlib import metadata

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

from custom_ops import build


def installed_tensorflow(folders=None):
    """The version of TensorFlow in the folders, or None.

    Args:
        folders: list of str, by default where this Python has its packages.
    """
    paths = sysconfig.get_paths()
    folders = folders or [paths["purelib"], paths["platlib"]]
    for name in ("tensorflow", "tensorflow-cpu"):
        for found in metadata.distributions(name=name, path=folders):
            return found.version
    return None


def tensorflow_requirement(folders=None):
    """What pip installs to compile the ops, as `tensorflow-cpu==2.21.0`."""
    version = installed_tensorflow(folders)
    return f"tensorflow-cpu=={version}" if version else build.REQUIREMENT


def get_requires_for_build_wheel(config_settings=None):
    """Called by pip before it builds a wheel."""
    others = build_meta.get_requires_for_build_wheel(config_settings)
    return [*others, tensorflow_requirement()]


def get_requires_for_build_editable(config_settings=None):
    """Called by pip before it installs a checkout as it is (`-e`)."""
    others = build_meta.get_requires_for_build_editable(config_settings)
    return [*others, tensorflow_requirement()]
